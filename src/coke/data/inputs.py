"""Rows to predict: the columns a model was trained on, a chunk at a time, without a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from coke.data.formats import CHUNK, columns_of_batch, guarded, opener
from coke.data.kinds import INPUTS, NUMBERS, exact_float, require
from coke.data.npy import open_arrays
from coke.data.raw import Kind
from coke.data.reading import NOBODY, PLAINLY, Named, Reading
from coke.data.sources import Chunk, Source
from coke.data.tables import plain
from coke.errors import DataError, FileError


def open_inputs(
    path: str | Path, columns: Sequence[str], how: Reading = PLAINLY, kinds: Sequence[Kind] = ()
) -> Source:
    """The named columns of a file, of the kinds that are told; of a .npy file, all of as many."""
    arrays = Path(path).suffix == ".npy"
    source = open_arrays(path) if arrays else _table(path, columns, how, kinds)
    if len(source.columns) != len(columns):
        raise DataError(
            f"{path} has {len(source.columns)} columns: the model needs {len(columns)}, {columns}"
        )
    return source


def _table(path: str | Path, columns: Sequence[str], how: Reading, told: Sequence[Kind]) -> Source:
    schema, rows, batches, _ = guarded(str(path), FileError, opener(path, CHUNK, how=how))
    names = guarded(str(path), FileError, lambda: list(schema.names))
    lacking = [name for name in columns if name not in names]
    if lacking:
        raise DataError(f"columns {lacking[:8]} are missing: the model needs {columns}")
    kinds = [schema.field(name).type for name in columns]
    empty = pa.table({n: plain(pa.array([], k)) for n, k in zip(columns, kinds, strict=True)})
    require(empty, (columns, INPUTS if told else NUMBERS))
    dtype = exact_float(*kinds)

    def chunks() -> Iterator[Chunk]:
        reading = iter(batches(columns))
        while (batch := guarded(str(path), FileError, lambda: next(reading, None))) is not None:
            for first in range(0, batch.num_rows, CHUNK):
                some = batch.slice(first, CHUNK)
                X = columns_of_batch(some, columns, dtype, told)
                yield Chunk(X, np.zeros(len(X)), None, ())

    return Source(tuple(columns), rows, chunks, kinds=tuple(told))


def names_in(path: str | Path, how: Reading = PLAINLY) -> list[str]:
    """The names of a file's columns; an array has none."""
    if Path(path).suffix == ".npy":
        return []
    opened = guarded(str(path), FileError, opener(path, CHUNK, NOBODY, how))
    return list(guarded(str(path), FileError, lambda: opened.schema.names))


def beside_inputs(
    path: str | Path, columns: Sequence[str], how: Reading = PLAINLY
) -> Callable[[int], pa.Table]:
    """Of other columns of the file, the next so many rows; text of a CSV file as it stands."""
    named = Named(beside=tuple(columns))
    opened = guarded(str(path), FileError, opener(path, CHUNK, named, how)) if columns else None
    reading = iter(()) if opened is None else iter(opened.batches(columns))
    waiting: list[pa.RecordBatch] = []

    def taken(n: int) -> pa.Table:
        if opened is None:
            return pa.table({})
        while sum(batch.num_rows for batch in waiting) < n:
            batch = guarded(str(path), FileError, lambda: next(reading, None))
            if batch is None:
                raise FileError(f"{path}: has fewer rows than before: is somebody writing it?")
            waiting.append(batch)
        whole = pa.Table.from_batches(waiting)
        waiting[:] = whole.slice(n).to_batches()
        return whole.slice(0, n)

    return taken
