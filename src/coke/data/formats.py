"""Files and tables as Arrow's record batches: Parquet, CSV, Arrow files, and what speaks Arrow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from coke.errors import DataError

BUFFER = 1 << 12  # bytes read ahead of each Parquet column; 0 would read whole row groups
MANY = 1 << 18  # rows of Parquet after which Arrow gives back the memory it keeps for itself
BLOCK = 1 << 23  # bytes of CSV text at a time

Batches = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Names of columns ↦ their rows, in order."""


class _Opened(NamedTuple):
    """What is known of a table before its rows are read."""

    schema: pa.Schema
    rows: int | None
    batches: Batches
    only: Callable[[Collection[str]], tuple[int, Batches]] | None = None
    """Names of sites ↦ how many rows are left, and they, without most of the other sites'."""


class Named(NamedTuple):
    """Columns whose values are names, whatever they look like."""

    site: str | None = None
    target: str | None = None  # where it holds classes


def opener(source: Any) -> Callable[[Any, int, Named], _Opened]:
    """What opens that: it is given the source and rows of a batch."""
    if hasattr(source, "__arrow_c_stream__"):
        return _memory
    openers = {".parquet": _parquet, ".csv": _csv, ".arrow": _ipc, ".feather": _ipc}
    if not isinstance(source, str | Path) or Path(source).suffix.lower() not in openers:
        raise DataError(
            f"cannot read rows from {source!s:.200}: expected a file ending in "
            f"{', '.join(openers)}, or a pandas, polars or Arrow table"
        )
    return openers[Path(source).suffix.lower()]


def _memory(source: Any, chunk: int, named: Named) -> _Opened:
    def reader() -> pa.RecordBatchReader:
        once = isinstance(source, pa.RecordBatchReader)
        return source if once else pa.RecordBatchReader.from_stream(source)

    rows = source.num_rows if isinstance(source, pa.Table) else None
    return _Opened(reader().schema, rows, lambda names: (b.select(list(names)) for b in reader()))


def _parquet(path: Any, chunk: int, named: Named) -> _Opened:
    # A page of every column at a time. Reading ahead by row groups is no faster on one core, and
    # takes memory by the size of the groups: a million rows where the writer was left alone.
    def file() -> pa.parquet.ParquetFile:
        return pa.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)

    def of(bundles: Sequence[_Bundle]) -> Batches:
        def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
            read = 0
            with file() as rows:
                for groups, n in bundles:
                    yield from rows.iter_batches(chunk, groups, list(names), use_threads=False)
                    read += n
                    if read >= MANY:
                        pa.default_memory_pool().release_unused()  # or what it keeps grows slowly
                        read = 0

        return batches

    def only(sites: Collection[str]) -> tuple[int, Batches]:
        with file() as head:
            some = [
                b for b in every if any(_may_hold(head, i, named.site, sites) for i in b.groups)
            ]
        return sum(b.rows for b in some), of(some)

    with file() as head:
        every = _bundles(head.metadata, chunk)
        return _Opened(head.schema_arrow, head.metadata.num_rows, of(every), only)


class _Bundle(NamedTuple):
    """Row groups that are read together, so that batches end where they do whoever reads them."""

    groups: list[int]
    rows: int


def _bundles(meta: pa.parquet.FileMetaData, chunk: int) -> list[_Bundle]:
    """All row groups, in bundles of a chunk of rows at least."""
    found, some, rows = list[_Bundle](), list[int](), 0
    for i in range(meta.num_row_groups):
        some.append(i)
        rows += meta.row_group(i).num_rows
        if rows >= chunk or i == meta.num_row_groups - 1:
            found.append(_Bundle(some, rows))
            some, rows = [], 0
    return found


def _may_hold(
    file: pa.parquet.ParquetFile, group: int, site: str | None, sites: Collection[str]
) -> bool:
    """A row group's least and greatest site do not rule these out; text and whole numbers only."""
    meta, kind = file.metadata.row_group(group), file.schema_arrow.field(site).type
    columns = (meta.column(j) for j in range(meta.num_columns))
    found = [column.statistics for column in columns if column.path_in_schema == site]
    if len(found) != 1 or found[0] is None or not found[0].has_min_max:
        return True
    low, high = found[0].min, found[0].max
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return any(low <= name <= high for name in sites)
    if pa.types.is_signed_integer(kind):
        return any(low <= int(name) <= high for name in sites)
    return True


def _csv(path: Any, chunk: int, named: Named) -> _Opened:
    blocks = pa.csv.ReadOptions(block_size=BLOCK)
    with pa.csv.open_csv(path, read_options=blocks) as head:
        found = head.schema
    # Types come from the first block: what looks whole or empty there may be a fraction later.
    whole = [f.name for f in found if pa.types.is_integer(f.type) or pa.types.is_null(f.type)]
    kinds = {name: pa.float64() for name in whole if name not in named}
    if named.target in found.names:  # what looks like a number may be text later
        wanted = pa.csv.ConvertOptions(include_columns=[named.target])
        field = pa.csv.read_csv(path, convert_options=wanted).schema.field(0)
        found = found.set(found.names.index(named.target), field)
        kinds[field.name] = field.type

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = pa.csv.ConvertOptions(include_columns=list(names), column_types=kinds)
        with pa.csv.open_csv(path, read_options=blocks, convert_options=options) as rows:
            yield from rows

    return _Opened(found, None, batches)


def _ipc(path: Any, chunk: int, named: Named) -> _Opened:
    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as rows:
            for i in range(rows.num_record_batches):
                batch = rows.get_batch(i)
                batch.validate(full=True)  # Arrow believes the offsets in this format otherwise
                yield batch.select(list(names))

    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as head:
        return _Opened(head.schema, None, batches)
