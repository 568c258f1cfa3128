"""What all sites of a stream have in common, and how two that differ come to the same."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

MARK = 2  # bytes


class Common(NamedTuple):
    """Between two ticks."""

    alarms: tuple[int, ...]  # ticks
    agreed: int  # the tick of the basis, 0 before the first
    owed: int  # the age at which to try again to agree on one, 0: none is owed
    since: int  # ticks, since the last round
    age: int  # ticks, since the start or the last alarm
    w: float  # ticks remembered
    totals: tuple[bytes, ...]  # that make the basis

    @property
    def mark(self) -> bytes:
        """Two bytes that differ, all but certainly, where it does; a basis has its tick."""
        data = msgspec.msgpack.encode(self._replace(totals=()))
        return blake2b(data, digest_size=MARK).digest()

    def merged(self, other: Common) -> Common:
        """The same from both sides: the clock of the later alarm, and the later basis."""
        later = max(self, other, key=lambda one: (one.alarms[-1:], one))
        basis = max(self, other, key=lambda one: one.agreed)
        return later._replace(agreed=basis.agreed, totals=basis.totals)
