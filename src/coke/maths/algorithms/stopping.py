"""Stopping without a coordinator: everyone learns in a bounded number of rounds that all are done.

A site is *ok* in a round if its θ is within tol of what it last said and that within tol of what
each neighbour last said. It counts ok rounds, but never beyond the least count it heard plus one:

    c_i ← 1 + min(c_i, c_n over the neighbours n) if ok, else 0.

So c_i = m + 1 says that m rounds ago everybody within m steps was ok. At c_i > diameter there was a
round in which all were: the site declares the end and sets a countdown of as many rounds as the
diameter, which spreads by the minimum. Hence all sites stop after the same round.

Words carry one number: the count, or minus the countdown. Arrays run over the agents at hand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
NEVER = 2**15  # a countdown that has not begun; counts stay below it


class Quiet(NamedTuple):
    """How long it has been quiet, and how long to go on."""

    count: Counts  # type: ignore[assignment]  # (A,) which hides tuple's own count
    countdown: Counts  # (A,)  rounds left with this one, or NEVER
    short: Flags = np.zeros(1, np.bool_)  # (A,)  the end was declared for want of budget or rounds

    def done(self) -> Flags:
        """Who stops after this round, if this is the least of its own and its neighbours'."""
        return np.asarray(self.countdown <= 1)

    def declared(self, who: Flags, diameter: int) -> Quiet:
        """With an end declared by some (A,) that can or may not go on."""
        ends = np.where(who, np.minimum(self.countdown, diameter), self.countdown)
        return Quiet(self.count, ends, self.short | who)


def at_first(agents: int) -> Quiet:
    """Before round 1."""
    return Quiet(np.zeros(agents, np.int64), np.full(agents, NEVER), np.zeros(agents, np.bool_))


def counted(least: Quiet, ok: Flags, diameter: int) -> Quiet:
    """What a word of this round says, from the least of the last round's words and one's own."""
    count = np.where(ok, np.minimum(least.count + 1, NEVER - 1), 0)
    running = np.where(least.countdown < NEVER, least.countdown - 1, NEVER)
    ends = np.where(count > diameter, np.minimum(running, diameter), running)
    return Quiet(count, ends, least.short)
