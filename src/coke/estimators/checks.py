"""What scikit-learn checks of rows, and tables of text, dates and gaps, which it would refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import _check_sample_weight, validate_data

from coke.data.coding import Coding
from coke.data.kinds import INPUTS, require
from coke.data.raw import RawRows, raw_numbers, raw_rows
from coke.data.tables import Rows, checked_rows, read_table
from coke.errors import DataError
from coke.learning.model import Model
from coke.maths.arrays import Array, finite

_NAMED = 8  # columns at fault


def validated(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
    """scikit-learn's own checks of numbers, raised from this package's exception tree."""
    try:
        return validate_data(estimator, *args, dtype=np.float64, **kwargs)
    except ValueError as error:
        raise DataError(f"{error}{_at_fault(args[0])}") from error


def fitted_rows(estimator: BaseEstimator, X: Any, y: Any, **kwargs: Any) -> tuple[RawRows, Any]:
    """Rows and targets to learn from: numbers and NaN, or a table of anything."""
    raw = _raw(X)
    if raw is None:
        X, y = validated(estimator, X, y, ensure_all_finite="allow-nan", **kwargs)
        return RawRows(X, () if finite(X) else raw_numbers(X.shape[1])), y
    try:
        validate_data(estimator, X, skip_check_array=True)
        _, y = check_X_y(raw.X, y, ensure_all_finite="allow-nan", estimator=estimator, **kwargs)
    except ValueError as error:
        raise DataError(f"{error}{_infinite(raw.X, X)}") from error
    return raw, y


def streamed_rows(estimator: BaseEstimator, X: Any, y: Any, sites: Any, *, first: bool) -> Rows:
    """Rows of a stream: numbers, of which some are missing in rows that will be left out."""
    X = validated(estimator, X, reset=first, ensure_all_finite=False)
    y = np.asarray(y)
    y = y.astype(np.float64) if y.dtype.kind in "iufb" and is_regressor(estimator) else y
    there = y if y.dtype.kind != "f" else np.nan_to_num(y)
    rows = checked_rows(X, there[:, 0] if there.shape[1:] == (1,) else there, sites, gaps=True)
    return rows._replace(y=y.reshape(rows.y.shape))


def owned(raw: RawRows, y: Any, sites: Any) -> Rows:
    """With targets, and one site label a row or none."""
    return checked_rows(raw.X, y, sites, gaps=True)._replace(kinds=tuple(raw.kinds))


def weighed(rows: Rows, given: Any) -> Rows:
    """With those weights, one a row."""
    if given is None:
        return rows
    try:
        weights = np.asarray(_check_sample_weight(given, rows.X, dtype=np.float64))
    except ValueError as error:
        raise DataError(f"sample_weight: {error}") from error
    return rows.weighed(weights, "sample_weight")


def rows_to_predict(estimator: BaseEstimator, X: Any, model: Model) -> Any:
    """What a model takes: numbers, or where it has a coding a table as that was trained on."""
    coding = model.coding
    if coding is None:
        gaps = "allow-nan" if model.centred else True
        return validated(estimator, X, reset=False, ensure_all_finite=gaps)
    raw = _raw(X, coding)
    if raw is None:
        return validated(estimator, X, reset=False, ensure_all_finite="allow-nan")
    try:
        validate_data(estimator, X, skip_check_array=True, reset=False)
        check_array(raw.X, ensure_all_finite="allow-nan", estimator=estimator)
    except ValueError as error:
        raise DataError(f"{error}{_infinite(raw.X, X)}") from error
    return raw


def _raw(X: Any, coding: Coding | None = None) -> RawRows | None:
    """The raw rows of a table; None of an array, and of numbers without gaps."""
    if not hasattr(X, "__arrow_c_stream__"):
        return None
    table = read_table(X)
    require(table, (table.column_names, INPUTS))
    names = table.column_names
    fits = coding is not None and len(coding.codes) == len(names)
    if coding and fits and names != [*coding.columns] and {*names} == {*coding.columns}:
        fits = False  # in another order, which scikit-learn refuses by name
    found = raw_rows(table, names, coding.kinds() if coding and fits else ())
    return found if found.kinds else None


def _at_fault(X: Any) -> str:
    """The columns that hold no finite numbers, each with such a value and its row; or nothing."""
    return _named([found for name, values in _columns(X) if (found := _said(name, values))])


def _infinite(X: Array, frame: Any) -> str:
    """The columns of raw rows (T, d) that hold an infinite number; or nothing."""
    values = zip(frame.columns, np.where(np.isnan(X), 0.0, X).T, strict=True)
    return _named([found for name, x in values if (found := _said(str(name), x))])


def _named(said: list[str]) -> str:
    more = f" and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return f"\nColumns at fault: {'; '.join(said[:_NAMED])}{more}" if said else ""


def _columns(X: Any) -> Iterator[tuple[str, Any]]:
    """By a data frame's names; those of an array have numbers."""
    if hasattr(X, "columns"):
        yield from ((str(name), np.asarray(X[name])) for name in X.columns)
        return
    try:
        table = np.asarray(X)
    except ValueError:  # rows of different lengths: the error itself says so
        return
    if table.ndim == 2:
        yield from ((f"x{j}", table[:, j]) for j in range(table.shape[1]))


def _said(name: str, values: Any) -> str:
    if values.dtype.kind in "fiubc":
        wrong = np.flatnonzero(~np.isfinite(values))
    else:
        wrong = np.array([t for t, value in enumerate(values) if not _finite(value)], np.int64)
    return (
        ""
        if not len(wrong)
        else f"{name!r} has {values[wrong[0] :][:1].tolist()[0]!r} in row {wrong[0]}"
    )


def _finite(value: Any) -> bool:
    if np.iscomplexobj(value):
        return False
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False
