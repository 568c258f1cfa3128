"""Predictions of a file's rows into another file, a chunk at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from coke.data.files import atomically
from coke.data.inputs import open_inputs
from coke.data.raw import RawRows
from coke.data.reading import PLAINLY, Reading
from coke.data.sources import Numbers, Passing, complete
from coke.learning.model import Model

FORMATS = (".csv", ".parquet")


class Asked(NamedTuple):
    """What is to stand beside the predictions."""

    proba: bool = False  # class probabilities
    interval: float | None = None  # the ends of intervals that hold such a share


def _predicted(model: Model, X: Numbers | RawRows, asked: Asked) -> pa.Table:
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


class Predicted(NamedTuple):
    """What was written."""

    rows: int
    gaps: dict[str, int]  # column ↦ values that were filled in, where the model has a way to
    others: dict[str, int]  # column ↦ texts that are none of the levels it was trained on by name


def predict_file(
    model: Model, data: str | Path, out: Path, asked: Asked, how: Reading = PLAINLY
) -> Predicted:
    """What was predicted; `out` is written whole or not at all."""
    coding, rows, gaps, others = model.coding, 0, Counter[str](), Counter[str]()
    source = open_inputs(data, model.columns, how, () if coding is None else coding.kinds())
    passing = Passing(missing="refuse" if coding is None else "fill")

    def predicted() -> Iterator[pa.Table]:
        nonlocal rows
        for chunk in complete(source, passing):
            X = chunk.X if coding is None else RawRows(chunk.X, source.kinds)
            if coding is not None:
                strange = coding.strange(*X)
                gaps.update({name: n for name, (n, _) in strange.items()})
                others.update({name: n for name, (_, n) in strange.items()})
            rows += len(chunk.y)
            yield _predicted(model, X, asked)

    def write(part: Path) -> None:
        tables = predicted()
        first = next(tables)  # a file without rows is refused
        with _writer(out.suffix, part, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)

    atomically(out, write)
    return Predicted(rows, dict(+gaps), dict(+others))


def _writer(
    suffix: str, path: Path, schema: pa.Schema
) -> pa.csv.CSVWriter | pa.parquet.ParquetWriter:
    if suffix == ".csv":
        return pa.csv.CSVWriter(path, schema)
    words = [field.name for field in schema if pa.types.is_string(field.type)]
    return pa.parquet.ParquetWriter(path, schema, use_dictionary=words)  # numbers seldom repeat
