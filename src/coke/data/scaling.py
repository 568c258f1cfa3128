"""Scaling with numbers common to all sites: x ↦ (x − shift)/scale by column, and y alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.data.sites import Sites
from coke.errors import DataError, unknown
from coke.maths.arrays import Array

SCALES = ("none", "standard", "minmax")


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


def fit_scaling(how: str, sites: Sites, *, scale_target: bool) -> Scaling:
    """From the training rows of all sites: "none", "standard" (mean, spread), "minmax" ([0, 1])."""
    if how not in SCALES:
        raise DataError(unknown("scale", how, SCALES))
    x_shift, x_scale = _numbers(how, np.concatenate(sites.X))
    y_shift, y_scale = np.zeros(1), np.ones(1)
    if scale_target:
        y = np.concatenate(sites.y).astype(np.float64)
        y_shift, y_scale = _numbers(how, y[:, None])
    return Scaling(x_shift, x_scale, float(y_shift[0]), float(y_scale[0]))


def _numbers(how: str, Z: Array) -> tuple[Array, Array]:
    d = Z.shape[1]
    if how == "none":
        return np.zeros(d), np.ones(d)
    with np.errstate(over="ignore", invalid="ignore"):
        if how == "standard":
            shift, scale = Z.mean(axis=0), Z.std(axis=0)
        else:
            shift, scale = Z.min(axis=0), np.ptp(Z, axis=0)
    if not (np.isfinite(shift).all() and np.isfinite(scale).all()):
        raise DataError("numbers beyond 1e150 or so cannot be scaled: give them in larger units")
    # A constant column carries nothing: leave it at zero instead of dividing by (nearly) zero.
    flat = (scale <= 1e-12 * np.abs(shift)) | (scale < 1e-150)
    return shift, np.where(flat, 1.0, scale)


def scaled(sites: Sites, scaling: Scaling, *, scale_target: bool) -> Sites:
    """The same sites in the common units."""

    def target(y: Array) -> Array:
        return scaling.targets(y.astype(np.float64)) if scale_target else y

    return Sites(
        sites.names,
        tuple(map(scaling.inputs, sites.X)),
        tuple(map(target, sites.y)),
        tuple(map(scaling.inputs, sites.X_test)),
        tuple(map(target, sites.y_test)),
    )
