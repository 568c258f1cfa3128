"""Gossip: every agent starts from its own model and averages with its neighbours.

θ_i¹ = argmin R_i(θ);  θ_iᵏ = Σ_n w_in θ_nᵏ⁻¹ with Metropolis weights w
"""

from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke import (
    Algorithm,
    FeatureSettings,
    Problem,
    Quadratic,
    Risk,
    Spoken,
    draw_features,
    local_only,
    metropolis,
    one_shot_average,
    simulate,
)

Array = NDArray[np.float64]


class GossipState(NamedTuple):
    """What a round changes."""

    theta: Array  # (A, D)  θ_i
    hat: Array  # (A, D)    θ̂_i = θ_i
    heard: Array  # (A, D)  Σ_n w_in θ_n
    loss: Array  # (A,)     mean loss of θ_i on the rows of agent i


@dataclass(frozen=True)
class Gossip(Algorithm):
    """Averages the agents' own models: their mean is not θ*, which is why there is ADMM."""

    def weights(self, A: sparse.csr_array) -> sparse.csr_array:
        """Who is heard with which weight."""
        return metropolis(A)

    def local(self, risk: Risk, d: Array) -> Risk:
        """What stays fixed."""
        return risk

    def start(self, risk: Risk) -> GossipState:
        """Before round 1: what every agent would say unasked."""
        zero = np.zeros((len(risk.T), risk.size))
        return GossipState(zero, zero, local_only(risk), risk.losses(zero))

    def speak(self, own: Risk, s: GossipState, k: int) -> tuple[GossipState, Spoken]:
        """Take the average, tell it to the neighbours."""
        theta = s.heard
        size = np.full((len(theta), 1), 8 * theta.shape[-1])  # bytes of each message
        return GossipState(theta, theta, s.heard, own.losses(theta)), Spoken(size)

    def listen(self, own: Risk, s: GossipState, heard: Array) -> GossipState:
        """Keep what was heard for the next round."""
        return s._replace(heard=heard)


rng = np.random.default_rng(0)
X = [rng.normal(loc=0.3 * i, size=(100, 2)) for i in range(6)]
y = [np.sin(x.sum(axis=1)) for x in X]
features = draw_features(FeatureSettings(n_features=20, sigma=2.0, seed=0), d=2)
problem = Problem(Quadratic.from_rows(features, X, y, 0.1 / 6))
*_, record = simulate(problem, nx.cycle_graph(6), Gossip(), rounds=100)
mean = one_shot_average(problem.train)
print(f"distance to the mean of the local models  {np.abs(record.state.theta - mean).max():.1e}")
print(f"distance to the centralised optimum       {record.optimality_gap:.1e}")
