"""The last places that the root of a tree has seen, and a step as parts of the moves between them.

All sites know the last moves s_j, and both ends of every edge what gradients these changed. So of a
step p only what is beyond Σ_j a_j s_j is news, on the way down, and of the gradients after it, as
they are nearly linear in u, on the way up. The coefficients a make that rest least; gradients were
told with noise, which a_j² adds to what is expected of the next ones. What is news on one edge is
told in the same way, as parts of what was news there before (`coke.talk.walked`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.maths.algorithms.steps import stepped
from coke.maths.algorithms.trail import least
from coke.maths.arrays import Array

MOVES = 8  # the last ones, that all sites remember
_TOLD = 0.02  # of the rest's square, that rounding the coefficients may add


class Parts(NamedTuple):
    """A step."""

    again: bytes  # the coefficients of the last moves
    rest: Array  # (K·D,)


class Visited:
    """Where N sites have been, their mean gradient's square being off by noise."""

    def __init__(self, c: float, sites: int):
        """`c`: how much the mean objective bends, by and large."""
        self._noisy, self._u, self._noise = sites / c**2, list[Array](), list[float]()

    def add(self, u: Array, noise: float) -> None:
        """One more."""
        self._u, self._noise = [*self._u, u][-MOVES - 1 :], [*self._noise, noise][-MOVES - 1 :]

    def parts(self, p: Array) -> Parts:
        """Of a step; with no coefficients where these would take more bytes than they save."""
        if len(self._u) < 2:
            return Parts(b"", p)
        S, noise = np.diff(self._u, axis=0), np.array(self._noise)
        told, again = repeated(p, S, self._noisy * (noise[1:] + noise[:-1]))
        rest = p - told @ S
        whole, news = (max(float(x @ x), _LEAST) for x in (p, rest))
        saved = len(p) * np.log2(whole / news)  # bits, down and up
        return Parts(again, rest) if saved > 8.0 * len(again) else Parts(b"", p)


def repeated(x: Array, known: Array, off: Array) -> tuple[Array, bytes]:
    """The a (n,), as it is told, that makes x − Σ_j a_j known_j least, each a_j² costing `off`."""
    a = least(known, known, off, x[None])[0]
    if not np.abs(a).max() < _MOST:  # of what is next to nothing
        a = np.zeros(len(known))
    left, size = x - a @ known, float(np.vdot(known, known))
    step = np.sqrt(12.0 * _TOLD * (left @ left) / size) if size > 0 else 0.0
    return stepped(a, min(float(step), _FAR))


_LEAST, _FAR, _MOST = float(np.finfo(np.float64).tiny), 1e30, 2.0**40
