"""All begin anew once one of them has closed its edge to a liar: together, in a round all know.

The duals of the other edges still bear what the liar pulled with. Without its edge nothing holds
against them: models leap by what it had, and it goes out of them no faster than it came in. So
whoever knows of an edge that was closed stands still until all do, which on a graph that all know
takes as many rounds as the farthest site is steps away; then every site goes back to the model it
learns alone, and every edge to zero, as before round 1.

A notice says in which round its edge was closed: of those known the earliest counts, and none that
falls within `FADES` rounds of a new beginning, where duals have hardly grown. So all begin anew in
the same round, a liar's own notices cost so many rounds each, and no edge begins anew too soon
(`coke.field.edge.LEAST`).
"""

from __future__ import annotations

from dataclasses import dataclass

from coke.maths.guards import FADES


@dataclass
class Renewal:
    """One site's plan."""

    at: int = 0  # the round after which all begin anew, or last did; 0: when training begins
    closed: int = 0  # the round in which the edge was closed for which they do
    _done: bool = True

    def plan(self, closed: int, reach: int, k: int) -> int:
        """After a notice that is heard in round k: the round in which all begin anew.

        What says that it is of long ago, or of a round to come, is of now.
        """
        closed = closed if k - FADES - reach <= closed <= k else k
        at = closed + reach + 1
        if at > self.at + FADES if self._done else at < self.at:
            self.at, self.closed, self._done = at, closed, False
        return self.at

    def covers(self, k: int) -> bool:
        """Whether duals of that round are what is to be given up, or have hardly grown again.

        Then no bound on them holds, as those are of the optimum.
        """
        return self.closed < k < self.at + FADES

    @property
    def still(self) -> bool:
        """Whether this site waits for it."""
        return not self._done

    def due(self, k: int) -> bool:
        """Whether it is now; once."""
        now = self.still and k >= self.at
        self._done = self._done or now
        return now
