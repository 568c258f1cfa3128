"""Margin losses of a label y = ±1: logistic log(1 + exp(−m)) and hinge max(0, 1 − m), m = y φᵀθ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from scipy.special import expit

from coke.errors import InputError, unknown
from coke.maths.arrays import Array, Room, mapped
from coke.maths.features.whitening import Whitening
from coke.maths.losses.hinge import hinge_near
from coke.maths.losses.logistic import bounded, logistic_near
from coke.maths.losses.newton import Certificate, Margins, Minimum, hinge, logistic
from coke.maths.losses.risk import (
    Argmin,
    Regulariser,
    Risk,
    checked_regulariser,
    matrix,
    penalty,
    pulled,
)

MINIMISERS: dict[str, Callable[[Margins, Array, Array], Minimum | Certificate]] = {
    "logistic": logistic,
    "hinge": hinge,
}
REPEATED: dict[str, Callable[[Margins], Callable[[Array, Array], Minimum | Certificate]]] = {
    "logistic": lambda own: partial(logistic_near, bounded(own)),
    "hinge": lambda own: partial(hinge_near, own),
}
LOSSES: dict[str, Callable[[Array], Array]] = {
    "logistic": lambda m: np.logaddexp(0.0, -m),
    "hinge": lambda m: np.maximum(0.0, 1.0 - m),
}
SLOPES: dict[str, Callable[[Array], Array]] = {
    "logistic": lambda m: -expit(-m),
    "hinge": lambda m: -(m < 1.0).astype(np.float64),  # a subgradient
}


@dataclass(frozen=True)
class Margin:
    """N risks with a margin loss; the rows' features are kept, for every round needs them."""

    Phi: tuple[Array, ...]  # (T_i, D) each
    y: tuple[Array, ...]  # (T_i,) each, ±1
    G: Regulariser  # λ/N, or a matrix (D, D)
    metric: str  # "logistic" or "hinge"
    room: Room = field(default=np.empty, repr=False, compare=False)  # for other features of them

    def __post_init__(self) -> None:
        if self.metric not in LOSSES:
            raise InputError(unknown("loss", self.metric, LOSSES))
        if not all(np.isin(y, (-1.0, 1.0)).all() for y in self.y):
            raise InputError("labels other than -1 and +1: give one class +1, all others -1")
        object.__setattr__(self, "G", checked_regulariser(self.G, self.size))

    @property
    def kappa(self) -> float:
        """Of the logistic loss at zero; the hinge, which has none, is taken to be as wide."""
        return 0.25

    @cached_property
    def T(self) -> Array:
        """T_i (N,)."""
        return np.array([float(len(y)) for y in self.y])

    @property
    def size(self) -> int:
        """D."""
        return self.Phi[0].shape[1]

    def rows(self, agents: slice) -> Margin:
        """The risks of those agents alone."""
        return replace(self, Phi=self.Phi[agents], y=self.y[agents])

    def argmin(self, pull: Array) -> Argmin:
        """Solved anew each round, from the last answer on; no memory but that."""
        self._need_curvature()
        owns = [
            Margins(Phi, y, np.full(len(y), 1.0 / len(y)), self._curvature(float(c)))
            for Phi, y, c in zip(self.Phi, self.y, pull[:, 0], strict=True)
        ]
        again = [REPEATED[self.metric](own) for own in owns]

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            found = [minimum(*at) for minimum, *at in zip(again, p, start, strict=True)]
            return np.stack([at.theta for at in found]), np.array([at.loss for at in found])

        return solve

    def _minimum(self, own: Margins, p: Array, start: Array) -> Minimum | Certificate:
        return MINIMISERS[self.metric](own, p, start)

    def _curvature(self, more: float) -> Array:
        return matrix(self.G, self.size) + more * np.eye(self.size)

    def _need_curvature(self) -> None:
        if not np.any(self.G):
            raise InputError(
                f"lambda = 0 with the {self.metric} loss: the minimum need not exist "
                "(separable rows); use lambda > 0, for example 1e-4"
            )

    def certificate(self) -> Minimum | Certificate:
        """The minimum of Σ_i R_i and its proof: gradient norm (logistic), duality gap (hinge)."""
        self._need_curvature()
        y, Phi = np.concatenate(self.y), end_to_end(self.Phi)
        c = np.repeat(1.0 / self.T, self.T.astype(np.int64))
        H = len(self.T) * matrix(self.G, self.size)
        zero = np.zeros(self.size)
        return self._minimum(Margins(Phi, y, c, H), zero, zero)

    def gram(self, i: int) -> Array:
        """A_i, from the rows' features."""
        return np.asarray(self.Phi[i].T @ self.Phi[i] / len(self.Phi[i]))

    def whitened(self, basis: Whitening) -> Margin:
        """The same risks as functions of u = Cᵀθ."""
        Phi = mapped(basis.features, self.Phi, self.size, self.room)
        return replace(self, Phi=Phi, G=basis.regulariser(self.G))

    def optimum(self) -> Array:
        """θ* (D,)."""
        return self.certificate().theta

    def losses(self, theta: Array) -> Array:
        """Mean loss of θ_i on the rows of agent i."""
        rows = zip(self.Phi, self.y, theta, strict=True)
        # Σ/max(T, 1) and not a mean: a site may have no test rows.
        return np.array([self._loss(y * (Phi @ t)).sum() / max(len(y), 1) for Phi, y, t in rows])

    def global_losses(self, theta: Array) -> Array:
        """Mean loss of each θ on the rows of all agents."""
        total = np.zeros(len(theta))
        for Phi, y in zip(self.Phi, self.y, strict=True):
            total += self._loss(y[:, None] * (Phi @ theta.T)).sum(axis=0)
        return total / self.T.sum()

    def objectives(self, theta: Array) -> Array:
        """The mean over agents of their mean losses, and the regulariser."""
        total = np.zeros(len(theta))
        for Phi, y in zip(self.Phi, self.y, strict=True):
            total += self._loss(y[:, None] * (Phi @ theta.T)).mean(axis=0)
        return total / len(self.T) + penalty(self.G, theta)

    def _loss(self, m: Array) -> Array:
        return LOSSES[self.metric](m)

    def gradient(self, theta: Array) -> Array:
        """(1/T_i) Σ_t ℓ'(m_t) y_t φ_t + 2Gθ_i."""
        slope = SLOPES[self.metric]
        rows = zip(self.Phi, self.y, theta, strict=True)
        data = np.stack([(slope(y * (Phi @ t)) * y) @ Phi / len(y) for Phi, y, t in rows])
        return data + 2.0 * pulled(self.G, theta)


@dataclass(frozen=True)
class OneVsRest:
    """K risks side by side, one a class: θ is K vectors end to end, sent in one message."""

    parts: tuple[Risk, ...]

    @property
    def metric(self) -> str:
        """The parts' metric; losses below are means over the classes."""
        return self.parts[0].metric

    @property
    def kappa(self) -> float:
        """Of every part."""
        return self.parts[0].kappa

    @property
    def T(self) -> Array:
        """T_i (N,)."""
        return self.parts[0].T

    @property
    def size(self) -> int:
        """K·D."""
        return len(self.parts) * self.parts[0].size

    def rows(self, agents: slice) -> OneVsRest:
        """The risks of those agents alone."""
        return OneVsRest(tuple(part.rows(agents) for part in self.parts))

    def _split(self, x: Array) -> list[Array]:
        return [np.ascontiguousarray(part) for part in np.split(x, len(self.parts), axis=-1)]

    def argmin(self, pull: Array) -> Argmin:
        """The classes are separate problems."""
        solvers = [part.argmin(pull) for part in self.parts]

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            pieces = zip(solvers, self._split(p), self._split(start), strict=True)
            theta, loss = zip(*(solver(*at) for solver, *at in pieces), strict=True)
            return np.concatenate(theta, axis=-1), _mean(loss)

        return solve

    def gram(self, i: int) -> Array:
        """A_i: the classes share their features."""
        return self.parts[0].gram(i)

    def whitened(self, basis: Whitening) -> OneVsRest:
        """The same risks as functions of u_c = Cᵀθ_c, class by class; features stay shared."""
        first, *others = self.parts
        one, found = first.whitened(basis), list[Risk]()
        for part in others:
            if isinstance(part, Margin) and isinstance(one, Margin) and _shared(part, first):
                found.append(replace(part, Phi=one.Phi, G=one.G))
            else:
                found.append(part.whitened(basis))
        return OneVsRest((one, *found))

    def losses(self, theta: Array) -> Array:
        """Mean over classes and rows."""
        pieces = zip(self.parts, self._split(theta), strict=True)
        return _mean([part.losses(t) for part, t in pieces])

    def global_losses(self, theta: Array) -> Array:
        """Mean over classes and all rows."""
        pieces = zip(self.parts, self._split(theta), strict=True)
        return _mean([part.global_losses(t) for part, t in pieces])

    def objectives(self, theta: Array) -> Array:
        """Mean over classes."""
        pieces = zip(self.parts, self._split(theta), strict=True)
        return _mean([part.objectives(t) for part, t in pieces])

    def gradient(self, theta: Array) -> Array:
        """Of the sum over classes."""
        pieces = zip(self.parts, self._split(theta), strict=True)
        return np.concatenate([part.gradient(t) for part, t in pieces], axis=-1)

    def optimum(self) -> Array:
        """The classes' optima end to end (K·D,)."""
        return np.concatenate([part.optimum() for part in self.parts])


def _shared(part: Margin, other: Risk) -> bool:
    return isinstance(other, Margin) and part.Phi is other.Phi and part.G is other.G


def end_to_end(parts: Sequence[Array]) -> Array:
    """All parts' rows in one array; without a copy where they lie so already."""
    some = [part for part in parts if len(part)] or [parts[0]]
    at, base = [part.__array_interface__["data"][0] for part in some], some[0].base
    near = all(a + part.nbytes == b for part, (a, b) in zip(some, pairwise(at), strict=False))
    if near and base is not None and all(p.flags.c_contiguous and p.base is base for p in some):
        shape = sum(map(len, some)), some[0].shape[1]
        return np.lib.stride_tricks.as_strided(some[0], shape, writeable=False)
    return np.concatenate(some)


def _mean(values: Sequence[Array]) -> Array:
    """The mean of a few vectors, added in order; how `np.mean` adds depends on their length."""
    return np.asarray(sum(values[1:], values[0]) / len(values))
