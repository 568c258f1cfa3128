"""Rows of any number, a chunk at a time: .npy arrays, Parquet, CSV and Arrow files, tables.

A source can be read again and again (scaling takes one pass, statistics another); a chunk is all
that is ever in memory. Files are read, not mapped: the pages of a map count as memory of the
process, and a file that shrinks under a map kills it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from coke.data.tables import NUMBERS, SITES, input_names, plain, require
from coke.errors import DataError, FileError
from coke.maths.arrays import Array

CHUNK = 16384  # rows
BUFFER = 1 << 12  # bytes read ahead of each Parquet column; 0 would read whole row groups
MILLION = 1 << 20  # rows of Parquet after which Arrow gives back the memory it keeps for itself
BLOCK = 1 << 23  # bytes of CSV text at a time
TARGET = (NUMBERS[0], "the statistics of the quadratic loss need numbers; convert it before")
REFUSALS = (  # what NumPy's and Arrow's readers raise
    *(OSError, ValueError, TypeError, EOFError, OverflowError, pa.ArrowException),
    *(SyntaxError, TokenError, MemoryError, UserWarning),  # heads of .npy files are Python
)

Numbers = NDArray[Any]


class Chunk(NamedTuple):
    """A few rows as they are: NaN where a number is missing, −1 where a site is."""

    X: Numbers  # (t, d)  by row or by column; float32 if that holds the types exactly, else float64
    y: Array  # (t,)
    codes: NDArray[np.int64] | None  # (t,)  the place of each row's site in `labels`
    labels: tuple[Any, ...]  # the sites of this chunk


class Source(NamedTuple):
    """Where chunks come from: each call of `chunks` is one pass over all rows, as they are.

    `coke.data.passes` refuses or leaves out rows with missing values.
    """

    columns: tuple[str, ...]  # names of the inputs
    rows: int | None  # how many, where that is known
    chunks: Callable[[], Iterator[Chunk]]


# --- arrays ---------------------------------------------------------------------------------------


def open_arrays(X: Any, y: Any, sites: Any = None, *, chunk: int = CHUNK) -> Source:
    """X (T, d), y (T,) and one site label a row: each an array, or the path of a .npy file."""
    parts = [_Slices.of(part) for part in (X, y, sites) if part is not None]
    shapes = [part.shape for part in parts]
    if len(shapes[0]) != 2 or any(shape != shapes[0][:1] for shape in shapes[1:]):
        raise DataError(f"X, y, sites of shape {shapes}: expected (T, d), (T,), (T,)")
    for part, name in zip(parts[:2], "Xy", strict=True):
        if part.dtype.kind not in "biuf":
            raise DataError(f"{name} holds {part.dtype}: expected numbers; encode text as numbers")
    T, d = shapes[0]

    def chunks() -> Iterator[Chunk]:
        for first in range(0, T, chunk):
            x, t, *label = (part.read(first, min(chunk, T - first)) for part in parts)
            coded = _coded(label[0]) if label else (None, ())
            yield Chunk(x.astype(_working(x.dtype), copy=False), t.astype(float), *coded)

    return Source(tuple(f"x{j}" for j in range(d)), T, chunks)


def _coded(labels: Numbers) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    work = partial(pa.array, labels, from_pandas=True)  # None and NaN are missing
    return encoded(guarded("the site labels", DataError, work))


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
                    raise OSError("it ends too early; was it cut off while it was read?")
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
    chunk: int = CHUNK,
) -> Source:
    """As `read_rows`, but a chunk at a time: a path, or any table that speaks Arrow.

    Paths end in .parquet, .csv, .arrow or .feather. A stream that can be read only once (a
    `RecordBatchReader`) gives one pass only.
    """
    said, kind = (
        (str(source), FileError) if isinstance(source, str | Path) else ("table", DataError)
    )
    opener = _opener(source)
    schema, rows, batches = guarded(said, kind, lambda: opener(source, chunk, site))
    guarded(said, kind, lambda: "".join(schema.names))  # Arrow decodes them when asked for them
    inputs = _inputs(schema, target, site, drop)
    dtype = _working(*(_numpy_type(schema.field(name).type) for name in inputs))
    names = [*inputs, target, *([] if site is None else [site])]

    def chunks() -> Iterator[Chunk]:
        reading = iter(batches(names))
        while (batch := guarded(said, kind, lambda: next(reading, None))) is not None:
            for first in range(0, batch.num_rows, chunk):
                some = batch.slice(first, chunk)
                coded = (None, ()) if site is None else encoded(plain(some.column(site)))
                X = _matrix(some, inputs, dtype)
                yield Chunk(X, _matrix(some, [target], np.float64)[:, 0], *coded)

    return Source(tuple(inputs), rows, chunks)


def _inputs(schema: pa.Schema, target: str, site: str | None, drop: Sequence[str]) -> list[str]:
    """The inputs' names, once every column has one name and a type for its part."""
    twice = [name for name, n in Counter(schema.names).items() if n > 1]
    if twice:
        raise DataError(f"columns {twice[:8]} are there more than once; rename or remove them")
    fields = [field for field in schema if not field.name.startswith("__index_level_")]
    empty = pa.table({field.name: plain(pa.array([], field.type)) for field in fields})
    inputs = input_names(empty, target, site, drop)
    require(empty, inputs, *NUMBERS)
    require(empty, [target], *TARGET)
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


def encoded(labels: pa.Array) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Each label's place among the different ones (t,), −1 where it is missing; and those."""
    text = labels.cast(pa.string()) if pa.types.is_temporal(labels.type) else labels
    found = text.dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    names = tuple(found.dictionary.to_pylist())
    for place, name in enumerate(names):
        if name != name:  # NaN
            codes[codes == place] = -1
    return codes, names


Batches = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Names of columns ↦ their rows, in order."""
_Opened = tuple[pa.Schema, int | None, Batches]


def _opener(source: Any) -> Callable[[Any, int, str | None], _Opened]:
    if hasattr(source, "__arrow_c_stream__"):
        return _memory
    openers = {".parquet": _parquet, ".csv": _csv, ".arrow": _ipc, ".feather": _ipc}
    if not isinstance(source, str | Path) or Path(source).suffix.lower() not in openers:
        raise DataError(
            f"cannot read rows from {source!s:.200}: expected a file ending in "
            f"{', '.join(openers)}, or a pandas, polars or Arrow table"
        )
    return openers[Path(source).suffix.lower()]


def _memory(source: Any, chunk: int, site: str | None) -> _Opened:
    def reader() -> pa.RecordBatchReader:
        once = isinstance(source, pa.RecordBatchReader)
        return source if once else pa.RecordBatchReader.from_stream(source)

    rows = source.num_rows if isinstance(source, pa.Table) else None
    return reader().schema, rows, lambda names: (b.select(list(names)) for b in reader())


def _parquet(path: Any, chunk: int, site: str | None) -> _Opened:
    # A page of every column at a time. Reading ahead by row groups is no faster on one core, and
    # takes memory by the size of the groups: a million rows where the writer was left alone.
    def file() -> pa.parquet.ParquetFile:
        return pa.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with file() as rows:
            groups = range(rows.num_row_groups)
            step = max(1, MILLION * len(groups) // max(1, rows.metadata.num_rows))
            for first in groups[::step]:
                some = list(groups[first : first + step])
                yield from rows.iter_batches(chunk, some, list(names), use_threads=False)
                if step < len(groups):
                    pa.default_memory_pool().release_unused()  # or what it keeps grows slowly

    with file() as head:
        return head.schema_arrow, head.metadata.num_rows, batches


def _csv(path: Any, chunk: int, site: str | None) -> _Opened:
    blocks = pa.csv.ReadOptions(block_size=BLOCK)
    with pa.csv.open_csv(path, read_options=blocks) as head:
        found = head.schema
    # Types come from the first block: what looks whole or empty there may be a fraction later.
    whole = [f.name for f in found if pa.types.is_integer(f.type) or pa.types.is_null(f.type)]
    kinds = {name: pa.float64() for name in whole if name != site}

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = pa.csv.ConvertOptions(include_columns=list(names), column_types=kinds)
        with pa.csv.open_csv(path, read_options=blocks, convert_options=options) as rows:
            yield from rows

    return found, None, batches


def _ipc(path: Any, chunk: int, site: str | None) -> _Opened:
    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as rows:
            for i in range(rows.num_record_batches):
                batch = rows.get_batch(i)
                batch.validate(full=True)  # Arrow believes the offsets in this format otherwise
                yield batch.select(list(names))

    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as head:
        return head.schema, None, batches
