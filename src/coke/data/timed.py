"""Rows of a stream: numbers, or gaps, each with its tick; text and dates are refused by name.

A tick is a whole number: the time, in days since 1970 or in the column's own unit, over the length
of a tick, rounded down. A row without a time, a target or a class has a gap, as one without an
input has: it is NaN throughout, and `coke.data.arrivals` counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from coke.data.arrivals import Ticks
from coke.data.kinds import input_names
from coke.data.raw import DATE, NUMBER, Kind, read_columns
from coke.data.tables import Labels
from coke.errors import DataError, unknown
from coke.maths.arrays import Array

_DAY, _HOUR = 86400.0, 3600.0  # seconds
_FARTHEST = 2.0**52  # ticks
_LAST, _REFUSE = "last", "refuse"


class Timed(NamedTuple):
    """Some rows of a stream."""

    X: Array  # (T, d)
    y: Labels  # (T,), numbers (T, K), or classes
    sites: Labels | None  # (T,)
    ticks: Ticks  # (T,)

    def some(self, rows: Any) -> Timed:
        """These of them."""
        sites = None if self.sites is None else self.sites[rows]
        return Timed(self.X[rows], self.y[rows], sites, self.ticks[rows])


@dataclass
class Clocked:
    """How tables become rows of a stream: whose columns play which part, as the first one has them.

    Columns that come later, or go, are refused by name.
    """

    time: str | None  # its column
    targets: Sequence[str]
    site: str | None = None
    drop: Sequence[str] = ()
    classes: bool = False
    tick: float | str = "auto"
    on_gap: str = "leave"
    columns: tuple[str, ...] = ()  # inputs, once a table was seen
    dates: bool = False  # whether times are dates, likewise
    _last: dict[Any, Array] = field(default_factory=dict)  # inputs of a site, for its gaps

    def rows(self, table: pa.Table) -> Timed:
        """All rows of a table."""
        sites = None if self.site is None else _labels(table, self.site)
        X, y = self._inputs(table), self._targets(table)
        ticks = self._ticks(table)
        X = self._filled(X, sites)
        lost = ticks == _NOWHEN
        if self.classes:
            lost |= np.array([label is None for label in y.tolist()], np.bool_)
            y = _without_gaps(y)
        X[lost] = np.nan
        return Timed(X, y, sites, np.where(ticks == _NOWHEN, 0, ticks))

    @property
    def length(self) -> float:
        """Of a tick, in seconds or in units of the column."""
        given = self.tick
        return (_HOUR if self.dates else 1.0) if isinstance(given, str) else float(given)

    def when(self, tick: int) -> str | float:
        """The time at which a tick begins: of dates as text."""
        if not self.dates:
            return tick * self.length
        return str(np.datetime64(round(tick * self.length), "s"))

    def _inputs(self, table: pa.Table) -> Array:
        time, beside = str(self.time), [] if self.site is None else [self.site]
        if self.time is None:
            raise DataError("a stream without stream.time: name the column of its times (--time)")
        names = input_names(table.column_names, self.targets, [*beside, time], self.drop)
        if self.columns and set(names) != set(self.columns):
            now, then = set(names), set(self.columns)
            odd = {"with": now - then, "without": then - now}
            said = [f"{how} {sorted(some)[:8]}" for how, some in odd.items() if some]
            raise DataError(
                f"a table {' and '.join(said)}: expected the stream's first columns "
                f"{list(self.columns)[:20]}; leave new ones out (drop), mend what is missing, or "
                "begin a new stream"
            )
        self.columns = self.columns or tuple(names)
        return _numbers(table, self.columns, "inputs")

    def _targets(self, table: pa.Table) -> Labels:
        if self.classes:
            return _labels(table, self.targets[0])
        y = _numbers(table, self.targets, "targets")
        return y[:, 0] if len(self.targets) == 1 else y

    def _ticks(self, table: pa.Table) -> Ticks:
        """Of every row; NOWHEN where no time is."""
        kind, x = Kind(), np.empty((1, table.num_rows))
        read_columns(x, [str(self.time)], [kind], lambda name: _whole(table, name))
        if kind.what not in (NUMBER, DATE, ""):
            raise DataError(
                f"column {self.time!r} holds {kind.what}: expected times, which are numbers or "
                "dates such as 2026-01-31 14:00:00"
            )
        self.dates = self.dates or kind.what == DATE
        x = x[0] * (_DAY if kind.what == DATE else 1.0) / self.length
        # A date's time is a sum of days and parts: an hour must not become the one before.
        x = np.floor(np.where(np.abs(x - np.rint(x)) < 1e-6, np.rint(x), x))
        if (np.abs(x) > _FARTHEST).any():
            raise DataError(f"column {self.time!r}: times beyond 2⁵² ticks; give a longer tick")
        return np.where(np.isfinite(x), x, _NOWHEN).astype(np.int64)

    def _filled(self, X: Array, sites: Labels | None) -> Array:
        """As [stream] on_gap says."""
        gaps = ~np.isfinite(X)
        if self.on_gap == _REFUSE and gaps.any():
            bad = [name for j, name in enumerate(self.columns) if gaps[:, j].any()]
            raise DataError(
                f"missing values in {bad[:8]}, and on_gap is {_REFUSE!r}: mend them, or use leave"
            )
        if self.on_gap == _LAST:
            whose = [None] * len(X) if sites is None else sites.tolist()
            for x, gap, who in zip(X, gaps, whose, strict=True):
                x[gap] = self._last.get(who, np.full(len(x), np.nan))[gap]
                self._last[who] = x
        return X


_NOWHEN = -(1 << 62)


def _whole(table: pa.Table, name: str) -> Any:
    if name not in table.column_names:
        raise DataError(unknown("column", name, table.column_names))
    return table.column(name).combine_chunks()


def _numbers(table: pa.Table, names: Sequence[str], what: str) -> Array:
    """(T, d), NaN where nothing is; or all columns that are no numbers, at once."""
    kinds, X = [Kind() for _ in names], np.empty((len(names), table.num_rows))
    read_columns(X, names, kinds, lambda name: _whole(table, name))
    bad = [n for n, kind in zip(names, kinds, strict=True) if kind.what not in (NUMBER, "")]
    if bad:
        drop = " ".join(f"--drop {name}" for name in bad)
        raise DataError(
            f"columns {bad[:8]} hold text or dates: {what} of a stream are numbers; code them "
            f"before, or leave them out ({drop})"
        )
    X[~np.isfinite(X)] = np.nan
    return np.ascontiguousarray(X.T)


def _labels(table: pa.Table, name: str) -> Labels:
    """As they are; None where nothing is."""
    return np.array(_whole(table, name).to_pylist(), object)


def _without_gaps(y: Labels) -> Labels:
    """Classes, with any in place of none; as one type, as they were when the stream began."""
    there = [label for label in y.tolist() if label is not None]
    some = there[0] if there else ""
    return np.array([some if label is None else label for label in y.tolist()])
