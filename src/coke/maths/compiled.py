"""The loops that Numba compiles (the extra `fast`), each when it is first asked for, in about a second.

Numba is imported here only, and only then. Sums may be regrouped so that they run on vector units;
how depends on their length, never on the number of agents. Infinities and NaN stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from coke.maths.arrays import Array

Indices = NDArray[np.int64]
PANEL = 4  # rows of a panel; `_times` is written for four
REGROUPED = {"reassoc", "contract", "nsz"}
ROW, ROWS, WHERE = "float64[::1]", "float64[:,::1]", "int64[::1]"


def available() -> bool:
    """Numba is installed."""
    return find_spec("numba") is not None


def pack(M: Array) -> Array:
    """Symmetric M (N, D, D), a line each: rows 4q … 4q + 3 up to their diagonal block's end."""
    N, D, _ = M.shape
    ends = [min(first + PANEL, D) for first in range(0, D, PANEL)]
    panels = [M[:, end - 1 - (end - 1) % PANEL : end, :end].reshape(N, -1) for end in ends]
    return np.concatenate(panels, axis=1)


@cache
def ridge() -> Callable[[Array, Array, Array, Array, Array, Array, Array, Array], None]:
    """θ_i ← M_i r_i,  loss_i ← y²_i + θ_iᵀ(½r_i − 2b_i) − c_i‖θ_i‖² − θ_iᵀGθ_i.

    Called with M packed, G packed or without a line, r, 2b, y², c, and room for θ and the loss.
    """
    njit = import_module("numba").njit
    times = njit(f"void({ROW}, {ROW}, {ROW})", fastmath=REGROUPED)(_times)

    def solve(
        M: Array, G: Array, r: Array, b2: Array, yy: Array, c: Array, theta: Array, loss: Array
    ) -> None:
        G_theta = np.zeros(r.shape[1])
        for n in range(len(r)):
            times(M[n], r[n], theta[n])
            if len(G):
                times(G[0], theta[n], G_theta)
            total = yy[n]
            for j in range(r.shape[1]):
                t = theta[n, j]
                total += t * (0.5 * r[n, j] - b2[n, j] - c[n] * t - G_theta[j])
            loss[n] = total

    arrays = ", ".join([ROWS] * 4 + [ROW] * 2 + [ROWS, ROW])
    compiled: Callable[..., None] = njit(f"void({arrays})", fastmath=REGROUPED)(solve)
    return compiled


@cache
def weigh() -> Callable[[Indices, Indices, Array, Array, Array], None]:
    """Σ_n w_in θ̂_n, neighbours in order, to the same bits as SciPy's sparse product.

    Called with indptr, indices and data of W, θ̂, and room for the sums.
    """
    arrays = ", ".join([WHERE, WHERE, ROW, ROWS, ROWS])
    compiled: Callable[..., None] = import_module("numba").njit(f"void({arrays})")(_weigh)
    return compiled


@cache
def farthest() -> Callable[[Array, Array], float]:
    """max_i ‖θ_i − centre‖²."""
    njit = import_module("numba").njit
    compiled: Callable[..., float] = njit(f"float64({ROWS}, {ROW})", fastmath=REGROUPED)(_farthest)
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


def _weigh(first: Indices, who: Indices, w: Array, hat: Array, out: Array) -> None:
    for i in range(len(out)):
        total = out[i]
        total[:] = 0.0
        for at in range(first[i], first[i + 1]):
            weight, said = w[at], hat[who[at]]
            for j in range(len(total)):
                total[j] += weight * said[j]


def _farthest(theta: Array, centre: Array) -> float:
    most = 0.0
    for i in range(len(theta)):
        away = 0.0
        for j in range(theta.shape[1]):
            away += (theta[i, j] - centre[j]) ** 2
        most = max(most, away)
    return most
