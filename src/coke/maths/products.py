"""r_i ↦ M_i r_i for symmetric matrices that stay: all that a round of a quadratic risk must read.

The plain way is NumPy's and reads D² numbers an agent. The packed way keeps the lower triangle only,
in panels of four rows, and uses every number twice, for its row and for its column: half the memory
and half the time. It is compiled by Numba (the extra `fast`) when first asked for, in about a
second, so it pays in long runs or with many agents.

Both give the same vectors to rounding but not to the last bit, so all agents of a network must go
the same way. Within one way, row i of the answer depends on row i of the question alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from coke.errors import InputError, unknown
from coke.maths.arrays import Array

PANEL = 4  # rows of a panel; `_multiply` is written for four
# Sums may be regrouped, so that they run on vector units. Infinities and NaN stay what they are.
REGROUPED = {"reassoc", "contract", "nsz"}

Product = Callable[[Array], Array]
"""r (N, D) → M_i r_i (N, D), for M (N, D, D), or (1, D, D) where one serves all."""


def plain(M: Array) -> Product:
    """One matrix–vector product of NumPy's an agent."""
    return partial(np.matvec, M)


def packed(M: Array) -> Product:
    """From the lower triangles of M; M itself is not needed any more."""
    multiply, P = _compiled(), pack(M)

    def product(r: Array) -> Array:
        out = np.empty_like(r)
        multiply(P, np.ascontiguousarray(r), out)
        return out

    return product


PRODUCTS: dict[str, Callable[[Array], Product]] = {"plain": plain, "packed": packed}


def checked_product(name: str) -> str:
    """The name of a way that can be gone here, or why not."""
    if name not in PRODUCTS:
        raise InputError(unknown("product", name, PRODUCTS))
    if name == "packed" and not compiler():
        raise InputError("product 'packed' needs Numba: install coke[fast], or use 'plain'")
    return name


def compiler() -> bool:
    """Numba is installed."""
    return find_spec("numba") is not None


def pack(M: Array) -> Array:
    """Rows 4q … 4q + 3 up to the diagonal block's last column, for q = 0, 1, …; one line an agent."""
    N, D, _ = M.shape
    ends = [min(first + PANEL, D) for first in range(0, D, PANEL)]
    panels = [M[:, end - 1 - (end - 1) % PANEL : end, :end].reshape(N, -1) for end in ends]
    return np.concatenate(panels, axis=1)


@cache
def _compiled() -> Callable[[Array, Array, Array], None]:
    rows = "float64[:,::1]"
    compiled: Callable[[Array, Array, Array], None] = import_module("numba").njit(
        f"void({rows}, {rows}, {rows})", fastmath=REGROUPED
    )(_multiply)
    return compiled


def _multiply(P: Array, r: Array, out: Array) -> None:
    """out_i ← M_i r_i; plain Python, to be compiled."""
    N, D = r.shape
    whole = D - D % 4
    for n in range(N):
        m, x, y, at = P[n % len(P)], r[n], out[n], 0
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
        for i in range(whole, D):  # what is left of D after panels of four
            a, y0 = m[at : at + D], 0.0
            for j in range(whole):
                y0 += a[j] * x[j]
                y[j] += a[j] * x[i]
            for j in range(whole, D):
                y0 += a[j] * x[j]
            y[i] = y0
            at += D
