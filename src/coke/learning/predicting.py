"""Predictions of a file's rows into another file, a chunk at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from coke.data.files import atomically
from coke.data.inputs import beside_inputs, names_in, open_inputs
from coke.data.missing import computing
from coke.data.raw import RawRows
from coke.data.reading import PLAINLY, Reading
from coke.data.sources import Numbers, Passing, complete
from coke.data.tables import plain
from coke.errors import DataError
from coke.learning.model import Model
from coke.learning.scoring import ClassScore, NumberScore
from coke.maths.arrays import finite
from coke.maths.losses import LOSSES

FORMATS = (".csv", ".parquet")
FORMULA = r"^[=+\-@\t\r]"  # how cells begin that a spreadsheet would run, …
NUMBER = r"^[+-][0-9.,]+([eE][+-]?[0-9]+)?$"  # … but for these
Scores = dict[str, dict[str, float | int | None]]


class Asked(NamedTuple):
    """What is to stand beside the predictions."""

    proba: bool = False  # class probabilities
    interval: float | None = None  # the ends of intervals that hold such a share
    keep: tuple[str, ...] = ()  # columns of the rows, as they stand


class Written(NamedTuple):
    """What a file of predictions came to."""

    rows: int
    score: Scores | None  # by target, where all of them were there
    gaps: dict[str, int]  # column ↦ values that were filled in
    others: dict[str, int]  # column ↦ texts that are none of the levels it was trained on by name


def predicted_columns(model: Model, X: Numbers | RawRows, asked: Asked) -> dict[str, Any]:
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
    return columns


class _Scoring:
    """How good the predictions are, of those targets that the file has."""

    def __init__(self, model: Model, there: list[str]):
        self.model, self.known = model, all(name in there for name in model.targets)
        self.columns = model.targets if self.known else ()
        self._numbers = {name: NumberScore() for name in self.columns}
        self._classes = ClassScore(model.classes.tolist()) if len(model.classes) else None

    def add(self, X: Numbers | RawRows, found: dict[str, Any], beside: pa.Table) -> None:
        """Of one chunk."""
        given = {name: plain(beside[name].combine_chunks()).to_pylist() for name in self.columns}
        if self._classes is None:
            for name, y in given.items():
                said = "prediction" if self.model.outputs == 1 else f"prediction_{name}"
                self._numbers[name].add(y, np.asarray(found[said]))
        elif self.known:
            able = LOSSES[self.model.loss].probabilities
            P = self.model.predict_proba(X) if able else None
            self._classes.add(given[self.columns[0]], list(found["prediction"]), P)

    def document(self) -> Scores | None:
        """By target; None where the file lacks one."""
        if not self.known:
            return None
        if self._classes is not None:
            return {self.columns[0]: self._classes.document()}
        return {name: score.document() for name, score in self._numbers.items()}


def predict_file(
    model: Model, data: str | Path, out: Path, asked: Asked, how: Reading = PLAINLY
) -> Written:
    """How many rows were predicted, and how well; `out` is written whole or not at all."""
    coding, rows, gaps, others = model.coding, 0, Counter[str](), Counter[str]()
    source = open_inputs(data, model.columns, how, () if coding is None else coding.kinds())
    filled = coding is not None or model.centred
    how = how._replace(say=PLAINLY.say)  # it has been told
    passing, there = Passing(missing="fill" if filled else "refuse"), names_in(data, how)
    scoring, keep = _Scoring(model, there), _kept(model, asked, there)
    beside = beside_inputs(data, list(dict.fromkeys((*keep, *scoring.columns))), how)

    def tables() -> Iterator[pa.Table]:
        nonlocal rows
        for chunk in complete(source, passing):
            X = chunk.X if coding is None else RawRows(chunk.X, source.kinds)
            strange = strange_values(model, X)
            gaps.update({name: n for name, (n, _) in strange.items()})
            others.update({name: n for name, (_, n) in strange.items()})
            rows += len(chunk.y)
            some, found = beside(len(chunk.y)), predicted_columns(model, X, asked)
            scoring.add(X, found, some)
            whole = {name: plain(some[name].combine_chunks()) for name in keep} | found
            yield disarmed(pa.table(whole)) if out.suffix == ".csv" else pa.table(whole)

    def write(part: Path) -> None:
        written = tables()
        first = next(written)  # a file without rows is refused
        with _writer(out.suffix, part, first.schema) as writer:
            for table in chain([first], written):
                writer.write_table(table)

    atomically(out, write)
    return Written(rows, scoring.document(), dict(+gaps), dict(+others))


def strange_values(model: Model, X: Numbers | RawRows) -> dict[str, tuple[int, int]]:
    """Column ↦ how many of its values are gaps, and how many other levels, where any are."""
    if isinstance(X, RawRows):
        assert model.coding is not None  # or they would be numbers
        return model.coding.strange(*X)
    if finite(X):
        return {}
    holes = np.count_nonzero(~np.isfinite(X), axis=0).tolist()
    return {name: (n, 0) for name, n in zip(model.columns, holes, strict=True) if n}


def _kept(model: Model, asked: Asked, there: list[str]) -> tuple[str, ...]:
    """The columns to carry along, or why not."""
    lacking = [name for name in asked.keep if name not in there]
    if lacking:
        raise DataError(f"columns to keep {lacking[:8]} are not in the file: it has {there[:20]}")
    said = {"prediction", "low", "high", *(f"p_{label}" for label in model.classes)}
    several = {f"{name}_{target}" for name in said for target in model.targets}
    twice = [name for name in asked.keep if name in said | several]
    if twice:
        raise DataError(f"columns to keep {twice[:8]} are names of predictions: rename them first")
    return tuple(dict.fromkeys(asked.keep))


def disarmed(table: pa.Table) -> pa.Table:
    """With an apostrophe before text, also of names, that a spreadsheet would run as a formula."""
    texts = (pa.types.is_string, pa.types.is_large_string)
    columns = [_safe(c) if any(t(c.type) for t in texts) else c for c in table.columns]
    return pa.table(columns, names=_safe(pa.array(table.column_names)).to_pylist())


def _safe(text: Any) -> Any:
    arrow, mark, nothing = computing(), pa.scalar("'", text.type), pa.scalar("", text.type)
    number = arrow.match_substring_regex(text, NUMBER)
    runs = arrow.and_not(arrow.match_substring_regex(text, FORMULA), number)
    return arrow.if_else(runs, arrow.binary_join_element_wise(mark, text, nothing), text)


def _writer(
    suffix: str, path: Path, schema: pa.Schema
) -> pa.csv.CSVWriter | pa.parquet.ParquetWriter:
    if suffix == ".csv":
        return pa.csv.CSVWriter(path, schema)
    words = [field.name for field in schema if pa.types.is_string(field.type)]
    return pa.parquet.ParquetWriter(path, schema, use_dictionary=words)  # numbers seldom repeat
