"""Edges of a stream that rest, and how two sites that are there again go on with theirs.

    probe      I am at this tick; when could we go on?           since = 0, in answer −1
    proposal   from tick S on; the lower name makes it           since = S
    hand       I have ended tick S − 1 and hold; here I stand    since = S, with the hand

Both hold before tick S until each has the other's hand, or patience is over: then nothing has
happened. A hand is told again to whoever lacks it. Where the two have not the same in common, they
come to it first, and try again. A site whose edges all rest goes no further than the neighbours it
hears of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coke.field.phases import Desk
from coke.field.pulses import Hand, Join, Rests
from coke.field.ticking import Resumed, Ticking

_NEAR = 25  # ticks that two sites may be apart for one of them to hold
_LONGEST = 30.0  # seconds, of a patience without an end
_ALONE = 5.0  # seconds after which who hears of nobody goes on
_SOON = 2  # ticks from a proposal on
_OFTEN = 4  # times in one's patience that a neighbour with a link is asked
_LONG = 3  # times one's patience for a tick to come from which two wanted to go on


@dataclass
class Rejoin:
    """What a site knows of neighbours whose edges rest."""

    desk: Desk
    name: str
    ticking: Ticking
    patience: Callable[[], float]
    gone: set[str] = field(default_factory=set)  # whose edge rests there already
    _at: dict[str, tuple[int, float]] = field(default_factory=dict)  # neighbours' ticks, and when
    _target: dict[str, int] = field(default_factory=dict)  # ticks to go on from
    _hands: dict[str, Hand] = field(default_factory=dict)  # theirs
    _held: dict[str, float] = field(default_factory=dict)  # since when we hold for them
    given: dict[str, Join] = field(default_factory=dict)  # with which edges have gone on
    _wanted: dict[str, float] = field(default_factory=dict)  # since when there is a target
    ended: bool = False  # whether no tick comes any more
    _began: float | None = None

    @property
    def _now(self) -> int:
        return self.ticking.stream.ticks

    def resting(self) -> list[str]:
        """Neighbours whose edges rest."""
        s = self.ticking.stream
        return [name for name, live in zip(s.neighbours, s.live, strict=True) if not live]

    def _probe(self, since: int = 0) -> Join:
        return Join(self._now, since)

    def _hand(self, name: str, since: int) -> Join:
        s = self.ticking.stream
        hat, dual = (x.astype("<f8").tobytes() for x in s.standing(name))
        notices = self.ticking.packed(tuple(one.heard for one in s.notices))
        return Join(self._now, since, Hand(hat, dual, s.common, notices))

    def work(self) -> None:
        """Tells those whose edges rest what is due; forgets who was held for in vain."""
        now = self.desk.clock()
        self._began = now if self._began is None else self._began
        patience = min(self.patience(), _LONGEST)
        late = [n for n, since in self._held.items() if now - since > patience]
        most = _LONG * patience
        for name in [*late, *(n for n, since in self._wanted.items() if now - since > most)]:
            self._cancel(name)
        near = [name for name in self.resting() if name in self.desk.alive or name in self._target]
        far = [name for name in self.resting() if name not in near]
        for name in [*self.desk.due(near, patience / _OFTEN), *self.desk.due(far)]:
            if name in self._held:
                self.desk.post([(name, self._hand(name, self._target[name]))])
            elif name not in self._target:
                self.desk.post([(name, self._probe())])

    def _cancel(self, name: str) -> None:
        for known in (self._target, self._hands, self._held, self._wanted):
            known.pop(name, None)

    def held(self) -> bool:
        """Whether the next tick must not end: somebody is held for whose hand is not there."""
        now, wanting = self._now, False
        for name, since in list(self._target.items()):
            if since <= now:
                self._cancel(name)
            elif since == now + 1 and name not in self._held:
                self._held[name] = self.desk.clock()
                self.desk.post([(name, self._hand(name, since))])
            wanting |= since == now + 1 and name not in self._hands
        return wanting

    @property
    def all_ended(self) -> bool:
        """Whether no tick comes any more, and no edge rests."""
        return self.ended and not self.resting()

    @property
    def ready(self) -> bool:
        """Whether an edge can go on now."""
        return any(since == self._now + 1 and n in self._hands for n, since in self._target.items())

    def may(self) -> bool:
        """Whether a site whose edges all rest may go on: it runs away from nobody it hears of."""
        if self.ticking.stream.live.any() or self._target:
            return True
        far = self._farthest
        if far is not None:
            return self._now < far
        waited = 0.0 if self._began is None else self.desk.clock() - self._began
        return waited > min(self.patience(), _ALONE)

    def behind(self) -> bool:
        """Whether all edges rest, and a neighbour has come further."""
        far = None if self.ticking.stream.live.any() else self._farthest
        return far is not None and self._now < far

    @property
    def _farthest(self) -> int | None:
        """The last tick of neighbours that were heard of lately, if any was."""
        since = self.desk.clock() - min(self.patience(), _LONGEST)
        return max((tick for tick, when in self._at.values() if when >= since), default=None)

    def due(self) -> tuple[Resumed, ...]:
        """The edges that go on with the next tick, or whose other ends have more in common."""
        mark, found = self.ticking.stream.mark, list[Resumed]()
        for name in [n for n, since in self._target.items() if since == self._now + 1]:
            self.desk.post([(name, self._hand(name, self._target[name]))])
            found.append(Resumed(name, self._hands[name]))
            self._cancel(name)
        if any(one.hand.common.mark != mark for one in found):
            for name in list(self._target):
                self._cancel(name)  # what they were told of this end is no longer so
        return tuple(found)

    def goes_on(self, name: str, his: Hand) -> None:
        """That edge does, if its ends have the same in common; its other end may lack our hand."""
        self.gone.discard(name)
        if his.common.mark == self.ticking.stream.mark:
            self.given[name] = self._hand(name, self._now + 1)

    def _joined(self, name: str) -> int:
        return self.given[name].since if name in self.given else 0

    def rests(self, sender: str, letter: Rests) -> None:
        """The other end has gone on without this one, or goes."""
        if sender not in self.resting() and letter.tick >= self._joined(sender):
            self.gone.add(sender)

    def hear(self, sender: str, letter: Join) -> None:
        """A probe, a proposal or a hand."""
        if sender not in self.resting():
            self._lacking(sender, letter)
            return
        at = letter.at if letter.hand is None else letter.since - 1
        self._at[sender] = max(at, self._at.get(sender, (0, 0.0))[0]), self.desk.clock()
        if letter.since <= 0:
            self._probed(sender, letter)
        elif self._now < letter.since <= self._now + 4 * _NEAR:
            self._aim(sender, letter.since)
            if letter.hand is not None:
                self._hands[sender] = letter.hand
        else:
            self.desk.post([(sender, self._probe())])

    def _lacking(self, sender: str, letter: Join) -> None:
        """The edge rests there but not here: he lacks our hand, or has something else by now."""
        given, joined = self.given.get(sender), self._joined(sender)
        other = given is None or _differ(given, letter)
        if letter.at < joined and not other:
            self.desk.post([(sender, self.given[sender]._replace(at=joined))])
        elif letter.at < joined or letter.since != joined:
            self.gone.add(sender)

    def _aim(self, name: str, since: int) -> None:
        if self._target.get(name) != since:
            self._cancel(name)
            self._target[name], self._wanted[name] = since, self.desk.clock()

    def _probed(self, sender: str, letter: Join) -> None:
        at, lower = letter.at, self.name < sender
        if self._target.get(sender, at + 1) <= at:  # he has gone by
            self._cancel(sender)
        if lower and abs(at - self._now) <= _NEAR:
            soon = 1 if self.ended else _SOON
            since = self._target.get(sender) or max(at, self._now) + soon
            self._aim(sender, since)
            self.desk.post([(sender, self._probe(since))])
        elif letter.since == 0 and (lower or sender not in self._target):
            self.desk.post([(sender, self._probe(-1))])  # so that he knows how far it is


def _differ(one: Join, other: Join) -> bool:
    """Whether two hands are of ends that have not the same in common."""
    if one.hand is None or other.hand is None:
        return False
    return one.hand.common.mark != other.hand.common.mark
