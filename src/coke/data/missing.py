"""Rows with missing values, left out and said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from coke.data.reading import Reading
from coke.errors import DataError

MISSING = ("fill", "drop", "refuse")  # what becomes of them


def computing() -> Any:
    """Arrow's functions, which take longer to load than most tables to read, and few need."""
    return import_module("pyarrow.compute")


def without_missing(
    table: pa.Table, needed: Sequence[str], site: str | None, how: Reading
) -> pa.Table:
    """The rows in which no value of these columns is null, NaN or infinite; others are said."""
    pc, whole = computing(), pa.chunked_array([pa.repeat(True, table.num_rows)])
    for name in needed:
        there = pc.is_valid(table[name])
        if pa.types.is_floating(table.schema.field(name).type):
            there = pc.fill_null(pc.is_finite(table[name]), False)
        whole = pc.and_(whole, there)
    kept, gone = table.filter(whole), table.filter(pc.invert(whole))
    if kept.num_rows == 0:
        raise DataError(
            f"all {table.num_rows} rows have a missing value: drop the columns that are mostly so"
        )
    if gone.num_rows:
        how.say(left_out(Counter({} if site is None else map(str, gone[site])), gone.num_rows))
    return kept


def left_out(sites: Counter[str], n: int) -> str:
    """How many rows went, and at which sites."""
    shown = ", ".join(f"{name} {k}" for name, k in sites.most_common(20))
    return f"{n} rows with a missing value left out" + f": {shown}" * bool(shown)
