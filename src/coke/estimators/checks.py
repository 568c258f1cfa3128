"""What scikit-learn checks of rows, and tables of text, dates and gaps, which it would refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data

from coke.data.coding import Coding
from coke.data.kinds import INPUTS, require
from coke.data.raw import Kind, RawRows, is_plain, raw_matrix, raw_numbers
from coke.data.tables import read_table
from coke.errors import DataError
from coke.maths.arrays import finite


def validated(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
    """scikit-learn's own checks of numbers, raised from this package's exception tree."""
    try:
        return validate_data(estimator, *args, dtype=np.float64, **kwargs)
    except ValueError as error:
        raise DataError(str(error)) from error


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
        raise DataError(str(error)) from error
    return raw, y


def rows_to_predict(estimator: BaseEstimator, X: Any, coding: Coding | None) -> Any:
    """What a model takes: numbers, or where it has a coding a table as that was trained on."""
    if coding is None:
        return validated(estimator, X, reset=False)
    raw = _raw(X, coding)
    if raw is None:
        return validated(estimator, X, reset=False, ensure_all_finite="allow-nan")
    try:
        validate_data(estimator, X, skip_check_array=True, reset=False)
        check_array(raw.X, ensure_all_finite="allow-nan", estimator=estimator)
    except ValueError as error:
        raise DataError(str(error)) from error
    return raw


def _raw(X: Any, coding: Coding | None = None) -> RawRows | None:
    """The raw rows of a table; None of an array, and of numbers without gaps."""
    if not hasattr(X, "__arrow_c_stream__"):
        return None
    table = read_table(X)
    names, kinds = table.column_names, tuple(Kind() for _ in table.column_names)
    if coding is not None and len(coding.codes) == len(names):
        kinds = tuple(coding.kinds())
    require(table, (names, INPUTS))
    found = RawRows(raw_matrix(table, names, kinds), kinds)
    return None if coding is None and is_plain(kinds, found.X) else found
