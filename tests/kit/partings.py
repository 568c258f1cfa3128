"""Every order of the last letters between a few sites: how they part, breadth first.

A site begins to part at some time; what came before is dropped. It goes as soon as it may. Calm,
letters arrive once and in order; otherwise in any order, twice or never, timers repeat, and a site
may be killed, which costs it all that it had heard. Under test is `coke.field.parting.Parting`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coke.field.frames import Check, Parted
from coke.field.parting import Parting

LATER, HERE, GONE = range(3)
MINE = Check(0, 0, np.empty(0), had=False)
LETTERS = (MINE, MINE._replace(had=True), Parted())
PAIR, PATH, TRIANGLE_OF_EDGES = ((0, 1),), ((0, 1), (1, 2)), ((0, 1), (1, 2), (0, 2))
Ends = tuple[tuple[bool, bool], ...]  # an end knows the other's, and that the other knows its own


class Parters(NamedTuple):
    """Everything."""

    at: tuple[int, ...]  # LATER, HERE or GONE, of every site
    ends: Ends  # a directed edge each
    wires: tuple[tuple[int, ...], ...]  # numbers of letters on their way, the same
    kills: int = 0  # still to come
    forgot: frozenset[int] = frozenset()  # sites that were killed


class Ending(NamedTuple):
    """What the search saw."""

    states: int
    early: int  # states in which one has gone whose end a neighbour lacks, but forgot nothing
    stranded: int  # in which one waits for somebody who has gone
    dead: int  # from which not all can come to have gone, or to wait for those who have


@dataclass(frozen=True)
class Partings:
    """Sites and their edges, searched."""

    edges: tuple[tuple[int, int], ...]
    calm: bool = True
    kills: int = 0
    flight: int = 2  # letters on a wire, where they can be lost
    hear: Callable[..., tuple[Parting, Check | Parted | None]] = Parting.hear
    settled: Callable[[Parting], bool] = lambda at: at.settled

    @property
    def ways(self) -> tuple[tuple[int, int], ...]:
        """Both directions of every edge; the end of (i, n) is at i."""
        return tuple(way for a, b in self.edges for way in ((a, b), (b, a)))

    def run(self) -> Ending:
        """All states."""
        ways, sites = self.ways, 1 + max(max(edge) for edge in self.edges)
        nothing = ((False, False),) * len(ways)
        start = Parters((LATER,) * sites, nothing, ((),) * len(ways), self.kills)
        seen, todo, before = {start}, deque([start]), defaultdict[Parters, list[Parters]](list)
        while todo:
            state = todo.popleft()
            for after in self.next(state):
                before[after].append(state)
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        ended = [state for state in seen if self._ended(state)]
        reach, todo = set(ended), deque(ended)
        while todo:
            for state in before[todo.popleft()]:
                if state not in reach:
                    reach.add(state)
                    todo.append(state)
        early, stranded = (sum(map(f, seen)) for f in (self._early, self._stranded))
        return Ending(len(seen), early, stranded, len(seen) - len(reach))

    def next(self, s: Parters) -> Iterator[Parters]:
        """All states one event away."""
        for i, at in enumerate(s.at):
            if at == LATER:
                yield self._begun(s, i)
            if at == HERE and s.kills:
                yield self._killed(s, i)
        for way, (i, _) in enumerate(self.ways):
            if s.at[i] == HERE and not self._content(s, way) and not self._busy(s, way):
                yield self._said(s, way)
            wire = s.wires[way]
            for k in range(min(1, len(wire)) if self.calm else len(wire)):
                rest = s._replace(wires=_put(s.wires, way, (*wire[:k], *wire[k + 1 :])))
                yield self._heard(rest, way, wire[k])
                if not self.calm:
                    yield rest  # lost
                    yield self._heard(s, way, wire[k])  # twice

    def _busy(self, s: Parters, way: int) -> bool:
        """Whether a timer would not be due yet: calm, letters are quicker than timers."""
        return self.calm and bool(s.wires[way] or s.wires[self.ways.index(self.ways[way][::-1])])

    def _begun(self, s: Parters, i: int) -> Parters:
        s = s._replace(at=_put(s.at, i, HERE))
        for way, (a, _) in enumerate(self.ways):
            s = self._said(s, way) if a == i else s
        return s

    def _killed(self, s: Parters, i: int) -> Parters:
        ends = [
            (False, False) if a == i else e for e, (a, _) in zip(s.ends, self.ways, strict=True)
        ]
        at, forgot = _put(s.at, i, LATER), s.forgot | {i}
        return s._replace(at=at, ends=tuple(ends), kills=s.kills - 1, forgot=forgot)

    def _said(self, s: Parters, way: int) -> Parters:
        return self._sent(s, way, _known(s.ends[way]).says(MINE))

    def _sent(self, s: Parters, way: int, letter: Check | Parted) -> Parters:
        number = 2 if isinstance(letter, Parted) else int(letter.had)
        wire = (*s.wires[way], number) if self.calm else tuple(sorted({*s.wires[way], number}))
        return s if len(wire) > self.flight and not self.calm else s._replace(
            wires=_put(s.wires, way, wire)
        )  # fmt: skip

    def _heard(self, s: Parters, way: int, number: int) -> Parters:
        sender, me = self.ways[way]
        back = self.ways.index((me, sender))
        if s.at[me] != HERE:
            return s
        after, answer = self.hear(_known(s.ends[back]), LETTERS[number], MINE)
        s = s._replace(ends=_put(s.ends, back, (after.his is not None, after.had)))
        s = s if answer is None else self._sent(s, back, answer)
        mine = [way for way, (a, _) in enumerate(self.ways) if a == me]
        return s._replace(at=_put(s.at, me, GONE)) if all(self._content(s, w) for w in mine) else s

    def _content(self, s: Parters, way: int) -> bool:
        return self.settled(_known(s.ends[way]))

    def _early(self, s: Parters) -> bool:
        """Whether one has gone whose end a neighbour lacks that has forgotten nothing."""
        return any(
            s.at[n] == GONE and not end[0] and i not in s.forgot
            for (i, n), end in zip(self.ways, s.ends, strict=True)
        )

    def _waits(self, s: Parters, way: int) -> bool:
        """Whether this end can only wait: the other has gone, and no letter is on its way."""
        i, n = self.ways[way]
        silent = s.at[n] == GONE and not s.wires[self.ways.index((n, i))]
        return s.at[i] == HERE and silent and not self._content(s, way)

    def _stranded(self, s: Parters) -> bool:
        return any(self._waits(s, way) for way in range(len(self.ways)))

    def _ended(self, s: Parters) -> bool:
        """Whether everybody has gone, or lacks nothing but letters of those who have."""
        return all(
            s.at[i] == GONE or self._waits(s, way) or (s.at[i] == HERE and self._content(s, way))
            for way, (i, _) in enumerate(self.ways)
        )


def _known(end: tuple[bool, bool]) -> Parting:
    return Parting(MINE if end[0] else None, end[1])


def _put(row: tuple, i: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*row[:i], value, *row[i + 1 :])


def mute(at: Parting, letter: Check | Parted, own: Check) -> tuple[Parting, Check | Parted | None]:
    """A mutant of `Parting.hear`: who receives CHECKED says nothing more."""
    after, answer = at.hear(letter, own)
    return after, None if isinstance(answer, Parted) else answer
