"""Rows as they came ↦ φ of them, without its height: for sums over rows, and for predictions.

In float32 φ is wrong by 1e-7 as a rule and by 1e-6 far from the middle, in norm, for angles of many
turns are rounded. Rows of which an angle ωᵀx could be too large for float32 are done in float64,
with those beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.waves import PLAIN, Loops, Numbers

if TYPE_CHECKING:
    from coke.data.units import Scaling

CACHE = 1 << 20  # bytes of features that stay in cache from their angles to their waves
REACH = 256.0  # most ‖ω‖‖x‖ in float32, whose angles are then wrong by 2e-5 at most or so
FEW = 256  # rows below which float32 saves nothing
ROWS = 1024  # to predict, whose features are in memory at a time
SMALL = 100.0  # most ‖θ‖ of predictions in float32, which are then within 1e-4 of one spread


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
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 REACH is exceeded
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
        strip = max(64, 1 << (CACHE // (f.size * kind.itemsize)).bit_length() >> 1)
        Z = np.empty_like(X, kind, shape=(min(len(X), strip), len(map_.W)))  # by row or column
        Z[:, -1] = 1.0
        for first in range(0, len(X), strip):
            x, phi = X[first : first + strip], Phi[first : first + strip]
            z = Z[: len(x)]
            square = self.loops.scaled(x, map_.shift, map_.gain, z)
            if map_ is not self.double and not np.sqrt(square) * self.longest <= REACH:
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
    single = len(X) >= FEW and bool(np.linalg.norm(theta, axis=1).max() <= SMALL)
    for first in range(0, len(X), ROWS):
        Phi = phi(X[first : first + ROWS], single=single)
        f[first : first + ROWS] = Phi @ (phi.height * theta.T).astype(Phi.dtype)
    return f
