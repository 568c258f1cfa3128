"""The arrays every room speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Sizes = NDArray[np.int64]  # bytes of each agent's message (A, 1); 0 is silence

Room = Callable[[tuple[int, int]], Array]
"""A shape ↦ an array to be filled: `np.empty`, or one in a file."""

PART = 1 << 17  # rows


def in_parts(X: Array) -> Iterator[Array]:
    """The rows as they are; very many a part at a time, for what needs a copy of them."""
    yield from (X[first : first + PART] for first in range(0, max(1, len(X)), PART))
