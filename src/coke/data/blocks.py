"""Blocks of rows as they came ↦ their features, and the sums or predictions these are for.

The same for rows in memory and for rows that go by. Features are computed in float32 and without
their height, and each block's sums are added up in float64. φ is then wrong by 1e-7 as a rule and
by 1e-6 far from the middle, in norm, for angles of many turns are rounded. That changes A by a few
1e-7 of its largest entry, and the predictions of a ridge model by some 1e-6 of the target's spread
where the ridge λ/N is 1e-4, by some 1e-5 where it is 1e-5; with less, everything is done in float64
(`precise`). So is a block of few rows, which costs nothing, and one whose targets or angles ωᵀx
are too large for float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coke.errors import DataError
from coke.maths.arrays import Array, Room, finite, side_by_side
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.waves import PLAIN, Loops, Numbers
from coke.maths.losses import LOSSES
from coke.maths.losses.mixed import Index, by_width, widths
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import Regulariser, Risk
from coke.maths.losses.thin import Thin

if TYPE_CHECKING:
    from coke.data.sources import Watch
    from coke.data.tables import Labels
    from coke.data.units import Making, Scaling
    from coke.maths.arrays import FeatureMap

BLOCK = 1024  # rows whose sums are made in one product, of few features
SMALL = 512  # D for which A stays in cache
LEAST = 1e-5  # of the ridge in float32: predictions then change by some 1e-5 of the spread
_CACHE = 1 << 20  # bytes of features that stay in cache from their angles to their waves
_REACH = 256.0  # most ‖ω‖‖x‖ in float32, whose angles are then wrong by 2e-5 at most or so
FEW = 256  # rows below which float32 saves nothing
ROWS = 1024  # to predict, whose features are in memory at a time
SHORT = 100.0  # most ‖θ‖ of predictions in float32, which are then within 1e-4 of one spread


def precise(how: Making) -> bool:
    """Whether float64 is needed: where it is asked for, and with a linear part or λ/N below 1e-5.

    It depends on what all sites know alike, so that every engine decides alike.
    """
    small = not np.min(how.G) >= LEAST
    return how.precision == "double" or bool(how.features.linear) or small


class Owned(NamedTuple):
    """Rows of some sites as they came."""

    X: Sequence[Array]  # (T_i, d) each
    y: Sequence[Labels]
    weights: Sequence[Array] | None = None  # (T_i,) each: a row of weight w stands for w rows

    def of(self, sites: Index) -> Owned:
        """Of those sites alone."""
        w = None if self.weights is None else [self.weights[i] for i in sites]
        return Owned([self.X[i] for i in sites], [self.y[i] for i in sites], w)

    def weighed(self, how: Making) -> list[Array | None]:
        """The weights of each site's rows, those of their classes among them."""
        given: Sequence[Array | None] = self.weights or [None] * len(self.y)
        return [how.weights(y, w) for y, w in zip(self.y, given, strict=True)]


def summed(rows: Owned, how: Making, told: Callable[[int], None]) -> Quadratic:
    """The statistics of each site's rows in memory."""
    kernel = Summing(how.features, how.units, double=precise(how))
    whole = np.zeros((len(rows.y), how.features.size, how.features.size))
    outputs = side_by_side(how.numbers(rows.y[0][:0])).shape[1]  # also where nobody has a row
    sums = [kernel.nothing(0, A, outputs) for A in whole]
    for X, y, w, one in zip(rows.X, rows.y, rows.weighed(how), sums, strict=True):
        for block in _blocks(X, how.numbers(y), w, kernel.rows):
            one.add(kernel(block), PLAIN)
            told(len(block.y))
    return risk(whole, sums, kernel.unit, how.G)


def risks(rows: Owned, how: Making, told: Callable[[int], None], room: Room) -> Risk:
    """Of each site's rows in memory; features that are kept lie in `room`."""

    def phi(x: Array) -> Array:
        told(len(x))
        return how.features(how.units.inputs(x))

    loss, X, y = LOSSES[how.loss], rows.X, rows.y
    if loss.statistics:
        return _by_size(rows, how, phi, told)
    targets, weights = list(map(how.targets, y)), rows.weighed(how)
    return loss.risk(phi, X, targets, how.G, classes=how.classes, room=room, weights=weights)


def _by_size(rows: Owned, how: Making, phi: FeatureMap, told: Callable[[int], None]) -> Risk:
    """Sites with few rows keep their features, the others sums over them."""
    few = widths(list(map(len, rows.y)), how.features.size if how.G else 0)
    if not any(few):
        return summed(rows, how, told)

    def thin(at: Index) -> Thin:
        some = rows.of(at)
        y = [np.asarray(how.targets(v), np.float64) for v in some.y]
        return Thin.from_rows(phi, some.X, y, how.G, weights=some.weighed(how))

    return by_width(few, thin, lambda at: summed(rows.of(at), how, told))


def _blocks(X: Numbers, y: Array, weights: Array | None, rows: int) -> Iterator[RowBlock]:
    for first in range(0, len(y), rows):
        at = slice(first, first + rows)
        yield RowBlock(0, X[at], y[at], None if weights is None else weights[at])


class RowBlock(NamedTuple):
    """Some rows of one site, whose sums are made in one product."""

    site: Any
    X: Numbers  # (t, d)  by row or by column
    y: Array  # (t,), or (t, K) of K outputs
    weights: Array | None = None  # (t,)


class Sums:
    """Over rows of one site, of bare features: their height comes last (`Summing.unit`)."""

    def __init__(self, site: Any, A: Numbers, b: Array, yy: Array, T: float = 0.0):
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

    def nothing(self, site: Any, A: Array, outputs: int = 1) -> Sums:
        """The sums of no rows, A being zeros (D, D)."""
        return Sums(site, A, np.zeros((outputs, len(A))), np.zeros(outputs))

    def __call__(self, block: RowBlock) -> Sums:
        """The sums of one block."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked when all is added up
            y = self.scaling.targets(block.y).reshape(len(block.y), -1)
            yy = np.vecdot(y.T, y.T)
            small = yy.sum() < 1e30 and len(y) >= FEW and not self.wide
            Phi, T = self.bare(block.X, single=bool(small)), float(len(y))
            if block.weights is not None:
                T, root = float(block.weights.sum()), np.sqrt(block.weights)[:, None]
                y, Phi = root * y, root.astype(Phi.dtype) * Phi
                yy = np.vecdot(y.T, y.T)
            b = (y.astype(Phi.dtype).T @ Phi).astype(np.float64)
            return Sums(block.site, Phi.T @ Phi, b, yy, T)


class _Map(NamedTuple):
    """[(x − shift)·gain, 1] ↦ angles, in one precision."""

    W: Numbers  # (d + 1, L)
    shift: Numbers  # (d,)
    gain: Numbers  # (d,)  1/scale


class _BeyondError(Exception):
    """An angle could be too large for float32."""


class BareFeatures:
    """φ(x)/height of rows x in their own units: cosines and sines, and a linear part beside them.

    Frozen once built, so that threads may share it.
    """

    def __init__(self, features: DrawnFeatures, scaling: Scaling, loops: Loops = PLAIN):
        self.features, self.scaling, self.loops = features, scaling, loops
        self.height = features.height
        lengths = np.vecdot(features.omega, features.omega)
        self.longest = float(np.sqrt(lengths.max(initial=0.0)))
        d = len(scaling.x_scale)  # quantiles are made first, and are in their units already
        own = scaling._replace(x_shift=np.zeros(d), x_scale=np.ones(d))
        self.units = own if scaling.knots.size else scaling
        self.double = self._map(np.float64, np.float64)
        self.single = {kind: self._map(np.float32, kind) for kind in (np.float32, np.float64)}
        if features.linear:  # W cannot make anything good for it
            self.single[np.float32] = self.single[np.float64]

    def _map(self, kind: type[np.floating[Any]], given: type[np.floating[Any]]) -> _Map:
        """For rows given in that type: W makes good what it loses of the shift and the gain."""
        f, s = self.features, self.units
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 _REACH is exceeded
            shift, gain = s.x_shift.astype(given), (1.0 / s.x_scale).astype(given)
            lost = f.omega @ ((s.x_shift - shift) / s.x_scale)  # (L,)
            constant = (f.phase if len(f.phase) else 0.0) - lost
            told = (gain > 0.0) & (gain < np.inf)
            W = f.omega * np.where(told, 1.0 / s.x_scale / np.where(told, gain, 1.0), 1.0)
            W = self.loops.unit * np.vstack([W.T, constant])
            return _Map(W.astype(kind, order="C"), shift, gain)

    def __call__(self, X: Numbers, *, single: bool) -> Numbers:
        """(t, D) of rows X (t, d) of float32 or float64, by row or by column."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self.scaling.knots.size:
                X = self.scaling.inputs(np.asarray(X, np.float64))
            try:
                return self._found(self.single[X.dtype.type] if single else self.double, X)
            except _BeyondError:
                return self._found(self.double, X)

    def _found(self, map_: _Map, X: Numbers) -> Numbers:
        f, kind = self.features, map_.W.dtype
        Phi = np.empty((len(X), f.size), kind)
        strip = max(64, 1 << (_CACHE // (f.size * kind.itemsize)).bit_length() >> 1)
        Z = np.empty_like(X, kind, shape=(min(len(X), strip), len(map_.W)))  # by row or column
        Z[:, -1] = 1.0
        for first in range(0, len(X), strip):
            x, phi = X[first : first + strip], Phi[first : first + strip]
            z = Z[: len(x)]
            square = self.loops.scaled(x, map_.shift, map_.gain, z)
            if map_ is not self.double and not np.sqrt(square) * self.longest <= _REACH:
                raise _BeyondError
            np.matmul(z, map_.W, out=phi[:, : len(f.omega)])
            self.loops.waves(phi[:, : f.waves], len(f.omega))
            if f.linear:
                np.multiply(z, f.linear / self.height, out=phi[:, f.waves :])
        return Phi


def decisions(theta: Array, features: DrawnFeatures, scaling: Scaling, X: Numbers) -> Array:
    """θ_kᵀφ (T, K) of rows X (T, d) as they came, some rows' features at a time.

    In float32, which changes them by about 1e-7 ‖θ_k‖; in float64 where θ is large or rows are few.
    """
    phi, f = BareFeatures(features, scaling), np.empty((len(X), len(theta)))
    single = len(X) >= FEW and bool(np.linalg.norm(theta, axis=1).max() <= SHORT)
    for first in range(0, len(X), ROWS):
        Phi = phi(X[first : first + ROWS], single=single)
        f[first : first + ROWS] = Phi @ (phi.height * theta.T).astype(Phi.dtype)
    return f


def counted(watch: Watch | None, total: int) -> Callable[[int], None]:
    """Tells whoever watches of so many more rows whose features are made."""
    done = 0

    def told(rows: int) -> None:
        nonlocal done
        done = min(done + rows, total)
        if watch is not None:
            watch("features", done, total)

    return told
