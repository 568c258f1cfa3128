"""How far a common model can be from the optimum at most: a duality gap, agent by agent.

For any γ_i with Σ_i γ_i = 0 and any common u, as a sum's minimum is no less than the sum of minima,

    F(u) − min F ≤ Σ_i e_i,   e_i = R_i(u) + γ_iᵀu − min_v [R_i(v) + γ_iᵀv] ≥ 0.

Each e_i is one agent's own affair. Of a quadratic risk it has a formula. Else its minimum v is
found by the local solver; what that leaves of the gradient, g, counts for at most ¼ gᵀG⁻¹g, as R_i
bends at least as much as its regulariser. So the bound holds however roughly v was solved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from coke.errors import ConvergenceError
from coke.maths.arrays import Array
from coke.maths.losses.mixed import Form, Mixed
from coke.maths.losses.newton import Factor, OneRisk, Proof
from coke.maths.losses.one_vs_rest import OneVsRest
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Regulariser, Risk, penalty
from coke.maths.losses.rowwise import Rowwise

Excess = Callable[[Array, Array], Array]
"""(γ, u), each (N, D) ↦ at least e_i (N,); all that stays the same is prepared."""
_ROUNDING = 1e-13  # of terms that cancel, also between agents


class Certificate(NamedTuple):
    """What the sites have proven of a common model, in sums over all of them."""

    gap: float  # ≥ F(u) − min F
    objective: float  # F(u), regulariser included
    at_zero: float  # F(0)
    accuracy: float  # that was asked for
    slack: float = 1e-6  # of F(0), so that models without noise need not be exact beyond all use

    @property
    def share(self) -> float:
        """How far above the optimum F(u) is at most, relative to it."""
        least = self.objective - self.gap
        return self.gap / least if least > 0 else np.inf if self.gap > 0 else 0.0

    @property
    def holds(self) -> bool:
        """Whether that is as near as was asked for."""
        least = max(self.objective - self.gap, 0.0)
        return self.gap <= self.accuracy * least + self.slack * self.at_zero

    def __str__(self) -> str:
        """For people."""
        if self.share > 10.0:
            return "not certified: the proof says nothing"
        words = "certified" if self.holds else "not certified: proven only"
        return f"{words} within {100.0 * self.share:.2g} % of the optimum"


def values(risk: Risk, theta: Array) -> Array:
    """R_i(θ_i) (N,), regulariser included; of several classes their sum."""
    times = len(risk.parts) if isinstance(risk, OneVsRest) else 1
    return times * risk.losses(theta) + penalty(risk.G, theta)


def excess(risk: Risk) -> Excess:
    """Prepares the agents of these risks; without a regulariser nothing is proven."""
    if isinstance(risk, OneVsRest):
        return _of_classes(risk)
    if not np.any(risk.G):
        return lambda gamma, u: np.full(len(u), np.inf)
    if isinstance(risk, Rowwise):
        return _of_rows(risk)
    assert isinstance(risk, Form | Mixed)  # what sums say all of
    return _of_sums(risk)


def _of_sums(risk: Form | Mixed) -> Excess:
    """¼ gᵀ(A_i + G)⁻¹g of quadratic risks, g = ∇R_i(u) + γ_i: nothing cancels."""

    def found(gamma: Array, u: Array) -> Array:
        g, size = risk.gradient(u) + gamma, np.linalg.norm(gamma, axis=1)
        return 0.25 * risk.decrements(g) + _ROUNDING * size * np.linalg.norm(u, axis=1)

    return found


def _of_rows(risk: Rowwise) -> Excess:
    """Of any loss; nothing is proven where the local solver gives up."""
    H, root = matrix(risk.G, len(risk.Phi[0].T)), _root(risk.G)
    own = [OneRisk(*rows, H) for rows in zip(risk.Phi, risk.y, risk.shares, strict=True)]

    def one(i: int, gamma: Array, u: Array) -> float:
        alone, dual = risk.rows(slice(i, i + 1)), gamma[None]
        try:
            found = risk.loss.of_row.minimum(own[i], -gamma, u)
        except ConvergenceError:
            return np.inf
        top, v = float(values(alone, u[None])[0] + gamma @ u), found.theta[None]
        if isinstance(found, Proof):
            low = found.dual
        else:
            left = float(_stray(root, alone.gradient(v) + dual)[0])
            low = float(values(alone, v)[0] + gamma @ v[0]) - left
        size = abs(top) + float(np.linalg.norm(gamma) * np.linalg.norm(u))
        return max(top - low, 0.0) + _ROUNDING * size

    def found(gamma: Array, u: Array) -> Array:
        pairs = zip(gamma, u, strict=True)
        return np.array([one(i, *pair) for i, pair in enumerate(pairs)])

    return found


def _of_classes(risk: OneVsRest) -> Excess:
    """The classes are separate problems, whose gaps add up."""
    each, K = [excess(part) for part in risk.parts], len(risk.parts)

    def found(gamma: Array, u: Array) -> Array:
        pieces = zip(each, np.split(gamma, K, axis=1), np.split(u, K, axis=1), strict=True)
        return np.asarray(sum(one(*at) for one, *at in pieces))

    return found


def _root(G: Regulariser) -> Factor | float:
    return G if isinstance(G, float) else cho_factor(G)


def _stray(root: Factor | float, g: Array) -> Array:
    """¼ gᵀG⁻¹g (N,)."""
    if isinstance(root, float):
        return np.asarray(np.vecdot(g, g) / (4.0 * root))
    each = g.reshape(-1, len(root[0]))
    return np.asarray(0.25 * np.vecdot(each, cho_solve(root, each.T).T).reshape(len(g), -1).sum(1))
