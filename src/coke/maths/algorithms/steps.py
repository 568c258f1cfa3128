"""Numbers on a tree: multiples of a power of two, and the byte that tells which one."""

from __future__ import annotations

import math

import numpy as np

from coke.errors import ConvergenceError
from coke.maths.algorithms.integers import pack_integers, refuse, unpack_integers
from coke.maths.arrays import Array

_FAR, BITS = 100, 47  # exponents of steps at most, and bits of a multiple
_OWN = 0.75  # of the root mean square of what is coded


def stepped(x: Array, step: float) -> tuple[Array, bytes]:
    """The nearest multiples of the power of two that is nearest to the step, and their bytes.

    Of a larger power where there would be too many.
    """
    far = float(np.abs(x).max())
    if not far < 2.0**_FAR:
        raise ConvergenceError(f"{far} in a sum over the tree: scale the inputs and targets")
    if not step > 0:
        return np.zeros_like(x), b""
    e = max(round(math.log2(step)), -_FAR, math.frexp(far)[1] - BITS)
    n = np.rint(np.ldexp(x, -e)).astype(np.int64)
    packed = pack_integers(n)
    return np.ldexp(n.astype(np.float64), e), bytes([e % 256]) + packed if packed else b""


def decoded(data: bytes, size: int) -> tuple[Array, float]:
    """What such bytes say, and in which steps."""
    if not data:
        return np.zeros(size), 0.0
    step = exponent(data[0])
    return np.ldexp(unpack_integers(data[1:], size).astype(np.float64), step), 2.0**step


def after_parts(parts: bytes, rest: bytes) -> bytes:
    """Both in one message, the first of less than 256 bytes."""
    return bytes([len(parts)]) + parts + rest


def parted(data: bytes) -> tuple[bytes, bytes]:
    """Both of such a message."""
    refuse(not data or len(data) <= data[0], "an end before its first part's")
    return data[1 : 1 + data[0]], data[1 + data[0] :]


def exponent(byte: int) -> int:
    """Of a step, as a byte tells it."""
    e = (byte + 128) % 256 - 128
    refuse(abs(e) > _FAR, f"steps of 2 to the {e}")
    return e


def own_step(x: Array) -> float:
    """Of one site's first gradient, relative to what it has to tell."""
    return _OWN * rms(x)


def exponent_of(step: float) -> int:
    """The byte that tells a step."""
    e = round(math.log2(step)) if step > 0 else -_FAR
    return min(max(e, -_FAR), _FAR) % 256


def rms(x: Array) -> float:
    """√ mean x²."""
    return float(np.sqrt(np.mean(x * x)))
