"""Reading rows: arrays, tables that speak Arrow, Parquet files; other files through `reading`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from coke.data.kinds import (
    NUMBERS,
    SEVERAL,
    SITES,
    TARGETS,
    WEIGHTS,
    distinct,
    input_names,
    inputs_as,
    require,
    weighing,
)
from coke.data.missing import MISSING, computing, without_missing
from coke.data.raw import Kind, raw_rows
from coke.data.reading import ADDRESS, PLAINLY, READABLE, Reading, form_of
from coke.errors import CokeError, DataError, FileError, unknown
from coke.maths.arrays import Array, finite

Labels = NDArray[Any]
_UNFIT = (pa.ArrowException, TypeError, ValueError)
REFUSALS = (  # what NumPy's, Arrow's and Python's readers raise
    *(OSError, ValueError, TypeError, EOFError, OverflowError, pa.ArrowException),
    *(SyntaxError, TokenError, MemoryError, UserWarning),  # heads of .npy files are Python
    *(zlib.error, LZMAError, BadZipFile),
)


class Rows(NamedTuple):
    """A data set before it is split among sites."""

    X: Array  # (T, d)
    y: Labels  # (T,)  numbers, or class labels; (T, K) of K numbers
    sites: Labels | None  # (T,)  one label a row, where the data say who holds it
    columns: tuple[str, ...]  # names of the columns of X
    targets: tuple[str, ...] = ("y",)  # names of those of y
    weights: Array | None = None  # (T,)  a row of weight w stands for w rows
    kinds: tuple[Kind, ...] = ()  # what raw columns of X hold; none: numbers, and no gap

    def weighed(self, weights: Array, name: str) -> Rows:
        """With those weights (T,), one a row; a row that weighs nothing is none."""
        there = weighing(weights, name)
        sites = None if self.sites is None else self.sites[there]
        rows = self._replace(X=self.X[there], y=self.y[there], sites=sites)
        return rows._replace(weights=weights[there])


def read_rows(
    source: Any,
    target: str | Sequence[str],
    *,
    site: str | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    missing: str = "refuse",
    how: Reading = PLAINLY,
) -> Rows:
    """Rows of a file or table: `target` is y, `site` says who holds a row, all else are inputs.

    `weight` says for how many rows one stands, where it is named. Several targets are numbers.
    `drop` may be patterns. Rows with a missing value are refused, or left out with
    `missing="drop"`; with "fill", only those without a target, site or weight are.
    """
    if missing not in MISSING:
        raise DataError(unknown("treatment of missing values", missing, MISSING))
    table, targets = read_table(source, how), [target] if isinstance(target, str) else [*target]
    named, weights = ([] if name is None else [name] for name in (site, weight))
    inputs = input_names(table.column_names, targets, [*named, *weights], drop)
    table = table.select([*inputs, *targets, *named, *weights])
    kind = TARGETS if len(targets) == 1 else SEVERAL
    require(table, (inputs, inputs_as(how)), (targets, kind), (named, SITES), (weights, WEIGHTS))
    missing = "refuse" if missing == "fill" and how.numbers else missing
    needed = {"fill": [*targets, *named, *weights], "drop": table.column_names}.get(missing, [])
    if not all(_whole(table[name]) for name in needed):
        table = without_missing(table, needed, site, how)
    labels = None if site is None else column(table, site)
    y = column(table, targets[0]) if len(targets) == 1 else inputs_of(table, targets)
    X, kinds = raw_rows(table, inputs)
    rows = checked_rows(X, y, labels, tuple(inputs), gaps=missing == "fill")
    rows = rows._replace(targets=tuple(targets), kinds=kinds)
    return rows if weight is None else rows.weighed(inputs_of(table, [weight])[:, 0], weight)


def _whole(values: pa.ChunkedArray) -> bool:
    """Whether no value is missing; of numbers, without Arrow's functions, which take a while."""
    if values.null_count or not pa.types.is_floating(values.type):
        return values.null_count == 0
    return bool(np.isfinite(np.from_dlpack(values.combine_chunks())).all())


def checked_rows(
    X: Any, y: Any, sites: Any = None, columns: tuple[str, ...] | None = None, *, gaps: bool = False
) -> Rows:
    """Rows from arrays: X (T, d) finite numbers, y (T,), and one site label a row or none.

    y may be numbers (T, K). Where there may be `gaps`, they are NaN.
    """
    X, y = numbers(X), _array(y, "y")
    if y.dtype.kind in "mMcV":
        raise DataError(f"y holds {y.dtype}: expected numbers or class labels; convert it before")
    good = X.ndim == 2 and y.ndim in (1, 2) and len(y) == len(X) and 0 not in y.shape[1:]
    if not good:
        raise DataError(f"X has shape {X.shape}, y {y.shape}: expected (T, d) and (T,) or (T, K)")
    if len(X) == 0:
        raise DataError("no rows: expected at least one")
    names = columns or tuple(f"x{j}" for j in range(X.shape[1]))
    if not (gaps or finite(X)):
        bad = np.count_nonzero(~np.isfinite(X), axis=0)
        raise DataError(_missing({names[j]: int(n) for j, n in enumerate(bad) if n}))
    gone = int(np.count_nonzero(~np.isfinite(y))) if y.dtype.kind == "f" else _gone(y)
    if gone:
        raise DataError(_missing({"the target": gone}))
    return Rows(X, y, None if sites is None else _checked_sites(sites, len(X)), names)


def _checked_sites(sites: Any, T: int) -> Labels:
    """One label per row, none missing."""
    labels = _array(sites, "sites")
    if labels.shape != (T,):
        raise DataError(f"sites has shape {labels.shape}: expected one label a row, ({T},)")
    if _gone(labels):
        raise DataError(
            f"{_gone(labels)} rows have no site label: name their site or leave them out"
        )
    return labels


def _gone(labels: Labels) -> int:
    """How many are None or NaN."""
    return sum(c is None or (isinstance(c, float) and c != c) for c in labels.tolist())


def numbers(X: Any) -> Array:
    """X as floats, whatever its shape."""
    X = _array(X, "X")
    if X.dtype.kind not in "biufO":  # NumPy would turn dates and "1.5" into floats in silence
        raise DataError(f"X holds {X.dtype}: expected numbers; encode text and dates as numbers")
    try:
        return np.asarray(X, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"X does not hold numbers only: {error}; encode the others") from error


def _array(values: Any, what: str) -> Labels:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{what} cannot be read as an array: {error}; expected rows of equal length"
        ) from error


def read_table(source: Any, how: Reading = PLAINLY) -> pa.Table:
    """An Arrow table from a file's path or from any table that speaks Arrow (pandas, polars, …).

    It has a row at least, names that differ, and columns without Arrow's ways to save space.
    """
    if hasattr(source, "__arrow_c_stream__"):
        return _usable(_from_memory(source), "the table")
    if isinstance(source, str | Path):
        return _usable(_from_file(source, how), str(source))
    raise DataError(
        f"cannot read rows from a {type(source).__name__}: expected the path of a file "
        f"({', '.join(READABLE)}), or a pandas, polars or Arrow table"
    )


def _from_memory(source: Any) -> pa.Table:
    try:
        return pa.table(source)
    except _UNFIT as error:
        said = "; ".join(_unfit(source)) or str(error)
        raise DataError(
            f"the table cannot be read: {said}; give every column one name and one type"
        ) from error


def _unfit(source: Any) -> Iterator[str]:
    """Every column of a data frame that Arrow cannot read, and why."""
    for name in dict.fromkeys(getattr(source, "columns", ())):
        values = source[name]
        try:
            pa.array(values if getattr(values, "ndim", 1) == 1 else [])
        except _UNFIT as error:
            yield f"column {name!r}: {error}"


def _from_file(source: str | Path, how: Reading) -> pa.Table:
    path = Path(source)
    try:
        if path.suffix.lower() == ".parquet":
            # Not pyarrow.parquet.read_table: it is for folders, too, and loads pandas if it can.
            table = pa.parquet.ParquetFile(path).read()
        else:
            table = form_of(source).table(source if ADDRESS in str(source) else path, how)
        "".join(table.column_names)  # Arrow decodes names only when asked for them
    except CokeError:
        raise
    except REFUSALS as error:
        raise unreadable(str(source), FileError, error) from error
    return table


def unreadable(said: str, kind: type[Exception], error: Exception) -> Exception:
    """What a reader refused, and where."""
    if isinstance(error, FileNotFoundError):
        return kind(f"{said}: cannot be read: there is no such file or folder")
    return kind(f"{said}: cannot be read: {error}; is it whole, and of the kind its name says?")


def _usable(table: pa.Table, said: str) -> pa.Table:
    """The table with plain columns, without pandas' row numbers."""
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    distinct(names, f"{said}: ")
    if table.num_rows == 0:
        raise DataError(f"{said}: no rows; expected at least one below the column names")
    columns = {name: [plain(chunk) for chunk in table[name].chunks] for name in names}
    return pa.table({name: pa.chunked_array(chunks) for name, chunks in columns.items()})


def plain(values: pa.Array) -> pa.Array:
    """Dictionaries and runs written out; decimals and halves as floats; text Arrow can filter."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return plain(values.dictionary).take(values.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain(computing().run_end_decode(values))
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    # By its name: pa.types.is_string_view is younger than our oldest Arrow.
    return values.cast(pa.large_string()) if str(kind) == "string_view" else values


def column(table: pa.Table, name: str) -> Labels:
    """A column as an array; text stays text, and times become text."""
    values = table[name]
    if values.null_count:
        raise DataError(_missing({name: values.null_count}))
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.string())
    whole = values.combine_chunks()
    if pa.types.is_integer(whole.type) or pa.types.is_floating(whole.type):
        return np.asarray(np.from_dlpack(whole))  # `to_numpy` loads pandas where there is one
    try:
        return np.asarray(whole.to_numpy(zero_copy_only=False))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"column {name!r} cannot be read: {error}; text must be UTF-8") from error


def inputs_of(table: pa.Table, names: Sequence[str]) -> Array:
    """The named columns as numbers (T, d)."""
    require(table, (names, NUMBERS))
    holes = {name: table[name].null_count for name in names if table[name].null_count}
    if holes:
        raise DataError(_missing(holes))
    X = np.empty((table.num_rows, len(names)))
    for j, name in enumerate(names):
        X[:, j] = column(table, name)
    return X


def _missing(counts: dict[str, int]) -> str:
    shown = ", ".join(f"{name} ({n})" for name, n in list(counts.items())[:8])
    more = f" and {len(counts) - 8} more columns" if len(counts) > 8 else ""
    return (
        f"missing, NaN or infinite values in {shown}{more}: expected finite numbers; training "
        'fills those of inputs with --missing fill (missing = "fill"), and leaves such rows out '
        'with --missing drop (missing = "drop")'
    )
