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
do for most sites; where the Gram matrix it predicts is far from the site's own (`fits`), the
inputs are split by k-means into 2 or 16 clusters with fewer factors each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from coke.errors import ConvergenceError, InputError
from coke.maths.alike import alike
from coke.maths.arrays import SQRT_HALF, Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.mixtures import RANKS, Component, Gaussian, clustered
from coke.maths.symmetric import congruent, positive

_ROUNDED = 1e-6  # of a bound, far more than rounding


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

    def regulariser(self, G: Array) -> Array:
        """C⁻¹GC⁻ᵀ (D, D): what θᵀGθ is in u."""
        return congruent(self.C, G)

    def statistics(self, A: Array, b: Array) -> tuple[Array, Array]:
        """A_i (N, D, D) and b_i (N, K·D) in the new basis: C⁻¹A_iC⁻ᵀ and C⁻¹b_i."""
        white = np.empty_like(A)
        for one, out in zip(
            A.reshape(-1, *self.C.shape), white.reshape(-1, *self.C.shape), strict=True
        ):
            out[:] = congruent(self.C, one)
        return white, self._by_row(b, "N")

    def theta(self, u: Array) -> Array:
        """θ (…, D) of u (…, D), for predictions with the plain features; row by row, to the bit."""
        return self._by_row(u, "T")

    def _by_row(self, r: Array, trans: str) -> Array:
        """C⁻¹r or C⁻ᵀr: the bits of a product with all rows at once depend on how many they are."""
        rows = [
            solve_triangular(self.C, row, lower=True, trans=trans, check_finite=False)
            for row in r.reshape(-1, len(self.C))
        ]
        return np.array(rows).reshape(r.shape)


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
    half = features.height * SQRT_HALF  # products of two waves are half a sum
    c, s = half * np.cos(angle), half * np.sin(angle)
    minus, plus = np.exp(Q - spread), np.exp(-Q - spread)  # E cos of the difference, the sum
    even, odd, L = minus + plus, minus - plus, len(omega)
    waves = np.empty((features.waves, features.waves))
    waves[:L, :L] = even * np.outer(c, c) + odd * np.outer(s, s)  # E cos cos
    if not len(features.phase):
        waves[L:, L:] = odd * np.outer(c, c) + even * np.outer(s, s)  # E sin sin
        waves[L:, :L] = even * np.outer(s, c) - odd * np.outer(c, s)  # E sin cos
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


@alike
def mixture_basis(features: DrawnFeatures, mixture: Sequence[Gaussian], ridge: float) -> Whitening:
    """Of P = E φ(x)φ(x)ᵀ + ridge I, for x from a mixture that all sites have agreed on."""
    return Whitening.of(expected_gram(features, mixture) + ridge * np.eye(features.size))


def fits(P: Array, A: Array, ridge: float, within: float) -> bool:
    """Whether λ_max((P + ridge I)⁻¹(A + ridge I)) is below that: near one where P describes A.

    It is where `within`·(P + ridge I) − (A + ridge I) is positive definite.
    """
    apart = within * P - A
    apart[np.diag_indices(len(A))] += (within - 1.0) * ridge
    return positive(apart)


def describe(
    X: Array, features: DrawnFeatures, gram: Callable[[], Array], ridge: float, seed: int
) -> list[Component]:
    """A mixture for rows X (T, d) whose predicted Gram matrix is near the site's own, `gram`."""
    one = Gaussian.of(X).truncated(RANKS[1])
    if len(X) < 8:  # which are too few for two clusters
        return [one]
    P, kinds = expected_gram(features, [one.gaussian()]), set[int]()
    if len(X) < features.size:
        kinds = {_clusters(far.__lt__) for far in bounds(P, features(X), ridge)}
    if len(kinds) != 1:
        A = gram()
        kinds = {_clusters(lambda most: fits(P, A, ridge, most))}
    return clustered(X, kinds.pop(), seed)


def _clusters(below: Callable[[float], bool]) -> int:
    """The larger λ_max is, the more of them."""
    return 1 if below(8.0) else 2 if below(32.0) else 16


def bounds(P: Array, Phi: Array, ridge: float) -> tuple[float, float]:
    """λ_max(F(P + ridge I)⁻¹Fᵀ) with F = Φ/√T, and one more: that of `fits` is between them.

    For A = FᵀF, and 0 ≤ ridge (P + ridge I)⁻¹ ≤ I. With few rows that is far less work.
    """
    F = Whitening.of(P + ridge * np.eye(len(P))).features(Phi / np.sqrt(len(Phi)))
    least = float(np.linalg.eigvalsh(F @ F.T)[-1])
    return least * (1 - _ROUNDED), (least + 1) * (1 + _ROUNDED)
