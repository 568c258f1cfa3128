"""When rounds have come near enough for a proof, as each site sees it by itself.

A proof (`coke.maths.losses.excess`) adds up e_i(u), at a common u, and may come to accuracy · F(u)
and a little of F(0). A site's own part of that is may_i = accuracy · R_i(û_i) + slack · R_i(0). It
is near enough once what it said last, û_i, leaves no more than its part to gain by its own dual,
and no neighbour is farther off than that,

    e_i(û_i) ≤ may_i   and   ½κ ‖û_i − û_n‖² ≤ may_i   for all neighbours n.

The first needs the local solver, and is looked at where the second holds. All this proves nothing:
sites have different û_i, and the proof is of the root's. But most sites are nearer than the last.
So where a proof that is refused can be improved on without rounds, twice may_i will do; where
nothing is left then but to say so, half of it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coke.maths.algorithms.tree_newton import Aim
from coke.maths.arrays import Array
from coke.maths.losses.excess import Excess, excess, values
from coke.maths.losses.risk import Risk

_BOLD, _CAREFUL = 2.0, 0.5  # times may_i: where a refused proof can be improved on, and elsewhere


@dataclass(frozen=True)
class Nearness:
    """Of the sites whose risks these are."""

    risk: Risk
    goal: Aim
    rho: float  # γ_i = ρ g_i

    def of(self, hat: Array, g: Array, apart: Array) -> Array:
        """How far each site is (n,), in parts of what may be: 1 or less is near enough.

        From û_i and g_i (n, D), and the largest ‖û_i − û_n‖² (n,).
        """
        share = _BOLD if self.goal.further else _CAREFUL
        may = share * (self.goal.accuracy * values(self.risk, hat) + self.goal.slack * self._zero)
        far = parts(0.5 * self.risk.kappa * apart, may)
        for i in np.flatnonzero(far <= 1.0).tolist():
            left = self._excess(i)(self.rho * g[i : i + 1], hat[i : i + 1])
            far[i] = max(far[i], parts(left, may[i : i + 1])[0])
        return far

    @cached_property
    def _zero(self) -> Array:
        """R_i(0) (n,)."""
        return values(self.risk, np.zeros((len(self.risk.T), self.risk.size)))

    @cached_property
    def _prepared(self) -> dict[int, Excess]:
        return {}

    def _excess(self, i: int) -> Excess:
        """Of site i alone: with others its last bits could be others."""
        if i not in self._prepared:
            self._prepared[i] = excess(self.risk.rows(slice(i, i + 1)))
        return self._prepared[i]


def parts(cost: Array, may: Array | float) -> Array:
    """What a cost is in parts of what may be; nothing is no part, even of nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(cost <= 0.0, 0.0, cost / may)
