"""A site's own source, looked at now and then: what has come, and whether more is expected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coke.field.feeding import Offset
from coke.field.images import plain_rows
from coke.field.phases import Desk
from coke.field.streams import StreamMission

_LOOK = 0.05  # seconds between two looks at the source


@dataclass
class OwnSource:
    """Of one site on a stream."""

    desk: Desk
    mission: StreamMission
    offset: Offset = field(default_factory=dict)  # up to which it was read
    _fresh: float = 0.0  # when a row came last
    _looked: float = 0.0

    def anew(self) -> None:
        """As if a row had just come: nobody knows how long the site was away."""
        self._fresh = self.desk.clock()

    def look(self) -> tuple[Any, ...] | None:
        """For the journal: the offset behind rows that have come, and these."""
        now = self.desk.clock()
        if now - self._looked < _LOOK:
            return None
        self._looked = now
        table, offset, news = self.mission.inflow.read(self.offset)
        self.desk.news += news
        if table is None:
            self.offset = offset
            return None
        self._fresh = now
        return offset, *plain_rows(self.mission.clock.rows(table))

    @property
    def idle(self) -> bool:
        """Whether no row has come for as long as one is waited for."""
        return self.desk.clock() - self._fresh > self.mission.config.stream.wait

    @property
    def ended(self) -> bool:
        """Whether it has nothing more."""
        return self.idle or self.mission.inflow.ended
