"""Rows of any number, a chunk at a time: .npy arrays, Parquet, CSV and Arrow files, tables.

A source can be read again and again (scaling takes one pass, statistics another); a chunk is all
that is ever in memory. Files are read, not mapped: the pages of a map count as memory of the
process, and a file that shrinks under a map kills it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from coke.data.formats import Batches, Named, opener
from coke.data.tables import NUMBERS, SITES, TARGETS, Test, input_names, plain, require
from coke.errors import DataError, FileError
from coke.maths.arrays import Array, Mask

CHUNK = 16384  # rows
TARGET = (NUMBERS[0], "the statistics of the quadratic loss need numbers; convert it before")
REFUSALS = (  # what NumPy's and Arrow's readers raise
    *(OSError, ValueError, TypeError, EOFError, OverflowError, pa.ArrowException),
    *(SyntaxError, TokenError, MemoryError, UserWarning),  # heads of .npy files are Python
)

Numbers = NDArray[Any]


class Chunk(NamedTuple):
    """A few rows as they are: NaN where a number is missing, −1 where a site is."""

    X: Numbers  # (t, d)  by row or by column; float32 if that holds the types exactly, else float64
    y: Array  # (t,)  numbers, or the place of each row's class in `classes`
    codes: NDArray[np.int64] | None  # (t,)  the place of each row's site in `labels`
    labels: tuple[Any, ...]  # the sites of this chunk
    classes: tuple[Any, ...] | None = None  # the classes of this chunk
    held: Mask | None = None  # (t,)  which rows are for testing; None: none

    @property
    def targets(self) -> Numbers:
        """Numbers, or class labels; none may be missing."""
        if self.classes is None:
            return self.y
        kind = object if isinstance(self.classes[0], str) else None
        return np.array(self.classes, kind)[self.y.astype(np.int64)]


Chunks = Callable[[], Iterator[Chunk]]


class Source(NamedTuple):
    """Where chunks come from: each call of `chunks` is one pass over all rows, as they are.

    `coke.data.passes` refuses or leaves out rows with missing values.
    """

    columns: tuple[str, ...]  # names of the inputs
    rows: int | None  # how many, where that is known
    chunks: Chunks
    narrow: Chunks | None = None  # the same without reading the inputs: X is (t, 0)
    only: Callable[[frozenset[str]], Source] | None = None
    """Names of sites ↦ their rows, without those of most others; kept rows keep their order."""
    part: bool = False  # of a larger source, so that a row's number here says little

    def slim(self) -> Source:
        """Targets and sites alone."""
        return self if self.narrow is None else Source((), self.rows, self.narrow, part=self.part)

    def near(self, sites: Iterable[str]) -> Source:
        """The rows of these sites, and as few others as can be left out without reading them."""
        return self if self.only is None else self.only(frozenset(sites))


# --- arrays ---------------------------------------------------------------------------------------


def open_arrays(
    X: Any, y: Any, sites: Any = None, *, classes: bool = False, chunk: int = CHUNK
) -> Source:
    """X (T, d), y (T,) and one site label a row: each an array, or the path of a .npy file.

    y are numbers, or with `classes` class labels.
    """
    parts = [_Slices.of(part) for part in (X, y, sites) if part is not None]
    shapes = [part.shape for part in parts]
    if len(shapes[0]) != 2 or any(shape != shapes[0][:1] for shape in shapes[1:]):
        raise DataError(f"X, y, sites of shape {shapes}: expected (T, d), (T,), (T,)")
    for part, name in zip(parts[:2], "Xy", strict=True):
        labels = classes and name == "y"
        if part.dtype.kind not in ("biufUO" if labels else "biuf"):
            what = "text or numbers" if labels else "numbers; encode text as numbers"
            raise DataError(f"{name} holds {part.dtype}: expected {what}")
    T, d = shapes[0]

    def chunks(inputs: bool = True, near: frozenset[str] | None = None) -> Iterator[Chunk]:
        for first in range(0, T, chunk):
            t = min(chunk, T - first)
            target, *label = (part.read(first, t) for part in parts[1:])
            codes, labels = _coded(label[0], "the site labels") if label else (None, ())
            if near is None or not near.isdisjoint(map(str, labels)):
                x = parts[0].read(first, t) if inputs else np.empty((t, 0), np.float32)
                some = x.astype(_working(x.dtype), copy=False)
                told = _classes(*_coded(target, "y")) if classes else (target.astype(float), None)
                yield Chunk(some, told[0], codes, labels, told[1])

    def only(names: frozenset[str]) -> Source:
        some = partial(chunks, near=names)
        return Source(columns, None, some, partial(some, inputs=False), part=True)

    columns = tuple(f"x{j}" for j in range(d))
    return Source(
        columns, T, chunks, partial(chunks, inputs=False), only if sites is not None else None
    )


def _classes(codes: NDArray[np.int64], classes: tuple[Any, ...]) -> tuple[Array, tuple[Any, ...]]:
    """The same codes as numbers, so that what is missing is NaN as elsewhere."""
    lost = [i for i, name in enumerate(classes) if isinstance(name, float) and math.isinf(name)]
    return np.where((codes < 0) | np.isin(codes, lost), np.nan, codes), classes


def _coded(labels: Numbers, said: str) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    native = labels.astype(labels.dtype.newbyteorder("="), copy=False)  # Arrow knows no other
    found = guarded(said, DataError, lambda: pa.array(native, from_pandas=True))
    return _encoded(plain(found))  # None and NaN are missing


class _Slices(NamedTuple):
    """Rows first … first + t of an array or of a .npy file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int, int], Numbers]

    @classmethod
    def of(cls, part: Any) -> _Slices:
        if isinstance(part, str | Path):
            return _npy(Path(part))
        values = np.asarray(part)
        return cls(values.shape, values.dtype, lambda first, t: values[first : first + t])


def _npy(path: Path) -> _Slices:
    head = guarded(str(path), FileError, partial(np.load, path, "r", allow_pickle=False))
    good = isinstance(head, np.memmap) and head.ndim in (1, 2) and head.dtype.kind in "biufSU"
    if not good:
        raise DataError(f"{path}: expected one array of numbers or text, in one or two dimensions")
    shape, offset, dtype = head.shape, head.offset, head.dtype
    by_column = not head.flags.c_contiguous
    del head  # or the map stays open
    T, d = shape[0], math.prod(shape[1:])

    def items(first: int, n: int) -> Numbers:
        found = np.empty(n, dtype)
        room = found.view(np.uint8).data
        with path.open("rb", buffering=0) as file:  # `fromfile` would copy everything twice
            file.seek(offset + first * dtype.itemsize)
            while len(room):
                if not (some := file.readinto(room)):
                    raise OSError("it ends too early, as if it was cut off while it was read")
                room = room[some:]
        return found

    def rows(first: int, t: int) -> Numbers:
        if by_column:
            return np.stack([items(j * T + first, t) for j in range(d)]).T
        return items(first * d, t * d).reshape(t, *shape[1:])

    return _Slices(shape, dtype, lambda *at: guarded(str(path), FileError, lambda: rows(*at)))


def guarded(said: str, kind: type[Exception], work: Callable[[], Any]) -> Any:
    """What `work` returns, or whatever NumPy and Arrow refuse as an error that says where."""
    try:
        return work()
    except REFUSALS as error:
        raise kind(
            f"{said}: cannot be read: {error}; is it whole, and of the kind its name says?"
        ) from error


def _working(*kinds: Any) -> type[np.floating[Any]]:
    """float32 where it holds every value of these types exactly, else float64."""
    return np.float32 if all(np.can_cast(kind, np.float32) for kind in kinds) else np.float64


# --- tables ---------------------------------------------------------------------------------------


def open_table(
    source: Any,
    target: str,
    *,
    site: str | None = None,
    drop: Sequence[str] = (),
    classes: bool = False,
    chunk: int = CHUNK,
) -> Source:
    """As `read_rows`, but a chunk at a time: a path, or any table that speaks Arrow.

    The target is numbers, or with `classes` class labels. Paths end in .parquet, .csv, .arrow or
    .feather. A stream that can be read only once (a `RecordBatchReader`) gives one pass only.
    """
    said, kind = (
        (str(source), FileError) if isinstance(source, str | Path) else ("table", DataError)
    )
    open_ = opener(source)
    named = Named(site, target if classes else None)
    schema, rows, batches, near = guarded(said, kind, lambda: open_(source, chunk, named))
    guarded(said, kind, lambda: "".join(schema.names))  # Arrow decodes them when asked for them
    inputs = _inputs(schema, target, site, drop, TARGETS if classes else TARGET)
    dtype = _working(*(_numpy_type(schema.field(name).type) for name in inputs))

    def chunks(batches: Batches, inputs: Sequence[str] = inputs) -> Iterator[Chunk]:
        reading = iter(batches([*inputs, target, *([] if site is None else [site])]))
        while (batch := guarded(said, kind, lambda: next(reading, None))) is not None:
            for first in range(0, batch.num_rows, chunk):
                some = batch.slice(first, chunk)
                codes, labels = (None, ()) if site is None else coded(some.column(site))
                y, found = (
                    _classes(*coded(some.column(target)))
                    if classes
                    else (_matrix(some, [target], np.float64)[:, 0], None)
                )
                yield Chunk(_matrix(some, inputs, dtype), y, codes, labels, found)

    def coded(column: pa.Array) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
        return guarded(said, kind, lambda: _encoded(plain(column)))  # text may be none

    def only(names: frozenset[str]) -> Source:
        left, some = guarded(said, kind, lambda: near(names))
        these = partial(chunks, some)
        return Source(tuple(inputs), left, these, partial(these, ()), part=True)

    slim = partial(chunks, batches, ())
    by_site = only if near is not None and site is not None else None
    return Source(tuple(inputs), rows, partial(chunks, batches), slim, by_site)


def _inputs(
    schema: pa.Schema, target: str, site: str | None, drop: Sequence[str], kind: tuple[Test, str]
) -> list[str]:
    """The inputs' names, once every column has one name and a type for its part."""
    twice = [name for name, n in Counter(schema.names).items() if n > 1]
    if twice:
        raise DataError(f"columns {twice[:8]} are there more than once; rename or remove them")
    fields = [field for field in schema if not field.name.startswith("__index_level_")]
    empty = pa.table({field.name: plain(pa.array([], field.type)) for field in fields})
    inputs = input_names(empty, target, site, drop)
    require(empty, inputs, *NUMBERS)
    require(empty, [target], *kind)
    require(empty, [] if site is None else [site], *SITES)
    return inputs


def _numpy_type(kind: pa.DataType) -> Any:
    """NumPy's name for it; float64 for decimals and what else is written out first."""
    t = pa.types
    known = t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind)
    return kind.to_pandas_dtype() if known else np.float64


def _matrix(batch: pa.RecordBatch, names: Sequence[str], dtype: Any) -> Numbers:
    """The named columns (t, d), NaN where nothing is; by column, as Arrow has them."""
    kind, X = pa.from_numpy_dtype(dtype), np.empty((len(names), batch.num_rows), dtype)
    for x, name in zip(X, names, strict=True):
        values = plain(batch.column(name))
        same = values if values.type == kind else pc.cast(values, kind, safe=False)
        x[:] = same.to_numpy(zero_copy_only=False)
    return X.T


def _encoded(labels: pa.Array) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Each label's place among the different ones (t,), −1 where it is missing; and those."""
    text = labels.cast(pa.string()) if pa.types.is_temporal(labels.type) else labels
    if pa.types.is_floating(text.type):
        text = pc.add(text, 0.0)  # −0 is 0
    found = text.dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    names = tuple(found.dictionary.to_pylist())
    for place, name in enumerate(names):
        if name != name:  # NaN
            codes[codes == place] = -1
    return codes, names
