"""The hinge argmin of one round after the other: only p and the start change.

All is piecewise quadratic. Rows on the margin, J, have 0 < α_t < c_t; the others have α_t = c_t or
0, by their side of it. Where these sets are known, Z_J θ = 1 and 2Hθ = p + Zᵀα give α_J and θ; and
from one round to the next few rows leave their set. So guess that none has, and see. A row of J
whose α_t leaves [0, c_t] leaves J; any other on the wrong side of the margin joins J, or changes
sides if it is off by more than δ, the most that a margin has moved. Where nothing changes, that is
the answer. A guess costs a pass over the rows; three are usual, and after many the solver that
needs no guess goes on. The answer depends on p and the start alone: an agent that was stopped and
started again finds the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from coke.maths.arrays import CHUNK, Array
from coke.maths.losses.newton import ROUNDING, Certificate, Margins, hinge, proved

GUESSES = 12  # before giving up
NEAR = 1e-7  # rows that were on the margin are as near to it at the start
ALIKE = 1e-11  # rows that differ by less pull as one


def hinge_near(own: Margins, p: Array, start: Array) -> Certificate:
    """argmin_θ  Σ_t c_t max(0, 1 − z_tᵀθ) + θᵀHθ − pᵀθ  with a gap ≤ 1e-6; fast from near."""
    with np.errstate(over="ignore", invalid="ignore"):  # a terrible start is for the other solver
        found = _guessed(own, p, start)
    return hinge(own, p, start) if found is None else found


def _guessed(own: Margins, p: Array, start: Array) -> Certificate | None:
    """The answer, if a few guesses lead to it."""
    m, delta = own.margins(start), 0.0
    a = own.c * np.clip(0.5 + (1.0 - m) / NEAR, 0.0, 1.0)
    fixed, pulls = np.zeros_like(a), p
    longest = float(np.sqrt(own.squares.max()))
    for _ in range(GUESSES):
        free = (a > 0.0) & (a < own.c)
        rows = np.flatnonzero(free)
        if len(rows) > 2 * len(p):  # some may say the same, hardly so many
            return None
        pulls, fixed = _moved(own, p, pulls, fixed, np.where(free, 0.0, a))
        solved = _solved(own, pulls, rows)
        if solved is None:
            return None
        theta, a_J = solved
        before, m, alpha = m, own.margins(theta), fixed.copy()
        alpha[rows] = a_J
        delta = delta or float(np.abs(m - before).max())
        # Rows at c_t or 0 may touch the margin, too.
        m[free | (np.abs(1.0 - m) <= 10.0 * ROUNDING * longest * np.linalg.norm(theta))] = 1.0
        a = np.clip(alpha + own.c * ((1.0 - m) / delta if delta else 0.0), 0.0, own.c)
        if np.array_equal(a, alpha):
            return proved(own, p, theta, a)
    return None


def _moved(own: Margins, p: Array, pulls: Array, fixed: Array, after: Array) -> tuple[Array, Array]:
    """p + Zᵀα over the rows whose α is fixed, from what it was before; and these α."""
    moved = np.flatnonzero(after != fixed)
    if len(moved) > min(CHUNK, len(fixed) // 4):  # a pass over all rows takes no copy of them
        return p + own.pulls(after), after
    return pulls + (own.y[moved] * (after - fixed)[moved]) @ own.Phi[moved], after


def _solved(own: Margins, pulls: Array, rows: NDArray[np.int64]) -> tuple[Array, Array] | None:
    """θ with these rows on the margin, and their α; None where numbers are beyond reason."""
    if not np.isfinite(pulls).all():
        return None
    Z = own.y[rows, None] * own.Phi[rows]  # (|J|, D)
    S = 0.5 * cho_solve(own.root, Z.T)  # (D, |J|)
    theta = 0.5 * cho_solve(own.root, pulls)
    try:
        a_J = np.linalg.lstsq(Z @ S, 1.0 - Z @ theta, rcond=ALIKE)[0]
    except np.linalg.LinAlgError:
        return None
    theta = theta + S @ a_J
    return (theta, a_J) if np.isfinite(theta).all() else None
