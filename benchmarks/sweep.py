"""`make bench-sweep`: 64 settings at once against 64 runs, N = 100 agents, L = 200.

Whole runs, set-up included. The single runs are every eighth setting. Fails, too, if a setting of
the sweep is not the same run.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import product

import numpy as np

from coke.engines.process import Record, simulate
from coke.maths.algorithms.coke import COKE, Geometric
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.graph import Graph, build_graph
from coke.maths.losses.problem import Problem, Quadratic
from coke.studies.compare.sweep import Swept, sweep
from figures import Found, Goal, Section, by_turns, cpu, main, ratio
from floors import FLOORS

N, L, T, D, LAM = 100, 200, 300, 5, 1e-3
GRID = product(np.geomspace(1e-4, 1e-1, 16).tolist(), (0.1, 1.0), (0.85, 0.95))  # ρ, v, μ
SETTINGS = [COKE(rho, Geometric(v, mu)) for rho, v, mu in GRID]


def problem(agents: int) -> Problem:
    """The paper's kind: cos-phase features, D = L entries."""
    rng = np.random.default_rng(0)
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping="cos-phase", seed=0), D)
    X = [rng.normal(loc=0.01 * i, size=(T, D)) for i in range(agents)]
    y = [np.sin(x.sum(axis=1)) + 0.1 * rng.normal(size=T) for x in X]
    found = Problem(Quadratic.from_rows(features, X, y, LAM / agents))
    found.optimum  # noqa: B018  computed once, outside the clock
    return found


class Both:
    """The sweep and the single runs, and their last records."""

    def __init__(self, agents: int, rounds: int):
        self.problem, self.rounds = problem(agents), rounds
        self.graph: Graph = build_graph("random", agents, seed=0)
        self.at, self.apart = 3, 0.0
        self.swept: Swept | None = None
        self.single: Record | None = None

    def together(self) -> float:
        """CPU seconds for one of the settings of a sweep."""

        def run() -> None:
            records = sweep(self.problem, self.graph, SETTINGS, rounds=self.rounds, scored=())
            self.swept = deque(records, maxlen=1)[0]

        return cpu(run) / len(SETTINGS)

    def alone(self) -> float:
        """CPU seconds of a run of its own, of the next setting."""

        def run() -> None:
            one = SETTINGS[self.at]
            records = simulate(self.problem, self.graph, one, rounds=self.rounds, scored=())
            self.single = deque(records, maxlen=1)[0]

        taken = cpu(run)
        self.compare()
        return taken

    def compare(self) -> None:
        """The same ledger, and how far θ are apart."""
        assert self.swept is not None
        assert self.single is not None
        assert self.swept.ledger(self.at) == self.single.ledger
        apart = self.swept.theta[:, self.at] - self.single.state.theta
        self.apart = max(self.apart, float(abs(apart).max()))
        self.at = (self.at + 8) % len(SETTINGS)


def measure(size: str) -> Found:
    """By turns."""
    both = Both(30, 30) if size == "short" else Both(N, 100)
    taken = by_turns({"sweep": both.together, "alone": both.alone}, 2 if size == "short" else 8)
    return {
        "a run of its own / a setting of the sweep": ratio(taken["alone"], taken["sweep"]),
        "largest difference of θ": both.apart,
    }


SWEEP = Section(
    "sweep",
    measure,
    {
        "a run of its own / a setting of the sweep": Goal(least=4.0),
        "largest difference of θ": Goal(most=1e-10),
    },
)

if __name__ == "__main__":
    sys.exit(main(FLOORS, SWEEP))
