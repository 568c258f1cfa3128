"""The arrays every room speaks of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Sizes = NDArray[np.int64]  # bytes of each agent's message (A, 1); 0 is silence

FeatureMap = Callable[[Array], Array]
"""Rows x_t (T, d) ↦ rows φ(x_t) (T, D)."""

Room = Callable[[tuple[int, int]], Array]
"""A shape ↦ an array to be filled: `np.empty`, or one in a file."""

SQRT_HALF = 0.7071067811865476
PART = 1 << 17  # rows of which moments are taken at a time, for these need a copy
CHUNK = 8192  # rows of which a copy may be made


def mapped(phi: FeatureMap, parts: Sequence[Array], D: int, room: Room) -> tuple[Array, ...]:
    """φ of every part's rows (T_i, D), end to end in one room, a chunk at a time."""
    ends = np.cumsum([0, *map(len, parts)])
    whole = room((int(ends[-1]), D))
    found = tuple(whole[a:b] for a, b in pairwise(ends.tolist()))
    for part, out in zip(parts, found, strict=True):
        for first in range(0, len(part), CHUNK):
            out[first : first + CHUNK] = phi(part[first : first + CHUNK])
    return found


def side_by_side(y: NDArray[Any]) -> NDArray[Any]:
    """(T, K) as it is; (T,) as one column."""
    return y if y.ndim == 2 else y[:, None]


def finite(X: NDArray[Any]) -> bool:
    """Whether all numbers are, as a rule for the price of one dot product."""
    x = X.ravel("K")
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.dot(x, x))) or bool(np.isfinite(X).all())
