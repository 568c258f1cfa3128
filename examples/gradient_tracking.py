"""Quantised gradient tracking: a gradient method that is exact, and whose messages are a few bits.

    θ_i ← θ_i + Σ_n w_in θ̂_n − θ̂_i − η y_i
    y_i ← y_i + Σ_n w_in ŷ_n − ŷ_i + ∇R_i(θ_i) − ∇R_i(θ_i before)

A message says how (θ_i, y_i) differs from (θ̂_i, ŷ_i), what the neighbours last heard, in a few bits
an entry. The y_i average to the mean gradient in every round, whatever is lost to rounding: so
where nobody moves any more, the mean gradient is zero and all agree.
"""

from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import coke

Array = NDArray[np.float64]


class Tracked(NamedTuple):
    """What a round changes."""

    theta: Array  # (A, D)    θ_i
    y: Array  # (A, D)        the mean gradient, as agent i knows it
    slope: Array  # (A, D)    ∇R_i(θ_i)
    hat: Array  # (A, 2D)     (θ̂_i, ŷ_i): what the neighbours last heard
    heard: Array  # (A, 2D)   Σ_n w_in (θ̂_n, ŷ_n), itself included
    loss: Array  # (A,)       mean loss of θ_i on the rows of agent i


@dataclass(frozen=True)
class GradientTracking(coke.Algorithm):
    """Converges to the centralised optimum for small steps η."""

    eta: float = 0.1
    codec: coke.Codec = coke.Coarse(0.25)  # noqa: RUF009  frozen

    def weights(self, A: sparse.csr_array) -> sparse.csr_array:
        """Metropolis weights: both ends of an edge weigh each other alike."""
        return coke.metropolis(A)

    def width(self, risk: coke.Risk) -> int:
        """θ and y in one message."""
        return 2 * risk.size

    def told(self, hat: Array) -> Array:
        """Of a message, θ."""
        return hat[:, : hat.shape[1] // 2]

    def local(self, risk: coke.Risk, d: Array) -> coke.Risk:
        """The risk is all that a gradient step needs."""
        return risk

    def start(self, risk: coke.Risk) -> Tracked:
        """θ_i = 0, and y_i the agent's own gradient there."""
        zero, nothing = np.zeros((len(risk.T), risk.size)), np.zeros((len(risk.T), 2 * risk.size))
        slope = risk.gradient(zero)
        return Tracked(zero, slope, slope, nothing, nothing, risk.losses(zero))

    def speak(self, own: coke.Risk, s: Tracked, k: int) -> tuple[Tracked, coke.Spoken]:
        """A step, and what it changes, to all neighbours."""
        D = own.size
        news = s.heard - s.hat
        theta = s.theta + news[:, :D] - self.eta * s.y
        slope = own.gradient(theta)
        y = s.y + news[:, D:] + slope - s.slope
        everyone = np.ones((len(theta), 1), np.bool_)
        hat, spoken = coke.say(np.hstack([theta, y]), s.hat, everyone, self.codec)
        return Tracked(theta, y, slope, hat, s.heard, own.losses(theta)), spoken

    def listen(self, own: coke.Risk, s: Tracked, heard: Array) -> Tracked:
        """Keep what was heard for the next round."""
        return s._replace(heard=heard)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = [rng.normal(loc=0.3 * i, size=(100, 2)) for i in range(6)]
    y = [np.sin(x.sum(axis=1)) for x in X]
    features = coke.draw_features(coke.FeatureSettings(n_features=20, sigma=2.0, seed=0), d=2)
    problem = coke.Problem(coke.Quadratic.from_rows(features, X, y, 0.5 / 6))
    *_, last = coke.simulate(problem, nx.cycle_graph(6), GradientTracking(), rounds=500, tol=1e-6)
    exact = 2 * 8 * problem.train.size * last.ledger.transmissions
    print(f"settled: {last.settled} after {last.k} rounds")
    print(f"distance to the centralised optimum: {last.optimality_gap:.1e}")
    print(f"bytes: {last.ledger.bytes}, in float64 {exact}")
