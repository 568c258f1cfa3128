"""Standard normals that are the same bits on every machine, platform and library version.

Every site must draw the same ω from the common seed. `numpy.random.Generator.normal` does
not promise that: its streams may change between NumPy versions, and its tails call libm. So
only three things are used here, and each is exact everywhere:

* the raw 64-bit stream of PCG64, which NumPy guarantees for a fixed seed;
* the IEEE 754 operations + − × ÷ √ and frexp, one NumPy call each, so that no compiler can
  fuse a multiplication and an addition into one rounding;
* sums in a fixed order (`cumsum` is sequential by definition; `sum` and BLAS are not).

`tests/test_features.py` compares the draws with stored digests.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coke.maths.arrays import Array

LN2 = 0.6931471805599453
SQRT_HALF = 0.7071067811865476
CHUNK = 1024  # candidates per refill; part of the stream's definition


class Normals:
    """A stream of independent N(0, 1) numbers from one seed."""

    def __init__(self, seed: int):
        self._bits = np.random.PCG64(seed)
        self._stream = self._pairs()
        self._left = np.empty(0)

    def take(self, *shape: int) -> Array:
        """The next numbers of the stream, in C order."""
        size = int(np.prod(shape))
        parts, have = [self._left], len(self._left)
        while have < size:
            parts.append(next(self._stream))
            have += len(parts[-1])
        numbers = np.concatenate(parts)
        self._left = numbers[size:]
        return numbers[:size].reshape(shape)

    def uniforms(self, *shape: int) -> Array:
        """Uniform on (0, 1): 52 random bits and a half, so that 0 and 1 never occur."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        numbers: Array = ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return numbers.reshape(shape)

    def _pairs(self) -> Iterator[Array]:
        """Marsaglia's polar method: v √(−2 log s / s) for v uniform in the unit disc, s = ‖v‖²."""
        while True:
            v = 2.0 * self.uniforms(CHUNK, 2) - 1.0
            s = v[:, 0] * v[:, 0] + v[:, 1] * v[:, 1]
            v, s = v[s < 1.0], s[s < 1.0]
            yield (v * np.sqrt(-2.0 * exact_log(s) / s)[:, None]).ravel()


def exact_log(x: Array) -> Array:
    """Log x = e log 2 + 2 artanh((m − 1)/(m + 1)) for x = m 2ᵉ, √½ ≤ m < √2; error below 1e-15."""
    m, e = np.frexp(x)
    low = m < SQRT_HALF
    m, e = np.where(low, 2.0 * m, m), e - low
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, np.zeros_like(s)
    for k in range(23, 0, -2):  # |s| ≤ 0.172, so the first term left out is below 2e-20
        series = series * square + 1.0 / k
    return e * LN2 + 2.0 * (s * series)


def ordered_sum(x: Array) -> Array:
    """Σ over the last axis, strictly from first to last."""
    return np.cumsum(x, axis=-1)[..., -1]


def orthonormal(blocks: Array) -> Array:
    """Rows (B, n, n) of each block orthonormalised by modified Gram–Schmidt, in a fixed order."""
    q = blocks.copy()
    for j in range(q.shape[1]):
        q[:, j] /= np.sqrt(ordered_sum(q[:, j] * q[:, j]))[:, None]
        overlap = ordered_sum(q[:, j + 1 :] * q[:, j : j + 1])
        q[:, j + 1 :] -= overlap[..., None] * q[:, j : j + 1]
    return q
