"""The stream of one site in the field, whose neighbours may be away: their edges rest.

An edge's dual moves only in rounds that both of its ends make. While a neighbour is away its edge
*rests*: the site goes on with what the neighbour said last, and with the dual as it is. When both
are there again they tell each other û as it stands, and the edge's dual, of which that of the lower
name counts: so the duals of the two ends cancel to the last bit, and so does their sum over all.

A basis is agreed on by those who are there, if they are most (`coke.talk.present`). Every message
has a mark of what all have in common, the basis among it: an edge whose ends differ rests, until
one end has taken over what the other has. Nobody waits for who is away.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from coke.learning.basis import Basis, common_basis
from coke.learning.common import Common
from coke.learning.near import Asks, Basing, Near
from coke.learning.ready import Ready
from coke.learning.streaming import BASES, Stream
from coke.maths.algorithms.alarms import Marks
from coke.maths.algorithms.online import Clock, levels_of
from coke.maths.arrays import Array, Sizes
from coke.maths.losses.problem import Quadratic
from coke.talk.conversation import outcome
from coke.talk.present import Attendance, or_none, swept_present
from coke.talk.sums import given

_AGAIN = 4  # a basis that was missed is tried again when a stream is so much of its age older


class Stand(NamedTuple):
    """Where one end of an edge that rests stands; nothing before the first round."""

    hat: Array  # (K·D,) û, exactly
    dual: Array  # (K·D,) g, as this end has it


class SiteStream(Stream):
    """One site's, with a place for each neighbour: 1, 2, … in the order of their names."""

    def __init__(self, ready: Ready, memory: float):
        super().__init__(ready, memory, Near.alone(ready))
        self.neighbours = tuple(sorted(ready.places[0].degrees))
        self.live = np.ones(len(self.neighbours), np.bool_)  # (d,) edges that do not rest
        self.totals: tuple[bytes, ...] = ()  # of which the basis was made
        self.describe = self._present

    def rest(self, name: str) -> None:
        """The edge to that neighbour rests from now on."""
        self.live[self.neighbours.index(name)] = False

    def _here(self, name: str) -> bool:
        return bool(self.live[self.neighbours.index(name)])

    def standing(self, name: str) -> Stand:
        """What to tell a neighbour whose edge rests."""
        if self.linked is None:
            return Stand(np.empty(0), np.empty(0))
        return Stand(self.linked.coke.hat[0], self.linked.duals[self.neighbours.index(name)])

    def resume(self, name: str, his: Stand, *, counts: bool) -> None:
        """Goes on with an edge that rested, from where its other end stands, if that fits.

        Where his dual counts, it is taken.
        """
        e, linked = self.neighbours.index(name), self.linked
        if {len(his.hat), len(his.dual)} != {0 if linked is None else linked.duals.shape[1]}:
            return
        self.live[e] = True
        if linked is None:
            return
        duals, said = linked.duals.copy(), linked.said.copy()
        said[1 + e] = his.hat
        if counts:
            duals[e] = 0.0 - his.dual
        self.linked = self.online.linked(linked.coke, duals, said)

    @property
    def common(self) -> Common:
        """What this site has in common with the others, as it knows it."""
        clock = self.clock
        return Common(
            alarms=tuple(self.alarms), agreed=self.agreed, owed=self.owed, since=clock.since,
            age=self.age, w=clock.w, totals=self.totals,
        )  # fmt: skip

    @property
    def mark(self) -> bytes:
        """Of that."""
        return self.common.mark

    def take_over(self, others: Common) -> None:
        """What others did without this site: what they forgot it forgets, and their basis is its.

        All its edges must rest with whoever does not know of it yet; marks see to that.
        """
        new = self.common.merged(others)
        basis = None if new.agreed == self.agreed else self._told_of(new)
        for _ in [tick for tick in new.alarms if tick not in self.alarms]:
            self._restart()
        self._join()  # by its own clock; the others have gone on since their last round
        self.statistics = self.statistics.scaled(self.beta**-new.since)
        self.clock, self.age = Clock(new.w, new.since), new.age
        self.alarms, self.owed = list(new.alarms), new.owed
        if basis is not None:
            self._take(basis)
            self.agreed, self.totals = new.agreed, new.totals
            self._begin(self._whitened(self._risk()))

    def _told_of(self, new: Common) -> Basis:
        """The basis of the others, from what made it."""
        return outcome(common_basis(given(new.totals), self.ready.agreement, self._own(0, 1)))

    def _begin(self, risk: Quadratic) -> None:
        """In a basis that others agreed on; who had none before has said nothing in it."""
        self._level = levels_of(risk.A)
        if self.linked is None:
            self.linked = self.online.idle(risk)

    def knows(self, told: tuple[Marks, ...]) -> None:
        """Notices (1, N) that were passed on while this site was away."""
        self.notices = [one.after(new) for one, new in zip(self.notices, told, strict=True)]

    def _moves(self, said: Array) -> Array:
        moves = super()._moves(said)
        moves[~self.live] = 0.0
        return moves

    @property
    def _listeners(self) -> Sizes:
        return np.array([[np.count_nonzero(self.live)]])

    def _restart(self) -> None:
        super()._restart()
        self.owed = 0

    def _present(self, most: int) -> Asks[Basis | None]:
        """What those come to who are there; None where these are too few, or this site missed it.

        Then it is tried again, later and later.
        """
        (place,), totals = self.ready.places, list[bytes]()
        who = Attendance(self._here, self.rest, self.near.N)
        talk = common_basis(
            partial(swept_present, place, who, totals), self.ready.agreement, self._own(0, most)
        )
        basis, spent = yield Basing([or_none(talk)])
        self.spent = self.spent + spent
        if basis is None:
            self.owed = self.age + max(BASES[0], self.age // _AGAIN)
        else:
            self.owed, self.totals = 0, tuple(totals)
        return basis
