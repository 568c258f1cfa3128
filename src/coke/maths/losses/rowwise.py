"""Risks that keep their rows, for every round needs them: of any loss that is more than sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from coke.errors import InputError
from coke.maths.arrays import Array, FeatureMap, Room, mapped
from coke.maths.losses import CLASSES, Loss
from coke.maths.losses.newton import Again, Minimum, OneRisk, Proof
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import (
    Argmin,
    Gather,
    GatherParts,
    Regulariser,
    Weights,
    apart,
    checked_regulariser,
    penalty,
    pulled,
    some_of,
)

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening


class RowLoss(Protocol):
    """ℓ(f, y) of rows with predictions f and targets y, and its exact minimisers.

    f is (T,), or (T, K) of a loss of K outputs.
    """

    def value(self, f: Array, y: Array) -> Array:
        """ℓ of each row."""
        ...

    def slope(self, f: Array, y: Array) -> Array:
        """∂ℓ/∂f, or a subgradient."""
        ...

    def minimum(self, own: OneRisk, p: Array, start: Array) -> Minimum | Proof:
        """argmin_θ  Σ_t c_t ℓ(φ_tᵀθ, y_t) + θᵀHθ − pᵀθ, and what proves it."""
        ...

    def repeated(self, own: OneRisk) -> Again:
        """The same for one round after the other: fast where the start is near the answer.

        The answer depends on p and the start alone, to the last bit.
        """
        ...


@dataclass(frozen=True)
class Rowwise:
    """N risks that keep their rows' features and targets."""

    Phi: tuple[Array, ...]  # (T_i, D) each
    y: tuple[Array, ...]  # (T_i,) each: numbers, ±1, or numbers of classes
    G: Regulariser  # λ/N, or a matrix (D, D)
    loss: Loss
    room: Room = field(default=np.empty, repr=False, compare=False)  # for other features of them
    outputs: int = 1  # K: θ is so many vectors end to end
    weights: tuple[Array, ...] | None = None  # (T_i,) of each agent's rows; None: all alike
    counts: float | None = None  # the rows that each agent counts as; None: its own

    def __post_init__(self) -> None:
        signs = self.loss.kind == CLASSES and not self.loss.joint
        if signs and not all(np.isin(y, (-1.0, 1.0)).all() for y in self.y):
            raise InputError("labels other than -1 and +1: give one class +1, all others -1")
        object.__setattr__(self, "G", checked_regulariser(self.G, self.Phi[0].shape[1]))

    @classmethod
    def from_rows(
        cls, phi: FeatureMap, X: Sequence[Array], y: Sequence[Array], G: Regulariser,
        *, loss: Loss, room: Room | None = None, outputs: int = 1,
    ) -> Rowwise:  # fmt: skip
        """Of each agent's rows X_i (T_i, d), y_i (T_i,); their features are in `room`."""
        room = room or np.empty
        D = phi(np.zeros((1, X[0].shape[1]))).shape[1]
        return cls(mapped(phi, X, D, room), tuple(y), G, loss, room, outputs)

    def weighted(self, weights: Weights) -> Rowwise:
        """With weights of the rows; None: all alike."""
        if weights is None or all(w is None for w in weights):
            return self
        both = zip(weights, self.y, strict=True)
        return replace(self, weights=tuple(np.ones(len(y)) if w is None else w for w, y in both))

    def counted(self, rows: float) -> Rowwise:
        """With shares of that many rows."""
        return replace(self, counts=rows)

    @property
    def metric(self) -> str:
        """The loss's."""
        return self.loss.metric

    @property
    def kappa(self) -> float:
        """The loss's."""
        return self.loss.curvature(self.outputs)

    @cached_property
    def T(self) -> Array:
        """T_i (N,)."""
        if self.counts is not None:
            return np.full(len(self.y), self.counts)
        rows = self.y if self.weights is None else self.weights
        return np.array([float(len(y) if self.weights is None else y.sum()) for y in rows])

    @cached_property
    def shares(self) -> tuple[Array, ...]:
        """Of each row in its agent's mean loss (T_i,): 1/T_i, or w_t/T_i."""
        T = np.maximum(self.T, 1e-300)  # a site may have no test rows
        if self.weights is None:
            return tuple(np.full(len(y), 1.0 / Ti) for y, Ti in zip(self.y, T, strict=True))
        return tuple(w / Ti for w, Ti in zip(self.weights, T, strict=True))

    @property
    def size(self) -> int:
        """K·D."""
        return self.outputs * self.Phi[0].shape[1]

    @property
    def sums(self) -> None:
        """None: rows are needed."""

    def total(self, weights: Array) -> None:
        """None: rows are needed."""

    def rows(self, agents: slice) -> Rowwise:
        """The risks of those agents alone."""
        return some_of(self, agents, "Phi", "y", "weights")

    def gathered(self, rows: Gather, parts: GatherParts) -> Rowwise:
        """From everybody's features and targets."""
        weights = None if self.weights is None else parts(self.weights)
        return replace(self, Phi=parts(self.Phi), y=parts(self.y), weights=weights)

    def argmin(self, pull: Array) -> Argmin:
        """Solved anew each round, from the last answer on; no memory but that."""
        self._need_curvature()
        D = self.Phi[0].shape[1]
        H, one = matrix(self.G, D), np.eye(D)
        again = [
            self.loss.of_row.repeated(OneRisk(Phi, y, share, H + float(c) * one))
            for Phi, y, share, c in zip(self.Phi, self.y, self.shares, pull[:, 0], strict=True)
        ]

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            found = [minimum(*at) for minimum, *at in zip(again, p, start, strict=True)]
            return np.stack([at.theta for at in found]), np.array([at.loss for at in found])

        return solve

    def approach(self, pull: Array) -> Argmin:
        """A few steps by the loss's bound; the minimum itself where it has none."""
        if not self.loss.bend:
            return self.argmin(pull)
        self._need_curvature()
        own = [
            Bounded.of(self.loss, OneRisk(Phi, y, share, matrix(self.G, Phi.shape[1])), float(c))
            for Phi, y, share, c in zip(self.Phi, self.y, self.shares, pull[:, 0], strict=True)
        ]
        return partial(approached, own)

    def _need_curvature(self) -> None:
        if not np.any(self.G):
            raise InputError(
                f"lambda = 0 with the {self.metric} loss: there need not be one minimum "
                "(separable or few rows); use lambda > 0, for example 1e-4"
            )

    def proved(self) -> Minimum | Proof:
        """The minimum of Σ_i R_i and its proof: a gradient norm, or a duality gap."""
        self._need_curvature()
        y, Phi = np.concatenate(self.y), _end_to_end(self.Phi)
        c = np.concatenate(self.shares)
        H = len(self.T) * matrix(self.G, Phi.shape[1])
        zero = np.zeros(self.size)
        return self.loss.of_row.minimum(OneRisk(Phi, y, c, H), zero, zero)

    def gram(self, i: int) -> Array:
        """A_i, from the rows' features."""
        D = self.Phi[i].shape[1]
        return OneRisk(self.Phi[i], self.y[i], self.shares[i], np.eye(D)).bends(self.shares[i])

    def whitened(self, basis: Whitening) -> Rowwise:
        """The same risks as functions of u = Cᵀθ."""
        Phi = mapped(basis.features, self.Phi, len(basis.C), self.room)
        return replace(self, Phi=Phi, G=basis.regulariser(self.G))

    def optimum(self) -> Array:
        """θ* (D,)."""
        return self.proved().theta

    def alone(self) -> Array:
        """By the local solver."""
        return apart(self)

    def losses(self, theta: Array) -> Array:
        """Mean loss of θ_i on the rows of agent i."""
        value, rows = self.loss.of_row.value, zip(self.Phi, self.y, theta, self.shares, strict=True)
        return np.array([share @ value(predicted(Phi, t), y) for Phi, y, t, share in rows])

    def global_losses(self, theta: Array) -> Array:
        """Mean loss of each θ on the rows of all agents."""
        return self._added(theta, self.T / self.T.sum())

    def objectives(self, theta: Array) -> Array:
        """The mean over agents of their mean losses, and the regulariser."""
        equal = np.full(len(self.T), 1.0 / len(self.T))
        return self._added(theta, equal) + penalty(self.G, theta)

    def _added(self, theta: Array, agents: Array) -> Array:
        """Of each θ, the agents' mean losses by these weights (N,)."""
        total, value = np.zeros(len(theta)), self.loss.of_row.value
        for Phi, y, share, w in zip(self.Phi, self.y, self.shares, agents, strict=True):
            if not self.loss.joint:
                total += (w * share) @ value(Phi @ theta.T, y[:, None])
            else:
                total += [(w * share) @ value(predicted(Phi, t), y) for t in theta]
        return total

    def gradient(self, theta: Array) -> Array:
        """(1/T_i) Σ_t ∂ℓ/∂f_t φ_t + 2Gθ_i."""
        slope, rows = self.loss.of_row.slope, zip(self.Phi, self.y, theta, self.shares, strict=True)
        data = [((s * slope(predicted(Phi, t), y).T) @ Phi).ravel() for Phi, y, t, s in rows]
        return np.stack(data) + 2.0 * pulled(self.G, theta)


STEPS = 3  # of a round: one costs more rounds than it saves, six save few


def predicted(Phi: Array, theta: Array) -> Array:
    """f (T,) of one vector, (T, K) of K end to end."""
    D = Phi.shape[1]
    return Phi @ (theta if len(theta) == D else theta.reshape(-1, D).T)


class Bounded(NamedTuple):
    """A risk whose Hessian is at most B = bend·A + 2(G + ρd I), for every one of its outputs.

    θ ← θ − B⁻¹g never climbs, from anywhere. A few such steps a round are as good as the minimum:
    where rounds no longer change θ, its gradient is zero.
    """

    loss: Loss
    own: OneRisk  # y is (T,), or (T, K) of several losses that add up
    double: Array  # (D, D)  2(G + ρd I)
    inverse: Array  # (D, D)  B⁻¹

    @classmethod
    def of(cls, loss: Loss, own: OneRisk, rho_d: float) -> Bounded:
        """With B inverted."""
        double = 2.0 * (own.H + rho_d * np.eye(len(own.H)))
        B = own.bends(loss.bend * own.c) + double
        return cls(loss, own, double, np.asarray(np.linalg.inv(B)))

    def __call__(self, p: Array, start: Array) -> tuple[Array, float]:
        """θ (K, D) a few steps nearer to the minimum of R_i(θ) + ρd‖θ‖² − pᵀθ; and its loss."""
        theta, loss, (Phi, y, c) = start, self.loss.of_row, (self.own.Phi, self.own.y, self.own.c)
        for _ in range(STEPS):
            pulls = (c * loss.slope(self._predicted(theta), y).reshape(len(c), -1).T) @ Phi
            theta = theta - (theta @ self.double - p + pulls) @ self.inverse
        values = loss.value(self._predicted(theta), y).reshape(len(c), -1)
        return theta, float(c @ values.mean(axis=1))

    def _predicted(self, theta: Array) -> Array:
        f = self.own.Phi @ theta.T
        return f if f.shape[1] > 1 else f[:, 0]


def approached(own: Sequence[Bounded], p: Array, start: Array) -> tuple[Array, Array]:
    """All agents' steps, each by itself."""
    theta, loss = np.empty_like(p), np.empty(len(p))
    for i, one in enumerate(own):
        D = len(one.double)
        found, loss[i] = one(p[i].reshape(-1, D), start[i].reshape(-1, D))
        theta[i] = found.ravel()
    return theta, loss


def _end_to_end(parts: Sequence[Array]) -> Array:
    """All parts' rows in one array; without a copy where they lie so already."""
    some = [part for part in parts if len(part)] or [parts[0]]
    at, base = [part.__array_interface__["data"][0] for part in some], some[0].base
    near = all(a + part.nbytes == b for part, (a, b) in zip(some, pairwise(at), strict=False))
    if near and base is not None and all(p.flags.c_contiguous and p.base is base for p in some):
        shape = sum(map(len, some)), some[0].shape[1]
        return np.lib.stride_tricks.as_strided(some[0], shape, writeable=False)
    return np.concatenate(some)
