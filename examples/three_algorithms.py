"""COKE, DKLA and CTA on one problem and one graph, round by round, without scikit-learn."""

import networkx as nx
import numpy as np

from coke import (
    COKE,
    CTA,
    Algorithm,
    FeatureSettings,
    Geometric,
    Problem,
    Quadratic,
    dkla,
    draw_features,
    simulate,
)

rng = np.random.default_rng(1)
graph = nx.cycle_graph(8)
X = [rng.normal(loc=0.2 * i, size=(200, 3)) for i in range(8)]  # every site sees other inputs
y = [np.cos(x.sum(axis=1)) + 0.1 * rng.normal(size=200) for x in X]

features = draw_features(FeatureSettings(n_features=40, sigma=2.0, seed=0), d=3)
lam = 0.01
problem = Problem(Quadratic.from_rows(features, X, y, lam / 8))

best = problem.train.global_losses(problem.optimum[None])[0]
print(f"centralised optimum: mean squared error {best:.5f}")
algorithms: dict[str, Algorithm] = {
    "DKLA": dkla(rho=0.02),
    "COKE": COKE(rho=0.02, threshold=Geometric(v=1.0, mu=0.97)),
    "CTA": CTA(eta=0.5),
}
for name, algorithm in algorithms.items():
    for record in simulate(problem, graph, algorithm, rounds=2000):
        if record.score.global_train < 1.05 * best:
            break
    print(
        f"{name:4s}  mean squared error {record.score.global_train:.5f} after {record.k} rounds "
        f"and {record.ledger.transmissions} messages"
    )
