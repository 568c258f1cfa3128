"""Raw columns: Arrow's values as numbers, before anybody has agreed on what becomes of them.

Numbers and booleans are what they are, dates are days since 1970, a text is its place among the
levels of its column, and a gap is NaN. So rows of any kind are one matrix, to be dealt out, picked
and kept like others; `coke.data.coding` makes inputs of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coke.data.dates import moments
from coke.errors import DataError
from coke.maths.arrays import Array, finite

NUMBER, TEXT, DATE = "number", "text", "date"
_SHOWN = 20  # columns in a refusal
_DAY = 86_400_000_000  # microseconds


@dataclass
class Kind:
    """What a column holds, once a value of it was read; and the levels of text so far."""

    what: str = ""  # NUMBER, TEXT or DATE
    levels: dict[str, int] = field(default_factory=dict)  # text ↦ its place
    fixed: bool = False  # as a model was trained: then numbers may stand for text

    def read(self, name: str, values: Any) -> NDArray[Any]:
        """Values (T,) of an Arrow array as raw numbers."""
        if values.null_count == len(values):
            return np.full(len(values), np.nan)
        found = _kind(values)
        if self.fixed and self.what == TEXT and found == NUMBER:
            found, values = TEXT, values.cast(pa.string())
        if found == TEXT and self.what in ("", DATE):
            dates = moments(name, values)
            found, values = (TEXT, values) if dates is None else (DATE, dates)
        self.what = self.what or found
        if found != self.what:
            raise DataError(
                f"column {name!r} holds {found}s such as {_first(values)!r} where it held "
                f"{self.what}s before: expected one kind; mend it, or leave the column out"
            )
        return self._places(name, values) if found == TEXT else _numbers(values, found)

    def _places(self, name: str, values: Any) -> Array:
        if self.fixed:
            self.levels = {}  # rows to predict go by in chunks, of however many levels
        coded = values.dictionary_encode()
        try:
            words = coded.dictionary.to_pylist()
        except UnicodeDecodeError as error:
            raise DataError(
                f"column {name!r} cannot be read: {error}; text must be UTF-8"
            ) from error
        places = [self.levels.setdefault(word, len(self.levels)) for word in words]
        at = coded.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)
        return np.array([*places, np.nan])[at]

    def values(self, x: Array) -> pa.Array:
        """Raw numbers as Arrow's values again."""
        gaps = ~np.isfinite(x)
        if self.what == TEXT:
            words = np.array([*self.levels, None], object)
            return pa.array(words[np.where(gaps, -1, x).astype(np.int64)], pa.string())
        if self.what == DATE:
            since = np.rint(np.where(gaps, 0.0, x) * _DAY).astype(np.int64)
            return pa.array(since, pa.timestamp("us"), mask=gaps)
        return pa.array(x, pa.float64(), mask=gaps)


def _kind(values: Any) -> str:
    t = pa.types
    if t.is_temporal(values.type):
        return DATE
    return TEXT if t.is_string(values.type) or t.is_large_string(values.type) else NUMBER


def _first(values: Any) -> str:
    return str(values.drop_null()[0])[:40]


def _numbers(values: Any, what: str) -> NDArray[Any]:
    """As floats, NaN where nothing is."""
    if what == DATE:
        days = values.cast(_microseconds(values.type), safe=False).cast(pa.int64())
        return np.asarray(days.cast(pa.float64(), safe=False)) / _DAY
    same = pa.types.is_floating(values.type)
    x = values if same else values.cast(pa.float64(), safe=False)
    gaps = x.null_count > 0  # `to_numpy`, which makes them NaN, loads pandas where there is one
    return np.asarray(x.to_numpy(zero_copy_only=False) if gaps else np.from_dlpack(x))


def _microseconds(kind: Any) -> Any:
    """The finer type of such moments, times of day or durations."""
    if pa.types.is_time(kind):
        return pa.time64("us")
    duration = pa.types.is_duration(kind)
    return pa.duration("us") if duration else pa.timestamp("us", getattr(kind, "tz", None))


def is_plain(kinds: Sequence[Kind], *parts: Array) -> bool:
    """Whether rows X are inputs as they are: numbers, and nothing is missing."""
    words = any(kind.what in (TEXT, DATE) for kind in kinds)
    return not words and all(map(finite, parts))


def raw_numbers(d: int) -> tuple[Kind, ...]:
    """Of d columns of numbers, of which some are missing."""
    return tuple(Kind(NUMBER) for _ in range(d))


def read_columns(
    X: NDArray[Any], names: Sequence[str], kinds: Sequence[Kind], values: Callable[[str], Any]
) -> None:
    """Into X (d, T) the Arrow arrays of these names; or all that cannot be read, at once."""
    wrong = []
    for x, name, kind in zip(X, names, kinds, strict=True):
        try:
            x[:] = kind.read(name, values(name))
        except DataError as error:
            wrong.append(str(error))
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more columns" * (len(wrong) > _SHOWN)
        raise DataError("; ".join(wrong[:_SHOWN]) + more)


class RawRows(NamedTuple):
    """Rows before anything was made of them."""

    X: NDArray[Any]  # (T, d)
    kinds: tuple[Kind, ...]


def raw_rows(table: Any, names: Sequence[str], told: Sequence[Kind] = ()) -> RawRows:
    """The named columns of an Arrow table, of the kinds that are told; else of any.

    Kinds that nobody told are none where all are numbers without gaps.
    """
    kinds, X = told or [Kind() for _ in names], np.empty((table.num_rows, len(names)))
    read_columns(X.T, names, kinds, lambda name: table.column(name).combine_chunks())
    return RawRows(X, () if not told and is_plain(kinds, X) else tuple(kinds))
