"""The logistic argmin of one round after the other: only p and the start change.

The loss bends at most by ¼, so B = 2H + ¼ Σ_t c_t z_t z_tᵀ bounds every Hessian, and

    θ ← θ − B⁻¹g

never climbs, from anywhere, without a line search. B is inverted once for a run. A step costs two
passes over the rows where Newton's costs D/2 more, and near the last answer a few are enough. Where
they do not even halve ‖g‖, Newton's method goes on. The answer depends on p and the start alone: an
agent that was stopped and started again finds the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from coke.maths.arrays import Array
from coke.maths.losses.newton import GRADIENT, Margins, Minimum, logistic, logistic_loss

WELL = 0.1 * GRADIENT  # where to stop: what is left must not add up over the rounds
SLOW = 0.5  # a step that leaves more of ‖g‖ than this: ten of them cost as much as Newton's one
HUGE = 1e300  # more than any ‖g‖ that is a number


class Bounded(NamedTuple):
    """A problem whose Hessians are bounded once and for all."""

    own: Margins
    double: Array  # (D, D)  2H
    inverse: Array  # (D, D)  B⁻¹


def bounded(own: Margins) -> Bounded:
    """B⁻¹ of these rows."""
    B = 2.0 * own.H + own.bends(0.25 * own.c)
    return Bounded(own, 2.0 * own.H, np.asarray(np.linalg.inv(B), np.float64))


def logistic_near(problem: Bounded, p: Array, start: Array) -> Minimum:
    """argmin_θ  Σ_t c_t log(1 + exp(−z_tᵀθ)) + θᵀHθ − pᵀθ  with ‖g‖ ≤ 1e-8; fast from near."""
    own, theta, before = problem.own, start.copy(), HUGE
    with np.errstate(over="ignore", invalid="ignore"):  # a terrible start is Newton's to mend
        while True:
            m = own.margins(theta)
            g = problem.double @ theta - p - own.pulls(own.c * expit(-m))
            norm = float(np.sqrt(g @ g))
            if norm <= WELL:
                return Minimum(theta, logistic_loss(m, own.c), norm)
            if not norm <= SLOW * before:  # true of infinity and NaN as well
                break
            theta, before = theta - problem.inverse @ g, norm
    return logistic(own, p, theta)  # or from zero, if θ is not finite
