"""The first half of a site's time on a network: it meets its neighbours and agrees with them.

    meet     neighbours compare their settings, in words; a difference stops both, by name
    agree    the conversation of `coke.talk.conversation`, over links that lose things

Until training begins a site depends on every other, so what does not fit stops it. From then on
nothing that a neighbour says does: it is refused and counted. A site that has begun to train before
meets nobody first: whoever is away then must not hold it up.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from coke.errors import ConfigError, InputError, MessageError
from coke.field.agreeing import Agreeing
from coke.field.carriers.base import Carrier, Event
from coke.field.frames import Ask, Frame, Hello, Letter, Said, Totals, Want, encode
from coke.field.mission import Mission
from coke.field.store import Heard, Store
from coke.learning.ready import Ready
from coke.maths.ledger import Ledger
from coke.settings.declaration import AUTO, WAIT

ROUNDS = 10  # usual rounds that a missing neighbour is waited for


class Pace(NamedTuple):
    """How long an agent waits, and how soon it repeats itself; all in seconds."""

    tick: float = 0.05  # to wait for a frame before looking at the clock again
    again: float = 0.25  # until a thing is said again; twice as long each time …
    longest: float = 60.0  # … up to this
    patience: float | None = None  # for the missing; None: about ten usual rounds, at least …
    least: float = 2.0  # … this
    linger: float = 10.0  # at the end, for those who have not heard of it

    @classmethod
    def of(cls, patience: float | str) -> Pace:
        """For a site's setting: seconds, "auto" or "wait"."""
        waits: dict[float | str, float | None] = {AUTO: None, WAIT: math.inf}
        seconds = waits.get(patience, patience)
        if isinstance(seconds, str) or (seconds is not None and not seconds > 0):
            raise ConfigError(f'patience={patience!r}: expected seconds, "{AUTO}" or "{WAIT}"')
        return cls(patience=seconds)


@dataclass
class Desk:
    """What all phases of a site's process use: its links, its clock, and a timer a neighbour.

    A timer is due at once, then ever more rarely until something happens.
    """

    carrier: Carrier
    pace: Pace
    clock: Callable[[], float]
    alive: frozenset[str] = frozenset()  # neighbours with a live link, when last looked at
    refused: Counter[str] = field(default_factory=Counter)  # frames that made no sense
    news: list[Event] = field(default_factory=list)  # beside what the carrier tells
    _timers: dict[str, tuple[float, float]] = field(default_factory=dict)  # when, the wait after
    _look: float = -math.inf  # when to look at the links again

    def post(self, frames: Iterable[tuple[str, Frame | Letter]]) -> None:
        """Sends them, but to those who were forgotten and have no link any more."""
        for name, frame in frames:
            if name in self.carrier.neighbours:
                self.carrier.send(name, encode(frame))

    def due(self, names: Iterable[str]) -> list[str]:
        """Whose time has come to be told again, or for the first time."""
        now, found = self.clock(), []
        for name in sorted(names):
            at, wait = self._timers.get(name, (-math.inf, self.pace.again))
            if at <= now:
                found.append(name)
                self._timers[name] = (now + wait, min(2 * wait, self.pace.longest))
        return found

    def restart(self, names: Iterable[str]) -> None:
        """Something new was said to them: it is said again after the first wait."""
        then = self.clock() + self.pace.again
        self._timers |= dict.fromkeys(names, (then, 2 * self.pace.again))

    def events(self) -> tuple[Event, ...]:
        """What is new, of the links now and then only, for to look costs more than a word.

        Who has a new link is told everything again at once.
        """
        found, now = self.news, self.clock()
        if now >= self._look:
            self._look, self.alive = now + self.pace.again, self.carrier.alive()
            found = [*found, *self.carrier.events()]
        self.news = []
        for event in found:
            if event.kind == "up":
                self._timers.pop(event.who, None)
        return tuple(found)


class Phase(Protocol):
    """A part of a site's time: the agent begins it, and lets it work between frames until over."""

    name: ClassVar[str]
    missing: Sequence[str]  # whom it waits for

    def begin(self) -> None:
        """Called once, before the phase works."""
        ...

    def over(self) -> bool:
        """Whether the next phase can begin."""
        ...

    def work(self) -> bool:
        """All that is due now; whether there is something to tell before a frame is waited for."""
        ...


def _differing(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """Which settings differ, in words; nothing where none does."""
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    return "; ".join(
        f"{key} is {ours.get(key, 'not set')} here and {theirs.get(key, 'not set')} there"
        for key in keys[:8]
    )


@dataclass
class Meet:
    """Until enough neighbours have the same settings: all, or one for a site that joins later."""

    name: ClassVar[str] = "meet"
    desk: Desk
    mission: Mission
    begun: bool  # whether this site has trained before
    greeted: set[str] = field(default_factory=set)
    missing: Sequence[str] = ()

    def begin(self) -> None:
        """There is nothing to prepare: neighbours are greeted when they are due."""

    def over(self) -> bool:
        """Whether enough have been met."""
        neighbours = self.desk.carrier.neighbours
        self.missing = sorted(neighbours - self.greeted)
        enough = 1 if self.mission.joins else len(neighbours)
        return self.begun or len(self.greeted) >= enough

    def work(self) -> bool:
        """Greets those who have not answered."""
        hello = Hello(self.mission.settings, back=True)
        self.desk.post((name, hello) for name in self.desk.due(self.missing))
        return False

    def hear(self, sender: str, hello: Hello, *, training: bool) -> None:
        """Compares; ours is told first, so that the other end, too, can say what differs."""
        if hello.back:
            self.desk.post([(sender, Hello(self.mission.settings, back=False))])
        different = _differing(self.mission.settings, hello.settings)
        if different:
            text = (
                f"{self.mission.name} and {sender} do not fit together: {different}; "
                "make them equal at all sites"
            )
            if training:
                raise MessageError(text)
            time.sleep(0.2)  # so that the answer leaves before the link does
            raise ConfigError(text)
        self.greeted.add(sender)


@dataclass
class Agree:
    """Until the site knows what all sites know alike; from its own talk, or from a neighbour."""

    name: ClassVar[str] = "agree"
    desk: Desk
    mission: Mission
    store: Store
    greeted: set[str]  # who has the same settings
    result: Ready | None = None
    first: tuple[str, ...] = ()  # the neighbours of the agreement; none where one joins
    missing: Sequence[str] = ()
    ledger: Ledger = field(default_factory=Ledger)  # what it took
    _talking: Agreeing[Ready] | None = None

    def begin(self) -> None:
        """The conversation as far as it went, with the neighbours that it began with.

        Neighbours that came later took over its totals; those that went are in them.
        """
        m, neighbours = self.mission, sorted(self.desk.carrier.neighbours)
        self.desk.restart(neighbours)
        heard = self.store.heard(Heard(m.name, m.run, m.settings, {}, None))
        if heard.totals is not None:
            self.result = m.join(heard.totals)
        if heard.totals is not None or (m.joins and not heard.messages):
            return
        self.first = tuple(sorted(heard.messages) or neighbours)
        talking = self._talking = Agreeing(m.talk(self.first), self.first, heard.messages)
        self.desk.post(talking.advance())
        if not talking.done and [*self.first] != neighbours:
            raise ConfigError(
                f"the neighbours of {m.name!r} are {', '.join(neighbours)}, but the agreement "
                f"began with {', '.join(self.first)} and is not complete: restore them until it "
                "is, or begin a new run"
            )

    def over(self) -> bool:
        """Whether what all sites know alike is known here."""
        if self._talking is not None and self._talking.done:
            self.result, self.ledger = self._talking.result, self._talking.ledger
        if self.result is not None:
            self.desk.restart(self.desk.carrier.neighbours)
        return self.result is not None

    def work(self) -> bool:
        """Goes on where it can, and asks those it waits for."""
        talking, asks = self._talking, dict[str, Letter]()
        if talking is None:
            asks = dict.fromkeys(self.greeted, Want())
        else:
            if not talking.waiting():
                self._advance(talking)
            asks = dict(talking.asks())
        self.missing = sorted(asks)
        self.desk.post((name, asks[name]) for name in self.desk.due(asks))
        return False

    def hear(self, sender: str, letter: Said | Ask | Want | Totals) -> None:
        """A message of the agreement, or a question about it, at any time."""
        match letter:
            case Said() if self._talking is not None:
                self._talking.hear(sender, letter)
            case Ask() if self._talking is not None:
                said = self._talking.answer(letter, sender)
                self.desk.post([] if said is None else [(sender, said)])
            case Want() if self.result is not None:
                self.desk.post([(sender, Totals(tuple(self.result.totals)))])
            case Totals(totals) if self.mission.joins:
                self._taken(sender, totals)

    def _advance(self, talking: Agreeing[Ready]) -> None:
        """On disk before what follows from it is sent; and only what something follows from."""
        m, letters = self.mission, talking.advance()
        self.store.keep_heard(Heard(m.name, m.run, m.settings, talking.used, None))
        self.desk.post(letters)
        self.desk.restart(talking.heard)

    def _taken(self, sender: str, totals: Sequence[bytes]) -> None:
        """Kept only where they lead somewhere: another neighbour may tell better ones."""
        m = self.mission
        if self.result is not None or self._talking is not None or sender not in self.greeted:
            return
        try:
            agreed = m.join(totals)
        except InputError as error:
            raise MessageError(f"{sender} tells totals that are of no use: {error}") from error
        self.store.keep_heard(Heard(m.name, m.run, m.settings, {}, list(totals)))
        self.result = agreed
