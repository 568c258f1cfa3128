"""Which columns of X cannot be used, where something is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

MOST = 8  # columns that are named


def at_fault(X: Any) -> str:
    """The columns that hold no finite numbers, each with such a value and its row; or nothing."""
    said = [found for name, values in _columns(X) if (found := _said(name, values))]
    more = f" and {len(said) - MOST} more" if len(said) > MOST else ""
    return f"\nColumns at fault: {'; '.join(said[:MOST])}{more}" if said else ""


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
