"""
An algorithm of your own
========================

A method that is not in the package: decentralised gradient descent. Every agent averages what its
neighbours said, and takes a step down its own risk. Some 30 lines make it run on every graph, with
the ledger of bytes, the scores and the pictures of the others.
"""

# %%
# A problem
# ---------
# Six sites around a ring, each with inputs of its own. Statistics of the features are all that a
# quadratic risk needs.

from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import coke

Array = NDArray[np.float64]
rng = np.random.default_rng(0)
X = [rng.normal(loc=0.3 * i, size=(100, 2)) for i in range(6)]
y = [np.sin(x.sum(axis=1)) for x in X]
features = coke.draw_features(coke.FeatureSettings(n_features=20, sigma=2.0, seed=0), d=2)
problem = coke.Problem(coke.Quadratic.from_rows(features, X, y, 0.1 / 6))
ring = nx.cycle_graph(6)

# %%
# The method
# ----------
# A round is split where it communicates: ``speak`` up to the message, ``listen`` after it. The
# state is a named tuple of arrays, a row an agent; it sees no graph.


class State(NamedTuple):
    """What a round changes."""

    theta: Array  # (A, D)  own model
    hat: Array  # (A, D)    what the neighbours have of it
    loss: Array  # (A,)     mean loss on own rows


@dataclass(frozen=True)
class GradientDescent(coke.Algorithm):
    """θ_i ← Σ_n w_in θ_n − η ∇R_i(θ_i)."""

    eta: float = 0.5

    def weights(self, A: sparse.csr_array) -> sparse.csr_array:
        """Who is heard with which weight."""
        return coke.metropolis(A)

    def local(self, risk: coke.Risk, d: Array) -> coke.Risk:
        """What stays fixed."""
        return risk

    def start(self, risk: coke.Risk) -> State:
        """Before round 1."""
        zero = np.zeros((len(risk.T), risk.size))
        return State(zero, zero, risk.losses(zero))

    def speak(self, own: coke.Risk, s: State, k: int) -> tuple[State, coke.Spoken]:
        """Tell the model, in eight bytes a number."""
        size = np.full((len(s.theta), 1), 8 * s.theta.shape[1])
        return s._replace(hat=s.theta), coke.Spoken(size)

    def listen(self, own: coke.Risk, s: State, heard: Array) -> State:
        """Average, and go down."""
        theta = heard - self.eta * own.gradient(s.theta)
        return State(theta, s.hat, own.losses(theta))


# %%
# Beside the others
# -----------------
# ``simulate`` runs any of them, a record a round.

algorithms: dict[str, Any] = {
    "gradient descent": GradientDescent(),
    "DKLA": coke.dkla(rho=0.02),
    "COKE": coke.COKE(rho=0.02, threshold=coke.Geometric(v=1.0, mu=0.97)),
}
for name, algorithm in algorithms.items():
    *_, last = coke.simulate(problem, ring, algorithm, rounds=300)
    print(
        f"{name:16s} {last.optimality_gap:.1e} from the optimum, {last.ledger.transmissions} sends"
    )

# %%
# With a fixed step gradient descent stays where averaging and descending balance, and not at the
# optimum: that is why the paper has ADMM.
#
# On a table of your own
# ----------------------
# An estimator takes the algorithm as it takes a name.

rows = np.concatenate(X)
sites = np.repeat(np.arange(6), 100)
model = coke.COKERegressor(
    algorithm=GradientDescent(), model="plain", limits=coke.Until(rounds=200), graph="ring"
)
model.fit(rows, np.concatenate(y), sites=sites)
print(f"R² {model.score(rows, np.concatenate(y)):.3f} after {model.n_iter_} rounds")

plt.figure(figsize=(6, 2.4))
plt.semilogy(model.history_["train_mse"])
plt.xlabel("round")
plt.ylabel("mean squared error")
plt.tight_layout()

# %%
# How it gets into the package, onto agents and ranks: :doc:`/adding-an-algorithm`.
