"""Files and tables as sources of rows: Parquet, what `reading` reads, and what speaks Arrow.

Each opener gives Arrow's record batches; `open_table` makes chunks of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from coke.data.kinds import (
    NUMBERS,
    SITES,
    TARGETS,
    WEIGHTS,
    Part,
    distinct,
    exact_float,
    input_names,
    inputs_as,
    require,
    weighing,
)
from coke.data.missing import computing
from coke.data.raw import Kind, read_columns
from coke.data.reading import (
    ADDRESS,
    NOBODY,
    PLAINLY,
    READABLE,
    Batches,
    Named,
    Opened,
    Reading,
    form_of,
)
from coke.data.sources import Chunk, Numbers, Source
from coke.data.tables import REFUSALS, plain, unreadable
from coke.errors import CokeError, DataError, FileError
from coke.maths.arrays import Array

CHUNK = 16384  # rows
BUFFER = 1 << 12  # bytes read ahead of each Parquet column; 0 would read whole row groups
MANY = 1 << 18  # rows of Parquet after which Arrow gives back the memory it keeps for itself
TARGET = (NUMBERS[0], "the statistics of the quadratic loss need numbers; convert it before")


def open_table(
    source: Any,
    target: str | Sequence[str],
    *,
    site: str | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    classes: bool = False,
    chunk: int = CHUNK,
    how: Reading = PLAINLY,
    known: dict[str, Kind] | None = None,
) -> Source:
    """As `read_rows`, but a chunk at a time: a path, or any table that speaks Arrow.

    Targets are numbers, or with `classes` one of labels. Columns that are `known` from other files
    hold the same here. A stream that can be read only once (a `RecordBatchReader`) gives one pass
    only.
    """
    targets = (target,) if isinstance(target, str) else tuple(target)
    file = isinstance(source, str | Path)
    said, kind = (str(source), FileError) if file else ("table", DataError)
    guard = partial(guarded, said, kind)
    open_ = opener(source, chunk, Named(site, targets[0] if classes else None), how)
    schema, rows, batches, near = guard(open_)
    guard(lambda: "".join(schema.names))  # Arrow decodes them when asked for them
    beside, weights = ([] if name is None else [name] for name in (site, weight))
    parts = ((targets, TARGETS if classes else TARGET), (beside, SITES), (weights, WEIGHTS))
    inputs = tuple(_inputs(schema, how, parts, drop))
    known = {} if known is None else known
    kinds = tuple(known.setdefault(name, Kind()) for name in inputs)
    dtype = exact_float(*(schema.field(name).type for name in inputs))
    table = _Chunking(
        guard=guard, targets=targets, site=site, weight=weight, classes=classes, chunk=chunk,
        dtype=dtype, kinds=kinds,
    )  # fmt: skip
    full, slim = partial(table.chunks, inputs), partial(table.chunks, ())

    def only(names: frozenset[str]) -> Source:
        left, some = guard(lambda: near(names))
        return Source(
            inputs, left, partial(full, some), partial(slim, some), part=True, kinds=kinds
        )

    by_site = only if near is not None and site is not None else None
    return Source(
        inputs, rows, partial(full, batches), partial(slim, batches), by_site, kinds=kinds
    )


@dataclass(frozen=True, kw_only=True)
class _Chunking:
    """How a table's batches become chunks of rows."""

    guard: Callable[[Callable[[], Any]], Any]  # of what Arrow refuses says where
    targets: tuple[str, ...]
    site: str | None
    weight: str | None
    classes: bool  # whether the target is one of labels
    chunk: int  # rows
    dtype: Any  # of the inputs
    kinds: tuple[Kind, ...]  # what is known of them

    def chunks(self, inputs: Sequence[str], batches: Batches) -> Iterator[Chunk]:
        """With those inputs: all, or none."""
        beside = [name for name in (self.site, self.weight) if name is not None]
        reading = iter(batches([*inputs, *self.targets, *beside]))
        while (batch := self.guard(lambda: next(reading, None))) is not None:
            for first in range(0, batch.num_rows, self.chunk):
                some, w = self._weighed(batch.slice(first, self.chunk))
                codes, labels = (None, ()) if self.site is None else self._coded(some, self.site)
                y, found = self._targeted(some)
                X = columns_of_batch(some, inputs, self.dtype, self.kinds[: len(inputs)])
                yield Chunk(X, y, codes, labels, found, weights=w)

    def _weighed(self, some: pa.RecordBatch) -> tuple[pa.RecordBatch, Array | None]:
        """Without rows that weigh nothing; of gaps it is said later."""
        if self.weight is None:
            return some, None
        w = columns_of_batch(some, [self.weight], np.float64)[:, 0]
        heavy = np.ones(len(w), np.bool_)
        heavy[np.isfinite(w)] = weighing(w[np.isfinite(w)], self.weight)
        return some.filter(pa.array(heavy)), w[heavy]

    def _targeted(self, some: pa.RecordBatch) -> tuple[Array, tuple[Any, ...] | None]:
        if self.classes:
            return as_classes(*self._coded(some, self.targets[0]))
        y = columns_of_batch(some, self.targets, np.float64)
        return (y if len(self.targets) > 1 else y[:, 0]), None

    def _coded(self, some: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
        return self.guard(lambda: encoded(plain(some.column(name))))  # text may be none


def _inputs(
    schema: pa.Schema, how: Reading, parts: tuple[tuple[Sequence[str], Part], ...],
    drop: Sequence[str],
) -> list[str]:  # fmt: skip
    """The inputs' names, once every column has one name and a type for its part."""
    distinct(schema.names)
    fields = [field for field in schema if not field.name.startswith("__index_level_")]
    empty = pa.table({field.name: plain(pa.array([], field.type)) for field in fields})
    (targets, _), *others = parts
    inputs = input_names(
        empty.column_names, targets, [name for names, _ in others for name in names], drop
    )
    require(empty, (inputs, inputs_as(how)), *parts)
    return inputs


def columns_of_batch(
    batch: pa.RecordBatch, names: Sequence[str], dtype: Any, kinds: Sequence[Kind] = ()
) -> Numbers:
    """The named columns (t, d), raw, NaN where nothing is; by column, as Arrow has them."""
    X = np.empty((len(names), batch.num_rows), dtype)
    told = kinds or [Kind() for _ in names]
    read_columns(X, names, told, lambda name: plain(batch.column(name)))
    return X.T


def encoded(labels: pa.Array) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Each label's place among the different ones (t,), −1 where it is missing; and those."""
    text = labels.cast(pa.string()) if pa.types.is_temporal(labels.type) else labels
    if pa.types.is_floating(text.type):
        text = computing().add(text, 0.0)  # −0 is 0
    found = text.dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    names = tuple(found.dictionary.to_pylist())
    for place, name in enumerate(names):
        if name != name:  # NaN
            codes[codes == place] = -1
    return codes, names


def as_classes(codes: NDArray[np.int64], classes: tuple[Any, ...]) -> tuple[Array, tuple[Any, ...]]:
    """The same codes as numbers, so that what is missing is NaN as elsewhere."""
    lost = [i for i, name in enumerate(classes) if isinstance(name, float) and math.isinf(name)]
    return np.where((codes < 0) | np.isin(codes, lost), np.nan, codes), classes


def guarded(said: str, kind: type[Exception], work: Callable[[], Any]) -> Any:
    """What `work` returns, or whatever NumPy and Arrow refuse as an error that says where."""
    try:
        return work()
    except CokeError:
        raise
    except REFUSALS as error:
        raise unreadable(said, kind, error) from error


def opener(
    source: Any, chunk: int, named: Named = NOBODY, how: Reading = PLAINLY
) -> Callable[[], Opened]:
    """What opens that, in batches of so many rows."""
    if hasattr(source, "__arrow_c_stream__"):
        return partial(_memory, source)
    if not isinstance(source, str | Path):
        raise DataError(
            f"cannot read rows from {source!s:.200}: expected a file ({', '.join(READABLE)}), or "
            "a pandas, polars or Arrow table"
        )
    if Path(source).suffix.lower() == ".parquet":
        return partial(_parquet, source, chunk, named)
    path = source if ADDRESS in str(source) else Path(source)
    return partial(form_of(source).opened, path, chunk, named, how)


def _memory(source: Any) -> Opened:
    def reader() -> pa.RecordBatchReader:
        once = isinstance(source, pa.RecordBatchReader)
        return source if once else pa.RecordBatchReader.from_stream(source)

    rows = source.num_rows if isinstance(source, pa.Table) else None
    return Opened(reader().schema, rows, lambda names: (b.select(list(names)) for b in reader()))


def _parquet(path: Any, chunk: int, named: Named) -> Opened:
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
        return Opened(head.schema_arrow, head.metadata.num_rows, of(every), only)


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
