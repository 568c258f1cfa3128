"""What raw columns become: the inputs that all sites make of text, dates and gaps alike.

A number stays one. A date is its days since 1970 and, where they vary, waves of a year, a week and
a day. A text is a number for each of its levels, 1 where it has that level; levels that are rare
have none of their own. A gap is filled by a median or the most frequent level, and where gaps are
common one more number says where they are.

`ToldColumn` is what a site tells of a column, `Coding` what the sites conclude from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coke.data.raw import DATE, NUMBER, TEXT, Kind, RawRows, raw_numbers, raw_rows
from coke.maths.arrays import Array

TOLD = 64  # levels that a site tells of a column
LONGEST = 64  # characters of a level; longer ones are told by their digests
MOST = 30  # levels with an input of their own
_RARE, _RARELY = 5, 0.005  # rows of a level that has none, at most; or the share of all rows
_COMMON = 0.05  # share of gaps from which on an input says where they are
PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
MIXED = "mixed"
_SHOWN = 20  # columns in a line
_SURELY = 1e-9  # apart: days that differ by less are rounding


class ToldColumn(NamedTuple):
    """What is told of a column of some rows."""

    what: str = ""  # NUMBER, TEXT or DATE; MIXED of sites that differ; nothing where nothing is
    n: float = 0.0  # rows that have a value
    mean: float = 0.0  # of numbers and dates
    ends: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # dates: days, and time of day
    levels: Mapping[str, int] = {}  # text ↦ rows, the most frequent, TOLD at most
    rest: float = 0.0  # rows of others

    @classmethod
    def of(cls, x: Array, kind: Kind, *, hashed: bool) -> ToldColumn:
        """Of raw values (T,)."""
        x = x[np.isfinite(x)]
        if not len(x):
            return cls()
        n = float(len(x))
        if kind.what == TEXT:
            counts = np.bincount(x.astype(np.int64))
            named = {said(word, hashed): int(counts[at]) for at, word in _there(counts, kind)}
            return cls(TEXT, n, levels=named)._few()
        ends = (0.0,) * 4
        if kind.what == DATE:
            ends = (*_ends(x), *_ends(x % 1.0))
        return cls(kind.what or NUMBER, n, float(np.mean(x)), ends)

    def merged(self, other: ToldColumn) -> ToldColumn:
        """Of both sets of rows together."""
        if not (self.n and other.n):
            return self if self.n else other
        n = self.n + other.n
        if self.what != other.what:
            return ToldColumn(MIXED, n)
        mean = self.mean + other.n / n * (other.mean - self.mean)
        a, b, both = self.ends, other.ends, {*self.levels, *other.levels}
        ends = (min(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), max(a[3], b[3]))
        counts = {word: self.levels.get(word, 0) + other.levels.get(word, 0) for word in both}
        return ToldColumn(self.what, n, mean, ends, counts, self.rest + other.rest)._few()

    def counted(self, part: float) -> ToldColumn:
        """As if there were this part of the rows."""
        counts = {word: int(n * part) for word, n in self.levels.items()}
        named = {word: n for word, n in counts.items() if n}
        n = self.n * part
        rest = max(n - sum(named.values()), 0.0) if self.what == TEXT else 0.0
        return self._replace(n=n, levels=named, rest=rest)

    def _few(self) -> ToldColumn:
        """The most frequent levels; of equals, the first."""
        ranked = sorted(self.levels.items(), key=lambda one: (-one[1], one[0]))
        rest = self.rest + sum(n for _, n in ranked[TOLD:])
        return self._replace(levels=dict(ranked[:TOLD]), rest=rest)

    def common(self, T: float) -> ToldColumn:
        """Without the levels that are rare among T rows: these are others."""
        ranked = list(self.levels.items())[:MOST]
        kept = {word: n for word, n in ranked if n >= max(_RARE, _RARELY * T)}
        rest = self.rest + sum(self.levels.values()) - sum(kept.values())
        return self._replace(levels=kept, rest=rest)


def told_columns(X: Array, kinds: Sequence[Kind], *, hashed: bool) -> list[ToldColumn]:
    """Of raw rows (T, d)."""
    columns = zip(X.T, kinds or raw_numbers(X.shape[1]), strict=True)
    return [ToldColumn.of(x, kind, hashed=hashed) for x, kind in columns]


def said(level: str, hashed: bool) -> str:
    """A level as it is told."""
    if len(level) <= LONGEST and not hashed:
        return level
    return f"#{blake2b(level.encode(), digest_size=8).hexdigest()}"


def _ends(x: Array) -> tuple[float, float]:
    return float(x.min()), float(x.max())


class ColumnCoding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one column becomes."""

    column: str
    what: str  # NUMBER, TEXT or DATE; nothing where no site has a value
    fill: float | str = 0.0  # for gaps: a number, or a level
    gaps: bool = False  # whether an input says where they are
    levels: list[str] = []  # of text, the common ones, sorted
    whole: bool = False  # whether there are no other levels
    hashed: bool = False  # whether levels are told by their digests
    periods: list[str] = []  # of dates

    @classmethod
    def of(cls, column: str, seen: ToldColumn, T: float, *, hashed: bool) -> ColumnCoding:
        """From what was told of T rows."""
        gaps = seen.n > 0 and T - seen.n >= _COMMON * T
        if seen.what != TEXT:
            code = cls(column, seen.what, seen.mean, gaps)
            return msgspec.structs.replace(code, periods=list(_periods(seen)))
        seen = seen.common(T)
        most = next(iter(seen.levels), "")
        return cls(column, TEXT, most, gaps, sorted(seen.levels), not seen.rest, hashed)

    @property
    def shown(self) -> list[str]:
        """The levels with an input of their own: of two that are all there is, one."""
        return self.levels[1:] if self.whole and len(self.levels) < 3 else self.levels

    @property
    def names(self) -> list[str]:
        """Of the inputs."""
        where = [f"{self.column} missing"] if self.gaps else []
        if self.what == TEXT:
            return [*(f"{self.column} = {word}" for word in self.shown), *where]
        waves = [f"{self.column}, {p} ({w})" for p in self.periods for w in ("sine", "cosine")]
        return [self.column, *waves, *where] if self.what else []

    def inputs(self, x: Array, kind: Kind) -> Iterator[Array]:
        """Raw values (T,) as inputs, (T,) or some columns each."""
        gap = ~np.isfinite(x)
        if self.what == TEXT:
            at = self._among(self.shown, x, kind)
            yield np.vstack([np.eye(len(self.shown)), np.zeros(len(self.shown))])[at]
        elif self.what:
            x = np.where(gap, self.fill, x)
            yield x
            for period in self.periods:
                angle = 2.0 * np.pi * (x / PERIODS[period] % 1.0)
                yield np.sin(angle)
                yield np.cos(angle)
        if self.gaps:
            yield gap.astype(np.float64)

    def others(self, x: Array, kind: Kind) -> int:
        """How many values (T,) are text that is none of the common levels."""
        if self.what != TEXT:
            return 0
        return int(np.count_nonzero(self._among(self.levels, x, kind)[np.isfinite(x)] < 0))

    def _among(self, levels: list[str], x: Array, kind: Kind) -> NDArray[np.int64]:
        """The places (T,) of values, and of what gaps are filled with; −1 of other levels."""
        gap, place = ~np.isfinite(x), {level: k for k, level in enumerate(levels)}
        read = x[~gap].astype(np.int64)
        found = np.full(len(kind.levels), -1)
        for at, word in _there(np.bincount(read), kind):  # of a million levels few may be here
            found[at] = place.get(said(word, self.hashed), -1)
        places = np.full(len(x), place.get(str(self.fill), -1))
        places[~gap] = found[read]
        return places

    @property
    def reason(self) -> str:
        """Why it becomes no input; nothing where it does."""
        if self.names:
            return ""
        if not self.what:
            return "no site has a value"
        return "it has one level" if self.whole else "each of its levels is rare"

    def checked(self) -> ColumnCoding:
        """Itself, or `ValueError` where it can be no column's."""
        text, words = self.what == TEXT, [*self.levels, str(self.fill)]
        good = self.what in ("", NUMBER, TEXT, DATE) and isinstance(self.fill, str) == text
        good = good and len(self.levels) <= MOST and self.levels == sorted(set(self.levels))
        good = good and all(len(word) <= LONGEST for word in words)
        good = good and (text or not (self.levels or self.whole or self.hashed))
        good = good and self.periods == [p for p in PERIODS if p in self.periods]
        if not (good and (self.what == DATE or not self.periods) and (self.what or not self.gaps)):
            raise ValueError(f"a code of column {self.column[:40]!r} that cannot be")
        return self


class Coding(NamedTuple):
    """What all columns become, the same at all sites."""

    codes: tuple[ColumnCoding, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the inputs."""
        return tuple(chain.from_iterable(code.names for code in self.codes))

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns' names."""
        return tuple(code.column for code in self.codes)

    @property
    def owners(self) -> list[int]:
        """Which column each input is of."""
        return [j for j, code in enumerate(self.codes) for _ in code.names]

    def matrix(self, X: Array, kinds: Sequence[Kind]) -> Array:
        """Raw rows (T, d) as inputs."""
        X, kinds = np.asarray(X, np.float64), kinds or raw_numbers(X.shape[1])
        columns = zip(self.codes, X.T, kinds, strict=True)
        parts = [part for code, x, kind in columns for part in code.inputs(x, kind)]
        return np.column_stack(parts)

    def kinds(self) -> list[Kind]:
        """What rows to predict must hold."""
        return [Kind(code.what, fixed=True) for code in self.codes]

    def read(self, table: pa.Table) -> RawRows:
        """Rows to predict."""
        return raw_rows(table, self.columns, self.kinds())

    def strange(self, X: Array, kinds: Sequence[Kind]) -> dict[str, tuple[int, int]]:
        """Column ↦ how many of its values are gaps, and how many other levels, where any are."""
        found = {}
        for code, x, kind in zip(self.codes, X.T, kinds, strict=True):
            gaps, others = int(np.count_nonzero(~np.isfinite(x))), code.others(x, kind)
            if gaps or others:
                found[code.column] = gaps, others
        return found

    def checked(self) -> Coding:
        """Itself, or `ValueError` where it can be no table's."""
        for code in self.codes:
            code.checked()
        if len(set(self.columns)) < len(self.codes) or not self.names:
            raise ValueError(f"a coding of columns {self.columns[:8]} that cannot be")
        return self

    @property
    def words(self) -> list[str]:
        """What became of columns that are no plain numbers, a line each."""
        changed = [code for code in self.codes if code.names not in ([], [code.column])]
        made = [f"{code.column} ({code.what}) {len(code.names)}" for code in changed]
        left = [f"{code.column} ({code.reason})" for code in self.codes if code.reason]
        lines = {"inputs made of columns": made, "columns left out": left}
        more = {what: f" and {len(some) - _SHOWN} more" for what, some in lines.items()}
        return [
            f"{what}: {', '.join(some[:_SHOWN])}" + more[what] * (len(some) > _SHOWN)
            for what, some in lines.items()
            if some
        ]


def _there(counts: NDArray[np.int64], kind: Kind) -> Iterator[tuple[int, str]]:
    """The levels that are counted, with their places."""
    words = list(kind.levels)
    return ((at, words[at]) for at in np.flatnonzero(counts).tolist())


def _periods(seen: ToldColumn) -> Iterator[str]:
    """Those that dates go through: a year or a week of them, hours that differ."""
    low, high, early, late = seen.ends
    for name, days in PERIODS.items():
        if late - early > _SURELY if name == "day" else high - low > days:
            yield name
