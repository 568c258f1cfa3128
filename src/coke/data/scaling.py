"""Scaling with numbers common to all sites: x ↦ (x − shift)/scale by column, and y alike.

A site gives away moments or ranges of its columns, never rows; merged, they are those of all sites'
training rows together.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np

from coke.data.sites import Sites
from coke.errors import DataError, unknown
from coke.maths.arrays import PART, Array, Room, mapped

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


def scaled(sites: Sites, scaling: Scaling, *, scale_target: bool, room: Room = np.empty) -> Sites:
    """The same sites in the common units, the inputs in `room`."""

    def target(y: Array) -> Array:
        return scaling.targets(y.astype(np.float64)) if scale_target else y

    return Sites(
        sites.names,
        mapped(scaling.inputs, sites.X, len(scaling.x_scale), room),
        tuple(map(target, sites.y)),
        mapped(scaling.inputs, sites.X_test, len(scaling.x_scale), room),
        tuple(map(target, sites.y_test)),
    )
