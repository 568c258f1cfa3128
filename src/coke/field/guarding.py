"""A site that looks at what its edges do to it, and names or closes those no honest site has.

It sends nothing. Two tests (`coke.maths.guards`): no edge may pull harder than all honest sites
together can, and the site's model may not be worse for its own rows than none at all; then the edge
that costs it most is to blame. What is suspicious is said once of a neighbour; with `guard` what is
impossible closes its edge, for good, before θ moves by it. Then, and when sites have come or gone
elsewhere, what a liar has done takes a while to fade: until then only the worst is to blame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from coke.field.edge import End
from coke.maths.arrays import Array
from coke.maths.guards import CUTS, FADES, FIRST, LOOSE, WARNS, HonestBounds
from coke.maths.losses.risk import Risk

PULLS = "pulls harder than honest sites can"
COSTS = "costs this site most, whose model is worse for its own rows than none"


class _Measured(NamedTuple):
    """Of a neighbour: parts of a bound, from where on it warns and cuts, and of which bound."""

    who: str
    part: float
    warns: float
    cuts: float
    why: str


class Look(NamedTuple):
    """What a site sees of a round before θ moves."""

    k: int  # rounds so far
    wide: bool  # sites have come or gone
    loss: float  # of the last θ, on its own rows
    rho: float  # ρ
    ends: Mapping[str, End]  # those open, completed


@dataclass
class Watch:
    """One site's, over its rounds."""

    risk: Risk  # its own
    sites: int  # N
    v: float  # the mean loss of predicting zero; 0: not known, then it is the site's own
    guard: bool  # whether it closes edges
    suspects: dict[str, str] = field(default_factory=dict)  # who, and why
    _since: int = 0  # the round from which on it looks …
    _wide: bool = False  # … as far as known

    @cached_property
    def _bounds(self) -> HonestBounds:
        return HonestBounds.of(self.risk, self.sites, self.v)

    def cut(self, at: Look) -> str | None:
        """Whose edge is to be closed before the next θ; whom it suspects is noted."""
        if at.wide and not self._wide:
            self._wide, self._since = True, at.k + FADES
        if not at.ends:
            return None
        room = LOOSE if at.k < max(FIRST, self._since) else 1.0
        for found in self._measured(at):
            if found.part > room * found.warns:
                self.suspects.setdefault(found.who, f"{found.why}: {found.part:.2g} times")
            if self.guard and found.part > room * found.cuts:
                self._since = at.k + FADES
                return found.who
        return None

    def _measured(self, at: Look) -> list[_Measured]:
        """The worst edge, and the worst for this site where its own loss says so."""
        bounds = self._bounds
        duals: dict[str, Array] = {n: at.rho * end.g for n, end in at.ends.items()}
        pulls = {n: bounds.pulls(gamma) for n, gamma in duals.items()}
        worst = max(pulls, key=pulls.__getitem__)
        found = [_Measured(worst, pulls[worst], WARNS[0], CUTS[0], PULLS)]
        part = bounds.suffers(at.loss) if at.k >= FIRST else 0.0
        if part > WARNS[1]:
            worst = max(duals, key=lambda name: bounds.harms(duals[name]))
            found.append(_Measured(worst, part, WARNS[1], CUTS[1], COSTS))
        return found
