"""Neighbours that a site on a stream waits for, and for how long.

One that waits itself, for others or for its rows, says so when it is asked: so only whoever is gone
is given up, at his neighbours, and not those who wait for him, at theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coke.field.phases import Desk

_ASKED = 4  # times in one's patience


@dataclass
class Attend:
    """Since the last that came."""

    desk: Desk
    wait: float  # seconds for which a site waits for rows
    _since: float = 0.0
    _here: dict[str, float] = field(default_factory=dict)  # when one said that it is there

    def anew(self) -> None:
        """What was waited for has come."""
        self._since = self.desk.clock()

    def here(self, name: str) -> None:
        """That neighbour has not said it yet, but will."""
        self._here[name] = self.desk.clock()

    def patience(self) -> float:
        """Seconds for which nothing need be heard of a neighbour: as set, else not too short."""
        pace = self.desk.pace
        return self.wait + pace.least if pace.patience is None else pace.patience

    def late(self, name: str) -> bool:
        """Whether a neighbour is given up."""
        heard = max(self._since, self._here.get(name, self._since))
        return self.desk.clock() - heard > self.patience()

    def due(self, missing: Iterable[str]) -> list[str]:
        """Whom to ask now."""
        return self.desk.due(missing, self.patience() / _ASKED)
