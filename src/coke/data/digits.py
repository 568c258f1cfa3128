"""An example where joining pays: handwritten digits at ten sites, each of which has seen two.

1797 images of 8 × 8 pixels come with scikit-learn. Site d has every other image of the digit d, and
of the next one those that its own site does not have.
"""

from __future__ import annotations

import numpy as np

from coke.data.tables import Rows

SITES = 10


def digits_rows() -> Rows:
    """Pixels, digits, and sites called by the two digits they have seen."""
    from sklearn.datasets import load_digits  # here: it takes a second, and few runs need it

    X, y = load_digits(return_X_y=True)
    turn = np.zeros(len(y), np.int64)
    for digit in range(SITES):
        turn[y == digit] = np.arange(np.count_nonzero(y == digit)) % 2
    first = (y - turn) % SITES
    names = np.array([f"digits-{d}-{(d + 1) % SITES}" for d in range(SITES)])
    columns = tuple(f"row{i}column{j}" for i in range(8) for j in range(8))
    return Rows(X, y, names[first], columns)
