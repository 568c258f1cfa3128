"""The quadratic loss (y − φᵀθ)²: one pass over the rows leaves statistics, no row is read again.

A_i = (1/T_i) Σ_t φφᵀ,  b_i = (1/T_i) Σ_t φy,  y²_i = (1/T_i) Σ_t y²
R_i(θ) = θᵀA_iθ − 2b_iᵀθ + y²_i + θᵀGθ
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from coke.errors import InputError
from coke.maths import compiled
from coke.maths.arrays import Array
from coke.maths.features.whitening import Whitening
from coke.maths.losses.risk import Argmin, Regulariser, checked_regulariser, matrix, penalty, pulled

CHUNK = 4096  # rows whose features are in memory at a time


@dataclass(frozen=True)
class Quadratic:
    """N quadratic risks, as their statistics."""

    A: Array  # (N, D, D)
    b: Array  # (N, D)
    yy: Array  # (N,)    y²_i
    T: Array  # (N,)
    G: Regulariser  # λ/N, or a matrix (D, D)
    fast: bool = False  # rounds compiled by Numba: other last bits, so one choice for all agents
    metric: ClassVar[str] = "mse"
    kappa: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "G", checked_regulariser(self.G, self.size))
        if self.fast and not compiled.available():
            raise InputError("fast=True needs Numba: install coke[fast], or leave it out")

    @classmethod
    def from_rows(
        cls,
        phi: Callable[[Array], Array],
        X: Sequence[Array],
        y: Sequence[Array],
        G: Regulariser,
    ) -> Quadratic:
        """The statistics of each agent's rows X_i (T_i, d), y_i (T_i,)."""
        A, b, yy = zip(*(statistics(phi, Xi, yi) for Xi, yi in zip(X, y, strict=True)), strict=True)
        T = np.array([float(len(yi)) for yi in y])
        return cls(np.stack(A), np.stack(b), np.array(yy), T, G)

    @property
    def size(self) -> int:
        """D."""
        return self.b.shape[-1]

    def rows(self, agents: slice) -> Quadratic:
        """The risks of those agents alone."""
        return replace(
            self, A=self.A[agents], b=self.b[agents], yy=self.yy[agents], T=self.T[agents]
        )

    def argmin(self, pull: Array) -> Argmin:
        """θ_i = M_i r_i, M_i = (2A_i + 2G + 2ρd_i I)⁻¹, r_i = 2b_i + p_i; M_i is computed once.

        The loss costs O(D): 2θᵀAθ = θᵀr − 2θᵀGθ − 2ρd‖θ‖², so A_i is not read again.
        """
        two_b, M = 2.0 * self.b, self._inverses(pull)
        c, G = self._shrinkage(pull[:, 0])
        if self.fast:
            packed = np.empty((0, 0)) if G is None else compiled.pack(G[None])
            return compiled.Ridge(compiled.Packed(compiled.pack(M), packed, two_b, self.yy, c))

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            r = two_b + p
            theta = np.vecmat(r, M)  # as M is symmetric; reads it faster than matvec
            quadratic = 0.5 * np.vecdot(theta, r) - c * np.vecdot(theta, theta)
            if G is not None:
                quadratic -= penalty(G, theta)
            return theta, self.yy - np.vecdot(theta, two_b) + quadratic

        return solve

    def _shrinkage(self, rho_d: Array) -> tuple[Array, Array | None]:
        """(c, G): regulariser and ρd_i I as c_i I + G; no G where the regulariser is a number."""
        return (rho_d + self.G, None) if isinstance(self.G, float) else (rho_d, self.G)

    def _inverses(self, pull: Array) -> Array:
        M = 2.0 * (self.A + matrix(self.G, self.size) + pull[:, :, None] * np.eye(self.size))
        free = (pull[:, 0] == 0) & (not np.any(self.G))  # λ = 0 and no neighbour: of least norm
        M[~free] = np.linalg.inv(M[~free])
        M[free] = np.linalg.pinv(M[free], hermitian=True)
        return M

    def losses(self, theta: Array) -> Array:
        """θ_iᵀA_iθ_i − 2b_iᵀθ_i + y²_i."""
        return _mse(np.matvec(self.A, theta), self.b, self.yy, theta)

    def global_losses(self, theta: Array) -> Array:
        """The same with the statistics of all rows together."""
        A, b, yy = self._together
        return _mse(theta @ A, b, yy, theta)

    def objectives(self, theta: Array) -> Array:
        """The mean over agents, each with its own statistics, and the regulariser."""
        A, b, yy = self.A.mean(axis=0), self.b.mean(axis=0), np.asarray(self.yy.mean())
        return _mse(theta @ A, b, yy, theta) + penalty(self.G, theta)

    @cached_property
    def _together(self) -> tuple[Array, Array, Array]:
        share = self.T / self.T.sum()
        return np.tensordot(share, self.A, 1), share @ self.b, np.asarray(share @ self.yy)

    def gradient(self, theta: Array) -> Array:
        """2(A_iθ_i − b_i + Gθ_i)."""
        return 2.0 * (np.matvec(self.A, theta) - self.b + pulled(self.G, theta))

    def gram(self, i: int) -> Array:
        """A_i."""
        return np.asarray(self.A[i])

    def whitened(self, basis: Whitening) -> Quadratic:
        """The same risks as functions of u = Cᵀθ."""
        A, b = basis.statistics(self.A, self.b)
        return replace(self, A=A, b=b, G=basis.regulariser(self.G))

    def optimum(self) -> Array:
        """(Σ_i A_i + N G)⁻¹ Σ_i b_i, of least norm where λ = 0 leaves a choice."""
        H = self.A.sum(axis=0) + len(self.T) * matrix(self.G, self.size)
        total = self.b.sum(axis=0)
        if not np.any(self.G):
            return np.asarray(np.linalg.pinv(H, hermitian=True) @ total)
        return np.asarray(np.linalg.solve(H, total), dtype=np.float64)


def statistics(phi: Callable[[Array], Array], X: Array, y: Array) -> tuple[Array, Array, float]:
    """(A_i, b_i, y²_i) of one agent's rows, a chunk of features at a time."""
    D = phi(X[:1]).shape[1]
    A, b = np.zeros((D, D)), np.zeros(D)
    for first in range(0, len(X), CHUNK):
        Phi = phi(X[first : first + CHUNK])
        A += Phi.T @ Phi
        b += Phi.T @ y[first : first + CHUNK]
    T = max(len(X), 1)  # a site may have no test rows
    return A / T, b / T, float(y @ y) / T


def _mse(A_theta: Array, b: Array, yy: Array, theta: Array) -> Array:
    return np.asarray(np.vecdot(theta, A_theta) - 2.0 * np.vecdot(theta, b) + yy)
