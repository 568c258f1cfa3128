"""The array types every room speaks of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Sizes = NDArray[np.int64]  # bytes of each agent's message (A, 1); 0 is silence

Room = Callable[[tuple[int, int]], Array]
"""A shape ↦ an array to be filled: `np.empty`, or one in a file."""
