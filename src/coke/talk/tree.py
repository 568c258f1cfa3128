"""Numbers as messages on the tree carry them."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from operator import lt
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from coke.errors import MessageError
from coke.maths.arrays import Array

_LARGEST = float(np.finfo(np.float32).max)
ONE = struct.Struct("<f")
_HALF, _BITS, _END = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<HHH")
PROOF = struct.Struct("<fff")  # Σ_i e_i, F(u) and F(0): `coke.maths.losses.excess`


def steps(x: Array, e: int) -> NDArray[np.int64]:
    """The nearest multiples of 2ᵉ, in steps."""
    return np.rint(np.ldexp(x, -e)).astype(np.int64)


def mark_of(u: Array) -> bytes:
    """Four bytes that tell one model from another."""
    return crc32(u.tobytes()).to_bytes(4, "little")


def above(x: float) -> float:
    """A float32 that is no less."""
    if abs(x) > _LARGEST:
        return -_LARGEST if -math.inf < x < 0 else math.copysign(math.inf, x)
    (near,) = ONE.unpack(ONE.pack(x))
    return near if near >= x else float(np.nextafter(np.float32(near), np.float32(np.inf)))


def short(x: float) -> bytes:
    """Two bytes that tell a number ≥ 0, or a little more: the upper half of a float32."""
    (bits,) = _BITS.unpack(ONE.pack(above(x)))
    return _HALF.pack((bits + 0xFFFF) >> 16)


def shorter(x: float) -> bytes:
    """The same, or a little less."""
    (bits,) = _BITS.unpack(ONE.pack(below(x)))
    return _HALF.pack(bits >> 16)


def lengthened(data: bytes) -> float:
    """What such bytes tell."""
    (half,) = read(_HALF, data)
    (found,) = read(ONE, _BITS.pack(int(half) << 16))
    return found


def below(x: float) -> float:
    """A float32 that is no more."""
    return -above(-x)


def read(form: struct.Struct, data: bytes) -> tuple[float, ...]:
    """The numbers in a message of that form; MessageError where they are none."""
    if len(data) != form.size:
        raise MessageError(f"{len(data)} bytes of a sum over the tree: expected {form.size}")
    found = form.unpack(data)
    if any(x != x for x in found):
        raise MessageError("a sum over the tree that is no number")
    return found


def ending(told: Sequence[float]) -> bytes:
    """How an end tells what was proven: more of Σ_i e_i and less of F(u) and F(0), never else."""
    gap, objective, zero = told
    return short(gap) + shorter(objective) + shorter(zero)


def ended(data: bytes) -> tuple[float, ...]:
    """What such an end tells."""
    read(_END, data)  # or it is refused
    return tuple(lengthened(data[at : at + _HALF.size]) for at in range(0, _END.size, _HALF.size))


def proven(data: bytes, least: Sequence[float]) -> tuple[float, ...]:
    """What the root has proven, number by number no less than what the sites below have."""
    found, (gap, *others) = ended(data), least
    if any(map(lt, found, (gap, *(lengthened(shorter(x)) for x in others)))):
        raise MessageError("an end of a descent that proves less than the sites below did")
    return found


def proofs(
    own: tuple[float, float, float], heard: Iterable[bytes], mark: bytes
) -> tuple[float, float, float]:
    """Σ_i e_i, rounded up, and F(u) and F(0), rounded down, of a site and those that it hears.

    With a `mark` all must have come to its model; without one they tell Σ_i e_i alone, shortly.
    """
    gap, objective, zero = own
    for data in heard:
        if data[: len(mark)] != mark:
            raise MessageError("a site below has come to another model: nothing is proven")
        more = read(PROOF, data[len(mark) :]) if mark else (lengthened(data), 0.0, 0.0)
        gap, objective, zero = gap + more[0], objective + more[1], zero + more[2]
    return above(gap), below(objective), below(zero)
