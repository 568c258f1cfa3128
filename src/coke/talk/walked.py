"""Where a site has been on the way down, and what its edges knew of the gradients there.

A move of u repeats parts of earlier moves, Σ_j a_j x_j, and adds a rest x. Of the gradient of the n
sites below an edge both ends expect that it changes by

    Σ_j a_j y_j + n c x,   y_j what was learnt with move j, x_j,

for gradients are nearly linear in u. Sums go term by term, so that both ends have the same bits on
whatever machines.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from coke.maths.algorithms.steps import own_step, stepped
from coke.maths.algorithms.visited import MOVES
from coke.maths.arrays import Array
from coke.talk.handover import Stage
from coke.talk.place import Place


class Walked:
    """One site's: what is known at both ends of its edges, here and along its last moves."""

    def __init__(self, place: Place, size: int):
        nothing = np.zeros(size)
        self._root = place.parent is None
        self.count, self.counts = 1, dict.fromkeys(place.children, 1)  # sites below, itself too
        self.here = self._before = Stage(nothing, nothing, dict.fromkeys(place.children, nothing))
        self._moves = list[Stage]()  # by how much each changed it

    @property
    def moves(self) -> int:
        """That can be repeated."""
        return len(self._moves)

    def stand(self, u: Array) -> None:
        """Elsewhere, with what is known."""
        self.here = self.here._replace(u=u)

    def move(self, again: Array, x: Array, c: float) -> Array:
        """By what `again` repeats of the last moves and by x; the move (D,)."""
        self._before, here = self.here, self.here
        change = x + _sum(again, (move.u for move in self._moves))
        above = self.count * c * x + _sum(again, (move.above for move in self._moves))
        below = {
            child: known
            + (self.counts[child] * c * x + _sum(again, (m.below[child] for m in self._moves)))
            for child, known in here.below.items()
        }
        self.here = Stage(here.u + change, here.above + above, below)
        return change

    def shifted(self, x: Array) -> Stage:
        """What would be known if each site's gradient were more by x."""
        u, above, below = self.here
        more = {child: known + self.counts[child] * x for child, known in below.items()}
        return Stage(u, above + self.count * x, more)

    def learn(self, child: str, x: Array) -> None:
        """More of the gradient below the edge to a child."""
        below = self.here.below
        self.here = self.here._replace(below={**below, child: below[child] + x})

    def news(self, whole: Array, step: float | None) -> bytes:
        """Of the subtree's gradient what the edge above does not know; at first in own steps.

        With that the last move is one to remember.
        """
        data = b""
        if not self._root:
            rest = whole - self.here.above
            more, data = stepped(rest, own_step(rest) if step is None else step)
            self.here = self.here._replace(above=self.here.above + more)
        if step is not None:
            self._moves = [*self._moves, _less(self.here, self._before)][-MOVES:]
        return data

    def gamma(self, at: Stage) -> Array:
        """γ_i, the dual (D,): what the edges below know, less what the one above does."""
        below = sum(at.below.values(), np.zeros_like(at.u))
        return below if self._root else below - at.above


def _less(a: Stage, b: Stage) -> Stage:
    below = {child: known - b.below[child] for child, known in a.below.items()}
    return Stage(a.u - b.u, a.above - b.above, below)


def _sum(weights: Array, parts: Iterable[Array]) -> Array | float:
    """Term by term."""
    return sum((w * part for w, part in zip(weights.tolist(), parts, strict=False) if w), 0.0)
