"""The stream of one site in the field, whose neighbours may be away: their edges rest.

An edge's dual moves only in rounds that both of its ends make. While a neighbour is away its edge
*rests*: the site goes on with what the neighbour said last, and with the dual as it is. When both
are there again they tell each other û as it stands, and the one that is a step ahead, having heard
the other's word of a round whose own word the other has not, takes that step back: so the duals of
the two ends cancel to the last bit, and so does their sum over all sites.

A basis needs everybody. Whoever has an edge that rests says so, as of drift, and later that it is
whole again; a basis that is due meanwhile is agreed on once all are known to be whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.errors import ConvergenceError
from coke.learning.near import Near
from coke.learning.ready import Ready
from coke.learning.streaming import Stream
from coke.maths.algorithms.alarms import NEVER, Marks
from coke.maths.algorithms.online import Clock
from coke.maths.arrays import Array

RESTS, WHOLE = 2, 3  # of the notices


class Hand(NamedTuple):
    """What one end of an edge that rests tells the other, to go on with it."""

    steps: int  # rounds in which the edge has moved, as this end knows it
    hat: Array  # (K·D,) û, exactly; empty before the first round


class Common(NamedTuple):
    """What the others have in common, for one that was away."""

    clock: Clock
    age: int
    agreed: int
    alarms: tuple[int, ...]
    owed: bool


class SiteStream(Stream):
    """One site's, with a place for each neighbour: 1, 2, … in the order of their names."""

    def __init__(self, ready: Ready, memory: float):
        super().__init__(ready, memory, Near.alone(ready))
        self.neighbours = tuple(sorted(ready.places[0].degrees))
        d, nothing = len(self.neighbours), self.notices[0]
        self.notices += [nothing, nothing]
        self.live = np.ones(d, np.bool_)  # (d,) edges that do not rest
        self.steps = np.zeros(d, np.int64)  # (d,)
        self.delta = np.zeros((d, self.K * self.D))  # (d, K·D) an edge's last move
        self.owed = False  # a basis

    def rest(self, name: str) -> None:
        """The edge to that neighbour rests from now on."""
        self.live[self.neighbours.index(name)] = False

    def hand(self, name: str) -> Hand:
        """What to tell a neighbour whose edge rests."""
        hat = np.empty(0) if self.linked is None else self.linked.coke.hat[0]
        return Hand(int(self.steps[self.neighbours.index(name)]), hat)

    def resume(self, name: str, his: Hand) -> None:
        """Goes on with an edge that rested, from what its other end has told."""
        e, linked = self.neighbours.index(name), self.linked
        ahead = int(self.steps[e]) - his.steps
        if abs(ahead) > 1 or (linked is not None and his.hat.shape != linked.coke.hat[0].shape):
            raise ConvergenceError(
                f"the edge to {name!r} has moved {self.steps[e]} times here and {his.steps} times "
                "there: one of the two has lost its memory; begin a new stream"
            )
        self.live[e] = True
        if linked is None:
            return
        duals, said = linked.duals.copy(), linked.said.copy()
        if ahead == 1:
            duals[e] -= self.delta[e]
            self.steps[e] -= 1
        said[1 + e] = his.hat
        self.linked = self.online.linked(linked.coke, duals, said)

    @property
    def common(self) -> Common:
        """For a neighbour that was away."""
        return Common(self.clock, self.age, self.agreed, tuple(self.alarms), self.owed)

    def caught_up(self, others: Common) -> None:
        """With what the others did while this site was away: what they forgot it forgets, too."""
        missed = [tick for tick in others.alarms if tick not in self.alarms]
        for _ in missed:
            self._restart()
        self._join()  # by its own clock; the others have gone on since their last round
        self.statistics = self.statistics.scaled(self.beta**-others.clock.since)
        self.clock, self.age, self.agreed = others.clock, others.age, others.agreed
        self.alarms, self.owed = list(others.alarms), others.owed

    def knows(self, told: tuple[Marks, ...]) -> None:
        """Notices (1, N) that were passed on while this site was away."""
        self.notices = [one.after(new) for one, new in zip(self.notices, told, strict=True)]

    def _moves(self, said: Array) -> Array:
        moves = super()._moves(said)
        moves[~self.live] = 0.0
        self.delta = np.where(self.live[:, None], moves, self.delta)
        self.steps = self.steps + self.live
        return moves

    def _seen_whole(self) -> None:
        """Says that an edge rests, or that none does, but not twice within a notice's way."""
        now, reach = self.ticks, self.notices[RESTS].reach
        mine = [int(self.notices[kind].heard[0, 0]) for kind in (RESTS, WHOLE)]
        resting, known = not self.live.all(), mine[0] > mine[1]
        if resting != known and now - max(mine) > reach:
            kind = RESTS if resting else WHOLE
            self.notices[kind] = self.notices[kind].marked(now)

    def _whole(self, anew: bool) -> bool:
        """Whether all are known to be whole, by notices that have come to all."""
        self._seen_whole()
        last = self.ticks - self.notices[RESTS].reach
        rests, whole = (self.notices[kind].heard for kind in (RESTS, WHOLE))
        away = bool(((rests <= last) & (rests > np.where(whole <= last, whole, NEVER))).any())
        wanted = anew or self.owed
        self.owed = wanted and away
        return wanted and not away
