"""How often to say a thing again, and how long to wait for the missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from coke.errors import ConfigError

ROUNDS = 10  # usual rounds that a missing neighbour is waited for


class Pace(NamedTuple):
    """Seconds."""

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

    def patience_for(self, usual: float) -> float:
        """How long to wait for the missing, where a round usually takes so long."""
        return max(ROUNDS * usual, self.least) if self.patience is None else self.patience


class Timers:
    """One a neighbour: due at once, then ever more rarely until something happens."""

    def __init__(self, pace: Pace, clock: Callable[[], float]):
        self._pace, self._clock = pace, clock
        self._next: dict[str, tuple[float, float]] = {}  # when, and the wait after that

    def due(self, names: Iterable[str]) -> list[str]:
        """Whose time has come; the first time a name is asked about, it has to wait once."""
        now, found = self._clock(), []
        for name in sorted(names):
            at, wait = self._next.get(name, (-math.inf, self._pace.again))
            if at <= now:
                found.append(name)
                self._next[name] = (now + wait, min(2 * wait, self._pace.longest))
        return found

    def now(self, name: str) -> None:
        """A new link: say it again at once."""
        self._next.pop(name, None)

    def restart(self, names: Iterable[str]) -> None:
        """Something new was said to them: it is said again after the first wait."""
        then = self._clock() + self._pace.again
        self._next |= dict.fromkeys(names, (then, 2 * self._pace.again))
