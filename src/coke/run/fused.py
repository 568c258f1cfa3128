"""A round of the paper's COKE in three compiled calls, with the bits of `COKE.speak` and `listen`.

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

from coke.maths.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.coke import COKE, FLOAT, Local, State
from coke.maths.compiled import REGROUPED, Indices, arrays
from coke.maths.graph import Graph
from coke.maths.problem import Problem
from coke.maths.quadratic import Quadratic
from coke.maths.thresholds import Shrinking, Threshold
from coke.run.ledger import HEADER, Spent

CLOSE = 1e-9  # part of h(k); two ways to add D squares differ by about 1e-16 D

After = tuple[State, Spent, tuple[float, float]]
"""The state after a round, what each agent has sent since the start (N, 3), and both gaps."""


class Fused(NamedTuple):
    """What stays the same from round to round."""

    own: Local
    threshold: Threshold
    warm: bool
    first: Indices  # (N + 1,)  where an agent's neighbours begin in
    who: Indices  # (2E,)
    optimum: Array  # (D,)

    def __call__(self, s: State, spent: Spent, k: int) -> After | None:
        """Round k; None where it must be the plain way."""
        if self.warm and k == 1:
            return None
        (pull, settle), h, p = _compiled(), float(self.threshold(k)), np.empty_like(s.hat)
        pull(self.own.rho, self.own.d, s.hat, s.heard, s.g, p)
        theta, loss = self.own.argmin(p, s.theta)
        hat, heard, g = np.empty((3, *p.shape))
        sent = np.empty(spent.shape, np.int64)
        said = (self.first, self.who, self.own.d, h, theta, s.hat, s.g, spent, self.optimum)
        consensus, optimality, close = settle(*said, hat, heard, g, sent)
        after = State(theta, hat, heard, g, np.full(s.h.shape, h), loss)
        return None if close else (after, sent, (consensus, optimality))


def fused(problem: Problem, graph: Graph, algorithm: Algorithm, own: Local) -> Fused | None:
    """For COKE on compiled quadratic risks, with h(k) and messages in float64; None for others."""
    if not (isinstance(problem.train, Quadratic) and problem.train.fast):
        return None
    if not isinstance(algorithm, COKE) or algorithm.codec is not None:
        return None
    if isinstance(algorithm.threshold, Shrinking):
        return None
    W = algorithm.weights(graph)
    places = W.indptr.astype(np.int64), W.indices.astype(np.int64)
    return Fused(own, algorithm.threshold, algorithm.warm, *places, problem.optimum)


@cache
def _compiled() -> tuple[Callable[..., None], Callable[..., tuple[float, float, bool]]]:
    """(pull, settle); sums of squares alone may be regrouped."""
    numba = import_module("numba")
    norm = numba.njit(fastmath=REGROUPED)(_norm)

    def settle(
        first: Indices, who: Indices, d: Array, h: float, theta: Array, old: Array, g_old: Array,
        spent: Spent, optimum: Array, hat: Array, heard: Array, g: Array, sent: Spent,
    ) -> tuple[float, float, bool]:  # fmt: skip
        consensus, optimality, close = 0.0, 0.0, False
        mean = np.zeros(len(optimum))
        for i in range(len(theta)):
            innovation = norm(theta[i], old[i])
            close |= abs(innovation - h) < CLOSE * h
            news = innovation >= h
            hat[i] = theta[i] if news else old[i]
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
    new, sent_out = arrays("float64", 2, out=True), arrays("int64", 2, out=True)
    found = numba.types.Tuple((number, number, numba.boolean))
    old = (where, where, rows, number, rows, rows, rows, counts, row)
    pull = numba.njit(numba.void(number, rows, rows, rows, rows, new))(_pull)
    return pull, numba.njit(found(*old, new, new, new, sent_out))(settle)


def _pull(rho: float, d: Array, hat: Array, heard: Array, g: Array, p: Array) -> None:
    """p_i ← ρ(d_i θ̂_i + Σ_n θ̂_n − g_i)."""
    for i in range(len(p)):
        for j in range(p.shape[1]):
            p[i, j] = rho * (d[i, 0] * hat[i, j] + heard[i, j] - g[i, j])


def _norm(x: Array, y: Array) -> float:
    """‖x − y‖."""
    total = 0.0
    for j in range(len(x)):
        total += (x[j] - y[j]) ** 2
    return math.sqrt(total)
