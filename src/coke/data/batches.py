"""Chunks of Parquet, CSV and Arrow files and of tables in memory: only the columns asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from coke.data.streaming import CHUNK, Raw, Source, checked, encoded, working_type
from coke.data.tables import NUMBERS, SITES, _input_names, _plain, _require
from coke.errors import DataError, FileError

BUFFER = 1 << 16  # bytes read ahead of each Parquet column: 0 would read whole row groups
BLOCK = 1 << 23  # bytes of CSV text at a time
Batches = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
TARGET = (NUMBERS[0], "statistics of the quadratic loss need numbers; convert it before")


class _Opened(NamedTuple):
    """A file or table whose rows have not been touched."""

    schema: pa.Schema
    rows: int | None
    batches: Batches  # names of columns ↦ their rows, in order


def open_table(
    source: Any,
    target: str,
    *,
    site: str | None = None,
    drop: Sequence[str] = (),
    missing: str = "refuse",
    chunk: int = CHUNK,
) -> Source:
    """As `read_rows`, but a chunk at a time: a path, or any table that speaks Arrow.

    Paths end in .parquet, .csv, .arrow or .feather. A stream that can be read only once (a
    `RecordBatchReader`) gives one pass only.
    """
    opened = _opened(source, chunk)
    inputs = _inputs(opened.schema, target, site, drop)
    kinds = [opened.schema.field(name).type for name in inputs]
    dtype = working_type([_numpy_type(kind) for kind in kinds])
    names = [*inputs, target, *([] if site is None else [site])]

    def raws() -> Iterator[Raw]:
        for batch in opened.batches(names):
            for first in range(0, batch.num_rows, chunk):
                yield _raw(batch.slice(first, chunk), inputs, target, site, dtype)

    return Source(tuple(inputs), opened.rows, checked(raws, tuple(inputs), missing))


def _inputs(schema: pa.Schema, target: str, site: str | None, drop: Sequence[str]) -> list[str]:
    """The inputs' names; every column has one name and a type for its part."""
    twice = [name for name, n in Counter(schema.names).items() if n > 1]
    if twice:
        raise DataError(f"columns {twice[:8]} are there more than once; rename or remove them")
    index = [i for i, name in enumerate(schema.names) if not name.startswith("__index_level_")]
    fields = [schema.field(i) for i in index]
    plain = {f.name: _plain(pa.array([], f.type)) for f in fields}
    table = pa.table(plain)
    inputs = _input_names(table, target, site, drop)
    _require(table, inputs, *NUMBERS)
    _require(table, [target], *TARGET)
    _require(table, [] if site is None else [site], *SITES)
    return inputs


def _numpy_type(kind: pa.DataType) -> Any:
    """What NumPy calls it; float64 for decimals, dictionaries and what else is made plain first."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return kind.to_pandas_dtype() if plain else np.float64


def _raw(
    batch: pa.RecordBatch, inputs: Sequence[str], target: str, site: str | None, dtype: Any
) -> Raw:
    X = np.empty((batch.num_rows, len(inputs)), dtype)
    for j, name in enumerate(inputs):
        X[:, j] = _numbers(batch.column(name), dtype)
    codes, labels = (None, ()) if site is None else encoded(_plain(batch.column(site)))
    return Raw(X, _numbers(batch.column(target), np.float64), codes, labels)


def _numbers(values: pa.Array, dtype: Any) -> NDArray[Any]:
    """NaN where nothing is."""
    kind = pa.float32() if dtype == np.float32 else pa.float64()
    plain = _plain(values)
    if plain.type != kind:
        plain = pc.cast(plain, kind, safe=False)
    return np.asarray(plain.to_numpy(zero_copy_only=False))


def _opened(source: Any, chunk: int) -> _Opened:
    if hasattr(source, "__arrow_c_stream__"):
        return _guarded(lambda: _memory(source), "the table", DataError)
    if not isinstance(source, str | Path):
        raise DataError(
            f"cannot read rows from a {type(source).__name__}: expected a path, or a pandas, "
            "polars or Arrow table"
        )
    path = Path(source)
    openers = {".parquet": _parquet, ".csv": _csv, ".arrow": _ipc, ".feather": _ipc}
    if path.suffix.lower() not in openers:
        raise DataError(f"{path}: expected a file ending in {', '.join(openers)}")
    return _guarded(lambda: openers[path.suffix.lower()](path, chunk), str(path), FileError)


def _guarded(opener: Callable[[], _Opened], said: str, kind: type[Exception]) -> _Opened:
    """The same with whatever Arrow raises, now or while reading, as an error that says where."""

    def told(error: Exception) -> Exception:
        return kind(f"{said}: cannot be read: {error}; is it whole, and of the kind its name says?")

    refused = (OSError, ValueError, TypeError, pa.ArrowException)
    try:
        opened = opener()
        "".join(opened.schema.names)  # Arrow decodes names only when asked for them
    except refused as error:
        raise told(error) from error

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from opened.batches(names)
        except refused as error:
            raise told(error) from error

    return opened._replace(batches=batches)


def _memory(source: Any) -> _Opened:
    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.RecordBatchReader.from_stream(source) as reader:
            for batch in reader:
                yield batch.select(list(names))

    schema = getattr(source, "schema", None)
    if not isinstance(schema, pa.Schema):
        schema = pa.RecordBatchReader.from_stream(source).schema
    rows = source.num_rows if isinstance(source, pa.Table) else None
    return _Opened(schema, rows, batches)


def _parquet(path: Path, chunk: int) -> _Opened:
    # A page of every column at a time. Reading ahead by row groups is no faster on one core and
    # takes memory by the size of the groups, a million rows where the writer was left alone.
    def file() -> pa.parquet.ParquetFile:
        return pa.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with file() as rows:
            yield from rows.iter_batches(chunk, columns=list(names), use_threads=False)

    with file() as head:
        return _Opened(head.schema_arrow, head.metadata.num_rows, batches)


def _csv(path: Path, chunk: int) -> _Opened:
    blocks = pa.csv.ReadOptions(block_size=BLOCK)
    with pa.csv.open_csv(path, read_options=blocks) as head:
        found = head.schema
    # Types come from the first block: what looks whole or empty there may be a fraction later.
    floats = {f.name: pa.float64() for f in found if _is_whole(f.type)}

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        *numbers, site = (*names, None) if names[-1] in floats else names
        kinds = {name: kind for name, kind in floats.items() if name in numbers}
        options = pa.csv.ConvertOptions(include_columns=list(names), column_types=kinds)
        with pa.csv.open_csv(path, read_options=blocks, convert_options=options) as rows:
            yield from rows

    return _Opened(found, None, batches)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _ipc(path: Path, chunk: int) -> _Opened:
    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as rows:
            for i in range(rows.num_record_batches):
                batch = rows.get_batch(i)
                batch.validate(full=True)  # Arrow believes this format's offsets otherwise
                yield batch.select(list(names))

    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as head:
        return _Opened(head.schema, None, batches)
