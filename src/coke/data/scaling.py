"""Scaling with numbers common to all sites: x ↦ (x − shift)/scale by column, and y alike.

A site gives away moments or ranges of its columns, never rows; merged, they are those of all sites'
training rows together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from coke.data.tables import Labels
from coke.errors import DataError, unknown
from coke.maths.arrays import PART, Array
from coke.maths.losses import CLASSES, NUMBERS, losses_of

SCALES = ("none", "standard", "minmax", "public")


class Scaling(NamedTuple):
    """The common numbers."""

    x_shift: Array  # (d,)
    x_scale: Array  # (d,)
    y_shift: float
    y_scale: float

    def inputs(self, X: Array) -> Array:
        """Scaled inputs."""
        return (X - self.x_shift) / self.x_scale

    def targets(self, y: Array) -> Array:
        """Scaled targets."""
        return (y - self.y_shift) / self.y_scale

    def predictions(self, f: Array) -> Array:
        """Predictions in the target's own units."""
        return f * self.y_scale + self.y_shift


class Columns(NamedTuple):
    """What is told of some rows: their number, and of each column as much as is needed."""

    T: float
    mean: Array  # (c,)
    sd: Array  # (c,)
    low: Array  # (c,)
    high: Array  # (c,)

    @classmethod
    def of_number(cls, T: float, mean: float, sd: float) -> Columns:
        """Of T numbers with that mean and standard deviation."""
        at = np.array([mean])
        return cls(T, at, np.array([sd]), at, at)

    def needed(self, *, moments: bool, ranges: bool) -> Columns:
        """Without those numbers that nobody needs."""
        nothing = np.empty(0)
        mean, sd = (self.mean, self.sd) if moments else (nothing, nothing)
        low, high = (self.low, self.high) if ranges else (nothing, nothing)
        return Columns(self.T, mean, sd, low, high)

    def merged(self, other: Columns) -> Columns:
        """Of both sets of rows together."""
        T = self.T + other.T
        share, apart = other.T / T, other.mean - self.mean
        within = (1.0 - share) * self.sd**2 + share * other.sd**2
        return Columns(
            T,
            self.mean + share * apart,
            np.sqrt(within + share * (1.0 - share) * apart**2),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def columns_of(Z: Array) -> Columns:
    """Of the rows Z (T, c); of very many a part at a time, for a spread takes a copy of them."""
    firsts = range(0, max(1, len(Z)), PART)
    return reduce(Columns.merged, (_columns_of(Z[first : first + PART]) for first in firsts))


def _columns_of(Z: Array) -> Columns:
    with np.errstate(over="ignore", invalid="ignore"):
        found = Columns(float(len(Z)), Z.mean(axis=0), Z.std(axis=0), Z.min(axis=0), Z.max(axis=0))
    if not (np.isfinite(found.mean).all() and np.isfinite(found.sd).all()):
        raise DataError("numbers beyond 1e150 or so cannot be scaled: give them in larger units")
    return found


def fit_scaling(how: str, d: int, told: Columns) -> Scaling:
    """For d inputs, and the target if it is the last of the columns.

    "none", "standard" (to mean 0, spread 1) or "minmax" (to [0, 1]). "public" needs no rows:
    see `coke.privacy.release.public_scaling`.
    """
    if how not in SCALES:
        raise DataError(unknown("scale", how, SCALES))
    if how == "none":
        return Scaling(np.zeros(d), np.ones(d), 0.0, 1.0)
    shift, scale = told.mean, told.sd
    if how == "minmax":
        shift, scale = told.low, told.high - told.low
    # A constant column carries nothing: leave it at zero instead of dividing by (nearly) zero.
    flat = (scale <= 1e-12 * np.abs(shift)) | (scale < 1e-150)
    scale = np.where(flat, 1.0, scale)
    y_shift, y_scale = (shift[d], scale[d]) if len(shift) > d else (0.0, 1.0)
    return Scaling(shift[:d], scale[:d], float(y_shift), float(y_scale))


def checked_classes(labels: Sequence[Any]) -> Labels:
    """The sorted labels of all sites; one class at one site is fine, one class in all is not."""
    classes = np.array(labels)
    if classes.dtype.kind == "f" and not np.equal(classes, np.round(classes)).all():
        raise DataError(
            f"the target has {len(classes)} values such as {classes[0]}: a class label is text or "
            f"a whole number; for numbers use loss = {_either(NUMBERS)}"
        )
    if len(classes) < 2:
        raise DataError(
            f"all rows have the one class {classes[0]!r}: expected at least two; a classifier "
            "with one class has nothing to learn"
        )
    return classes


def numbers_of(y: Labels) -> Array:
    """The target as numbers, or why it is none."""
    if y.dtype.kind not in "fiub":
        raise DataError(
            f"the target holds {y.dtype}: expected numbers for loss = {_either(NUMBERS)}; "
            f"for class labels use loss = {_either(CLASSES)}"
        )
    return y.astype(np.float64)


def _either(kind: str) -> str:
    return " or ".join(f'"{name}"' for name in losses_of(kind))
