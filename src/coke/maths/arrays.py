"""The array types every room speaks of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Sizes = NDArray[np.int64]  # bytes of each agent's message (A, 1); 0 is silence
