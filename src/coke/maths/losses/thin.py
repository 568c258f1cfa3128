"""The quadratic loss of agents with few rows, T_i < D: no (D, D) matrix for any agent.

With F_i = Φ_i/√T_i and z_i = y_i/√T_i the mean loss is ‖z_i − F_iθ‖². The local argmin of

    ‖z − Fθ‖² + ½θᵀCθ − pᵀθ,   C = 2G + 2ρd I,

is ridge regression on what q = C⁻¹p leaves to explain:

    α = (I + 2FC⁻¹Fᵀ)⁻¹ (z − Fq),   θ = q + 2C⁻¹Fᵀα,   and α = z − Fθ are the residuals.

So a round reads T_i (2D + T_i) numbers of an agent where `Quadratic` reads D², and the loss ‖α‖² is
free and never negative. Of a regulariser matrix G there is one C⁻¹ (D, D) for each number of
neighbours. Targets of K outputs have a column of z and D entries of θ each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.errors import InputError
from coke.maths.arrays import Array, FeatureMap
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import (
    Argmin,
    Gather,
    GatherParts,
    Regulariser,
    Risk,
    Weights,
    checked_regulariser,
    penalty,
    pulled,
    some_of,
)

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening

AGENTS = 256  # whose rows are in memory as float64 at a time

Rows = NDArray[Any]  # float64, or float32: half the memory, rows rounded by 6e-8


@dataclass(frozen=True)
class Thin:
    """N quadratic risks as their few rows, of which each agent has as many.

    Arithmetic is float64 whatever the type of F, so the answer is exact for the rows as kept.
    """

    F: Rows  # (N, W, D)  φ(x_it)/√T_i
    z: Array  # (N, W, K)  y_it/√T_i
    T: Array  # (N,)
    G: Regulariser  # λ/N, or a matrix (D, D)
    metric: ClassVar[str] = Quadratic.metric
    kappa: ClassVar[float] = Quadratic.kappa

    def __post_init__(self) -> None:
        object.__setattr__(self, "G", checked_regulariser(self.G, self.F.shape[-1]))

    @classmethod
    def from_rows(
        cls, phi: FeatureMap, X: Sequence[Array], y: Sequence[Array], G: Regulariser,
        *, weights: Weights = None, dtype: type[np.floating[Any]] = np.float64,
    ) -> Thin:  # fmt: skip
        """Of each agent's rows X_i (W, d), y_i (W,), as many of each."""
        if len(set(map(len, y))) > 1:
            raise InputError(
                f"agents with {sorted(set(map(len, y)))[:8]} rows: expected as many of each"
            )
        W, D, N = len(y[0]), phi(X[0][:1]).shape[1], len(y)
        F, z, T = np.empty((N, W, D), dtype), np.stack(y).reshape(N, W, -1), np.full(N, float(W))
        root = np.full((N, W, 1), np.sqrt(max(W, 1)))  # there may be no test rows
        for i, w in enumerate(weights or ()):
            if w is not None:
                T[i] = w.sum()
                root[i, :, 0] = np.sqrt(T[i] / np.maximum(w, 1e-300))
        for Fi, Xi, one in zip(F, X, root, strict=True):
            Fi[:] = phi(Xi) / one
        return cls(F, z / root, T, G)

    @property
    def size(self) -> int:
        """K·D."""
        return self.F.shape[-1] * self.z.shape[-1]

    @property
    def sums(self) -> Quadratic:
        """A_i = F_iᵀF_i, b_i = F_iᵀz_i, y²_i = ‖z_i‖²."""
        F, z = self.F.astype(np.float64, copy=False), self.z.swapaxes(1, 2)
        b = (z @ F).reshape(len(F), -1)
        yy = np.vecdot(z, z)  # (N, K)
        A = F.swapaxes(1, 2) @ F
        return Quadratic(A, b, yy.sum(axis=1), self.T, self.G, squares=yy)

    def rows(self, agents: slice) -> Thin:
        """The risks of those agents alone."""
        some = some_of(self, agents, "F", "z", "T")
        if not isinstance(self.G, float):
            vars(some)["_free"] = self._free  # once for all agents
        return some

    def counted(self, rows: float) -> Thin:
        """Rows by √rows, in place of √T_i."""
        if np.array_equal(self.T, np.full(len(self.T), rows)):
            return self
        root = np.sqrt(self.T / rows)[:, None, None]
        F = (root * self.F).astype(self.F.dtype, copy=False)
        return replace(self, F=F, z=root * self.z, T=np.full(len(root), rows))

    def gathered(self, rows: Gather, parts: GatherParts) -> Risk:
        """From everybody's, whose form may be another."""
        from coke.maths.losses.mixed import gathered

        return gathered(self, rows, parts)

    def argmin(self, pull: Array) -> Argmin:
        """θ_i = q_i + 2C_i⁻¹F_iᵀα_i; (I + 2F_iC_i⁻¹F_iᵀ)⁻¹ (W, W) is computed once."""
        if not (np.any(self.G) or (pull > 0).all()):
            raise InputError(
                "an agent with neither regulariser nor neighbours: expected λ > 0; few rows do not "
                "say which θ is best, or use `Quadratic`, which takes the one of least norm"
            )
        some = list(self._alike(pull))

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            theta, loss = np.empty_like(p), np.empty(len(p))
            for one in some:
                theta[one.agents], loss[one.agents] = one.solved(p[one.agents])
            return theta, loss

        return solve

    def approach(self, pull: Array) -> Argmin:
        """The minimum: no step costs less."""
        return self.argmin(pull)

    def _alike(self, pull: Array) -> Iterator[_Alike]:
        """A few agents at a time; with a matrix G those that have one C in common."""
        if isinstance(self.G, float):
            for part in _parts(len(self.T)):
                c = 2.0 * (self.G + pull[part, :, None])
                yield _Alike.of(part, self.F[part], self.z[part], c)
            return
        for rho_d in np.unique(pull):
            at = np.flatnonzero(pull[:, 0] == rho_d)
            inverse = self._free
            if rho_d:
                inverse = np.linalg.inv(2.0 * (self.G + rho_d * np.eye(len(self.G))))
            for part in _parts(len(at)):
                some = at[part]
                yield _Alike.of(some, self.F[some], self.z[some], inverse)

    @cached_property
    def _free(self) -> Array:
        """(2G)⁻¹ (D, D)."""
        return np.asarray(np.linalg.inv(2.0 * np.asarray(self.G)))

    def alone(self) -> Array:
        """By the local solver."""
        zero = np.zeros((len(self.T), self.size))
        return self._unpulled(zero, zero)[0]

    def losses(self, theta: Array) -> Array:
        """‖z_i − F_iθ_i‖²."""
        left = self._residuals(theta)
        return np.asarray(np.vecdot(left, left).sum(axis=1))

    def _residuals(self, theta: Array) -> Array:
        """(N, K, W)."""
        left = self.z.swapaxes(1, 2).copy()
        for part in _parts(len(self.T)):
            F = self.F[part, None].astype(np.float64, copy=False)
            left[part] -= np.matvec(F, _outputs(theta[part], F))
        return left

    def gradient(self, theta: Array) -> Array:
        """2(Gθ_i − F_iᵀ(z_i − F_iθ_i))."""
        left, slope = self._residuals(theta), np.empty_like(theta)
        for part in _parts(len(self.T)):
            F = self.F[part, None].astype(np.float64, copy=False)
            slope[part] = np.vecmat(left[part], F).reshape(theta[part].shape)
        return 2.0 * (pulled(self.G, _outputs(theta, self.F)).reshape(theta.shape) - slope)

    def decrements(self, g: Array) -> Array:
        """g_iᵀ(A_i + G)⁻¹g_i (N,), the same of every output added up."""
        zero = np.zeros_like(g)
        step = self._unpulled(g, zero)[0] - self._unpulled(zero, zero)[0]
        return np.maximum(2.0 * np.vecdot(g, step), 0.0)

    @cached_property
    def _unpulled(self) -> Argmin:
        return self.argmin(np.zeros((len(self.T), 1)))

    def gram(self, i: int) -> Array:
        """A_i = F_iᵀF_i."""
        F = self.F[i].astype(np.float64)
        return np.asarray(F.T @ F)

    def total(self, weights: Array) -> Quadratic:
        """Σ_i w_i (A_i, b_i, y²_i)."""
        D, K = self.F.shape[-1], self.z.shape[-1]
        A, b, root = np.zeros((D, D)), np.zeros((K, D)), np.sqrt(weights)[:, None, None]
        for part in _parts(len(self.T)):
            F = (root[part] * self.F[part]).reshape(-1, D)
            A += F.T @ F
            b += (root[part] * self.z[part]).reshape(-1, K).T @ F
        yy = np.reshape(weights @ (self.z**2).sum(axis=(1, 2)), 1)
        return Quadratic(A[None], b.reshape(1, -1), yy, np.ones(1), self.G)

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

    def whitened(self, basis: Whitening, G: Array | None = None) -> Thin:
        """The same risks as functions of u = Cᵀθ; G: the regulariser in u, where it is known."""
        F = np.empty_like(self.F)
        for i, rows in enumerate(self.F):
            F[i] = basis.features(rows.astype(np.float64))
        return replace(self, F=F, G=basis.regulariser(self.G) if G is None else G)


class _Alike(NamedTuple):
    """Some agents, and what their argmin needs."""

    agents: slice | NDArray[np.int64]
    F: Rows  # (n, 1, W, D)
    z: Array  # (n, K, W)
    K: Array  # (n, 1, W, W)  (I + 2F C⁻¹Fᵀ)⁻¹
    C: Array  # (n, 1, 1), numbers; or C⁻¹ (D, D), and then there is
    B: Array | None  # (n, 1, W, D)  2F C⁻¹

    @classmethod
    def of(cls, agents: slice | NDArray[np.int64], F: Rows, z: Array, C: Array) -> _Alike:
        """Prepared."""
        wide = F.astype(np.float64, copy=False)
        B = 2.0 * (wide / C if C.ndim == 3 else wide @ C)
        K = np.asarray(np.linalg.inv(wide @ B.swapaxes(1, 2) + np.eye(F.shape[1])), np.float64)
        z = np.ascontiguousarray(z.swapaxes(1, 2))
        return cls(agents, F[:, None], z, K[:, None], C, B[:, None] if C.ndim == 2 else None)

    def solved(self, p: Array) -> tuple[Array, Array]:
        """θ_i (n, K·D) for p_i, and ‖α_i‖² (n,)."""
        q, F = _outputs(p, self.F), self.F.astype(np.float64, copy=False)
        q = q / self.C if self.B is None else np.matvec(self.C, q)
        alpha = np.matvec(self.K, self.z - np.matvec(F, q))
        back = np.vecmat(alpha, F if self.B is None else self.B)
        if self.B is None:
            back *= 2.0 / self.C
        return (q + back).reshape(p.shape), np.vecdot(alpha, alpha).sum(axis=1)


def _parts(N: int) -> Iterator[slice]:
    return (slice(i, min(i + AGENTS, N)) for i in range(0, N, AGENTS))


def _outputs(theta: Array, F: Rows) -> Array:
    """θ_i (N, K, D), output by output."""
    return theta.reshape(len(theta), -1, F.shape[-1])
