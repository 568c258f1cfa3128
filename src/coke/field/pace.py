"""How often to say a thing again and how long to wait, and a site's way to its links."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from coke.errors import ConfigError
from coke.field.carriers.base import Carrier, Event

ROUNDS = 10  # usual rounds that a missing neighbour is waited for


class Pace(NamedTuple):
    """All in seconds."""

    tick: float = 0.05  # to wait for a frame before looking at the clock again
    again: float = 0.25  # until a thing is said again; twice as long each time …
    longest: float = 60.0  # … up to this
    patience: float | None = None  # for the missing; None: about ten usual rounds, at least …
    least: float = 2.0  # … this
    linger: float = 10.0  # at the end, for those who have not heard of it

    def checked(self) -> Pace:
        """Itself, or what is wrong."""
        if not (0 < self.tick <= self.again <= self.longest and self.linger >= 0):
            raise ConfigError(f"{self}: expected 0 < tick ≤ again ≤ longest and linger ≥ 0")
        if self.patience is not None and not self.patience > 0:
            raise ConfigError(
                f"patience={self.patience}: expected seconds, or inf to wait for ever"
            )
        return self


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

    def post(self, frames: Iterable[tuple[str, bytes]]) -> None:
        """Sends them, but to those who were forgotten and have no link any more."""
        for name, frame in frames:
            if name in self.carrier.neighbours:
                self.carrier.send(name, frame)

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
