"""Rows of any number, a chunk at a time: .npy arrays, Parquet, CSV and Arrow files, tables.

A source can be read again and again (scaling takes one pass, statistics another); a chunk is all
that is ever in memory. Files are read, not mapped into memory: the pages of a map count as memory
of the process, and a file that shrinks under a map ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from coke.data.npy import Npy, open_npy
from coke.data.tables import Labels, checked_rows
from coke.errors import DataError, unknown
from coke.maths.arrays import Array

CHUNK = 16384  # rows
Codes = NDArray[np.int64]


class Chunk(NamedTuple):
    """A few rows, all of them finite numbers."""

    X: NDArray[Any]  # (t, d)  float32 where that holds the column types exactly, else float64
    y: Array  # (t,)
    codes: Codes | None  # (t,)  the place of each row's site in `labels`
    labels: tuple[Any, ...]  # the sites of this chunk


class Source(NamedTuple):
    """Where chunks come from. `for chunk in source.chunks()` is one pass over all rows."""

    columns: tuple[str, ...]  # names of the inputs
    rows: int | None  # how many there are, missing values included, where that is known
    chunks: Callable[[], Iterator[Chunk]]


class Raw(NamedTuple):
    """A few rows as a file has them: NaN for what is missing, code −1 for a missing site."""

    X: NDArray[Any]
    y: Array
    codes: Codes | None
    labels: tuple[Any, ...]


def open_arrays(
    X: Any, y: Any, sites: Any = None, *, missing: str = "refuse", chunk: int = CHUNK
) -> Source:
    """X (T, d), y (T,) and one site label a row: each an array, or the path of a .npy file.

    `missing="drop"` leaves out rows with a missing value instead of refusing them.
    """
    parts = {"X": _rows_of(X), "y": _rows_of(y)} | ({} if sites is None else {"s": _rows_of(sites)})
    shapes = {name: part.shape for name, part in parts.items()}
    T = shapes["X"][0] if shapes["X"] else 0
    if len(shapes["X"]) != 2 or any(s != (T,) for name, s in shapes.items() if name != "X"):
        said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise DataError(f"arrays of shape {said}: expected X (T, d), y (T,) and sites (T,)")
    for name in ("X", "y"):
        _numeric(parts[name].dtype, name)
    names = tuple(f"x{j}" for j in range(shapes["X"][1]))

    def raws() -> Iterator[Raw]:
        slices = zip(*(part.slices(chunk) for part in parts.values()), strict=True)
        for x, t, *label in slices:
            codes, labels = encoded(pa.array(label[0], from_pandas=True)) if label else (None, ())
            yield Raw(_floats(x), t.astype(np.float64), codes, labels)

    return Source(names, T, checked(raws, names, missing))


class _Array(NamedTuple):
    """An array in memory, with the face of a file."""

    values: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def slices(self, chunk: int) -> Iterator[NDArray[Any]]:
        for first in range(0, len(self.values), chunk):
            yield self.values[first : first + chunk]


def _rows_of(part: Any) -> Npy | _Array:
    return open_npy(Path(part)) if isinstance(part, str | Path) else _Array(np.asarray(part))


def _numeric(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "biuf":
        raise DataError(f"{name} holds {dtype}: expected numbers; encode text and dates as numbers")


def _floats(x: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # a long double may be beyond float64: it is refused below
        return np.ascontiguousarray(x, dtype=working_type([x.dtype]))


def working_type(kinds: Sequence[DTypeLike]) -> type[np.floating[Any]]:
    """float32 where it holds every value of these types exactly, else float64."""
    return np.float32 if all(np.can_cast(kind, np.float32) for kind in kinds) else np.float64


def encoded(labels: pa.Array) -> tuple[Codes, tuple[Any, ...]]:
    """Each label's place among the different ones (t,), −1 where it is missing; and those."""
    if pa.types.is_temporal(labels.type):
        labels = labels.cast(pa.string())
    found = labels.dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    names = tuple(found.dictionary.to_pylist())
    for place, name in enumerate(names):
        if name is None or name != name:  # NaN
            codes[codes == place] = -1
    return codes, names


def checked(
    raws: Callable[[], Iterator[Raw]], columns: tuple[str, ...], missing: str
) -> Callable[[], Iterator[Chunk]]:
    """The chunks of these raw ones: without rows that lack something, or refused because of them.

    A pass without a single row is refused at its end.
    """
    if missing not in ("refuse", "drop"):
        raise DataError(unknown("treatment of missing values", missing, ("refuse", "drop")))

    def chunks() -> Iterator[Chunk]:
        read = kept = 0
        for raw in raws():
            good = raw if _whole(raw) else _repaired(raw, columns, missing, read)
            read, kept = read + len(raw.y), kept + len(good.y)
            if len(good.y):
                yield Chunk(*good)
        if not kept:
            raise DataError(
                f"no rows: {read} were read and {kept} were complete; expected at least one"
            )

    return chunks


def _whole(raw: Raw) -> bool:
    """Whether nothing is missing, at the price of reading once; huge numbers may be said missing."""
    x = raw.X.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(np.dot(x, x)) and np.isfinite(np.dot(raw.y, raw.y))
    return bool(finite) and (raw.codes is None or not np.any(raw.codes < 0))


def _repaired(raw: Raw, columns: tuple[str, ...], missing: str, first: int) -> Raw:
    if missing == "drop":
        good = np.isfinite(raw.X).all(axis=1) & np.isfinite(raw.y)
        codes = None if raw.codes is None else raw.codes[good := good & (raw.codes >= 0)]
        return Raw(raw.X[good], raw.y[good], codes, raw.labels)
    try:
        checked_rows(raw.X, raw.y, _named(raw), columns)
    except DataError as error:
        raise DataError(f"rows {first + 1} to {first + len(raw.y)}: {error}") from None
    return raw


def _named(raw: Raw) -> Labels | None:
    """The labels row by row, None where one is missing."""
    if raw.codes is None:
        return None
    return np.array([raw.labels[c] if c >= 0 else None for c in raw.codes], dtype=object)
