"""Where a site has been on the way down, and what its edges knew of the gradients there.

A move of u repeats parts of earlier moves, Σ_j a_j x_j, and adds a rest x. Of the gradient of the n
sites below an edge both ends expect that it changes by

    Σ_j a_j y_j + n c x,   y_j what was learnt with move j, x_j,

for gradients are nearly linear in u. Of what is news beyond that the site below tells, where it is
shorter, how much it repeats of what was news on this edge before: a site of few rows has its news
in few directions, and sites that differ repeat other parts of it. Sums go term by term, so that
both ends have the same bits on whatever machines.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from coke.maths.algorithms.steps import after_parts, decoded, own_step, parted, stepped
from coke.maths.algorithms.visited import MOVES, repeated
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
        self._told, self._heard = News(size), {child: News(size) for child in place.children}

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

    def learn(self, child: str, data: bytes) -> float:
        """More of the gradient below the edge to a child; and in which steps it is told."""
        below, (more, step) = self.here.below, self._heard[child].heard(data)
        self.here = self.here._replace(below={**below, child: below[child] + more})
        return step

    def news(self, whole: Array, step: float | None) -> bytes:
        """Of the subtree's gradient what the edge above does not know; at first in own steps.

        With that the last move is one to remember.
        """
        data = b""
        if not self._root:
            rest = whole - self.here.above
            more, data = self._told.said(rest, own_step(rest) if step is None else step)
            self.here = self.here._replace(above=self.here.above + more)
        if step is not None:
            self._moves = [*self._moves, _less(self.here, self._before)][-MOVES:]
        return data

    def gamma(self, at: Stage) -> Array:
        """γ_i, the dual (D,): what the edges below know, less what the one above does."""
        below = sum(at.below.values(), np.zeros_like(at.u))
        return below if self._root else below - at.above


class News:
    """What was news on one edge, at either end of it: the last of it can be repeated."""

    def __init__(self, size: int):
        self._size, self._last = size, list[Array]()

    def said(self, x: Array, step: float) -> tuple[Array, bytes]:
        """x, as it is told in such steps."""
        more, data = stepped(x, step)
        if self._last:
            a, again = repeated(x, np.array(self._last), np.zeros(len(self._last)))
            same = _sum(a, self._last)
            rest, body = stepped(x - same, step)
            shorter = len(again) + len(body) < len(data)
            data = after_parts(again, body) if shorter else after_parts(b"", data)
            more = rest + same if shorter else more
        return self._kept(more), data

    def heard(self, data: bytes) -> tuple[Array, float]:
        """What such bytes tell, and in which steps."""
        again, body = parted(data) if self._last else (b"", data)
        more, step = decoded(body, self._size)
        if again:
            more = more + _sum(decoded(again, len(self._last))[0], self._last)
        return self._kept(more), step

    def _kept(self, x: Array) -> Array:
        self._last = [*self._last, x][-MOVES:]
        return x


def _less(a: Stage, b: Stage) -> Stage:
    below = {child: known - b.below[child] for child, known in a.below.items()}
    return Stage(a.u - b.u, a.above - b.above, below)


def _sum(weights: Array, parts: Iterable[Array]) -> Array | float:
    """Term by term."""
    return sum((w * part for w, part in zip(weights.tolist(), parts, strict=False) if w), 0.0)
