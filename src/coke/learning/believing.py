"""What all sites tell by name for a choice, as far as one can believe one of them: the guard's."""

from __future__ import annotations

import numpy as np

from coke.maths.algorithms.integers import Integers
from coke.maths.guards import added, leaning


def bandwidths_believed(head: int, d: int, told: Integers) -> Integers:
    """Sums (k,) of numbers (n, k): some first, then of each kind of inputs F, 16 F p and a part."""
    parts = [added(told[:, :head])]
    for at in np.split(told[:, head:], (told.shape[1] - head) // (2 * d + 1), axis=1):
        sure, leans = leaning(at[:, :d], at[:, d : 2 * d])
        parts += [sure, leans, added(at[:, 2 * d :])]
    return np.concatenate(parts)


def errors_believed(told: Integers) -> Integers:
    """Sums (k,) of weighted errors (n, k), the sites' weights last."""
    weight, errors = leaning(told[:, -1:], told[:, :-1])
    return np.append(errors, weight)
