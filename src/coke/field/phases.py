"""What all phases of a site's time on a network share, and the first of them: to meet.

Until training begins a site depends on every other, so what does not fit stops it. From then on
nothing that a neighbour says does: it is refused and counted. A site that has begun to agree before
meets nobody first: whoever is away then must not hold it up.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from coke.errors import ConfigError, MessageError
from coke.field.carriers.base import Carrier, Event
from coke.field.frames import Frame, Hello, Letter, encode
from coke.field.mission import Mission
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
    timers: dict[str, tuple[float, float]] = field(default_factory=dict)  # when, the wait after

    def post(self, frames: Iterable[tuple[str, Frame | Letter]]) -> None:
        """Sends them, but to those who were forgotten and have no link any more."""
        for name, frame in frames:
            if name in self.carrier.neighbours:
                self.carrier.send(name, encode(frame))

    def due(self, names: Iterable[str], longest: float = math.inf) -> list[str]:
        """Whose time has come to be told again, or for the first time."""
        now, found, most = self.clock(), list[str](), min(longest, self.pace.longest)
        for name in sorted(names):
            at, wait = self.timers.get(name, (-math.inf, self.pace.again))
            if at <= now:
                found.append(name)
                self.timers[name] = (now + min(wait, most), min(2 * wait, most))
        return found

    def restart(self, names: Iterable[str]) -> None:
        """Something new was said to them: it is said again after the first wait."""
        then = self.clock() + self.pace.again
        self.timers |= dict.fromkeys(names, (then, 2 * self.pace.again))


class Phase(Protocol):
    """A part of a site's time: the agent begins it, and lets it work between frames until over."""

    name: ClassVar[str]
    missing: Sequence[str]  # whom it waits for

    @property
    def together(self) -> Collection[str]:
        """Of them, those whose frames are of no use one by one."""
        ...

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
    begun: bool  # whether this site has been through this before
    greeted: set[str] = field(default_factory=set)
    missing: Sequence[str] = ()
    together: ClassVar[tuple[str, ...]] = ()

    def begin(self) -> None:
        """There is nothing to prepare: neighbours are greeted when they are due."""

    def over(self) -> bool:
        """Whether enough have been met; they then have something else to be told."""
        neighbours = self.desk.carrier.neighbours
        self.missing = sorted(neighbours - self.greeted)
        enough = 1 if self.mission.joins else len(neighbours)
        met = self.begun or len(self.greeted) >= enough
        if met:
            self.desk.restart(neighbours)
        return met

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
