"""Whitened random features: a common change of basis in which every local risk is near κ‖u‖².

Random features are badly conditioned, which is what makes consensus slow. Let P be a positive-
definite matrix near the average Gram matrix (1/N) Σ_i A_i + λ/N I, known to all sites, P = C Cᵀ by
Cholesky (eigenvectors of near-equal eigenvalues differ between machines; Cholesky factors do
not). Learn u = Cᵀθ: replace φ(x) by φ̃(x) = C⁻¹φ(x) and λ/N ‖θ‖² by λ/N uᵀ(C⁻¹C⁻ᵀ)u. Nothing
else changes: the algorithms do not know.

P comes from moments of the inputs, not from rows: sites describe theirs as small mixtures of
Gaussians, of which the Gram matrix is known in closed form (`coke.maths.features.mixtures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from coke.errors import ConvergenceError
from coke.maths.alike import alike
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.mixtures import Gaussian, expected_gram
from coke.maths.symmetric import congruent


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

    def regulariser(self, G: float | Array) -> Array:
        """C⁻¹GC⁻ᵀ (D, D): what θᵀGθ is in u."""
        return congruent(self.C, G * np.eye(len(self.C)) if isinstance(G, float) else G)

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


@alike
def mixture_basis(features: DrawnFeatures, mixture: Sequence[Gaussian], ridge: float) -> Whitening:
    """Of P = E φ(x)φ(x)ᵀ + ridge I, for x from a mixture that all sites have agreed on."""
    return Whitening.of(expected_gram(features, mixture) + ridge * np.eye(features.size))
