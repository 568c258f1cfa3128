"""A learning problem: the agents' risks, held-out rows, and the answers to compare with.

Its usual risks stand here, too: those of the quadratic loss (y − φᵀθ)². One pass over the rows
leaves statistics, and no row is read again:

A_i = (1/T_i) Σ_t φφᵀ,  b_i = (1/T_i) Σ_t φy,  y²_i = (1/T_i) Σ_t y²
R_i(θ) = θᵀA_iθ − 2b_iᵀθ + y²_i + θᵀGθ

A target of K numbers has K such vectors θ_k, end to end, whose losses add up; all share one A_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from coke.errors import InputError
from coke.maths import compiled
from coke.maths.arrays import Array, FeatureMap, side_by_side
from coke.maths.losses import LOSSES
from coke.maths.losses.risk import (
    Argmin,
    Gather,
    GatherParts,
    Regulariser,
    Risk,
    checked_regulariser,
    penalty,
    pulled,
    some_of,
)
from coke.maths.symmetric import decrement, factored, inverse, solution

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening

CHUNK = 4096  # rows whose features are in memory at a time


class Score(NamedTuple):
    """Mean losses of the agents' models; NaN where there are no held-out rows."""

    train: float  # the paper's: every agent's model on its own rows
    test: float
    global_train: float  # every agent's model on everybody's rows, averaged over agents
    global_test: float


@dataclass(frozen=True)
class Problem:
    """Local risks on training rows and, with no say in the training, on test rows."""

    train: Risk
    test: Risk | None = None

    @cached_property
    def optimum(self) -> Array:
        """θ* (D,)."""
        return self.train.optimum()

    def score(self, theta: Array, losses: Array | None = None) -> Score:
        """Losses of θ_i (N, D); `losses` (N,) are those on own training rows, where known."""
        own = self.train.losses(theta) if losses is None else losses
        train, test, global_test = pooled(own, self.train.T), np.nan, np.nan
        if self.test is not None:
            test = pooled(self.test.losses(theta), self.test.T)
            global_test = float(self.test.global_losses(theta).mean())
        global_train = float(self.train.global_losses(theta).mean())
        return Score(train, test, global_train, global_test)

    def gaps(self, theta: Array) -> tuple[float, float]:
        """max_i ‖θ_i − mean θ‖ and max_i ‖θ_i − θ*‖ of θ_i (N, D)."""
        away = theta - theta.mean(axis=0)
        consensus = np.vecdot(away, away).max()
        np.subtract(theta, self.optimum, out=away)
        return math.sqrt(consensus), math.sqrt(np.vecdot(away, away).max())

    def whitened(self, basis: Whitening) -> Problem:
        """The same problem as one of u = Cᵀθ."""
        test = None if self.test is None else self.test.whitened(basis)
        return Problem(self.train.whitened(basis), test)

    def everywhere(self, theta: Array) -> Array:
        """One model (D,) handed to every agent (N, D)."""
        return np.tile(theta, (len(self.train.T), 1))


def pooled(losses: Array, T: Array) -> float:
    """Σ_i T_i loss_i / Σ_i T_i: the mean over all rows of every agent's loss on its own."""
    return float(losses @ T / T.sum())


@dataclass(frozen=True)
class Quadratic:
    """N quadratic risks, as their statistics."""

    A: Array  # (N, D, D)
    b: Array  # (N, K·D)
    yy: Array  # (N,)    y²_i, of all K outputs
    T: Array  # (N,)
    G: Regulariser  # λ/N, or a matrix (D, D)
    fast: bool = False  # rounds compiled by Numba: other last bits, so one choice for all agents
    squares: Array | None = None  # (N, K)  y²_i of each output, where that is known
    metric: ClassVar[str] = LOSSES["quadratic"].metric
    kappa: ClassVar[float] = LOSSES["quadratic"].kappa

    def __post_init__(self) -> None:
        object.__setattr__(self, "G", checked_regulariser(self.G, self.A.shape[-1]))
        if self.fast and not compiled.available():
            raise InputError("fast=True needs Numba: install coke-learn[fast], or leave it out")
        if self.fast and self.size > self.A.shape[-1]:
            raise InputError("fast=True with several outputs: only rounds of one are compiled")

    @classmethod
    def from_rows(
        cls, phi: FeatureMap, X: Sequence[Array], y: Sequence[Array], G: Regulariser
    ) -> Quadratic:
        """The statistics of each agent's rows X_i (T_i, d), y_i (T_i,) or (T_i, K)."""
        A, b, yy = zip(*(statistics(phi, Xi, yi) for Xi, yi in zip(X, y, strict=True)), strict=True)
        T, squares = np.array([float(len(yi)) for yi in y]), np.stack(yy)
        return cls(np.stack(A), np.stack(b), squares.sum(axis=1), T, G, squares=squares)

    @property
    def size(self) -> int:
        """K·D."""
        return self.b.shape[-1]

    @property
    def sums(self) -> Quadratic:
        """Itself."""
        return self

    def total(self, weights: Array) -> Quadratic:
        """Σ_i w_i (A_i, b_i, y²_i)."""
        A, b, yy = np.tensordot(weights, self.A, 1), weights @ self.b, weights @ self.yy
        return Quadratic(A[None], b[None], np.reshape(yy, 1), np.ones(1), self.G)

    def rows(self, agents: slice) -> Quadratic:
        """The risks of those agents alone."""
        return some_of(self, agents, "A", "b", "yy", "T", "squares")

    def counted(self, rows: float) -> Quadratic:
        """Sums over that many rows; in place, for there may be many matrices."""
        if np.array_equal(self.T, np.full(len(self.T), rows)):
            return self
        w = self.T / rows
        for A, times in zip(self.A, w, strict=True):
            A *= times
        squares = None if self.squares is None else self.squares * w[:, None]
        return replace(
            self, b=self.b * w[:, None], yy=self.yy * w, T=np.full(len(w), rows), squares=squares
        )

    def gathered(self, rows: Gather, parts: GatherParts) -> Risk:
        """From everybody's, whose form may be another."""
        from coke.maths.losses.mixed import gathered

        return gathered(self, rows, parts)

    def argmin(self, pull: Array) -> Argmin:
        """θ_i = M_i r_i, M_i = (2A_i + 2G + 2ρd_i I)⁻¹, r_i = 2b_i + p_i; M_i is computed once.

        The loss costs O(D): 2θᵀAθ = θᵀr − 2θᵀGθ − 2ρd‖θ‖², so A_i is not read again.
        """
        two_b, M, (c, G) = 2.0 * self.b, self._inverses(pull), self._shrinkage(pull[:, 0])
        if self.fast:
            return compiled.Ridge.of(M, G, two_b, self.yy, c)

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            r = two_b + p
            theta = across(r, M)
            quadratic = 0.5 * np.vecdot(theta, r) - c * np.vecdot(theta, theta)
            if G is not None:
                quadratic -= penalty(G, theta)
            return theta, self.yy - np.vecdot(theta, two_b) + quadratic

        return solve

    def approach(self, pull: Array) -> Argmin:
        """The minimum: no step costs less."""
        return self.argmin(pull)

    def _shrinkage(self, rho_d: Array) -> tuple[Array, Array | None]:
        """(c, G): regulariser and ρd_i I as c_i I + G; no G where the regulariser is a number."""
        return (rho_d + self.G, None) if isinstance(self.G, float) else (rho_d, self.G)

    def _inverses(self, pull: Array) -> Array:
        M, (c, G), diagonal = 2.0 * self.A, self._shrinkage(pull[:, 0]), np.arange(self.A.shape[-1])
        twice = None if G is None else 2.0 * G
        for one, c_i in zip(M, c, strict=True):
            if twice is not None:
                one += twice
            one[diagonal, diagonal] += 2.0 * c_i
            free = c_i == 0 and twice is None  # λ = 0 and no neighbour: of least norm
            one[:] = np.linalg.pinv(one, hermitian=True) if free else inverse(one)
        return M

    def alone(self) -> Array:
        """(A_i + G)⁻¹b_i, of least norm where λ = 0 leaves a choice."""
        return np.stack([self._solved(A, b, 1) for A, b in zip(self.A, self.b, strict=True)])

    def losses(self, theta: Array) -> Array:
        """θ_iᵀA_iθ_i − 2b_iᵀθ_i + y²_i."""
        return _mse(self._along(theta), self.b, self.yy, theta)

    def _along(self, theta: Array) -> Array:
        """A_iθ_i; the last is kept, for a loss and a gradient are asked for at the same place."""
        last: tuple[Array, Array] | None = vars(self).get("_last")
        if last is None or not np.array_equal(last[0], theta):
            last = vars(self)["_last"] = theta.copy(), across(theta, self.A)
        return last[1]

    def global_losses(self, theta: Array) -> Array:
        """The same with the statistics of all rows together."""
        one = self._pooled
        return _mse(together(theta, one.A[0]), one.b[0], one.yy[0], theta)

    def objectives(self, theta: Array) -> Array:
        """The mean over agents, each with its own statistics, and the regulariser."""
        A, b, yy = self.A.mean(axis=0), self.b.mean(axis=0), np.asarray(self.yy.mean())
        return _mse(together(theta, A), b, yy, theta) + penalty(self.G, theta)

    @cached_property
    def _pooled(self) -> Quadratic:
        return self.total(self.T / self.T.sum())

    def gradient(self, theta: Array) -> Array:
        """2(A_iθ_i − b_i + Gθ_i)."""
        return 2.0 * (self._along(theta) - self.b + pulled(self.G, theta))

    def decrements(self, g: Array) -> Array:
        """g_iᵀ(A_i + G)⁻¹g_i (N,), the same of every output added up."""
        return np.array(list(map(decrement, self._roots, g.reshape(len(g), -1, self.A.shape[-1]))))

    @cached_property
    def _roots(self) -> list[Array | None]:
        return [factored(A + matrix(self.G, len(A))) for A in self.A]

    def gram(self, i: int) -> Array:
        """A_i."""
        return np.asarray(self.A[i])

    def whitened(self, basis: Whitening, G: Array | None = None) -> Quadratic:
        """The same risks as functions of u = Cᵀθ; G: the regulariser in u, where it is known."""
        A, b = basis.statistics(self.A, self.b)
        return replace(self, A=A, b=b, G=basis.regulariser(self.G) if G is None else G)

    def optimum(self) -> Array:
        """(Σ_i A_i + N G)⁻¹ Σ_i b_i, of least norm where λ = 0 leaves a choice."""
        return self._solved(self.A.sum(axis=0), self.b.sum(axis=0), len(self.T))

    def _solved(self, A: Array, b: Array, times: int) -> Array:
        """(A + times G)⁻¹b (K·D,)."""
        each = b.reshape(-1, len(A)).T
        if not np.any(self.G):
            return np.asarray(np.linalg.pinv(A, hermitian=True) @ each).T.ravel()
        return solution(A + times * matrix(self.G, len(A)), each).T.ravel()


def statistics(phi: FeatureMap, X: Array, y: Array) -> tuple[Array, Array, Array]:
    """(A_i, b_i, y²_i (K,)) of one agent's rows, a chunk of features at a time."""
    D = phi(X[:1]).shape[1]
    A, b = np.zeros((D, D)), np.zeros((D, *y.shape[1:]))
    for first in range(0, len(X), CHUNK):
        Phi = phi(X[first : first + CHUNK])
        A += Phi.T @ Phi
        b += Phi.T @ y[first : first + CHUNK]
    T = max(len(X), 1)  # a site may have no test rows
    each = side_by_side(y).T
    return A / T, (b / T).T.ravel(), np.vecdot(each, each) / T


def _mse(A_theta: Array, b: Array, yy: Array, theta: Array) -> Array:
    return np.asarray(np.vecdot(theta, A_theta) - 2.0 * np.vecdot(theta, b) + yy)


def across(x: Array, M: Array) -> Array:
    """M_k x_i for a symmetric M (…, D, D) and vectors x (N, K·D) end to end, agent by agent.

    One product an agent: the bits of one for all of them would depend on how many there are.
    """
    D = M.shape[-1]
    if x.shape[-1] == D:
        return np.vecmat(x, M)  # as M is symmetric; reads it faster than matvec
    return (x.reshape(len(x), -1, D) @ M).reshape(x.shape)


def together(x: Array, M: Array) -> Array:
    """The same for one M in one product, where last bits do not matter."""
    return (x.reshape(-1, len(M)) @ M).reshape(x.shape)


def matrix(G: Regulariser, size: int) -> Array:
    """G as a matrix (D, D)."""
    return G * np.eye(size) if isinstance(G, float) else G
