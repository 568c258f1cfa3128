"""Rows in the bodies of requests, and predictions in those of answers: JSON or CSV.

    {"rows": [{"age": 61, "ward": "B"}, …]}     by name; or, in the columns' order,
    {"rows": [[61, "B"], …]}                    null for a gap

CSV has a line of names, commas and UTF-8. Whatever bytes come, they are rows or a `DataError`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv

from coke.data.raw import TEXT
from coke.data.tables import read_table
from coke.errors import DataError
from coke.learning.model import Model
from coke.learning.predicting import disarmed

_Value = bool | int | float | str | None


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    rows: list[dict[str, _Value] | list[_Value]]


_given = msgspec.json.Decoder(_Given)


def rows_in_json(body: bytes, model: Model, most: int) -> pa.Table:
    """Of such a body."""
    try:
        rows = _given.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f'the body cannot be read: {error}; expected {{"rows": [{{"column": value, …}}, …]}}'
        ) from error
    _few(len(rows.rows), most)
    by_name = _columns(rows.rows, model.columns)
    return read_table(pa.table({name: _array(name, x) for name, x in by_name.items()}))


def _few(rows: int, most: int) -> None:
    if not 0 < rows <= most:
        raise DataError(f"{rows} rows: expected 1 to {most} a request; send the others in another")


def _columns(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[_Value]]:
    """Column ↦ its values, of rows by name or in order."""
    if isinstance(rows[0], dict):
        for t, row in enumerate(rows):
            lacking = [n for n in names if n not in row] if isinstance(row, dict) else names
            if lacking:
                raise DataError(
                    f"row {t} has no {lacking[0]!r}: expected every column by name, null for a gap"
                )
        return {name: [row[name] for row in rows] for name in names}
    for t, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise DataError(
                f"row {t} is no array of {len(names)} values: expected {list(names)[:20]} in this "
                "order, or all rows by name"
            )
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _array(name: str, values: list[_Value]) -> pa.Array:
    """Of one kind; numbers as doubles, whole or not."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int, float, bool}:
        try:
            return pa.array(np.array(values, np.float64), from_pandas=True)
        except OverflowError as error:
            raise DataError(f"column {name!r} has a number beyond 1e308: {error}") from error
    if kinds != {str}:
        words = sorted(kind.__name__ for kind in kinds)
        raise DataError(f"column {name!r} holds {' and '.join(words)}: expected one kind")
    return pa.array(values, pa.string())


def rows_in_csv(body: bytes, model: Model, most: int) -> pa.Table:
    """Of such a body; text stays text, whatever it looks like."""
    coding = model.coding
    words = [] if coding is None else [code.column for code in coding.codes if code.what == TEXT]
    reading = pa.csv.ReadOptions(use_threads=False, block_size=max(1, len(body)))
    kinds = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(words, pa.string()), strings_can_be_null=True
    )
    try:
        table = pa.csv.read_csv(io.BytesIO(body), reading, convert_options=kinds)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"the body cannot be read: {error}; expected CSV in UTF-8, with commas and a line of "
            "names"
        ) from error
    _few(table.num_rows, most)
    return read_table(table)


def as_json(columns: dict[str, Any], gaps: dict[str, int], others: dict[str, int]) -> bytes:
    """Predictions by column, and what was filled in or unknown."""
    plain = {name: np.asarray(column).tolist() for name, column in columns.items()}
    return msgspec.json.encode({"predictions": plain, "gaps": gaps, "other_levels": others})


def as_csv(columns: dict[str, Any]) -> bytes:
    """The same as a file of `coke predict` has them."""
    to = io.BytesIO()
    pa.csv.write_csv(disarmed(pa.table(columns)), to)
    return to.getvalue()
