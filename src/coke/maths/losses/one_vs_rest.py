"""K classes as K risks of the same rows, each class against all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coke.maths.arrays import Array, FeatureMap, Room
from coke.maths.losses import Loss
from coke.maths.losses.codes import which
from coke.maths.losses.newton import OneRisk
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Argmin, Gather, GatherParts, Regulariser, Weights, apart
from coke.maths.losses.rowwise import Bounded, Rowwise, approached

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening
    from coke.maths.losses import Labels


def risk_of_labels(
    phi: FeatureMap, X: Sequence[Array], y: Sequence[Any], G: Regulariser,
    *, loss: Loss, classes: Labels, room: Room | None = None,
) -> Rowwise | OneVsRest:  # fmt: skip
    """Of rows X_i (T_i, d) with labels y_i (T_i,): two `classes`, sorted, are one risk, K are K.

    They are one risk of K − 1 outputs where the loss is of all classes at once.
    """
    if loss.joint:
        numbers = [which(yi, classes) for yi in y]
        return Rowwise.from_rows(phi, X, numbers, G, loss=loss, room=room, outputs=len(classes) - 1)
    first, *others = zip(*(signs(yi, classes) for yi in y), strict=True)
    one = Rowwise.from_rows(phi, X, first, G, loss=loss, room=room)
    return OneVsRest(one, tuple(others)) if others else one


def signs(y: Any, classes: Labels) -> list[Array]:
    """±1 (T,) for the second of two sorted classes, or for each of more against the rest."""
    wanted = classes[1:] if len(classes) == 2 else classes
    return [np.where(y == c, 1.0, -1.0) for c in wanted]


@dataclass(frozen=True)
class OneVsRest:
    """K risks side by side, one a class: θ is K vectors end to end, sent in one message.

    They differ in their targets alone: features and regulariser are those of the first.
    """

    first: Rowwise
    others: tuple[tuple[Array, ...], ...]  # (T_i,) each, ±1, for every other class

    @cached_property
    def parts(self) -> tuple[Rowwise, ...]:
        """The risk of each class."""
        return (self.first, *(replace(self.first, y=y) for y in self.others))

    @property
    def metric(self) -> str:
        """The parts' metric; losses below are means over the classes."""
        return self.first.metric

    @property
    def kappa(self) -> float:
        """Of every part."""
        return self.first.loss.curvature(len(self.parts))

    @property
    def T(self) -> Array:
        """T_i (N,)."""
        return self.first.T

    @property
    def G(self) -> Regulariser:
        """Of every part."""
        return self.first.G

    @property
    def size(self) -> int:
        """K·D."""
        return len(self.parts) * self.first.size

    @property
    def sums(self) -> None:
        """None: rows are needed."""

    def total(self, weights: Array) -> None:
        """None: rows are needed."""

    def weighted(self, weights: Weights) -> OneVsRest:
        """With weights of the rows; None: all alike."""
        return replace(self, first=self.first.weighted(weights))

    def counted(self, rows: float) -> OneVsRest:
        """As the first is."""
        return replace(self, first=self.first.counted(rows))

    def rows(self, agents: slice) -> OneVsRest:
        """The risks of those agents alone."""
        return OneVsRest(self.first.rows(agents), tuple(y[agents] for y in self.others))

    def gathered(self, rows: Gather, parts: GatherParts) -> OneVsRest:
        """From everybody's features, once, and targets."""
        return OneVsRest(self.first.gathered(rows, parts), tuple(map(parts, self.others)))

    def whitened(self, basis: Whitening) -> OneVsRest:
        """The same risks as functions of u_c = Cᵀθ_c, class by class; features stay shared."""
        return OneVsRest(self.first.whitened(basis), self.others)

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

    def approach(self, pull: Array) -> Argmin:
        """A few steps for all classes at once: they have one bound in common."""
        one = self.first
        if not one.loss.bend:
            return self.argmin(pull)
        G = matrix(one.G, one.size)
        own = [
            Bounded.of(one.loss, OneRisk(Phi, np.column_stack(y), share, G), float(c))
            for Phi, share, c, *y in zip(
                one.Phi, one.shares, pull[:, 0], one.y, *self.others, strict=True
            )
        ]
        return partial(approached, own)

    def gram(self, i: int) -> Array:
        """A_i: the classes share their features."""
        return self.first.gram(i)

    def alone(self) -> Array:
        """By the local solver."""
        return apart(self)

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


def _mean(values: Sequence[Array]) -> Array:
    """The mean of a few vectors, added in order; how `np.mean` adds depends on their length."""
    return np.asarray(sum(values[1:], values[0]) / len(values))
