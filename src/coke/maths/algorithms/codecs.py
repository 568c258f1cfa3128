"""Innovations θ_i − θ̂_i as bytes and back, and mixtures of Gaussians.

Every decoded innovation is GRID × an integer of size at most 2⁵², and never −0. So a sum of them is
exact, hence the same bits in any order, on any machine, fused or not, as long as every partial
sum is at most 2¹³ = 2⁵³ GRID in size; Σ |values| ≤ 2¹³ is enough. Sender and receivers use the
decoded value. The length of the bytes is what a ledger counts; both ends know D.

Format of `Coarse`. No byte at all: everything is zero. Otherwise

    e       signed byte   values are n 2ᵉ for integers n, −40 ≤ e ≤ 12
    r, k    4 + 4 bits    Rice parameters, of zero runs and of folded integers
    low     the lowest bits of the coded numbers, most significant first, in fixed width
    unary   their remaining bits q, each as q zeros and a one; then zeros up to a whole byte

with n folded to 2|n| − [n > 0]: 0, 1, −1, 2, −2, … ↦ 0, 1, 2, 3, 4, …. The coded numbers are

    r < 15  for the m entries n ≠ 0: the zeros before each (r low bits), then each fold − 1 (k)
    r = 15  for all D entries: the fold (k); shorter where zeros are rare

m is not sent: a larger m leaves fewer bits to `unary` and needs more ones there, so at most one
m fits. Low bits and unary codes stand apart so that neither end needs a loop over entries.

The numbers of a mixture of Gaussians (`coke.maths.features.whitening`) are such integers, too:

    spreads and factors   sign(x) round(log(1 + |x|/(10 s₀)) / log 1.1)    steps of 10 %, s₀ near 0
    means                 round(m_j / max(sd_j/10, s₀))                    a tenth of the spread
    s₀ = 0.3 σ √(λ/N)     what the ridge hides anyway
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from coke.errors import InputError, MessageError
from coke.maths.arrays import SQRT_HALF, Array
from coke.maths.features.whitening import RANKS, Component, kind_of

FINEST, COARSEST = -40, 12  # smallest and largest exponent of a step
GRID, LIMIT = 2.0**FINEST, 2.0**COARSEST  # every decoded value: a multiple of, and at most
DENSE = 15  # in place of r: no zero runs
WIDTHS = np.arange(16)
GROWTH = math.log(1.1)
MOST = 2.0**40  # of a mixture's number: far beyond any input that could be scaled

Integers = NDArray[np.int64]
Bits = NDArray[np.uint8]


class Codec(Protocol):
    """Bytes for D numbers, and back."""

    def encode(self, x: Array) -> bytes:
        """The message for x (D,); refuses what is not finite or above LIMIT."""
        ...

    def decode(self, data: bytes, size: int) -> Array:
        """The values (D,) on the grid, or MessageError; work and memory are O(D)."""
        ...


@dataclass(frozen=True)
class Coarse:
    """n = nearest(x / step), step = the power of two nearest in log₂ to ratio × RMS(x)."""

    ratio: float = 0.75

    def __post_init__(self) -> None:
        if not 2.0**-10 <= self.ratio < math.inf:  # finer steps would outgrow the Rice code
            raise InputError(f"ratio={self.ratio}: expected a number from 0.001 on; 0.75 is usual")

    def exponent(self, x: Array) -> int:
        """The e of step = 2ᵉ, −40 ≤ e ≤ 12; the same on every machine, though none needs it."""
        rms = math.sqrt(float(np.cumsum(x * x)[-1]) / len(x))  # which adds in order, unlike `sum`
        m, e = math.frexp(min(max(self.ratio * rms, GRID), LIMIT))
        return e - (m < SQRT_HALF)

    def encode(self, x: Array) -> bytes:
        """At most |x − decoded| ≤ step / 2 away."""
        x = checked(x)
        e = self.exponent(x)
        # 2¹² is a multiple of every step, so rounding to nearest never leads beyond LIMIT.
        packed = pack_integers(np.rint(np.ldexp(x, -e)).astype(np.int64))
        return bytes((e % 256,)) + packed if packed else b""

    def decode(self, data: bytes, size: int) -> Array:
        """Refuses what runs beyond the vector, the limit or the end of the bytes."""
        if not data:
            return np.zeros(size)
        # Float64 would be shorter than more: no encoder does this, and the work stays O(D).
        refuse(not 3 <= len(data) <= 2 + 8 * size, f"{len(data)} bytes for {size} numbers")
        e = (data[0] + 128) % 256 - 128
        refuse(not FINEST <= e <= COARSEST, f"exponent {e}")
        n = unpack_integers(data[1:], size)
        refuse(int(np.abs(n).max()) > 1 << (COARSEST - e), f"values beyond {LIMIT:g}")
        return np.ldexp(n.astype(np.float64), e)


def pack_integers(n: Integers) -> bytes:
    """r, k, low and unary bits of the integers n (D,); no byte where all are zero."""
    folds = 2 * np.abs(n) - (n > 0)
    at = np.flatnonzero(n)
    if not at.size:
        return b""
    runs, rest = np.diff(at, prepend=-1) - 1, folds[at] - 1
    (r, run_cost), (k, rest_cost), (dense, dense_cost) = map(_rice, (runs, rest, folds))
    if dense_cost < run_cost + rest_cost:
        r, k, bits = DENSE, dense, _joined((folds, dense))
    else:
        bits = _joined((runs, r), (rest, k))
    return bytes((16 * r + k,)) + np.packbits(bits).tobytes()


def unpack_integers(data: bytes, size: int) -> Integers:
    """The integers (D,) that `pack_integers` was given, or MessageError; work is O(D)."""
    if not data:
        return np.zeros(size, np.int64)
    refuse(not 2 <= len(data) <= 1 + 8 * size, f"{len(data)} bytes for {size} numbers")
    refuse(not data[-1], "an empty last byte")
    r, k = divmod(data[0], 16)
    bits = np.unpackbits(np.frombuffer(data, np.uint8, offset=1))
    if r == DENSE:
        (folds,) = split(bits, (size, k))
    else:
        m = entries(bits, r + k)
        runs, rest = split(bits, (m, r), (m, k))
        at = np.cumsum(runs + 1) - 1
        refuse(at[-1] >= size, f"an entry {at[-1]} of {size}")
        folds = np.zeros(size, np.int64)
        folds[at] = rest + 1
    n = (folds + 1) // 2
    return np.where(folds % 2, n, -n)


class _Plain:
    """Each number for itself, little endian, rounded to the grid and then to `dtype`."""

    dtype: ClassVar[str]

    def encode(self, x: Array) -> bytes:
        """At most GRID / 2 away, and for Float32 half a unit in the last place more."""
        on_grid = np.ldexp(np.rint(np.ldexp(checked(x), -FINEST)), FINEST) + 0.0  # −0 + 0 = 0
        return on_grid.astype(self.dtype).tobytes()

    def decode(self, data: bytes, size: int) -> Array:
        """Refuses a wrong length, −0, and what is not finite, on the grid and within the limit."""
        wanted = size * np.dtype(self.dtype).itemsize
        refuse(len(data) != wanted, f"{len(data)} bytes instead of {wanted}")
        raw = np.frombuffer(data, self.dtype)
        refuse(not (np.abs(raw) <= LIMIT).all(), f"values beyond {LIMIT:g} or not finite")
        x: Array = raw.astype(np.float64)
        scaled = np.ldexp(x, -FINEST)
        refuse(bool((scaled != np.rint(scaled)).any()), "values off the grid of 2⁻⁴⁰")
        refuse(bool((np.signbit(x) & (x == 0)).any()), "a negative zero")
        return x


@dataclass(frozen=True)
class Float64(_Plain):
    """8 bytes per number; exact for numbers on the grid."""

    dtype: ClassVar[str] = "<f8"


def checked(x: Array) -> Array:
    """X as float64, if it is one vector of numbers that a message can carry."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise InputError(f"an array of shape {x.shape}: expected one vector; encode row by row")
    if not (np.abs(x) <= LIMIT).all():  # false for NaN, too
        bad = x[~(np.abs(x) <= LIMIT)][0]
        raise InputError(
            f"{bad} in a message: expected finite numbers up to {LIMIT:g} in size; "
            "scale the inputs and targets, or use a smaller ρ if the iteration diverges"
        )
    return x


def refuse(wrong: bool, what: str) -> None:
    """Raises MessageError where something is wrong."""
    if wrong:
        raise MessageError(
            f"a message with {what}: expected one that the same codec made for as many numbers; "
            "compare the releases and settings at both ends"
        )


def _rice(values: Integers) -> tuple[int, int]:
    """The cheapest number of low bits for these values, and the bits they then take."""
    costs = (values >> WIDTHS[:DENSE, None]).sum(axis=1) + len(values) * (1 + WIDTHS[:DENSE])
    k = int(costs.argmin())
    return k, int(costs[k])


def _joined(*parts: tuple[Integers, int]) -> Bits:
    """All low bits, then all unary codes, of values with k low bits each."""
    low = [((v[:, None] >> WIDTHS[:k][::-1]) & 1).ravel() for v, k in parts]
    ends = np.cumsum(np.concatenate([v >> k for v, k in parts]) + 1) - 1
    unary = np.zeros(ends[-1] + 1, np.uint8)
    unary[ends] = 1
    return np.concatenate([*low, unary], dtype=np.uint8, casting="unsafe")


def entries(bits: Bits, width: int) -> int:
    """The m with exactly 2m ones after m × width bits."""
    ones = np.flatnonzero(bits)
    m = np.arange(1, len(ones) // 2 + 1)
    fits = np.flatnonzero(len(ones) - np.searchsorted(ones, m * width) == 2 * m)
    refuse(not fits.size, "a number of unary codes that fits no number of entries")
    return int(m[fits[0]])


def split(bits: Bits, *parts: tuple[int, int]) -> list[Integers]:
    """The values that `_joined` made into bits, from how many they are and their low bits k."""
    start, count = sum(m * k for m, k in parts), sum(m for m, _ in parts)
    ends = np.flatnonzero(bits[start:])
    refuse(len(ends) != count, f"{len(ends)} unary codes instead of {count}")
    quotients, values, at, first = np.diff(ends, prepend=-1) - 1, [], 0, 0
    for m, k in parts:
        low = bits[at : at + m * k].reshape(m, k) @ (1 << WIDTHS[:k][::-1])
        values.append((quotients[first : first + m] << k) + low)
        at, first = at + m * k, first + m
    return values


def encode_mixture(parts: Sequence[Component], s0: float) -> bytes:
    """Head (kind, components, weights as float32), then all numbers as coded integers."""
    spread = [_logs(part.spread, s0) for part in parts]
    factors = [_logs(part.factors, s0) for part in parts]
    sds = [_sd(_unlogs(f, s0), _unlogs(s, s0)) for f, s in zip(factors, spread, strict=True)]
    means = [
        np.rint(part.mean / _step(sd, s0)).astype(np.int64)
        for part, sd in zip(parts, sds, strict=True)
    ]
    numbers = np.concatenate([x.ravel() for group in (spread, factors, means) for x in group])
    weights = np.array([part.weight for part in parts], dtype="<f4").tobytes()
    return bytes([kind_of(len(parts)), len(parts)]) + weights + pack_integers(numbers)


def decode_mixture(data: bytes, d: int, s0: float) -> list[Component]:
    """What such bytes say of inputs in R^d; `InputError` if they say nothing sensible."""
    if len(data) < 2 or data[0] not in RANKS or not 1 <= data[1] <= data[0]:
        raise InputError(f"{len(data)} bytes are no mixture: expected a kind and a number first")
    kind, n = data[0], data[1]
    rank, body = min(RANKS[kind], d), data[2 + 4 * n :]
    weights = np.frombuffer(data[2 : 2 + 4 * n], dtype="<f4").astype(np.float64)
    if len(weights) != n or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError("a mixture's weights are missing or not positive")
    numbers = unpack_integers(body, n * d * (rank + 2))
    spread = _unlogs(numbers[: n * d].reshape(n, d), s0)
    factors = _unlogs(numbers[n * d : n * d * (rank + 1)].reshape(n, rank, d), s0)
    sds = np.sqrt(np.sum(factors**2, axis=1) + spread**2)
    means = numbers[n * d * (rank + 1) :].reshape(n, d) * _step(sds, s0)
    if max(np.abs(part).max() for part in (spread, factors, means)) > MOST:
        raise InputError("a mixture's numbers are too large to be inputs")
    rows = zip(weights.tolist(), means, factors, spread, strict=True)
    return [Component(*row) for row in rows]


def _logs(x: Array, s0: float) -> NDArray[np.int64]:
    """sign(x) round(log(1 + |x|/(10 s₀)) / log 1.1)."""
    return (np.sign(x) * np.rint(np.log1p(0.1 * np.abs(x) / s0) / GROWTH)).astype(np.int64)


def _unlogs(n: NDArray[np.int64], s0: float) -> Array:
    """The x that `_logs` takes to n, in the middle of all that it does; huge n saturate."""
    size = np.minimum(np.abs(n), 1000)
    return np.asarray(np.sign(n) * 10 * s0 * np.expm1(size * GROWTH))


def _sd(factors: Array, spread: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(factors**2, axis=0) + spread**2))


def _step(sd: Array, s0: float) -> Array:
    return np.maximum(0.1 * sd, s0)
