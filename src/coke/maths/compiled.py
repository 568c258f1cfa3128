"""The loops that Numba compiles (the extra `fast`), when they are first asked for: some seconds.

Nothing is kept on disk, for Numba would unpickle it. Sums may be regrouped so that they run on
vector units; how depends on their length, never on the number of agents. Infinities and NaN stay
what they are. The last bits differ from the plain way's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.maths.arrays import Array

Indices = NDArray[np.int64]
PANEL = 4  # rows of a panel; `_times` is written for four
REGROUPED = {"reassoc", "contract", "nsz"}


def available() -> bool:
    """Numba is installed."""
    return find_spec("numba") is not None


def arrays(kind: str, axes: int, *, out: bool = False) -> Any:
    """Numba's type of an array in C order; of one to read, which may be read-only, unless `out`."""
    types = import_module("numba").types
    return types.Array(getattr(types, kind), axes, "C", readonly=not out)


def _packed(M: Array) -> Array:
    """Symmetric M (N, D, D), a line each: rows 4q … 4q + 3 up to their diagonal block's end."""
    N, D, _ = M.shape
    ends = [min(first + PANEL, D) for first in range(0, D, PANEL)]
    panels = [M[:, end - 1 - (end - 1) % PANEL : end, :end].reshape(N, -1) for end in ends]
    return np.concatenate(panels, axis=1)


class Packed(NamedTuple):
    """All that stays of the quadratic risks from round to round."""

    M: Array  # (N, ·)   (2A_i + 2G + 2ρd_i I)⁻¹, packed
    G: Array  # (1, ·)   the regulariser where it is a matrix, packed; else (0, 0)
    two_b: Array  # (N, D)
    yy: Array  # (N,)    y²_i
    c: Array  # (N,)     ρd_i, and the regulariser where it is a number


@dataclass(frozen=True)
class Ridge:
    """The quadratic risks' local solves."""

    risks: Packed

    @classmethod
    def of(cls, M: Array, G: Array | None, two_b: Array, yy: Array, c: Array) -> Ridge:
        """From matrices (N, D, D) and (D, D) that are not packed yet."""
        packed = np.empty((0, 0)) if G is None else _packed(G[None])
        return cls(Packed(_packed(M), packed, two_b, yy, c))

    def __call__(self, p: Array, start: Array) -> tuple[Array, Array]:
        """θ_i = M_i(2b_i + p_i), and its loss y²_i + ½θ_iᵀ(p_i − 2b_i) − c_i‖θ_i‖² − θ_iᵀGθ_i."""
        theta, loss = np.empty(p.shape), np.empty(len(p))
        ridge_compiled()(*self.risks, np.ascontiguousarray(p), theta, loss)
        return theta, loss


@cache
def ridge_compiled() -> Callable[..., None]:
    """The fields of `Packed`, p ↦ θ and its loss, written into the last two arguments."""
    numba = import_module("numba")
    times = numba.njit(fastmath=REGROUPED)(_times)
    row, rows = arrays("float64", 1), arrays("float64", 2)
    theta_out, loss_out = arrays("float64", 2, out=True), arrays("float64", 1, out=True)

    def solve(
        M: Array, G: Array, two_b: Array, yy: Array, c: Array, p: Array, theta: Array, loss: Array
    ) -> None:
        G_theta = np.zeros(p.shape[1])
        for n in range(len(p)):
            times(M[n], two_b[n] + p[n], theta[n])
            if len(G):
                times(G[0], theta[n], G_theta)
            total = yy[n]
            for j in range(p.shape[1]):
                t = theta[n, j]
                total += t * (0.5 * (p[n, j] - two_b[n, j]) - c[n] * t - G_theta[j])
            loss[n] = total

    kinds = numba.void(rows, rows, rows, row, row, rows, theta_out, loss_out)
    compiled: Callable[..., None] = numba.njit(kinds, fastmath=REGROUPED)(solve)
    return compiled


def _times(m: Array, x: Array, y: Array) -> None:
    """y ← M x from the packed m: every number serves its row and its column."""
    D, at = len(x), 0
    whole = D - D % 4
    for i in range(0, whole, 4):
        w = i + 4
        a, b, c, d = m[at:], m[at + w :], m[at + 2 * w :], m[at + 3 * w :]
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        y0 = y1 = y2 = y3 = 0.0
        for j in range(i):
            y0 += a[j] * x[j]
            y1 += b[j] * x[j]
            y2 += c[j] * x[j]
            y3 += d[j] * x[j]
            y[j] += a[j] * x0 + b[j] * x1 + c[j] * x2 + d[j] * x3
        # The diagonal block is kept whole.
        y[i] = y0 + a[i] * x0 + a[i + 1] * x1 + a[i + 2] * x2 + a[i + 3] * x3
        y[i + 1] = y1 + b[i] * x0 + b[i + 1] * x1 + b[i + 2] * x2 + b[i + 3] * x3
        y[i + 2] = y2 + c[i] * x0 + c[i + 1] * x1 + c[i + 2] * x2 + c[i + 3] * x3
        y[i + 3] = y3 + d[i] * x0 + d[i + 1] * x1 + d[i + 2] * x2 + d[i + 3] * x3
        at += 4 * w
    for i in range(whole, D):  # what panels of four leave over
        a, y0 = m[at : at + D], 0.0
        for j in range(whole):
            y0 += a[j] * x[j]
            y[j] += a[j] * x[i]
        for j in range(whole, D):
            y0 += a[j] * x[j]
        y[i] = y0
        at += D
