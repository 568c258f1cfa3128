"""Blocks of rows ↦ their sums, the same for rows in memory and for rows that go by.

Features are computed in float32 and each block's sums are added up in float64. That changes A by a
few 1e-7 of its largest entry, and the predictions of a ridge model by some 1e-6 of the target's
spread where the ridge λ/N is 1e-4, by some 1e-5 where it is 1e-5; with less, everything is done in
float64 (`precise`). So is a block of few rows, which costs nothing, one whose angles ωᵀx are too
large for float32, or its targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coke.data.bare import FEW, BareFeatures
from coke.errors import DataError
from coke.maths.arrays import Array, finite, side_by_side
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.waves import PLAIN, Loops, Numbers
from coke.maths.losses.mixed import Index, by_width, widths
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import Regulariser, Risk
from coke.maths.losses.thin import Thin

if TYPE_CHECKING:
    from coke.data.tables import Labels
    from coke.data.units import Making, Scaling
    from coke.maths.arrays import FeatureMap

BLOCK = 1024  # rows whose sums are made in one product, of few features
SMALL = 512  # D for which A stays in cache
LEAST = 1e-5  # of the ridge in float32: predictions then change by some 1e-5 of the spread


def precise(how: Making) -> bool:
    """Whether float64 is needed: where it is asked for, and with a linear part or λ/N below 1e-5.

    It depends on what all sites know alike, so that every engine decides alike.
    """
    small = not np.min(how.G) >= LEAST
    return how.precision == "double" or bool(how.features.linear) or small


def summed(
    X: Sequence[Numbers], y: Sequence[Array], how: Making, told: Callable[[int], None]
) -> Quadratic:
    """The statistics of each site's rows in memory, X_i (T_i, d) and y_i (T_i,), as they came."""
    kernel = Summing(how.features, how.units, double=precise(how))
    whole = np.zeros((len(y), how.features.size, how.features.size))
    sums = [kernel.nothing(0, A) for A in whole]
    for X_i, y_i, one in zip(X, y, sums, strict=True):
        for block in _blocks(X_i, y_i, kernel.rows):
            one.add(kernel(block), PLAIN)
            told(len(block.y))
    return risk(whole, sums, kernel.unit, how.G)


def by_size(
    X: Sequence[Array], y: Sequence[Labels], how: Making, phi: FeatureMap,
    told: Callable[[int], None],
) -> Risk:  # fmt: skip
    """Sites with few rows keep their features, the others sums over them."""

    def thin(at: Index) -> Thin:
        targets = [np.asarray(how.targets(y[i]), np.float64) for i in at]
        return Thin.from_rows(phi, [X[i] for i in at], targets, how.G)

    def sums(at: Index) -> Quadratic:
        return summed([X[i] for i in at], [how.numbers(y[i]) for i in at], how, told)

    D = how.features.size if how.G else 0
    return by_width(widths(list(map(len, y)), D), thin, sums)


def _blocks(X: Numbers, y: Array, rows: int) -> Iterator[RowBlock]:
    for first in range(0, len(y), rows):
        yield RowBlock(0, X[first : first + rows], y[first : first + rows])


class RowBlock(NamedTuple):
    """Some rows of one site, whose sums are made in one product."""

    site: Any
    X: Numbers  # (t, d)  by row or by column
    y: Array  # (t,), or (t, K) of K outputs


class Sums:
    """Over rows of one site, of bare features: their height comes last (`Summing.unit`)."""

    def __init__(self, site: Any, A: Numbers, b: Array, yy: Array, T: int = 0):
        self.site, self.A, self.b, self.yy, self.T = site, A, b, yy, T  # (D, D), (K, D), (K,)

    def add(self, part: Sums, loops: Loops) -> None:
        """A ← A + those of a part, in float64 whatever the part."""
        loops.add(self.A, part.A)
        self.b = self.b + part.b
        self.yy = self.yy + part.yy
        self.T += part.T


def risk(whole: Array, sums: Sequence[Sums], unit: float, G: Regulariser) -> Quadratic:
    """The sums over T_i, those of φφᵀ in `whole` (N, D, D); a site without rows has zeros."""
    T = np.array([float(one.T) for one in sums])
    outputs = max(len(one.b) for one in sums)
    b, yy = np.zeros((len(T), outputs, whole.shape[1])), np.zeros((len(T), outputs))
    for i, one in enumerate(sums):
        whole[i] *= unit / max(T[i], 1.0)
        b[i] = one.b * (np.sqrt(unit) / max(T[i], 1.0))
        yy[i] = one.yy / max(T[i], 1.0)
    if not (finite(whole) and finite(b) and finite(yy)):
        raise DataError(
            "numbers beyond 1e150 or so are of no use here: scale them, or use larger units"
        )
    return Quadratic(whole, b.reshape(len(T), -1), yy.sum(axis=1), T, G, squares=yy)


class Summing:
    """Block ↦ its sums. Frozen once built, so that threads may share it."""

    def __init__(
        self, features: DrawnFeatures, scaling: Scaling, loops: Loops = PLAIN, *, double: bool
    ):
        self.bare, self.scaling, self.wide = BareFeatures(features, scaling, loops), scaling, double

    @property
    def unit(self) -> float:
        """By which sums of bare features are too large."""
        return self.bare.height**2

    @property
    def rows(self) -> int:
        """Of a block: more where A leaves the cache, for adding to it takes longer there."""
        return BLOCK if self.bare.features.size <= SMALL else 4 * BLOCK

    def nothing(self, site: Any, A: Array) -> Sums:
        """The sums of no rows, A being zeros (D, D)."""
        return Sums(site, A, np.zeros((1, len(A))), np.zeros(1))

    def __call__(self, block: RowBlock) -> Sums:
        """The sums of one block."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked when all is added up
            y = side_by_side(self.scaling.targets(block.y))
            yy = np.vecdot(y.T, y.T)
            small = yy.sum() < 1e30 and len(y) >= FEW and not self.wide
            Phi = self.bare(block.X, single=bool(small))
            b = (y.astype(Phi.dtype).T @ Phi).astype(np.float64)
            return Sums(block.site, Phi.T @ Phi, b, yy, len(y))
