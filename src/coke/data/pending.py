"""Rows of one site's stream that have come and whose tick is not over yet: each once, by its tick.

late        its tick is over: it joins the next one, and counts by its own
too late    by more than `late` ticks: left out, for who knows whether it came before
twice       equal, bit for bit, to a row of the same tick: left out
ahead       more than `late` ticks beyond the row before it, and the next one is not: a wrong
clock; left out
gaps        NaN: left out
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from coke.data.arrivals import Counts, finite_rows
from coke.data.timed import Timed
from coke.maths.arrays import Array


class Remembered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of what is pending that is no row."""

    now: int | None
    last: int | None
    counts: Counts
    seen: list[tuple[int, list[bytes]]]
    held: int  # of the rows, the last so many


class Pending:
    """What has come of one site's stream."""

    def __init__(self, late: int):
        self._late, self.counts = late, Counts()
        self.now: int | None = None  # the last tick that is over
        self.last: int | None = None  # the tick of the latest row, or of one left out as a gap
        self.rows: list[tuple[int, Array, Any]] = []  # tick, inputs, target
        self._held: list[tuple[int, Array, Any]] = []  # far ahead, until the next row agrees
        self._seen: dict[int, set[bytes]] = {}

    def add(self, rows: Timed) -> None:
        """Rows in the order in which they came."""
        whole = finite_rows(rows.X, rows.y)
        self.counts = self.counts.with_(gaps=int((~whole).sum()))
        for t in range(len(rows.ticks)):
            tick = int(rows.ticks[t])
            if whole[t]:
                self._take((tick, rows.X[t], rows.y[t]))
            elif self.last is not None and tick - self.last <= self._late:
                self.last = max(self.last, tick)  # its time has come, though its numbers have not

    def _take(self, row: tuple[int, Array, Any]) -> None:
        tick = row[0]
        far = self.last is not None and tick > self.last + self._late
        agreed = far and bool(self._held) and abs(tick - self._held[-1][0]) <= self._late
        if agreed:  # time itself has moved on
            self._keep(self._held[-1])
        else:
            self.counts = self.counts.with_(ahead=len(self._held))
        self._held = [row] if far and not agreed else []
        if agreed or not far:
            self._keep(row)

    def _keep(self, row: tuple[int, Array, Any]) -> None:
        tick, x, y = row
        mark = blake2b(x.tobytes() + repr(y).encode(), digest_size=12).digest()
        seen = self._seen.setdefault(tick, set())
        if self.now is not None and tick < self.now - self._late:
            del self._seen[tick]
            self.counts = self.counts.with_(too_late=1)
        elif mark in seen:
            self.counts = self.counts.with_(twice=1)
        else:
            seen.add(mark)
            self.rows.append(row)
            self.last = tick if self.last is None else max(self.last, tick)

    def take(self, tick: int) -> tuple[Array, list[Any], Array]:
        """Ends a tick: the inputs (m, d), targets and ages of its rows, and of those before it."""
        due = [row for row in self.rows if row[0] <= tick]
        self.rows = [row for row in self.rows if row[0] > tick]
        due.sort(key=lambda row: row[0] < tick)  # as they came, those that are late last
        late = sum(row[0] < tick for row in due)
        self.counts, self.now = self.counts.with_(taken=len(due), late=late), tick
        for old in [one for one in self._seen if one < tick - self._late]:
            del self._seen[old]
        X = np.array([row[1] for row in due])
        return X, [row[2] for row in due], np.array([float(tick - row[0]) for row in due])

    @property
    def first(self) -> int | None:
        """The earliest tick of a row that waits."""
        return min((row[0] for row in self.rows), default=None)

    def memory(self) -> Remembered:
        """What must be remembered beside the rows."""
        seen = [(tick, sorted(marks)) for tick, marks in sorted(self._seen.items())]
        return Remembered(self.now, self.last, self.counts, seen, len(self._held))

    @property
    def kept(self) -> list[tuple[int, Array, Any]]:
        """All rows that wait."""
        return [*self.rows, *self._held]

    def remember(self, kept: Remembered, rows: list[tuple[int, Array, Any]]) -> None:
        """As it was."""
        self.now, self.last, self.counts = kept.now, kept.last, kept.counts
        self._seen = {tick: set(marks) for tick, marks in kept.seen}
        waiting = len(rows) - kept.held
        self.rows, self._held = rows[:waiting], rows[waiting:]
