"""Innovations θ_i − θ̂_i as bytes and back.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from coke.errors import InputError, MessageError
from coke.maths.arrays import SQRT_HALF, Array, Sizes

FINEST, COARSEST = -40, 12  # smallest and largest exponent of a step
GRID, LIMIT = 2.0**FINEST, 2.0**COARSEST  # every decoded value: a multiple of, and at most
DENSE = 15  # in place of r: no zero runs
WIDTHS = np.arange(16)

Integers = NDArray[np.int64]
Bits = NDArray[np.uint8]


class Coded(NamedTuple):
    """Messages for rows, packed when they are asked for: a simulation only counts their bytes."""

    values: Array  # (A, D) what is decoded of each
    size: Sizes  # (A, 1) bytes of each
    message: Callable[[int], bytes]  # row ↦ its message


class Codec(Protocol):
    """Bytes for D numbers, and back."""

    def encode(self, x: Array) -> bytes:
        """The message for x (D,); refuses what is not finite or above LIMIT."""
        ...

    def decode(self, data: bytes, size: int) -> Array:
        """The values (D,) on the grid, or MessageError; work and memory are O(D)."""
        ...

    def coded(self, X: Array) -> Coded:
        """The messages for rows (A, D), each the same as of the row alone."""
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
        return int(self._steps(x[None])[0, 0])

    def _steps(self, X: Array) -> NDArray[np.int32]:
        """The same of each row (A, 1)."""
        last = np.cumsum(X * X, axis=1)[:, -1:]  # which adds in order, unlike `sum`
        m, e = np.frexp(np.clip(self.ratio * np.sqrt(last / X.shape[1]), GRID, LIMIT))
        return np.asarray(e - (m < SQRT_HALF))

    def encode(self, x: Array) -> bytes:
        """At most |x − decoded| ≤ step / 2 away."""
        return self.coded(checked(x)[None]).message(0)

    def coded(self, X: Array) -> Coded:
        """A step for each row."""
        X = checked(X, 2)
        e = self._steps(X)
        # 2¹² is a multiple of every step, so rounding to nearest never leads beyond LIMIT.
        n = np.rint(np.ldexp(X, -e))
        plan = _planned(n.astype(np.int64))

        def message(i: int) -> bytes:
            packed = plan.packed(i)
            return bytes((int(e[i, 0]) % 256,)) + packed if packed else b""

        packed = plan.sizes()
        return Coded(np.ldexp(n, e) + 0.0, packed + (packed > 0), message)  # −0 + 0 = 0

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
    return _planned(n[None]).packed(0)


class _Plan(NamedTuple):
    """The coded numbers of rows of integers, and of each row the cheapest low bits."""

    n: Integers  # (A, D)
    runs: Integers  # zeros before each entry that is not zero, row after row
    rest: Integers  # each of these entries' fold − 1
    ends: Integers  # (A + 1,) where a row's begin, and the last one's end
    r: Integers  # (A,)
    k: Integers  # (A,)
    cost: Integers  # (A,) bits with these
    dense: Integers  # (A,) k without runs
    dense_cost: Integers  # (A,)

    def sizes(self) -> Sizes:
        """Bytes of each row (A, 1), packed."""
        some = self.ends[1:] > self.ends[:-1]
        return (some * (1 - (-np.minimum(self.cost, self.dense_cost) // 8)))[:, None]

    def packed(self, i: int) -> bytes:
        """Row i."""
        own = slice(int(self.ends[i]), int(self.ends[i + 1]))
        if own.start == own.stop:
            return b""
        if self.dense_cost[i] < self.cost[i]:
            r, k = DENSE, int(self.dense[i])
            bits = _joined((_folded(self.n[i]), k))
        else:
            r, k = int(self.r[i]), int(self.k[i])
            bits = _joined((self.runs[own], r), (self.rest[own], k))
        return bytes((16 * r + k,)) + np.packbits(bits).tobytes()


def _planned(n: Integers) -> _Plan:
    """Of the rows of n (A, D)."""
    m, at, best = np.count_nonzero(n, axis=1), np.flatnonzero(n), np.zeros((3, 2, len(n)), np.int64)
    ends, some = np.append(0, m.cumsum()), m > 0
    first = ends[:-1][some]
    runs, folds = at.copy(), _folded(n.ravel()[at])
    runs[1:] -= at[:-1] + 1
    runs[first] = at[first] % n.shape[1]  # a row's first run begins with the row
    if at.size:
        best[0][:, some] = _rice(runs, first, m[some])
        best[1][:, some] = _rice(folds - 1, first, m[some])
        best[2][:, some] = _rice(folds, first, n.shape[1])
    (r, run_cost), (k, rest_cost), dense = best
    return _Plan(n, runs, folds - 1, ends, r, k, run_cost + rest_cost, *dense)


def _folded(n: Integers) -> Integers:
    return np.asarray(2 * np.abs(n) - (n > 0))


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
        at = (runs + 1).cumsum() - 1
        refuse(at[-1] >= size, f"an entry {at[-1]} of {size}")
        folds = np.zeros(size, np.int64)
        folds[at] = rest + 1
    n = (folds + 1) >> 1
    return np.where(folds & 1, n, -n)


class _Plain:
    """Each number for itself, little endian, rounded to the grid and then to `dtype`."""

    dtype: ClassVar[str]

    def encode(self, x: Array) -> bytes:
        """At most GRID / 2 away, and for Float32 half a unit in the last place more."""
        return self.coded(checked(x)[None]).message(0)

    def coded(self, X: Array) -> Coded:
        """Number by number."""
        on_grid = np.ldexp(np.rint(np.ldexp(checked(X, 2), -FINEST)), FINEST) + 0.0  # −0 + 0 = 0
        told = on_grid.astype(self.dtype)
        size = np.full((len(X), 1), told.itemsize * told.shape[1])
        return Coded(told.astype(np.float64), size, lambda i: told[i].tobytes())

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


def checked(x: Array, axes: int = 1) -> Array:
    """X as float64, if it is one vector, or rows, of numbers that a message can carry."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != axes or not x.shape[-1]:
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


def _rice(values: Integers, first: Integers, count: Integers | int) -> tuple[Integers, Integers]:
    """The cheapest number of low bits for the values of each row, and the bits they then take.

    A row's values begin at `first`; `count` is how many it codes, of which others are zero.
    """
    # Once no value has more bits, further ones only cost.
    widths = WIDTHS[: min(DENSE, int(values.max()).bit_length() + 1), None]
    costs = np.add.reduceat(values >> widths, first, axis=1) + count * (1 + widths)
    return costs.argmin(axis=0), costs.min(axis=0)


def _joined(*parts: tuple[Integers, int]) -> Bits:
    """All low bits, then all unary codes, of values with k low bits each."""
    low = [((v[:, None] >> WIDTHS[:k][::-1]) & 1).ravel() for v, k in parts]
    ends = np.cumsum(np.concatenate([v >> k for v, k in parts]) + 1) - 1
    unary = np.zeros(ends[-1] + 1, np.uint8)
    unary[ends] = 1
    return np.concatenate([*low, unary], dtype=np.uint8, casting="unsafe")


def entries(bits: Bits, width: int) -> int:
    """The m with exactly 2m ones after m × width bits."""
    (ones,) = bits.nonzero()
    m = np.arange(1, len(ones) // 2 + 1)
    (fits,) = (len(ones) - ones.searchsorted(m * width) == 2 * m).nonzero()
    refuse(not fits.size, "a number of unary codes that fits no number of entries")
    return int(m[fits[0]])


def split(bits: Bits, *parts: tuple[int, int]) -> list[Integers]:
    """The values that `_joined` made into bits, from how many they are and their low bits k."""
    start, count = sum(m * k for m, k in parts), sum(m for m, _ in parts)
    (ends,) = bits[start:].nonzero()
    refuse(len(ends) != count, f"{len(ends)} unary codes instead of {count}")
    quotients, values, at, first = ends.copy(), [], 0, 0
    quotients[1:] -= ends[:-1] + 1
    for m, k in parts:
        low = bits[at : at + m * k].reshape(m, k) @ (1 << WIDTHS[:k][::-1])
        values.append((quotients[first : first + m] << k) + low)
        at, first = at + m * k, first + m
    return values
