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
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from coke.errors import ConvergenceError, InputError
from coke.maths.arrays import Array, in_parts
from coke.maths.features.features import Features
from coke.maths.losses.quadratic import matrix
from coke.maths.losses.risk import Regulariser


class Gaussian(NamedTuple):
    """A component of a mixture: weight, mean and covariance of some inputs."""

    weight: float
    mean: Array  # (d,)
    cov: Array  # (d, d)


class Whitening(NamedTuple):
    """φ̃(x) = C⁻¹φ(x), and θ = C⁻ᵀu."""

    C: Array  # (D, D) lower triangular

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


def whitening(P: Array) -> Whitening:
    """The Cholesky basis of P (D, D)."""
    try:
        return Whitening(np.asarray(np.linalg.cholesky(P)))
    except np.linalg.LinAlgError as error:
        raise ConvergenceError(
            "the agreed Gram matrix is not positive definite: use lambda > 0, which it contains"
        ) from error


def expected_gram(features: Features, mixture: Sequence[Gaussian]) -> Array:
    """E φ(x)φ(x)ᵀ (D, D) for x from a mixture of Gaussians, in closed form."""
    total = sum(part.weight for part in mixture)
    if not mixture or not total > 0:
        raise InputError(f"{len(mixture)} components of weight {total}: expected a positive one")
    parts = (part.weight / total * _gaussian_gram(features, part) for part in mixture)
    G = sum(parts, np.zeros((features.size, features.size)))
    return 0.5 * (G + G.T)


def _gaussian_gram(features: Features, part: Gaussian) -> Array:
    """The same for one Gaussian: cos-phase is cos(ωᵀx + b), its phase a shift of the mean angle."""
    omega, L = features.omega, len(features.omega)
    Q = omega @ part.cov @ omega.T
    spread = 0.5 * (np.diag(Q)[:, None] + np.diag(Q)[None, :])
    angle = omega @ part.mean + (features.phase if len(features.phase) else 0.0)
    apart, along = angle[:, None] - angle[None, :], angle[:, None] + angle[None, :]
    minus, plus = np.exp(Q - spread), np.exp(-Q - spread)  # E cos of the difference, the sum
    if len(features.phase):
        return np.asarray((minus * np.cos(apart) + plus * np.cos(along)) / L)
    cc = minus * np.cos(apart) + plus * np.cos(along)  # 2 E cos cos
    ss = minus * np.cos(apart) - plus * np.cos(along)  # 2 E sin sin
    sc = plus * np.sin(along) + minus * np.sin(apart)  # 2 E sin cos
    return np.block([[cc, sc.T], [sc, ss]]) / (2 * L)


def moments(X: Array) -> Gaussian:
    """One Gaussian for the rows of X (T, d): their number, mean and covariance.

    Of very many a part at a time, for it takes a copy of them.
    """
    return reduce(merged, map(_moments, in_parts(X)))


def _moments(X: Array) -> Gaussian:
    mean = X.mean(axis=0)
    centred = X - mean
    return Gaussian(float(len(X)), mean, centred.T @ centred / len(X))


def merged(a: Gaussian, b: Gaussian) -> Gaussian:
    """The Gaussian with the moments of both: exact, whatever they are."""
    weight = a.weight + b.weight
    apart = (b.mean - a.mean)[:, None]
    mean = (a.weight * a.mean + b.weight * b.mean) / weight
    between = a.weight * b.weight / weight**2 * (apart @ apart.T)
    return Gaussian(weight, mean, (a.weight * a.cov + b.weight * b.cov) / weight + between)


def reduced(mixture: Sequence[Gaussian], most: int) -> list[Gaussian]:
    """At most so many components: the pair nearest by Ward's cost is merged, again and again.

    w₁w₂/(w₁ + w₂) ‖m₁ − m₂‖² is what a merger adds to the spread within components. The order
    of the components decides ties, so that every site merges alike.
    """
    parts = list(mixture)
    while len(parts) > most:
        i, j = min(_pairs(len(parts)), key=lambda pair: _ward(parts[pair[0]], parts[pair[1]]))
        parts[i] = merged(parts[i], parts.pop(j))
    return parts


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


def _ward(a: Gaussian, b: Gaussian) -> float:
    apart = a.mean - b.mean
    return a.weight * b.weight / (a.weight + b.weight) * float(apart @ apart)


def misfit(P: Array, A: Array, ridge: float) -> float:
    """λ_max((P + ridge I)⁻¹(A + ridge I)): near one where P describes A, large where not."""
    basis = whitening(P + ridge * np.eye(len(P)))
    inner, _ = basis.statistics(A + ridge * np.eye(len(A)), np.zeros(len(A)))
    return float(np.linalg.eigvalsh(inner)[-1])
