"""Codecs, vectors of all kinds, and a literal reader of coded messages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coke.errors import MessageError
from coke.maths.algorithms.codecs import GRID, LIMIT, Coarse, Codec, Float64, _Plain
from coke.maths.arrays import Array


@dataclass(frozen=True)
class Float32(_Plain):
    """4 bytes per number.

    Rounding to float32 stays on the grid: a multiple of 2⁻⁴⁰ below 2⁻¹⁶ has at most 24 bits and
    is kept, and from 2⁻¹⁶ on float32 numbers are 2⁻³⁹ or more apart.
    """

    dtype: ClassVar[str] = "<f4"


CODECS: dict[str, Codec] = {
    "coarse": Coarse(),
    "finest": Coarse(2.0**-10),
    "blunt": Coarse(3.0),
    "float32": Float32(),
    "float64": Float64(),
}
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)

Law = Callable[[np.random.Generator, int], Array]
LAWS: dict[str, Law] = {
    "gaussian": lambda rng, D: rng.normal(size=D),
    "laplacian": lambda rng, D: rng.laplace(size=D) / math.sqrt(2),
    "sparse": lambda rng, D: rng.normal(size=D) * np.where(rng.random(D) < 0.05, 1.0, 1e-3),
    "heavy": lambda rng, D: rng.standard_t(2, size=D),
}


def vectors(limit: float = LIMIT, size: int = 12) -> st.SearchStrategy[Array]:
    """Numbers of one magnitude, of all magnitudes, and mostly zeros."""
    one = arrays(np.float64, st.integers(1, size), elements=st.floats(-1.0, 1.0))
    scaled = st.builds(np.ldexp, one, st.integers(-60, int(math.log2(limit))))
    elements = st.one_of(st.just(0.0), st.floats(-limit, limit))
    return st.one_of(scaled, arrays(np.float64, st.integers(1, 3 * size), elements=elements))


def sampled(law: str, D: int, seed: int = 0) -> Array:
    """A vector whose place between two powers of two is random, too."""
    rng = np.random.default_rng([seed, D])
    x: Array = LAWS[law](rng, D) * 2.0 ** rng.uniform(-5, 5)
    return x


def same(a: Array, b: Array) -> bool:
    """Bit for bit."""
    return a.dtype == b.dtype == np.float64 and a.tobytes() == b.tobytes()


def allowed(x: Array) -> bool:
    """Multiples of GRID of at most LIMIT in size, without −0."""
    units = x / GRID
    exact = (np.abs(x) <= LIMIT).all() and (units == np.rint(units)).all()
    return bool(exact and not np.signbit(x[x == 0]).any())


def literal(data: bytes, size: int) -> list[Fraction]:
    """The format read bit by bit, trying every number of entries."""
    if not data:
        return [Fraction(0)] * size
    e, r, k = int.from_bytes(data[:1], signed=True), data[1] >> 4, data[1] & 15
    bits = "".join(f"{byte:08b}" for byte in data[2:]).rstrip("0")

    def read(widths: list[int]) -> list[int] | None:
        at, low = 0, []
        for width in widths:
            low.append(int("0" + bits[at : at + width], 2))
            at += width
        codes = bits[at:].split("1")  # zeros before each one, and nothing after the last
        if len(codes) != len(widths) + 1:
            return None
        return [(len(q) << w) + b for q, w, b in zip(codes, widths, low, strict=False)]

    folds = [0] * size
    if r == 15:
        folds = read([k] * size) or []
    else:
        (m,) = [m for m in range(1, size + 1) if read([r] * m + [k] * m)]
        values = read([r] * m + [k] * m) or []
        ends = itertools.accumulate(run + 1 for run in values[:m])
        for end, rest in zip(ends, values[m:], strict=True):
            folds[end - 1] = rest + 1
    return [((f + 1) // 2 if f % 2 else -(f // 2)) * Fraction(2) ** e for f in folds]


def decoded_or_refused(codec: Codec, data: bytes, size: int) -> bool:
    try:
        decoded = codec.decode(data, size)
    except MessageError:
        return False
    assert decoded.shape == (size,)
    assert allowed(decoded)
    return True
