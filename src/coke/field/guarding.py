"""A site that looks at what its edges do to it, and names or closes those no honest site has.

Tests that send nothing (`coke.maths.guards`): no neighbour's model may be of a size that none has,
no edge may pull harder than all honest sites together can, and the site's model may not be worse
for its own rows than none at all; then the edge that costs it most is to blame. What is suspicious
is said once of a neighbour.

With `guard` all know the graph and each other's keys, and what is suspicious calls for an audit
(`coke.field.auditing`), as what a liar does to one edge loads all others on its way. Whoever is
convicted there loses its edges for good, before θ moves by them. So does a neighbour whose words
are of no honest size, at once, and one that no audit has cleared a while after it was called. When
somebody was cut, or has come or gone, what was done takes a while to fade: until then nobody is to
blame. Who has closed an edge is pulled by the others as if it were there, so it says so to all, and
all begin anew (`coke.field.renewal`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from coke.field.auditing import CONVICTS, NodeAudit
from coke.field.edge import End
from coke.maths.arrays import Array
from coke.maths.guards import (
    AHEAD,
    ALARMS,
    FADES,
    FALLS_BACK,
    FIRST,
    LOOSE,
    LOUDER,
    WARNS,
    WORDS,
    HonestBounds,
)
from coke.maths.losses.risk import Risk

PULLS = "pulls harder than honest sites can"
COSTS = "costs this site most, whose model is worse for its own rows than none"
SPEAKS = "tells of a model of a size that no honest one has"


class _Measured(NamedTuple):
    """Of a neighbour: parts of a bound, from where on it is suspicious or to blame, and why."""

    who: str
    part: float
    warns: float
    cuts: float
    why: str
    calls: float = 0.0  # from where on an audit could say more


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
    usual: float = 1.0  # mean resistance of an edge, (N − 1) by the number of edges …
    leaves: frozenset[str] = frozenset()  # … which is not needed where it or that site is a leaf
    audit: NodeAudit | None = None  # where it closes edges
    suspects: dict[str, str] = field(default_factory=dict)  # who, and why
    _since: int = 0  # the round from which on it looks …
    _wide: bool = False  # … as far as known
    _shaken: int = 0  # until when the last edge that was closed anywhere moves models, as known
    _alarmed: dict[str, int] = field(default_factory=dict)  # about whom, first in which round …
    _least: float = 0.0  # … since they were as loud as that, and no less
    _peak: float = 1.0  # the loudest alarm so far, in parts of what is suspicious …
    _cleared: float = 0.0  # … and how loud they were when an audit found nobody

    @cached_property
    def _bounds(self) -> HonestBounds:
        """Of predicting zero at the mean site, by what all have said where that is by name."""
        mean = 0.0 if self.audit is None else self.audit.flows.mean
        return HonestBounds.of(self.risk, self.sites, max(self.v, mean))

    @cached_property
    def _model(self) -> float:
        """The size of the largest model that anybody learns alone, or this site does, or √v."""
        alone, known = self.risk.alone()[0], 0.0
        if self.audit is not None:
            known = self.audit.flows.model(self._bounds.least)
        return float(max(np.sqrt(self._bounds.loss), np.sqrt(alone @ alone), known))

    def cut(self, at: Look) -> str | None:
        """Whose edge is to be closed before the next θ; whom it suspects is noted."""
        if at.wide and not self._wide:
            self._wide, self._since = True, at.k + FADES
        if not at.ends:
            return None
        if self.audit is not None and self.audit.shaken > self._shaken:  # elsewhere one was closed
            self._shaken = self.audit.shaken
            self._since, self._alarmed = max(self._since, self._shaken), {}
            self._peak, self._cleared = 1.0, 0.0
        who = self._audited(at) or self._seen(at)
        if who is not None:
            self._since, self._alarmed = at.k + FADES, {}
        if who is None or who not in at.ends:
            return None
        if self.audit is not None:
            self.audit.closed(who, at.k)
        return who

    def _audited(self, at: Look) -> str | None:
        """Whom an audit convicts, be it a neighbour or not."""
        if self.audit is None:
            return None
        before = self.audit.judged
        found = self.audit.look(at.k, at.ends, at.rho, at.loss)
        if found is None:
            if self.audit.judged > before and self.audit.complete:  # who is silent clears nobody
                self._cleared = self._peak
            return None
        if found.who in at.ends:
            self.suspects.setdefault(found.who, found.why)
        return found.who

    def _seen(self, at: Look) -> str | None:
        """Whom this site closes by what it sees itself."""
        measured = self._measured(at)
        self._eased(at, max(one.part / one.warns for one in measured))
        for found in measured:
            sure = found.why == SPEAKS
            room = LOOSE if at.k < max(0 if sure else FIRST, self._since) else 1.0
            if found.part > room * found.warns:
                self.suspects.setdefault(found.who, f"{found.why}: {found.part:.2g} times")
                self._alarm(at, found)
            if self.audit is None or not found.part > room * found.cuts:
                continue
            if sure or self._unexplained(at, found.who):
                return found.who
        return None

    def _eased(self, at: Look, loud: float) -> None:
        """Bounds are of the optimum: where it gets better they may be met yet, so patience is new.

        It is not without end, as what was the least counts.
        """
        if not self._alarmed:
            self._least = loud
        elif LOUDER * loud < self._least:
            self._alarmed, self._least = dict.fromkeys(self._alarmed, at.k), loud

    def _alarm(self, at: Look, found: _Measured) -> None:
        """Calls for an audit, unless one has found nobody when things were much as bad."""
        loud = found.part / found.warns
        self._peak = max(self._peak, loud)
        self._alarmed.setdefault(found.who, at.k)
        if self.audit is not None and found.part > found.calls and loud > LOUDER * self._cleared:
            self.audit.call(at.k)

    def _unexplained(self, at: Look, who: str) -> bool:
        """Whether he has been suspicious for so long that audits have found nobody.

        Where all have stated their edges, what these add up to has spoken for everybody for now.
        """
        wait = 4 if self.audit is not None and self.audit.complete else 2
        return self._alarmed.get(who, at.k) <= at.k - wait * FADES

    def _measured(self, at: Look) -> list[_Measured]:
        """The largest word, the worst edge, and the worst for this site where its loss says so."""
        bounds = self._bounds
        words = {n: self._size(end) for n, end in at.ends.items()}
        loud = max(words, key=words.__getitem__)
        found = [_Measured(loud, words[loud], WORDS, WORDS, SPEAKS)]
        duals: dict[str, Array] = {n: at.rho * end.g for n, end in at.ends.items()}
        pulls = (self._pulled(name, gamma, at.loss) for name, gamma in duals.items())
        found.append(max(pulls, key=lambda one: one.part / one.warns))
        part = bounds.suffers(at.loss) if at.k >= FIRST else 0.0
        if part > WARNS[1]:
            worst = max(duals, key=lambda name: bounds.harms(duals[name]))
            found.append(_Measured(worst, part, WARNS[1], FALLS_BACK[1], COSTS))
        return found

    def _size(self, end: End) -> float:
        """Of what he says, in parts; nothing where this site says about as much: it was dragged."""
        his, mine = _norm(end.cp), _norm(end.own)
        return his / self._model if his > AHEAD * mine else 0.0

    def _pulled(self, name: str, gamma: Array, loss: float) -> _Measured:
        """By an edge, in parts of what the graph allows where that is known, or any graph does.

        Edges share what they carry: where there are many, one carries as much less as its
        resistance is, which is (N − 1) by the number of edges on average (Foster).
        """
        bound, warns, calls = self._bounds.edge * self.usual, WARNS[0], 0.0
        if self.audit is not None:
            bound, warns = self.audit.flows.edge(self.audit.name, name), ALARMS
            calls = self._tells(self.audit, name, loss)
        elif name in self.leaves:
            bound, warns = self._bounds.leaf, ALARMS
        size = _norm(gamma) if bound > 0 else 0.0
        bound = bound or 1.0
        return _Measured(name, size / bound, warns, FALLS_BACK[0], PULLS, calls / bound)

    def _tells(self, audit: NodeAudit, name: str, loss: float) -> float:
        """What an edge must carry before an audit could convict its other end.

        The sum over his edges is at most so many times the largest of them. It is compared with a
        bound at F(θ), of which this site's own loss is a guess. And the one edge of a leaf carries
        the gradient of its own risk, whoever pulls: it tells nothing of the other end.
        """
        flows, near = audit.flows, audit.flows.near
        if len(near.get(audit.name, ())) == 1:
            return flows.edge(audit.name, name)
        sum_ = CONVICTS * flows.node(self._bounds.suffers(loss) * flows.zero)
        return sum_ / max(len(near.get(name, ())), 1)


def _norm(x: Array) -> float:
    return math.sqrt(x.dot(x))
