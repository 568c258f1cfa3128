"""Which of several kernels to go on with, from losses that all sites have added up.

Looks at 20, 50 and 99 ticks, just before the second basis is paid for, then every 50 up to 400.
Of a look only what has come since the last one counts, older ones a half, a quarter, …:

    C_j ← C_j/2 + m ℓ_j/ℓ_best,   v_j ∝ exp(−η C_j)     for m ticks of mean losses ℓ_j

    20, 50  without: ℓ_j > 3 ℓ_best, and also 1.5 times with no row above four usual ones
    99      without: ℓ_j > 1.3 ℓ_best
    …       without: ℓ_j > 2 ℓ_best
    400     the leader alone
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.maths.algorithms.hedge import settled
from coke.maths.arrays import Array, Mask

LOOKS = (20, 50, 99, *range(150, 401, 50))  # ticks
USUAL = 4.0  # mean losses of the best kernel here: what counts of a row at most, when clipped
_ETA = 0.02  # of a tick's mean loss, for what all sites' rows of a tick say is much the same
_KEPT = 0.5  # of costs, from look to look
_MOST = 10.0  # of a loss, in the best one's: one look cannot settle it for ever
_EARLY, _CLIPPED, _BEFORE, _LATER = 3.0, 1.5, 1.3, 2.0


class Trial(NamedTuple):
    """What kernels have cost."""

    cost: Array  # (J,)  C_j
    running: Mask  # (J,)  those that are still learnt with
    weights: Array  # (J,)  at the last look, before anybody went

    @classmethod
    def of(cls, J: int) -> Trial:
        """Before the first look."""
        return cls(np.zeros(J), np.ones(J, np.bool_), np.full(J, 1.0 / J))

    @property
    def v(self) -> Array:
        """(J,) weights, sum one; zero of those that have gone."""
        return _weights(self.cost, self.running)

    @property
    def leader(self) -> int:
        """The first of the heaviest."""
        return int(np.argmax(self.v))

    def led(self) -> Trial:
        """With the leader alone."""
        return self._replace(running=np.arange(len(self.cost)) == self.leader)

    def after(self, tick: int, ticks: int, losses: Array, clipped: Array) -> Trial:
        """A look at such a tick, by mean losses (J,) of the last so many, and the same clipped."""
        far, robust = (_over_best(x, self.running) for x in (losses, clipped))
        cost = _KEPT * self.cost + ticks * np.minimum(far, _MOST)
        weights = _weights(cost, self.running)
        found = Trial(cost, self.running, weights)
        if tick >= LOOKS[-1]:
            return found.led()
        gone = far > (_BEFORE if tick == LOOKS[2] else _LATER)
        if tick < LOOKS[2]:
            gone = (far > _EARLY) & (robust > _CLIPPED)
        gone[found.leader] = False  # it may have cost little in all, and much of late
        return found._replace(running=self.running & ~gone)


def _weights(cost: Array, running: Mask) -> Array:
    """v_j of those that run."""
    v = np.zeros(len(cost))
    v[running] = settled(cost[running], _ETA)
    return v


def _over_best(losses: Array, running: Mask) -> Array:
    """In units of the least of those that run."""
    return np.asarray(losses / max(float(losses[running].min()), 1e-300))
