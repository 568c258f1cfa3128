"""Innovations θ_i − θ̂_i as bytes and back.

Every decoded innovation is its message's step, GRID = 2⁻⁴⁰ or more, times an integer of size at
most 2⁵², and never −0. Let 2ᵉ be the finest step so far: θ̂, sums of θ̂ and g are multiples of it.
A sum of such numbers is exact, hence the same bits in any order, on any machine, fused or not, as
long as every partial sum is at most 2⁵³⁺ᵉ in size; in a round of an agent with d neighbours

    |g_i| + 2 d max |θ̂| ≤ 2⁵³⁺ᵉ

is enough. That is 2¹³ on the grid itself, but steps are as coarse as innovations are large: on 300
hard tables, |g| up to 8400, the finest was 2⁻²⁶ and no sum came to 10⁻⁷ of its bound. Agents, which
may be lied to, hold |θ̂| and each edge's g to LIMIT, where all is exact whatever the steps.
Sender and receivers use the decoded value. The length of the bytes is what a ledger counts; both
ends know D.

Format of `Coarse`. No byte at all: everything is zero. Otherwise

    e       signed byte   values are n 2ᵉ for integers n, −40 ≤ e ≤ 12
    n       their Rice code (`coke.maths.algorithms.integers`), never with high parts
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from coke.errors import InputError
from coke.maths.algorithms.integers import planned, refuse, refused, rice_decoded
from coke.maths.arrays import SQRT_HALF, Array, Sizes

FINEST, COARSEST = -40, 12  # smallest and largest exponent of a step
GRID, LIMIT = 2.0**FINEST, 2.0**COARSEST  # every decoded value: a multiple of, and at most


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
        plan = planned(n.astype(np.int64))

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
        if not 3 <= len(data) <= 2 + 8 * size:
            raise refused(f"{len(data)} bytes for {size} numbers")
        e = (data[0] + 128) % 256 - 128
        if not FINEST <= e <= COARSEST:
            raise refused(f"exponent {e}")
        n = rice_decoded(data[1:], size)
        if int(np.abs(n).max()) > 1 << (COARSEST - e):
            raise refused(f"values beyond {LIMIT:g}")
        return np.ldexp(n.astype(np.float64), e)


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
