"""The quadratic loss of agents with few rows, T_i < D: no (D, D) matrix for any agent.

With F_i = Φ_i/√T_i and z_i = y_i/√T_i the mean loss is ‖z_i − F_iθ‖². The local argmin of

    ‖z − Fθ‖² + ½θᵀCθ − pᵀθ,   C = 2G + 2ρd I,

is ridge regression on what q = C⁻¹p leaves to explain:

    α = (I + 2FC⁻¹Fᵀ)⁻¹ (z − Fq),   θ = q + 2C⁻¹Fᵀα,   and α = z − Fθ are the residuals.

So a round reads T_i (D + T_i) numbers of an agent where `Quadratic` reads D², and the loss ‖α‖² is
free and never negative. A regulariser matrix G = U diag(w) Uᵀ is common to all agents: in the basis
U every C is diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coke.errors import InputError
from coke.maths.arrays import Array, FeatureMap
from coke.maths.losses.forms import checked_regulariser, matrix, penalty, pulled
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import Argmin, Gather, GatherParts, Regulariser, apart

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening

AGENTS = 256  # whose rows are in memory as float64 at a time

Rows = NDArray[Any]  # float64, or float32: half the memory, rows rounded by 6e-8


@dataclass(frozen=True)
class Thin:
    """N quadratic risks as their few rows, each agent's filled up with zeros to the same number.

    The bits of a product depend on that number W: blocks of one problem must have it in common.
    Arithmetic is float64 whatever the type of F, so the answer is exact for the rows as kept.
    """

    F: Rows  # (N, W, D)  φ(x_it)/√T_i
    z: Array  # (N, W)    y_it/√T_i
    T: Array  # (N,)
    G: Regulariser  # λ/N, or a matrix (D, D)
    metric: ClassVar[str] = Quadratic.metric
    kappa: ClassVar[float] = Quadratic.kappa

    def __post_init__(self) -> None:
        object.__setattr__(self, "G", checked_regulariser(self.G, self.size))

    @classmethod
    def from_rows(
        cls,
        phi: FeatureMap,
        X: Sequence[Array],
        y: Sequence[Array],
        G: Regulariser,
        *,
        width: int | None = None,
        dtype: type[np.floating[Any]] = np.float64,
    ) -> Thin:
        """Of each agent's rows X_i (T_i, d), y_i (T_i,); `width` is W, at least the most rows."""
        most = max(map(len, y))
        if width is not None and width < most:
            raise InputError(f"width={width}: an agent has {most} rows; expected at least as many")
        W, D = width or most, phi(X[0][:1]).shape[1]
        F, z = np.zeros((len(X), W, D), dtype), np.zeros((len(X), W))
        for i, (Xi, yi) in enumerate(zip(X, y, strict=True)):
            root = np.sqrt(max(len(yi), 1))  # a site may have no test rows
            F[i, : len(yi)], z[i, : len(yi)] = phi(Xi) / root, yi / root
        return cls(F, z, np.array([float(len(yi)) for yi in y]), G)

    @property
    def size(self) -> int:
        """D."""
        return self.F.shape[-1]

    @property
    def sums(self) -> None:
        """None: kept as rows."""

    def rows(self, agents: slice) -> Thin:
        """The risks of those agents alone."""
        return replace(self, F=self.F[agents], z=self.z[agents], T=self.T[agents])

    def gathered(self, rows: Gather, parts: GatherParts) -> Thin:
        """From everybody's rows; their number W is common to all."""
        return replace(self, F=rows(self.F), z=rows(self.z), T=rows(self.T))

    def argmin(self, pull: Array) -> Argmin:
        """θ_i = q_i + 2C_i⁻¹F_iᵀα_i; (I + 2F_iC_i⁻¹F_iᵀ)⁻¹ (W, W) is computed once."""
        w, U = self._spectrum
        C = 2.0 * (w + pull)  # (N, 1), or (N, D) in the basis U
        if not (C > 0).all():
            raise InputError(
                "an agent with neither regulariser nor neighbours: expected λ > 0; few rows do not "
                "say which θ is best, or use `Quadratic`, which takes the one of least norm"
            )
        F, K = _turned(self.F, U), np.empty((len(self.T), *2 * self.z.shape[1:]))
        for part in _parts(len(K)):
            K[part] = _inverse(F[part].astype(np.float64), C[part])

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            theta, loss = np.empty_like(p), np.empty(len(p))
            for part in _parts(len(p)):
                rows, c = F[part].astype(np.float64, copy=False), C[part]
                q = (p[part] if U is None else np.matvec(U.T, p[part])) / c
                alpha = np.matvec(K[part], self.z[part] - np.matvec(rows, q))
                turned = q + 2.0 * np.vecmat(alpha, rows) / c
                theta[part] = turned if U is None else np.matvec(U, turned)
                loss[part] = np.vecdot(alpha, alpha)
            return theta, loss

        return solve

    def approach(self, pull: Array) -> Argmin:
        """The minimum: no step costs less."""
        return self.argmin(pull)

    @cached_property
    def _spectrum(self) -> tuple[Array, Array | None]:
        """The eigenvalues of G, and U; no U where G is a number."""
        if isinstance(self.G, float):
            return np.array([self.G]), None
        w, U = np.linalg.eigh(self.G)
        return np.maximum(w, 0.0), np.ascontiguousarray(U)

    def alone(self) -> Array:
        """By the local solver."""
        return apart(self)

    def losses(self, theta: Array) -> Array:
        """‖z_i − F_iθ_i‖²."""
        left = self._residuals(theta)
        return np.asarray(np.vecdot(left, left))

    def _residuals(self, theta: Array) -> Array:
        left = np.empty_like(self.z)
        for part in _parts(len(self.T)):
            left[part] = self.z[part] - np.matvec(self.F[part].astype(np.float64), theta[part])
        return left

    def gradient(self, theta: Array) -> Array:
        """2(Gθ_i − F_iᵀ(z_i − F_iθ_i))."""
        left, slope = self._residuals(theta), np.empty_like(theta)
        for part in _parts(len(self.T)):
            slope[part] = np.vecmat(left[part], self.F[part].astype(np.float64))
        return 2.0 * (pulled(self.G, theta) - slope)

    def gram(self, i: int) -> Array:
        """A_i = F_iᵀF_i."""
        F = self.F[i].astype(np.float64)
        return np.asarray(F.T @ F)

    def total(self, weights: Array) -> Quadratic:
        """Σ_i w_i (A_i, b_i, y²_i)."""
        A, b, root = np.zeros((self.size, self.size)), np.zeros(self.size), np.sqrt(weights)
        for part in _parts(len(self.T)):
            F = (root[part, None, None] * self.F[part]).reshape(-1, self.size)
            A += F.T @ F
            b += (root[part, None] * self.z[part]).ravel() @ F
        yy = np.reshape(weights @ np.vecdot(self.z, self.z), 1)
        return Quadratic(A[None], b[None], yy, np.ones(1), self.G)

    @cached_property
    def _pooled(self) -> Quadratic:
        return self.total(self.T / self.T.sum())

    @cached_property
    def _mean(self) -> Quadratic:
        return self.total(np.full(len(self.T), 1.0 / len(self.T)))

    def global_losses(self, theta: Array) -> Array:
        """The loss on the rows of all agents together."""
        return self._pooled.global_losses(theta)

    def objectives(self, theta: Array) -> Array:
        """The mean over agents, and the regulariser."""
        return self._mean.global_losses(theta) + penalty(self.G, theta)

    def optimum(self) -> Array:
        """(Σ_i A_i + N G)⁻¹ Σ_i b_i."""
        return self._mean.optimum()

    def whitened(self, basis: Whitening) -> Thin:
        """The same risks as functions of u = Cᵀθ."""
        F = np.empty_like(self.F)
        for i, rows in enumerate(self.F):
            F[i] = basis.features(rows.astype(np.float64))
        return replace(self, F=F, G=basis.regulariser(matrix(self.G, self.size)))


def _parts(N: int) -> Iterator[slice]:
    return (slice(i, min(i + AGENTS, N)) for i in range(0, N, AGENTS))


def _turned(F: Rows, U: Array | None) -> Rows:
    """F_i U (N, W, D)."""
    if U is None:
        return F
    turned = np.empty_like(F)
    for part in _parts(len(F)):
        turned[part] = F[part].astype(np.float64) @ U
    return turned


def _inverse(F: Array, C: Array) -> Array:
    """(I + 2F_iC_i⁻¹F_iᵀ)⁻¹ (N, W, W)."""
    K = F @ (2.0 * F / C[:, None]).swapaxes(1, 2) + np.eye(F.shape[1])
    return np.asarray(np.linalg.inv(K))
