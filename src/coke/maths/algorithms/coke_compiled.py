"""A round of the paper's COKE in one compiled call, with the bits of `COKE.speak` and `listen`.

For small rounds, where thirty calls of NumPy cost more than the arithmetic. The local solve is the
risk's own, as agents use it; the rest are sums and products in the same order. Only ‖θ_i − θ̂_i‖ is
added up in another order: where it is so close to h(k) that rounding could decide, the round is
left to the plain way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import NamedTuple

import numpy as np
from scipy import sparse

from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.coke import COKE, FLOAT, Local, Schedule, State
from coke.maths.arrays import Array
from coke.maths.compiled import REGROUPED, Indices, Packed, Ridge, arrays, ridge_compiled
from coke.maths.ledger import HEADER, Spent
from coke.maths.losses.problem import Problem

CLOSE = 1e-9  # part of h(k); two ways to add D squares differ by about 1e-16 D

After = tuple[State, Spent, tuple[float, float]]
"""The state after a round, what each agent has sent since the start (N, 3), and both gaps."""


class _Frozen(NamedTuple):
    """What stays the same from round to round."""

    rho: float
    d: Array  # (N, 1)
    first: Indices  # (N + 1,)  where an agent's neighbours begin in
    who: Indices  # (2E,)
    optimum: Array  # (D,)


class _Fused(NamedTuple):
    """All of a round."""

    risks: Packed
    fixed: _Frozen
    threshold: Schedule
    warm: bool

    def __call__(self, s: State, spent: Spent, k: int) -> After | None:
        """Round k; None where it must be the plain way."""
        if self.warm and k == 1:
            return None
        h, loss, sent = np.empty_like(s.h), np.empty(len(s.h)), np.empty_like(spent)
        theta, hat, heard, g = np.empty((4, *s.hat.shape))
        old = (float(self.threshold(k)), s.hat, s.heard, s.g, spent)
        new = (theta, hat, heard, g, h, loss, sent)
        consensus, optimality, close = _compiled()(*self.risks, *self.fixed, *old, *new)
        after = State(theta, hat, heard, g, h, loss)
        return None if close else (after, sent, (consensus, optimality))


def fused(problem: Problem, W: sparse.csr_array, algorithm: Algorithm, own: Local) -> _Fused | None:
    """For COKE on compiled quadratic risks, with h(k) and messages in float64; None for others."""
    if not isinstance(algorithm, COKE) or algorithm.codec is not None:
        return None
    if not isinstance(own.argmin, Ridge) or not isinstance(algorithm.threshold, Schedule):
        return None
    places = W.indptr.astype(np.int64), W.indices.astype(np.int64)
    fixed = _Frozen(own.rho, own.d, *places, problem.optimum)
    return _Fused(own.argmin.risks, fixed, algorithm.threshold, algorithm.warm)


@cache
def _compiled() -> Callable[..., tuple[float, float, bool]]:
    """Sums of squares alone may be regrouped."""
    numba = import_module("numba")
    solve, norm = ridge_compiled(), numba.njit(fastmath=REGROUPED)(_norm)

    def whole(
        M: Array, G: Array, two_b: Array, yy: Array, c: Array,
        rho: float, d: Array, first: Indices, who: Indices, optimum: Array,
        h: float, hat_old: Array, heard_old: Array, g_old: Array, spent: Spent,
        theta: Array, hat: Array, heard: Array, g: Array, h_new: Array, loss: Array, sent: Spent,
    ) -> tuple[float, float, bool]:  # fmt: skip
        consensus, optimality, close = 0.0, 0.0, False
        mean, p = np.zeros(len(optimum)), np.empty(theta.shape)
        for i in range(len(theta)):
            for j in range(len(mean)):
                p[i, j] = rho * (d[i, 0] * hat_old[i, j] + heard_old[i, j] - g_old[i, j])
        solve(M, G, two_b, yy, c, p, theta, loss)
        for i in range(len(theta)):
            innovation = norm(theta[i], hat_old[i])
            close |= abs(innovation - h) < CLOSE * h
            news = innovation >= h
            hat[i] = theta[i] if news else hat_old[i]
            h_new[i, 0] = h
            size = FLOAT * len(optimum) if news else 0
            sent[i, 0] = spent[i, 0] + news
            sent[i, 1] = spent[i, 1] + size
            sent[i, 2] = spent[i, 2] + int(d[i, 0]) * (HEADER + size)
            mean += theta[i]
            optimality = max(optimality, norm(theta[i], optimum))
        mean /= len(theta)
        for i in range(len(theta)):
            total, own, before, after = heard[i], hat[i], g_old[i], g[i]
            total[:] = 0.0
            for at in range(first[i], first[i + 1]):
                said = hat[who[at]]
                for j in range(len(total)):
                    total[j] += said[j]
            for j in range(len(total)):
                after[j] = before[j] + (d[i, 0] * own[j] - total[j])
            consensus = max(consensus, norm(theta[i], mean))
        return consensus, optimality, close

    number, where = numba.float64, arrays("int64", 1)
    row, rows, counts = arrays("float64", 1), arrays("float64", 2), arrays("int64", 2)
    new, losses = arrays("float64", 2, out=True), arrays("float64", 1, out=True)
    risks, fixed = (rows, rows, rows, row, row), (number, rows, where, where, row)
    old, out = (number, rows, rows, rows, counts), (*5 * (new,), losses)
    found = numba.types.Tuple((number, number, numba.boolean))
    kinds = found(*risks, *fixed, *old, *out, arrays("int64", 2, out=True))
    compiled: Callable[..., tuple[float, float, bool]] = numba.njit(kinds)(whole)
    return compiled


def _norm(x: Array, y: Array) -> float:
    """‖x − y‖."""
    total = 0.0
    for j in range(len(x)):
        total += (x[j] - y[j]) ** 2
    return math.sqrt(total)
