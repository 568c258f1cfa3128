"""A block of rows ↦ the sums of its features: the arithmetic of a pass.

Features are computed in float32 and each block's sums are added up in float64. That changes A by a
few 1e-7 of its largest entry and the ridge model's MSE by about 1e-9 of itself (1e-7 where features
are nearly collinear and λ is tiny: precision="double" is for that). A block whose angles ωᵀx are
too large for float32, or its targets, is done in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.data.scaling import Scaling
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.waves import Loops

BLOCK = 1024  # rows whose sums are made in one product
CACHE = 1 << 20  # bytes of features that stay in cache from their angles to their waves
REACH = 256.0  # most ‖ω‖‖x‖ in float32, whose angles are then wrong by 2e-5 at most or so

Numbers = NDArray[Any]


class Batch(NamedTuple):
    """Up to BLOCK rows of one site."""

    site: Any
    X: Numbers  # (t, d)  by row or by column
    y: Array  # (t,)


class Sums(NamedTuple):
    """Sums over one block, of bare cosines: their factor comes last (`Summing.unit`)."""

    site: Any
    A: Numbers  # (D, D)
    b: Array  # (D,)
    yy: float
    T: int


class _Map(NamedTuple):
    """[(x − shift)·gain, 1] ↦ angles, in one precision."""

    W: Numbers  # (d + 1, L)
    shift: Numbers  # (d,)
    gain: Numbers  # (d,)  1/scale


class _BeyondError(Exception):
    """An angle could be too large for float32."""


class Summing:
    """Batch ↦ its sums. Frozen once built, so that threads may share it."""

    def __init__(self, features: DrawnFeatures, scaling: Scaling, loops: Loops, *, double: bool):
        self.features, self.scaling, self.loops, self.wide = features, scaling, loops, double
        self.longest = float(np.sqrt(np.vecdot(features.omega, features.omega).max()))
        self.double = self._map(np.float64, np.float64)
        self.single = {kind: self._map(np.float32, kind) for kind in (np.float32, np.float64)}

    @property
    def unit(self) -> float:
        """The square of the features' factor: 2/L or 1/L."""
        return (2.0 if len(self.features.phase) else 1.0) / len(self.features.omega)

    def _map(self, kind: type[np.floating[Any]], given: type[np.floating[Any]]) -> _Map:
        """For rows given in that type: W makes good what it loses of the shift and the gain."""
        f, s = self.features, self.scaling
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 REACH is exceeded
            shift, gain = s.x_shift.astype(given), (1.0 / s.x_scale).astype(given)
            lost = f.omega @ ((s.x_shift - shift) / s.x_scale)  # (L,)
            constant = (f.phase if len(f.phase) else 0.0) - lost
            told = (gain > 0.0) & (gain < np.inf)
            W = f.omega * np.where(told, 1.0 / s.x_scale / np.where(told, gain, 1.0), 1.0)
            W = self.loops.unit * np.vstack([W.T, constant])
            return _Map(W.astype(kind, order="C"), shift, gain)

    def __call__(self, block: Batch) -> Sums:
        """The sums of one block."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked when all is added up
            y = self.scaling.targets(block.y)
            yy = float(y @ y)
            single = yy < 1e30 and not self.wide
            try:
                map_ = self.single[block.X.dtype.type] if single else self.double
                A, b = self._sums(map_, block.X, y)
            except _BeyondError:
                A, b = self._sums(self.double, block.X, y)
            return Sums(block.site, A, b, yy, len(y))

    def _sums(self, map_: _Map, X: Numbers, y: Array) -> tuple[Numbers, Array]:
        """ΦᵀΦ and yᵀΦ of bare waves."""
        L, kind = len(self.features.omega), map_.W.dtype
        Phi = np.empty((len(X), self.features.size), kind)
        strip = max(64, 1 << (CACHE // Phi[0].nbytes).bit_length() >> 1)  # a power of two
        Z = np.empty_like(X, kind, shape=(min(len(X), strip), len(map_.W)))  # by row or column
        Z[:, -1] = 1.0
        y, b = y.astype(kind), np.zeros(Phi.shape[1])
        for first in range(0, len(X), strip):
            some = slice(first, first + strip)
            x, phi = X[some], Phi[some]
            z = Z[: len(x)]
            square = self.loops.scaled(x, map_.shift, map_.gain, z)
            if map_ is not self.double and not np.sqrt(square) * self.longest <= REACH:
                raise _BeyondError
            np.matmul(z, map_.W, out=phi[:, :L])
            self.loops.waves(phi, L)
            b += y[some] @ phi
        return Phi.T @ Phi, b
