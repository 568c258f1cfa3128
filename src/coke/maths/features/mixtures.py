"""Mixtures of Gaussians: what a site tells of its inputs in few numbers, and what follows from it.

A component is a weight, a mean and a covariance FᵀF + diag(s²) with few factors F. One Gaussian
will do for most sites; where the Gram matrix it predicts is far from the site's own (`fits`), the
inputs are split by k-means into 2 or 16 clusters with fewer factors each. On the way through the
tree components merge (`coke.maths.features.merging`).

For x ~ N(m, S) the Gram matrix of random Fourier features is known in closed form: with a_i = ω_iᵀm
and q_ij = ω_iᵀSω_j,

    E cos(ω_iᵀx ∓ ω_jᵀx) = exp(−½(q_ii + q_jj ∓ 2q_ij)) cos(a_i ∓ a_j),

likewise the sines, and products of cosines and sines are sums of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from coke.errors import InputError
from coke.maths.arrays import PART, SQRT_HALF, Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.symmetric import positive

RANKS = {1: 5, 2: 3, 16: 1}  # factors per component, by the largest number of components
_ROUNDED = 1e-6  # of a bound, far more than rounding
ENOUGH = 1 << 17  # rows to find clusters in: the code's steps are a tenth of a spread


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


def describe(
    X: Array, features: DrawnFeatures, gram: Callable[[], Array], ridge: float, seed: int,
    most: int = max(RANKS),
) -> list[Component]:  # fmt: skip
    """A mixture for rows X (T, d) whose predicted Gram matrix is near the site's own, `gram`.

    Of at most so many components, 1, 2 or 16.
    """
    one = Gaussian.of(X).truncated(RANKS[1])
    if len(X) < 8:  # which are too few for two clusters
        return [one]
    P, kinds = expected_gram(features, [one.gaussian()]), set[int]()
    if len(X) < features.size:
        kinds = {_clusters(far.__lt__) for far in bounds(P, features(X), ridge)}
    if len(kinds) != 1:
        A = gram()
        kinds = {_clusters(lambda most: fits(P, A, ridge, most))}
    K = min(kinds.pop(), most)
    return [one] if K == 1 else clustered(X, K, seed)


def _clusters(below: Callable[[float], bool]) -> int:
    """The larger λ_max is, the more of them."""
    return 1 if below(8.0) else 2 if below(32.0) else 16


def fits(P: Array, A: Array, ridge: float, within: float) -> bool:
    """Whether λ_max((P + ridge I)⁻¹(A + ridge I)) is below that: near one where P describes A.

    It is where `within`·(P + ridge I) − (A + ridge I) is positive definite.
    """
    apart = within * P - A
    apart.ravel()[:: len(A) + 1] += (within - 1.0) * ridge
    return positive(apart)


def bounds(P: Array, Phi: Array, ridge: float) -> tuple[float, float]:
    """λ_max(F(P + ridge I)⁻¹Fᵀ) with F = Φ/√T, and one more: that of `fits` is between them.

    For A = FᵀF, and 0 ≤ ridge (P + ridge I)⁻¹ ≤ I. With few rows that is far less work.
    """
    C = np.linalg.cholesky(P + ridge * np.eye(len(P)))
    F = solve_triangular(C, Phi.T / np.sqrt(len(Phi)), lower=True)  # (D, T)
    least = float(np.linalg.eigvalsh(F.T @ F)[-1])
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


def expected_gram(features: DrawnFeatures, mixture: Sequence[Gaussian]) -> Array:
    """E φ(x)φ(x)ᵀ (D, D) for x from a mixture of Gaussians, in closed form."""
    total = sum(part.weight for part in mixture)
    if not mixture or not total > 0:
        raise InputError(f"{len(mixture)} components of weight {total}: expected a positive one")
    G = np.zeros((features.size, features.size))
    for part in mixture:
        G += part.weight / total * _gaussian_gram(features, part)
    return 0.5 * (G + G.T)


def _gaussian_gram(features: DrawnFeatures, part: Gaussian) -> Array:
    """The same for one Gaussian: cos-phase is cos(ωᵀx + b), its phase a shift of the mean angle."""
    omega = features.omega
    Q = omega @ part.cov @ omega.T
    spread = 0.5 * (Q.diagonal()[:, None] + Q.diagonal())
    angle = omega @ part.mean + (features.phase if len(features.phase) else 0.0)
    half = features.height * SQRT_HALF  # products of two waves are half a sum
    c, s = half * np.cos(angle), half * np.sin(angle)
    minus, plus = np.exp(Q - spread), np.exp(-Q - spread)  # E cos of the difference, the sum
    even, odd, L = minus + plus, minus - plus, len(omega)
    cc, ss = c[:, None] * c, s[:, None] * s
    waves = np.empty((features.waves, features.waves))
    np.add(even * cc, odd * ss, out=waves[:L, :L])  # E cos cos
    if not len(features.phase):
        sc = s[:, None] * c
        np.add(odd * cc, even * ss, out=waves[L:, L:])  # E sin sin
        np.subtract(even * sc, odd * sc.T, out=waves[L:, :L])  # E sin cos
        waves[:L, L:] = waves[L:, :L].T
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
