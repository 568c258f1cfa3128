"""The units of all sites, what a site tells of its columns for them, and how rows become risks.

Units are common to all sites: x ↦ (x − shift)/scale by column, and y alike. A site gives away
moments or ranges of its columns, never rows; merged, they are those of all sites' training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from coke.data.tables import Labels
from coke.errors import DataError, unknown
from coke.maths.arrays import PART, Array
from coke.maths.choice.quantiles import NO_KNOTS, scored
from coke.maths.features.features import DrawnFeatures
from coke.maths.losses import CLASSES, LOSSES, NUMBERS, losses_of
from coke.maths.losses.codes import coded, which
from coke.maths.losses.risk import Risk

LABELS = 4096  # classes at most
SCALES = ("none", "standard", "minmax", "public")


class Scaling(NamedTuple):
    """The common numbers."""

    x_shift: Array  # (d,)
    x_scale: Array  # (d,)
    y_shift: Array  # (K,)  of the target's numbers; of codes, E v
    y_scale: Array  # (K,)
    knots: Array = NO_KNOTS  # (2, d, 17) of a chosen model's quantiles

    @classmethod
    def none(cls, d: int, K: int = 1) -> Scaling:
        """All d inputs and K targets as they came."""
        return cls(np.zeros(d), np.ones(d), np.zeros(K), np.ones(K))

    def inputs(self, X: Array) -> Array:
        """Scaled inputs."""
        scaled = (X - self.x_shift) / self.x_scale
        return scored(self.knots, scaled) if self.knots.size else scaled

    def targets(self, y: Array) -> Array:
        """Scaled targets."""
        return (y - self.y_shift) / self.y_scale

    def predictions(self, f: Array) -> Array:
        """Predictions (T,) or (T, K) in the target's own units."""
        return f * self.y_scale + self.y_shift


class Columns(NamedTuple):
    """What is told of some rows: their number, and of each column as much as is needed."""

    T: float
    mean: Array  # (c,)
    sd: Array  # (c,)
    low: Array  # (c,)
    high: Array  # (c,)

    @classmethod
    def of_moments(cls, T: float, mean: Array, sd: Array) -> Columns:
        """Of T rows with these means and standard deviations (c,)."""
        return cls(T, mean, sd, mean, mean)

    @property
    def spread(self) -> float:
        """√Σ sd²: of one column its standard deviation, of several their joint one."""
        return float(self.sd[0]) if len(self.sd) == 1 else float(np.sqrt(self.sd @ self.sd))

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


class Making(NamedTuple):
    """How rows become risks: the same at all sites."""

    features: DrawnFeatures
    units: Scaling
    loss: str
    classes: Labels  # sorted; none for numbers
    G: float  # λ/N
    precision: str = "auto"  # of features for sums, see `coke.data.blocks`
    balance: Array | None = None  # (K,) weights of the classes
    rows: float | None = None  # (1/N) Σ_i T_i, where rows weigh the same; None: where sites do

    def numbers(self, y: Labels) -> Array:
        """Targets as numbers in their own units; classes as codes."""
        return coded(y, self.classes) if LOSSES[self.loss].codes else numbers_of(y)

    def targets(self, y: Labels) -> Labels:
        """Targets in the common units; labels as they came, where the loss is of such."""
        loss = LOSSES[self.loss]
        numbers = loss.codes or loss.kind == NUMBERS
        return self.units.targets(self.numbers(y)) if numbers else y

    def weights(self, y: Labels, given: Array | None) -> Array | None:
        """Of rows with these targets, as they came with weights or none; None: all alike."""
        if self.balance is None:
            return given
        own = self.balance[which(y, self.classes)]
        return own if given is None else given * own

    def weighed(self, train: Risk) -> Risk:
        """The risks of training rows, rows or sites weighing the same."""
        return train if self.rows is None else train.counted(self.rows)

    def coded(self, y: Labels) -> Array:
        """Targets that are in the common units already, classes as codes."""
        return self.targets(y) if LOSSES[self.loss].codes else y


def fit_scaling(how: str, d: int, told: Columns, targets: int = 1) -> Scaling:
    """For d inputs, and so many targets, which are the last of the columns where they are numbers.

    "none", "standard" (to mean 0, spread 1) or "minmax" (to [0, 1]). "public" needs no rows:
    see `coke.privacy.release.public_scaling`.
    """
    if how not in SCALES:
        raise DataError(unknown("scale", how, SCALES))
    if how == "none":
        return Scaling.none(d, targets)
    shift, scale = told.mean, told.sd
    if how == "minmax":
        shift, scale = told.low, told.high - told.low
    # A constant column carries nothing: leave it at zero instead of dividing by (nearly) zero.
    flat = (scale <= 1e-12 * np.abs(shift)) | (scale < 1e-150)
    scale = np.where(flat, 1.0, scale)
    found = Scaling.none(d, targets)._replace(x_shift=shift[:d], x_scale=scale[:d])
    return found._replace(y_shift=shift[d:], y_scale=scale[d:]) if len(shift) > d else found


def columns_of(Z: Array, weights: Array | None = None) -> Columns:
    """Of the rows Z (T, c), or (T,) of one column, of which one of weight w stands for w.

    Of very many a part at a time, for a spread takes a copy of them.
    """
    Z, parts = Z if Z.ndim == 2 else Z[:, None], range(0, max(1, len(Z)), PART)
    some = [slice(first, first + PART) for first in parts]
    if weights is None:
        return reduce(Columns.merged, (_columns_of(Z[at]) for at in some))
    return reduce(Columns.merged, (_columns_of(Z[at], weights[at]) for at in some))


def _columns_of(Z: Array, weights: Array | None = None) -> Columns:
    with np.errstate(over="ignore", invalid="ignore"):
        T, mean = float(len(Z)), Z.mean(axis=0)
        if weights is None:
            sd = Z.std(axis=0, mean=mean[None])
        else:
            T = float(weights.sum())
            mean = weights @ Z / T
            sd = np.sqrt(weights @ (Z - mean) ** 2 / T)
        each = np.ascontiguousarray(Z.T)  # whose ends take a tenth of the time of those of rows
        found = Columns(T, mean, sd, each.min(axis=1), each.max(axis=1))
    if not (np.isfinite(found.mean).all() and np.isfinite(found.sd).all()):
        raise DataError("numbers beyond 1e150 or so cannot be scaled: give them in larger units")
    return found


def size_of(T: float, square: float) -> Columns:
    """Of T targets around zero by their mean square: of codes; of margins, which have none, 1."""
    return Columns.of_moments(T, np.zeros(1), np.sqrt([square]))


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
    """The target as numbers (T,) or (T, K), or why it is none."""
    if y.dtype.kind not in "fiub":
        raise DataError(
            f"the target holds {y.dtype}: expected numbers for loss = {_either(NUMBERS)}; "
            f"for class labels use loss = {_either(CLASSES)}"
        )
    return y.astype(np.float64)


def _either(kind: str) -> str:
    return " or ".join(f'"{name}"' for name in losses_of(kind))
