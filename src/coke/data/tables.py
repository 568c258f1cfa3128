"""Reading rows: arrays, pandas, polars and Arrow tables, Parquet and CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from coke.errors import DataError, FileError, unknown
from coke.maths.arrays import Array

Labels = NDArray[Any]


class Rows(NamedTuple):
    """A data set before it is split among sites."""

    X: Array  # (T, d)
    y: Labels  # (T,)  numbers, or class labels
    sites: Labels | None  # (T,)  one label a row, where the data say who holds it
    columns: tuple[str, ...]  # names of the columns of X


def read_rows(
    source: Any,
    target: str,
    *,
    site: str | None = None,
    drop: Sequence[str] = (),
    missing: str = "refuse",
) -> Rows:
    """Rows of a file or table: `target` is y, `site` says who holds a row, all else are inputs.

    `missing="drop"` leaves out rows with a missing value instead of refusing them.
    """
    if missing not in ("refuse", "drop"):
        raise DataError(unknown("treatment of missing values", missing, ("refuse", "drop")))
    table = read_table(source)
    for name in (target, *([site] if site else []), *drop):
        if name not in table.column_names:
            raise DataError(unknown("column", name, table.column_names))
    table = table.drop_columns(list(drop))
    if missing == "drop":
        table = without_missing(table)
    inputs = [name for name in table.column_names if name not in (target, site)]
    if not inputs:
        raise DataError(f"no input columns: {table.column_names} leave none beside the target")
    labels = None if site is None else column(table, site)
    return checked_rows(inputs_of(table, inputs), column(table, target), labels, tuple(inputs))


def checked_rows(X: Any, y: Any, sites: Any = None, columns: tuple[str, ...] | None = None) -> Rows:
    """Rows from arrays: X (T, d) finite numbers, y (T,), and one site label a row or none."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    y = np.asarray(y)
    if X.ndim != 2 or y.shape != (len(X),):
        raise DataError(f"X has shape {X.shape}, y {y.shape}: expected (T, d) and (T,)")
    if len(X) == 0:
        raise DataError("no rows: expected at least one")
    names = columns or tuple(f"x{j}" for j in range(X.shape[1]))
    bad = ~np.isfinite(X)
    if bad.any():
        raise DataError(_missing({names[j]: int(n) for j, n in enumerate(bad.sum(axis=0)) if n}))
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(_missing({"the target": int(np.count_nonzero(~np.isfinite(y)))}))
    return Rows(X, y, None if sites is None else checked_sites(sites, len(X)), names)


def checked_sites(sites: Any, T: int) -> Labels:
    """One label per row, none missing."""
    labels = np.asarray(sites)
    if labels.shape != (T,):
        raise DataError(f"sites has shape {labels.shape}: expected one label a row, ({T},)")
    empty = labels != labels if labels.dtype.kind == "f" else labels == np.array(None)
    if np.any(empty):
        raise DataError(
            f"{np.count_nonzero(empty)} rows have no site label: name their site or leave them out"
        )
    return labels


def read_table(source: Any) -> pa.Table:
    """An Arrow table from a file's path or from any table that speaks Arrow (pandas, polars, …)."""
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source)
    if not isinstance(source, str | Path):
        raise DataError(
            f"cannot read rows from a {type(source).__name__}: expected the path of a Parquet or "
            "CSV file, or a pandas, polars or Arrow table"
        )
    path = Path(source)
    readers = {".parquet": pa.parquet.read_table, ".csv": pa.csv.read_csv}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path}: expected a file ending in .parquet or .csv")
    try:
        return readers[path.suffix.lower()](path)
    except (OSError, pa.ArrowException) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def column(table: pa.Table, name: str) -> Labels:
    """A column as an array; text stays text."""
    values = table[name]
    if values.null_count:
        raise DataError(_missing({name: values.null_count}))
    return np.asarray(values.combine_chunks().to_numpy(zero_copy_only=False))


def inputs_of(table: pa.Table, names: Sequence[str]) -> Array:
    """The named columns as numbers (T, d)."""
    for name in names:
        kind = table.schema.field(name).type
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        ):
            raise DataError(
                f"column {name!r} holds {kind}: inputs must be numbers; "
                f'encode it as numbers, or leave it out with --drop {name} (drop = ["{name}"])'
            )
    holes = {name: table[name].null_count for name in names if table[name].null_count}
    if holes:
        raise DataError(_missing(holes))
    X = np.empty((table.num_rows, len(names)))
    for j, name in enumerate(names):
        X[:, j] = table[name].to_numpy()
    return X


def without_missing(table: pa.Table) -> pa.Table:
    """The rows in which no value is null, NaN or infinite."""
    whole = pa.chunked_array([pa.repeat(True, table.num_rows)])
    for name in table.column_names:
        there = pc.is_valid(table[name])
        if pa.types.is_floating(table.schema.field(name).type):
            there = pc.fill_null(pc.is_finite(table[name]), False)
        whole = pc.and_(whole, there)
    kept = table.filter(whole)
    if kept.num_rows == 0:
        raise DataError(
            f"all {table.num_rows} rows have a missing value: drop the columns that are mostly so"
        )
    return kept


def _missing(counts: dict[str, int]) -> str:
    shown = ", ".join(f"{name} ({n})" for name, n in list(counts.items())[:8])
    more = f" and {len(counts) - 8} more columns" if len(counts) > 8 else ""
    return (
        f"missing, NaN or infinite values in {shown}{more}: expected finite numbers; "
        'fill them in, drop the column, or leave those rows out: --missing drop (missing = "drop")'
    )
