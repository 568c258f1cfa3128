"""Whitened random features: a common change of basis in which every local risk is near κ‖u‖².

Random features are badly conditioned, which is what makes consensus slow. Let P be a positive-
definite matrix near the average Gram matrix (1/N) Σ_i A_i + λ/N I, known to all sites, P = C Cᵀ by
Cholesky (eigenvectors of near-equal eigenvalues differ between machines; Cholesky factors do
not). Learn u = Cᵀθ: replace φ(x) by φ̃(x) = C⁻¹φ(x) and λ/N ‖θ‖² by λ/N uᵀ(C⁻¹C⁻ᵀ)u. Nothing
else changes: the algorithms do not know.

P comes from moments of the inputs, not from rows. For x ~ N(m, S) the Gram matrix of random
Fourier features is known in closed form: with a_i = ω_iᵀm and q_ij = ω_iᵀSω_j,

    E cos(ω_iᵀx ∓ ω_jᵀx) = exp(−½(q_ii + q_jj ∓ 2q_ij)) cos(a_i ∓ a_j),

likewise the sines, and products of cosines and sines are sums of these.

A site **describes its inputs** in few bytes: a small mixture of Gaussians (`algorithms.codecs`). A
component is a weight, a mean and a covariance FᵀF + diag(s²) with few factors F. One Gaussian will
do for most sites; where the Gram matrix it predicts is far from the site's own (`_misfit`), the
inputs are split by k-means into 2 or 16 clusters with fewer factors each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from coke.errors import ConvergenceError, InputError
from coke.maths.alike import alike
from coke.maths.arrays import PART, Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Regulariser

RANKS = {1: 5, 2: 3, 16: 1}  # factors per component, by the largest number of components
_ROUNDED = 1e-6  # of a bound, far more than rounding
ENOUGH = 1 << 17  # rows to find clusters in: the code's steps are a tenth of a spread


class Whitening(NamedTuple):
    """φ̃(x) = C⁻¹φ(x), and θ = C⁻ᵀu."""

    C: Array  # (D, D) lower triangular

    @classmethod
    def of(cls, P: Array) -> Whitening:
        """The Cholesky basis of P (D, D)."""
        try:
            return cls(np.asarray(np.linalg.cholesky(P)))
        except np.linalg.LinAlgError as error:
            raise ConvergenceError(
                "the agreed Gram matrix is not positive definite: use lambda > 0, which it contains"
            ) from error

    def features(self, Phi: Array) -> Array:
        """Φ̃ (T, D) from Φ (T, D), row by row."""
        return np.asarray(solve_triangular(self.C, Phi.T, lower=True)).T

    def regulariser(self, G: Regulariser) -> Array:
        """C⁻¹GC⁻ᵀ (D, D): what θᵀGθ is in u."""
        half = solve_triangular(self.C, matrix(G, len(self.C)), lower=True)
        R = solve_triangular(self.C, half.T, lower=True)
        return np.asarray(0.5 * (R + R.T))

    def statistics(self, A: Array, b: Array) -> tuple[Array, Array]:
        """A_i and b_i (N, …) in the new basis: C⁻¹A_iC⁻ᵀ and C⁻¹b_i."""
        inverse = np.asarray(solve_triangular(self.C, np.eye(len(self.C)), lower=True))
        whole = inverse @ A @ inverse.T
        # Row by row: the bits of a product with all b_i at once depend on how many there are.
        return 0.5 * (whole + whole.swapaxes(-1, -2)), np.matvec(inverse, b)

    def theta(self, u: Array) -> Array:
        """θ (…, D) of u (…, D), for predictions with the plain features; row by row, to the bit."""
        rows = [
            solve_triangular(self.C, row, lower=True, trans="T")
            for row in u.reshape(-1, len(self.C))
        ]
        return np.array(rows).reshape(u.shape)


class Gaussian(NamedTuple):
    """A component of a mixture: weight, mean and covariance of some inputs."""

    weight: float
    mean: Array  # (d,)
    cov: Array  # (d, d)

    @classmethod
    def of(cls, X: Array) -> Gaussian:
        """One Gaussian for the rows of X (T, d): their number, mean and covariance.

        Of very many a part at a time, for it takes a copy of them.
        """
        firsts = range(0, max(1, len(X)), PART)
        return reduce(Gaussian.merged, (_moments(X[first : first + PART]) for first in firsts))

    def merged(self, other: Gaussian) -> Gaussian:
        """The Gaussian with the moments of both: exact, whatever they are."""
        weight = self.weight + other.weight
        apart = (other.mean - self.mean)[:, None]
        mean = (self.weight * self.mean + other.weight * other.mean) / weight
        between = self.weight * other.weight / weight**2 * (apart @ apart.T)
        cov = (self.weight * self.cov + other.weight * other.cov) / weight + between
        return Gaussian(weight, mean, cov)

    def truncated(self, rank: int) -> Component:
        """The largest `rank` directions of the covariance, and what they leave of each variance."""
        values, vectors = np.linalg.eigh(self.cov)
        rank = min(rank, len(values))
        factors = np.sqrt(np.maximum(values[-rank:], 0))[:, None] * vectors[:, -rank:].T
        left = np.diag(self.cov) - np.sum(factors**2, axis=0)
        return Component(self.weight, self.mean, factors, np.sqrt(np.maximum(left, 0)))


def _moments(X: Array) -> Gaussian:
    mean = X.mean(axis=0)
    centred = X - mean
    return Gaussian(float(len(X)), mean, centred.T @ centred / len(X))


class Component(NamedTuple):
    """A Gaussian in few numbers."""

    weight: float
    mean: Array  # (d,)
    factors: Array  # (r, d)
    spread: Array  # (d,)  s

    def gaussian(self) -> Gaussian:
        """With its covariance FᵀF + diag(s²)."""
        cov = self.factors.T @ self.factors + np.diag(self.spread**2)
        return Gaussian(self.weight, self.mean, cov)


def expected_gram(features: DrawnFeatures, mixture: Sequence[Gaussian]) -> Array:
    """E φ(x)φ(x)ᵀ (D, D) for x from a mixture of Gaussians, in closed form."""
    total = sum(part.weight for part in mixture)
    if not mixture or not total > 0:
        raise InputError(f"{len(mixture)} components of weight {total}: expected a positive one")
    parts = (part.weight / total * _gaussian_gram(features, part) for part in mixture)
    G = sum(parts, np.zeros((features.size, features.size)))
    return 0.5 * (G + G.T)


def _gaussian_gram(features: DrawnFeatures, part: Gaussian) -> Array:
    """The same for one Gaussian: cos-phase is cos(ωᵀx + b), its phase a shift of the mean angle."""
    omega = features.omega
    Q = omega @ part.cov @ omega.T
    spread = 0.5 * (np.diag(Q)[:, None] + np.diag(Q)[None, :])
    angle = omega @ part.mean + (features.phase if len(features.phase) else 0.0)
    apart, along = angle[:, None] - angle[None, :], angle[:, None] + angle[None, :]
    minus, plus = np.exp(Q - spread), np.exp(-Q - spread)  # E cos of the difference, the sum
    cc = minus * np.cos(apart) + plus * np.cos(along)  # 2 E cos cos
    if len(features.phase):
        return _with_lines(features, part, cc / max(len(omega), 1))
    ss = minus * np.cos(apart) - plus * np.cos(along)  # 2 E sin sin
    sc = plus * np.sin(along) + minus * np.sin(apart)  # 2 E sin cos
    waves = np.block([[cc, sc.T], [sc, ss]]) / (2 * max(len(omega), 1))
    return _with_lines(features, part, waves)


def _with_lines(features: DrawnFeatures, part: Gaussian, waves: Array) -> Array:
    """The Gram matrix of the waves, bordered by that of the linear part.

    E[cos(ωᵀx) x] = e^{−q/2} (m cos a − Sω sin a) and E[sin(ωᵀx) x] = e^{−q/2} (m sin a + Sω cos a)
    with a = ωᵀm and q = ωᵀSω; the constant is an x of mean one and no spread.
    """
    if not features.linear:
        return waves
    mean = np.append(part.mean, 1.0)
    lines = np.outer(mean, mean)
    lines[:-1, :-1] += part.cov
    cosine, sine = expected_waves(features, part)
    turned = np.column_stack([features.omega @ part.cov, np.zeros(len(features.omega))])
    along = cosine[:, None] * mean - sine[:, None] * turned
    if not len(features.phase):
        along = np.vstack([along, sine[:, None] * mean + cosine[:, None] * turned])
    across, weight = features.height * features.linear * along, features.linear
    return np.block([[waves, across], [across.T, weight**2 * lines]])


def expected_waves(features: DrawnFeatures, part: Gaussian) -> tuple[Array, Array]:
    """E cos(ωᵀx + b) and E sin(ωᵀx + b) (L,), without their height."""
    omega = features.omega
    angle = omega @ part.mean + (features.phase if len(features.phase) else 0.0)
    fade = np.exp(-0.5 * np.vecdot(omega @ part.cov, omega))
    return fade * np.cos(angle), fade * np.sin(angle)


@alike
def mixture_basis(features: DrawnFeatures, mixture: Sequence[Gaussian], ridge: float) -> Whitening:
    """Of P = E φ(x)φ(x)ᵀ + ridge I, for x from a mixture that all sites have agreed on."""
    return Whitening.of(expected_gram(features, mixture) + ridge * np.eye(features.size))


def _misfit(P: Array, A: Array, ridge: float) -> float:
    """λ_max((P + ridge I)⁻¹(A + ridge I)): near one where P describes A, large where not."""
    basis = Whitening.of(P + ridge * np.eye(len(P)))
    inner, _ = basis.statistics(A + ridge * np.eye(len(A)), np.zeros(len(A)))
    return float(np.linalg.eigvalsh(inner)[-1])


def describe(
    X: Array, features: DrawnFeatures, gram: Callable[[], Array], ridge: float, seed: int
) -> list[Component]:
    """A mixture for rows X (T, d) whose predicted Gram matrix is near the site's own, `gram`."""
    one = Gaussian.of(X).truncated(RANKS[1])
    if len(X) < 8:  # which are too few for two clusters
        return [one]
    P, kinds = expected_gram(features, [one.gaussian()]), set[int]()
    if len(X) < features.size:
        kinds = {_clusters(far) for far in _bounds(P, features(X), ridge)}
    if len(kinds) != 1:
        kinds = {_clusters(_misfit(P, gram(), ridge))}
    return clustered(X, kinds.pop(), seed)


def _clusters(far: float) -> int:
    return 1 if far < 8 else 2 if far < 32 else 16


def _bounds(P: Array, Phi: Array, ridge: float) -> tuple[float, float]:
    """λ_max(F(P + ridge I)⁻¹Fᵀ) with F = Φ/√T, and one more: `_misfit` of rows Φ is between them.

    For A = FᵀF, and 0 ≤ ridge (P + ridge I)⁻¹ ≤ I. With few rows that is far less work.
    """
    F = Whitening.of(P + ridge * np.eye(len(P))).features(Phi / np.sqrt(len(Phi)))
    least = float(np.linalg.eigvalsh(F @ F.T)[-1])
    return least * (1 - _ROUNDED), (least + 1) * (1 + _ROUNDED)


def clustered(X: Array, K: int, seed: int) -> list[Component]:
    """A mixture of K components, 1, 2 or 16, for the rows of X (T, d); of few rows one."""
    if K == 1 or len(X) < 4 * K:
        return [Gaussian.of(X).truncated(RANKS[1])]
    from scipy.cluster.vq import kmeans2  # here, for few sites need it and it is slow to load

    some = X  # drawn, for every n-th might be the same of n sensors
    if len(X) > ENOUGH:
        some = X[np.sort(np.random.default_rng(seed).choice(len(X), ENOUGH, replace=False))]
    which = _points(some, K)
    if which is None:
        _, which = kmeans2(some, K, minit="++", seed=seed, missing="warn")
    clusters = [
        Gaussian.of(part).truncated(RANKS[K]) for k in range(K) if len(part := some[which == k])
    ]
    return [one._replace(weight=one.weight * len(X) / len(some)) for one in clusters]


def _points(X: Array, K: int) -> NDArray[np.int64] | None:
    """Of rows with fewer than K different ones, which of these each is: there is nothing to find.

    None where there are more, which a few rows tell as a rule.
    """
    if len(np.unique(X[: 4 * K], axis=0)) >= K:
        return None
    points, which = np.unique(X, axis=0, return_inverse=True)
    return which.reshape(-1) if len(points) < K else None


def kind_of(n: int) -> int:
    """1, 2 or 16: the most components that a description of n components may have."""
    return min(K for K in RANKS if n <= K)
