"""Every interleaving of a few sites, a few steps and a few letters in flight, breadth first.

A state is what all sites hold in memory and on disk and what is on its way. Sites wake, send,
resend, are killed and start again from their image; letters arrive in any order, twice, or never.
In every state that can be reached two ends at the same step must agree, and a closed end must hold
nothing; and from every one it must still be possible to complete all steps. The functions under
test are those of `coke.field.edge`; a mutant of tests/machines.py replaces some of them.

Both ends may be closed and only one know the last of it, where letters are lost: nobody repeats
them but a site that leaves, for a while. So one end may stay in reserve and the other be closed for
good. Such an edge needs nothing, as closed ends hold nothing. But whoever knows less may open it
any time, when it hears that sites have come or gone: that is always allowed, and must still come to
an edge that is closed at both ends alike, or complete.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple, TypeVar

from coke.field import edge as edges
from coke.field.edge import Edge, End
from coke.field.frames import Frame, Standing, Word, decode, encode
from kit.machines import Model, line

T = TypeVar("T")


class Site(NamedTuple):
    """Numbers of ends: in memory, and on disk."""

    ends: tuple[int, ...]
    disk: tuple[int, ...]


class State(NamedTuple):
    """Everything."""

    sites: tuple[Site, ...]
    wires: tuple[frozenset[int], ...]  # frames on their way, per directed edge
    left: tuple[int, int, int]  # resets, closings or openings, rollbacks still to come


class Found(NamedTuple):
    """What the search saw."""

    states: int
    violations: int
    dead: int


class Search:
    """One model, searched; ends and frames are numbered, and what they do is remembered."""

    def __init__(self, model: Model):
        self.model, self.rules = model, model.machine
        self.ends: list[End] = []
        self.frames: list[Frame] = []
        self._numbers: dict[object, int] = {}
        self._heard: dict[tuple[int, int, bool], tuple[int, int | None]] = {}
        self._agree: dict[tuple[int, int], bool] = {}
        pairs = [(i, i + 1) for i in range(model.sites - 1)] + [(0, model.sites - 1)] * model.ring
        self.ways = [way for a, b in pairs for way in ((a, b), (b, a))]
        self.places = [[n for a, n in self.ways if a == i] for i in range(model.sites)]

    def end(self, end: End) -> int:
        """Its number."""
        plain = end._replace(own=end.own[0], cp=end.cp[0], g=end.g[0])
        key = tuple(plain)
        return self._number(key, self.ends, end)

    def frame(self, frame: Frame) -> int:
        """Its number, once it is written as bytes and read again."""
        frame = decode(encode(frame), 1)
        return self._number((type(frame), frame), self.frames, frame)

    def _number(self, key: object, table: list[T], value: T) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(table)
            table.append(value)
        return self._numbers[key]

    def start(self) -> State:
        """Nobody has said anything."""
        m = self.model
        sites = tuple(Site(ends, ends) for ends in map(self._first, range(m.sites)))
        wires: tuple[frozenset[int], ...] = (frozenset(),) * len(self.ways)
        return State(sites, wires, (m.resets, m.closings, m.rollbacks))

    def line(self, me: int, other: int) -> Edge:
        """One's end of the edge to another."""
        return line(me < other, bool(self.model.begins))

    def _first(self, i: int) -> tuple[int, ...]:
        """A site's ends before its first round."""
        at = edges.RESERVE if self.model.spare else edges.FIRST
        if self.model.begins:
            at = Standing(self.model.begins[i], False)
        return tuple(self.end(edges.zero(self.line(i, n), at)) for n in self.places[i])

    # what can happen to one site

    def woken(self, i: int, site: Site) -> Iterator[Site]:
        """A round: complete what can be, write what is missing, with any content."""
        lines = [self.line(i, n) for n in self.places[i]]
        each = [self._rounds(i, *end) for end in zip(lines, site.ends, strict=True)]
        for ends in product(*each):
            if ends != site.ends:
                yield Site(ends, self._disk(ends) if self.rules.durable_first else site.disk)

    def _rounds(self, i: int, edge: Edge, number: int) -> list[int]:
        end, last = self.ends[number], self.model.steps
        if end.due and end.s < last:
            end = self.rules.complete(edge, end)
            if not self.rules.outstanding:
                return [self.end(end)]
        if end.closed or end.out or (end.s == last and not self.rules.outstanding):
            return [self.end(end)]
        news = [0, i + 1] if self.model.silence else [(i + end.s) % 3]
        words = [Word(0, 0, b"", 0, bytes([x]) if x else b"") for x in news]  # silence: no change
        return [self.end(edges.freeze(end, word, 0.0)) for word in words]

    def _disk(self, ends: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.end(self.rules.kept(self.ends[e])) for e in ends)

    def changed(self, site: Site, place: int, end: int) -> Site:
        """With another end in one place; on disk at once where the epoch or closure changed."""
        old, new = self.ends[site.ends[place]], self.ends[end]
        ends = (*site.ends[:place], end, *site.ends[place + 1 :])
        if old.standing == new.standing:
            return site._replace(ends=ends)
        return Site(ends, self._disk(ends))

    # what can happen at all

    def next(self, s: State) -> Iterator[State]:
        """All states one event away."""
        for i, site in enumerate(s.sites):
            for woken in self.woken(i, site):
                yield self._with(s, i, woken)
            if not self.rules.durable_first and site.disk != self._disk(site.ends):
                yield self._with(s, i, site._replace(disk=self._disk(site.ends)))
            yield self._with(s, i, Site(site.disk, site.disk))  # killed
            for place, number in enumerate(site.ends):
                yield from self._said(s, i, place, self.ends[number])
            yield from self._strange(s, i)
        for way, wire in enumerate(s.wires):
            for frame in wire:
                without = self._on(s, way, wire - {frame})
                yield without  # lost
                yield self._delivered(without, way, frame)
                if self.model.double:
                    yield self._delivered(s, way, frame)

    def _with(self, s: State, i: int, site: Site) -> State:
        return s._replace(sites=(*s.sites[:i], site, *s.sites[i + 1 :]))

    def _on(self, s: State, way: int, wire: frozenset[int]) -> State:
        return s._replace(wires=(*s.wires[:way], wire, *s.wires[way + 1 :]))

    def _sent(self, s: State, way: int, frame: int) -> State:
        full = len(s.wires[way]) >= self.model.flight
        return s if full else self._on(s, way, s.wires[way] | {frame})

    def _said(self, s: State, i: int, place: int, end: End) -> Iterator[State]:
        """The word of this step, at first or from a timer."""
        if end.out is not None:
            way = self.ways.index((i, self.places[i][place]))
            yield self._sent(s, way, self.frame(end.out))
            yield self._sent(s, way, self.frame(end.out._replace(again=True)))

    def _delivered(self, s: State, way: int, frame: int) -> State:
        sender, me = self.ways[way]
        place = self.places[me].index(sender)
        site, key = s.sites[me], (s.sites[me].ends[place], frame, me < sender)
        if key not in self._heard:
            reply = self.rules.hear(self.line(me, sender), self.ends[key[0]], self.frames[frame])
            answer = None if reply.answer is None else self.frame(reply.answer)
            self._heard[key] = (self.end(reply.end), answer)
        end, answer = self._heard[key]
        s = self._with(s, me, self.changed(site, place, end))
        return s if answer is None else self._sent(s, self.ways.index((me, sender)), answer)

    def _strange(self, s: State, i: int) -> Iterator[State]:
        """Resets, closings and openings, and a disk that is empty again, as often as allowed."""
        resets, closings, rollbacks = s.left
        site = s.sites[i]
        if rollbacks:
            empty = self._first(i)
            fresh = Site(empty, empty)
            yield self._with(s, i, fresh)._replace(left=(resets, closings, rollbacks - 1))
        for place, number in enumerate(site.ends):
            end, edge = self.ends[number], self.line(i, self.places[i][place])
            after = []
            if resets and not end.closed:
                after.append((edges.bump(edge, end), (resets - 1, closings, rollbacks)))
            if closings:
                turn = edges.reopen if end.closed else edges.close
                after.append((turn(edge, end), (resets, closings - 1, rollbacks)))
                if self.model.spare and end.standing == edges.RESERVE:
                    after.append((edges.shut(edge, end), (resets, closings - 1, rollbacks)))
            other = self._other(s, i, place).standing
            if end.closed and other.closed and end.standing < other:
                after.append((edges.reopen(edge, end), s.left))
            for new, left in after:
                told = self._with(s, i, self.changed(site, place, self.end(new)))
                way = self.ways.index((i, self.places[i][place]))
                yield self._sent(told._replace(left=left), way, self.frame(new.standing))

    def _other(self, s: State, i: int, place: int) -> End:
        """The other end of that edge."""
        n = self.places[i][place]
        return self.ends[s.sites[n].ends[self.places[n].index(i)]]

    # what must hold

    def pairs(self, s: State) -> Iterator[tuple[int, int]]:
        """Both ends of every edge."""
        for a, b in self.ways[::2]:
            one = s.sites[a].ends[self.places[a].index(b)]
            yield one, s.sites[b].ends[self.places[b].index(a)]

    def agrees(self, one: int, other: int) -> bool:
        """I1 and I2, and that what is closed counts for nothing."""
        if (one, other) not in self._agree:
            a, b = self.ends[one], self.ends[other]
            same = a.standing != b.standing or (
                abs(a.s - b.s) <= 1 and (a.s != b.s or _mirror(a, b))
            )
            self._agree[one, other] = same and _nothing(a) and _nothing(b)
        return self._agree[one, other]

    def right(self, s: State) -> bool:
        """I1 and I2 on every edge."""
        return all(self.agrees(*pair) for pair in self.pairs(s))

    def over(self, s: State) -> bool:
        """All steps of all edges are complete, or both ends know that the edge is closed."""
        return all(
            a.standing == b.standing and (a.closed or a.s == b.s == self.model.steps)
            for a, b in ((self.ends[x], self.ends[y]) for x, y in self.pairs(s))
        )

    def run(self, first: bool = False) -> Found:
        """All states that can be reached, how many break a rule, and how many lead nowhere.

        With `first`, up to the first that breaks a rule. A disk that is empty again is outside
        what a site can survive: its ends disagree until the next word shows it. Then only this
        counts, that a state where all is complete and agrees can still be reached.
        """
        numbers = {self.start(): 0}
        queue, before, wrong, goals = deque(numbers), defaultdict(list), 0, []
        while queue and len(numbers) < self.model.most and not (first and wrong):
            s = queue.popleft()
            at, right = numbers[s], self.right(s)
            if right and self.over(s):
                goals.append(at)
            if not (right or self.model.rollbacks):
                wrong += 1
                continue
            for after in self.next(s):
                if after not in numbers:
                    numbers[after] = len(numbers)
                    queue.append(after)
                before[numbers[after]].append(at)
        return Found(len(numbers), wrong, len(numbers) - wrong - _reaching(goals, before))

    def walk(self, walks: int, length: int, seed: int) -> Found:
        """Random walks where there are too many states; from each end, calm weather must do."""
        draw, seen, wrong, dead = random.Random(seed), set[State](), 0, 0
        for _ in range(walks):
            s = self.start()
            for _ in range(length):
                s = draw.choice(list(self.next(s)))
                seen.add(s)
                wrong += not self.right(s)
            dead += not self.finishes(s)
        return Found(len(seen), wrong, dead)

    def finishes(self, s: State) -> bool:
        """Whether all steps get complete once every letter arrives and everybody is awake."""
        for _ in range(8 * self.model.steps):
            for i in range(len(s.sites)):
                for woken in [*self.woken(i, s.sites[i])][:1]:
                    s = self._with(s, i, woken)
                for place, number in enumerate(s.sites[i].ends):
                    for sent in [*self._said(s, i, place, self.ends[number])][1:]:
                        s = sent
            for way in [*range(len(s.wires))] * 2:  # twice: answers, too
                for frame in s.wires[way]:
                    s = self._delivered(self._on(s, way, s.wires[way] - {frame}), way, frame)
        return self.right(s) and self.over(s)


def _mirror(a: End, b: End) -> bool:
    return bool(a.tag == b.tag and a.own == b.cp and a.cp == b.own and a.g == -b.g)


def _nothing(end: End) -> bool:
    """Whether a closed end has no word that it waits with, and adds nothing to any sum."""
    said = end.s or end.out or any(end.box) or end.own.any() or end.cp.any() or end.g.any()
    return not (end.closed and said)


def _reaching(goals: list[int], before: dict[int, list[int]]) -> int:
    """How many states lead to a goal."""
    seen, stack = set(goals), list(goals)
    while stack:
        for at in before[stack.pop()]:
            if at not in seen:
                seen.add(at)
                stack.append(at)
    return len(seen)
