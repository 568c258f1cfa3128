"""How far predictions miss: a histogram that adds up over sites, and the intervals it gives.

|y − f(x)| of rows left out, in spreads of the target, in 64 bins of equal ratio. With n rows the
interval that holds a share p of new rows reaches to the ⌈(n + 1)p⌉-th smallest (split conformal,
Vovk), here within its bin by interpolation. A row t of site i was not left out of training, but
what its own part in it did to its error is known: |y − f(x)|/(1 − h) with

    h = φᵀ(A + λ/N I)⁻¹φ / (N T_i),

A the average Gram matrix, of which the agreed basis P = CCᵀ is a picture: h = ‖C⁻¹φ‖² / (N T_i).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coke.errors import InputError
from coke.maths.arrays import Array

BINS = 64
_EDGES = np.exp(np.linspace(math.log(1e-4), math.log(1e2), BINS - 1))  # below and above: one each
_WARY = 0.15  # of the share beyond: h is an estimate, and rows are spread over bins
_MOST = 0.9  # of h: where P is no picture of A, it may even be above one


class Misses(NamedTuple):
    """So many rows in each bin, for every target."""

    counts: Array  # (K, BINS)  of all rows
    seen: float  # how many of them were looked at
    unit: Array  # (K,)  the targets' spreads, in their own units

    @classmethod
    def of(cls, errors: Array, rows: float, unit: Array) -> Misses:
        """Of errors (n, K) in the targets' units, which stand for so many rows."""
        n = len(errors)
        bins = [
            np.bincount(np.searchsorted(_EDGES, off), minlength=BINS)
            for off in (np.abs(errors) / unit).T
        ]
        return cls(np.asarray(bins, np.float64) * (rows / max(n, 1)), float(n), unit)

    def checked(self) -> Misses:
        """Itself, or `ValueError`."""
        good = (self.counts >= 0).all() and (self.counts.sum(axis=-1) > 0).all()
        if not (good and self.seen > 0 and (self.unit > 0).all()):
            raise ValueError("counts of errors that cannot be")
        return self

    def reach(self, share: float) -> Array:
        """(K,) half the widths of the intervals that hold such a share, in the targets' units."""
        return self.unit * np.array([self._reached(share, counts) for counts in self.counts])

    def _reached(self, share: float, counts: Array) -> float:
        n = self.seen
        rank = math.ceil((n + 1) * (share + _WARY * (1.0 - share)))
        if rank > n:
            raise InputError(
                f"interval={share}: {n:.0f} rows cannot say how far so rare a miss goes; "
                f"expected at most {_most(n)}"
            )
        upto = np.cumsum(counts) * (n / counts.sum())
        at = int(np.searchsorted(upto, rank))
        if at == BINS - 1:
            raise InputError(
                f"interval={share}: so many errors are beyond a hundred spreads of the target"
            )
        low = float(_EDGES[at - 1]) if at else 0.0
        below = upto[at - 1] if at else 0.0
        within = float((rank - below) / (upto[at] - below))
        return low + (float(_EDGES[at]) - low) * within


def _most(n: float) -> str:
    """The largest share that n rows can speak for, rounded down."""
    digits = 1 + len(f"{n:.0f}")
    share = (n / (n + 1) - _WARY) / (1.0 - _WARY)
    return f"{max(0, math.floor(share * 10**digits)) / 10**digits:.{digits}f}"


def left_out(errors: Array, white: Array, rows: float, freedom: float) -> Array:
    """Errors (n, K) as if each row had been left out of so many, given its C⁻¹φ (n, D).

    All rows' h add up to the model's degrees of freedom, of which P has a picture too: a sample
    that has less of them is short of the rare rows with large h.
    """
    heights = np.vecdot(white, white) / rows
    heights *= max(1.0, freedom / (rows * max(float(heights.mean()), 1e-300)))
    heights /= max(1.0, _crowded(white)) ** 0.5
    return np.asarray(errors / (1.0 - np.minimum(heights, _MOST))[:, None])


def _crowded(white: Array) -> float:
    """By how much P spreads what A has in fewer directions: tr Ã²/tr Ã of Ã = C⁻¹AC⁻ᵀ.

    It is one where P = A. Inputs on a grid or a curve have less than a mixture of Gaussians says,
    and there Ã⁻¹ is smaller: by this factor if A had nothing else; by its root, halfway, as tables
    are. Of pairs of different rows, which are unbiased.
    """
    n, inner = len(white), white @ white.T
    own = np.diag(inner)
    pairs = float(np.sum(inner**2) - np.sum(own**2)) / max(n * (n - 1), 1)
    return pairs / max(float(own.mean()), 1e-300)
