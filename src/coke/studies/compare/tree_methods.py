"""Yardsticks that add up over a spanning tree: everybody hears the total, someone is the root.

Partial sums go up to the root, each to one neighbour; the total comes down again, in the paper's
account as one broadcast of every site that has children, on the wire as a copy for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from coke.errors import ConvergenceError
from coke.maths.algorithms.codecs import LIMIT, Codec
from coke.maths.arrays import Array
from coke.maths.graph import Tree
from coke.maths.ledger import Ledger
from coke.maths.losses.problem import Quadratic, across
from coke.maths.losses.risk import Risk, pulled

FLOAT64, FLOAT32 = 8, 4
UNIT = 2.0**10  # of what messages hold, so that sums beyond LIMIT can be told
LARGE = UNIT * LIMIT / 4  # of an entry's sum, about N in a whitened basis: 10⁶
STEP = 0.25  # over κ: the best of one for all data


class Point(NamedTuple):
    """What everybody holds after a step of a tree method, and what it has cost so far."""

    k: int
    theta: Array  # (D,)
    ledger: Ledger


def conjugate_gradients(
    risk: Quadratic, tree: Tree, width: int, precondition: Callable[[Array], Array], start: Ledger
) -> Iterator[Point]:
    """CG on (Σ_i A_i + N G)θ = Σ_i b_i: one sum of D numbers, `width` bytes each, an iteration."""
    N, ledger = len(risk.T), tree.summed(start, width * risk.size)
    number = np.float32 if width == FLOAT32 else np.float64

    def total(p: Array) -> Array:
        everywhere = np.tile(p, (N, 1))
        local = across(everywhere, risk.A) + pulled(risk.G, everywhere)
        return local.astype(number).sum(axis=0).astype(np.float64)

    theta, r = np.zeros(risk.size), risk.b.astype(number).sum(axis=0).astype(np.float64)
    z = precondition(r)
    p, first, eps = z, float(r @ z), float(np.finfo(number).eps)
    yield Point(0, theta, ledger)
    for k in range(1, 2 * risk.size + 1):
        Hp = total(p)
        ledger = tree.summed(ledger, width * risk.size)
        step = (r @ z) / max(p @ Hp, 1e-300)
        theta, left = theta + step * p, r - step * Hp
        new = precondition(left)
        p = new + (left @ new) / max(r @ z, 1e-300) * p
        r, z = left, new
        yield Point(k, theta, ledger)
        if not np.isfinite(theta).all() or r @ z <= eps**2 * first:
            return  # what is left is rounding, and further steps would follow it


def gram_sum(risk: Quadratic, tree: Tree) -> Iterator[Point]:
    """All A_i and b_i added up once, then solved by everybody: most bytes, and reveals most."""
    D = risk.A.shape[-1]
    size = FLOAT64 * (D * (D + 1) // 2 + risk.size)
    yield Point(1, risk.optimum(), tree.summed(Ledger(), size))


def coded_gradient(
    risk: Risk, tree: Tree, codec: Codec, rounds: int, start: Ledger, kappa: float
) -> Iterator[Point]:
    """Heavy ball on the whitened risks; partial sums and totals travel as coded innovations.

    u ← u − ∇/(4κ) + ½ (u − u_before), ∇ the mean gradient. Its Hessian is near κI; where P
    describes the data badly and an eigenvalue exceeds 12κ, this diverges.
    """
    N, D, ledger = len(risk.T), risk.size, start
    up, total = np.zeros((N, D)), np.zeros(D)  # what each node last said to its parent; the root
    u, before = np.zeros(D), np.zeros(D)
    for k in range(1, rounds + 1):
        partial = risk.gradient(np.tile(u, (N, 1)))
        if not np.abs(partial).sum(axis=0).max() < LARGE:
            raise ConvergenceError(f"round {k}: the gradient method diverges in this basis")
        for i in reversed(tree.order[1:]):
            message = codec.encode((partial[i] - up[i]) / UNIT)
            up[i] += UNIT * codec.decode(message, D)
            partial[tree.parent[i]] += up[i]
            ledger = ledger.told(len(message))
        message = codec.encode((partial[tree.root] - total) / UNIT)
        total = total + UNIT * codec.decode(message, D)
        ledger = tree.told_down(ledger, len(message))
        u, before = u - STEP / kappa * total / N + 0.5 * (u - before), u
        yield Point(k, u, ledger)
