"""How good predictions are where the target is known, added up a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan, sqrt
from typing import Any

import numpy as np

from coke.maths.arrays import Array

TINY = float(np.finfo(np.float64).eps)  # no probability counts as less, as in scikit-learn


class NumberScore:
    """R² = 1 − Σ(y − f)²/Σ(y − ȳ)², and RMSE in the target's own unit."""

    def __init__(self) -> None:
        self.n, self._mean, self._around, self._missed = 0, 0.0, 0.0, 0.0

    def add(self, given: Sequence[Any], f: Array) -> None:
        """Rows with their predictions; those whose target is no number are not scored."""
        values = np.array([_number(value) for value in given])
        known = np.isfinite(values)
        y, m = values[known], int(np.count_nonzero(known))
        if not m:
            return
        mean, n = float(y.mean()), self.n + m
        away = (mean - self._mean) ** 2 * self.n * m / n  # Chan: sums of squares of two parts
        self._around += float(np.sum((y - mean) ** 2)) + away
        self._mean += (mean - self._mean) * m / n
        self._missed, self.n = self._missed + float(np.sum((y - f[known]) ** 2)), n

    def document(self) -> dict[str, float | int | None]:
        """The scores by name; None where too few rows say anything."""
        spread = self.n > 1 and self._around > 0
        return {
            "scored": self.n,
            "r2": 1.0 - self._missed / self._around if spread else None,
            "rmse": sqrt(self._missed / self.n) if self.n else None,
        }


class ClassScore:
    """The share of rows that are right, and the mean of −log p of the true class."""

    def __init__(self, classes: Sequence[Any]) -> None:
        self._places = {_key(label, classes): k for k, label in enumerate(classes)}
        self._classes, self.n, self._right = classes, 0, 0
        self._surprise = 0.0  # NaN once a label came that the model does not know

    def add(self, given: Sequence[Any], found: Sequence[Any], P: Array | None) -> None:
        """Rows with their predicted labels and, of a loss that has some, probabilities."""
        for i, (true, said) in enumerate(zip(given, found, strict=True)):
            if true is None or true == "":
                continue
            k = self._places.get(_key(true, self._classes))
            self.n += 1
            self._right += k is not None and k == self._places[_key(said, self._classes)]
            p = nan if P is None or k is None else float(P[i, k])
            self._surprise -= np.log(min(max(p, TINY), 1.0)) if isfinite(p) else nan

    def document(self) -> dict[str, float | int | None]:
        """The scores by name; a label that the model does not know has no probability."""
        told = self.n and isfinite(self._surprise)
        return {
            "scored": self.n,
            "accuracy": self._right / self.n if self.n else None,
            "log_loss": float(self._surprise / self.n) if told else None,
        }


def _number(value: Any) -> float:
    try:
        return nan if value is None else float(value)
    except (TypeError, ValueError):
        return nan


def _key(label: Any, classes: Sequence[Any]) -> Any:
    """What a label of a table and the model's own have in common: a CSV file has only text."""
    if isinstance(classes[0], str):
        return str(label)
    if isinstance(label, bool) or str(label).lower() in ("true", "false"):
        return float(str(label).lower() == "true")
    return _number(label)
