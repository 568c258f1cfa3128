"""Predictions of a file's rows into another file, a chunk at a time."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from coke.data.files import atomically
from coke.data.inputs import open_inputs
from coke.data.reading import PLAINLY, Reading
from coke.data.sources import Numbers, complete
from coke.learning.model import Model

FORMATS = (".csv", ".parquet")


class Asked(NamedTuple):
    """What is to stand beside the predictions."""

    proba: bool = False  # class probabilities
    interval: float | None = None  # the ends of intervals that hold such a share


def _predicted(model: Model, X: Numbers, asked: Asked) -> pa.Table:
    """The columns of these rows."""
    found = [model.predict(X)] if asked.interval is None else model.interval(X, asked.interval)
    columns = dict(zip(("prediction", "low", "high"), found, strict=False))
    if model.outputs > 1:
        columns = {
            f"{said}_{target}": part[:, k]
            for k, target in enumerate(model.targets)
            for said, part in columns.items()
        }
    if asked.proba:
        P = model.predict_proba(X)
        columns |= {f"p_{label}": P[:, j] for j, label in enumerate(model.classes)}
    return pa.table(columns)


def predict_file(
    model: Model, data: str | Path, out: Path, asked: Asked, how: Reading = PLAINLY
) -> int:
    """How many rows were predicted; `out` is written whole or not at all."""
    rows = 0

    def write(part: Path) -> None:
        nonlocal rows
        chunks = complete(open_inputs(data, model.columns, how))
        tables = (_predicted(model, chunk.X, asked) for chunk in chunks)
        first = next(tables)  # a file without rows is refused
        with _writer(out.suffix, part, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
                rows += table.num_rows

    atomically(out, write)
    return rows


def _writer(
    suffix: str, path: Path, schema: pa.Schema
) -> pa.csv.CSVWriter | pa.parquet.ParquetWriter:
    if suffix == ".csv":
        return pa.csv.CSVWriter(path, schema)
    words = [field.name for field in schema if pa.types.is_string(field.type)]
    return pa.parquet.ParquetWriter(path, schema, use_dictionary=words)  # numbers seldom repeat
