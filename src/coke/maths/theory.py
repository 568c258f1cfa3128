"""What the paper's theorems say about a problem on a network: rates, step sizes, feature counts.

The network enters through the incidence matrices of its 2E arcs (every edge in both
directions), S₋ signed and S₊ unsigned: S₋S₋ᵀ = 2(D − A), S₊S₊ᵀ = 2(D + A) for the degree matrix
D and the adjacency A. These are the arcs of the constraints θ_i = ϑ_in = θ_n behind the updates
(Shi et al. 2014), whose ρ d_i ‖θ_i‖² counts each neighbour twice, once per arc.

Slips of the paper, mended here and tested in `tests/maths/test_theory.py`:

* Remark 3 squares the singular values of a matrix that is a square already, and leaves the factor
  2 off its data term. The Hessian of R_i is 2A_i + 2G: m = 2 min λ_min(A_i + G), M = 2 max λ_max.
* Theorem 4's δ_d multiplies M² by σ̃²_min(S₋) where its source, and the same term in Theorem 2,
  divide by it. The printed rate is not reached on a path of six agents.
* Theorem 2 bounds ρ by constants η₁, η₂, η₃ that may be as small as one likes, so the bound has
  no bound: every ρ > 0 is admissible, as in Theorem 4 (the tests find such constants).
* Theorem 3's λ belongs to a mean over rows, the algorithms' λ to a sum over N agents: λ/N there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from coke.errors import InputError
from coke.maths.arrays import Array
from coke.maths.graph import Graph, adjacency
from coke.maths.losses.problem import Quadratic, matrix


class _Guarantee(NamedTuple):
    """The best guarantee of Theorem 4 and the ν that gives it."""

    delta: float  # δ_d: the squared error shrinks by 1/(1 + δ_d) a round
    nu: float  # ν > 1

    @property
    def factor(self) -> float:
        """√(1/(1 + δ_d)): the error shrinks by this factor or faster."""
        return math.sqrt(1.0 / (1.0 + self.delta))

    def rounds(self, gain: float) -> float:
        """Rounds after which the guaranteed error is `gain` times smaller."""
        return 2.0 * math.log(gain) / math.log1p(self.delta)


class Constants(NamedTuple):
    """What the rates depend on."""

    m: float  # m_R̂ = min_i λ_min(∇²R_i), strong convexity
    M: float  # M_R̂ = max_i λ_max(∇²R_i), Lipschitz constant of the gradients
    s_min: float  # σ̃_min(S₋), smallest non-zero singular value
    s_max: float  # σ̃_max(S₊), largest singular value

    @classmethod
    def of(cls, risk: Quadratic, graph: Graph) -> Constants:
        """m_R̂, M_R̂, σ̃_min(S₋), σ̃_max(S₊) of quadratic risks on a connected graph."""
        eigenvalues = 2.0 * np.linalg.eigvalsh(
            risk.A + matrix(risk.G, risk.A.shape[-1])
        )  # (N, D), rising
        m, M = float(eigenvalues[:, 0].min()), float(eigenvalues[:, -1].max())
        return cls(m, M, *_network_constants(graph))

    @property
    def condition(self) -> float:
        """κ = M/m, of the risks."""
        return self.M / self.m

    @property
    def spread(self) -> float:
        """σ̃_max(S₊)/σ̃_min(S₋), of the network; one at best."""
        return self.s_max / self.s_min

    def delta(self, rho: float, nu: float) -> float:
        """δ_d(ν) = min{(1 − 1/ν) σ̃²_min/σ̃²_max,  m / (¼ρ σ̃²_max + ν M²/(ρ σ̃²_min))}."""
        first, fast = (1.0 - 1.0 / nu) / self.spread**2, 0.25 * rho * self.s_max**2
        return min(first, self.m / (fast + nu * self.M**2 / (rho * self.s_min**2)))

    def rate(self, rho: float) -> _Guarantee:
        """Theorem 4 with the best ν: its first term grows with ν, its second falls."""
        if not rho > 0:
            raise InputError(f"rho={rho}: expected a step size ρ > 0")
        if not self.m > 0:
            raise InputError(
                "the local risks are not strongly convex (m = 0): the theorems need λ > 0"
            )
        found = _minimised(
            lambda t: -self.delta(rho, 1.0 + math.exp(t)), bounds=(-40.0, 40.0), method="bounded",
            options={"xatol": 1e-10},
        )  # fmt: skip
        nu = 1.0 + math.exp(found)
        return _Guarantee(self.delta(rho, nu), nu)

    def best_rho(self) -> float:
        """The ρ with the best guarantee: 2√ν M/(σ̃_max σ̃_min), which balances δ_d's second term."""
        near = self.M / (self.s_max * self.s_min)
        found = _minimised(
            lambda t: -self.rate(math.exp(t)).delta, bracket=(math.log(near), math.log(4 * near))
        )
        return math.exp(found)


def _minimised(f: Callable[[float], float], **how: Any) -> float:
    from scipy.optimize import minimize_scalar  # here, for it takes a fifth of a second to load

    return float(minimize_scalar(f, **how).x)


def _network_constants(graph: Graph) -> tuple[float, float]:
    """σ̃_min(S₋) = √(2 λ₂(D − A)) and σ̃_max(S₊) = √(2 λ_max(D + A))."""
    if len(graph) < 2:
        raise InputError("one agent has nobody to agree with: the theorems need at least two")
    if not nx.is_connected(graph):
        raise InputError("the graph is not connected: the theorems need a path between any two")
    A = adjacency(graph).toarray()
    D = np.diag(A.sum(axis=1))
    return math.sqrt(2 * np.linalg.eigvalsh(D - A)[1]), math.sqrt(2 * np.linalg.eigvalsh(D + A)[-1])


def degrees_of_freedom(K: Array, lam: float) -> float:
    """d_K^λ = Tr K(K + λT I)⁻¹ for the mean loss of T rows plus λ‖f‖²."""
    eigenvalues = np.maximum(np.linalg.eigvalsh(K), 0.0)
    return float(np.sum(eigenvalues / (eigenvalues + lam * len(K))))


def features_needed(d: float, lam: float, *, epsilon: float = 0.5, delta_p: float = 0.05) -> int:
    """Theorem 3's L ≥ (1/λ)(1/ε² + 2/(3ε)) log(16 d_K^λ/δ_p)."""
    if not (0 < epsilon < 1 and 0 < delta_p < 1 and lam > 0):
        raise InputError(
            f"epsilon={epsilon}, delta_p={delta_p}, lambda={lam}: expected ε and δ_p between "
            "0 and 1, and λ > 0"
        )
    return math.ceil((1 / epsilon**2 + 2 / (3 * epsilon)) / lam * math.log(16 * d / delta_p))


class Assumptions(NamedTuple):
    """Assumptions 1 to 3, checked."""

    connected: bool
    strongly_convex: bool
    sizes_within: float  # (max T_i − min T_i)/min T_i, to be below 10

    @classmethod
    def of(cls, risk: Quadratic, graph: Graph) -> Assumptions:
        """Connected, strongly convex, sample sizes within a factor."""
        lowest = np.linalg.eigvalsh(risk.A + matrix(risk.G, risk.A.shape[-1]))[:, 0].min()
        spread = float((risk.T.max() - risk.T.min()) / risk.T.min())
        return cls(bool(nx.is_connected(graph)), bool(lowest > 0), spread)

    @property
    def hold(self) -> bool:
        """All of them."""
        return self.connected and self.strongly_convex and self.sizes_within < 10
