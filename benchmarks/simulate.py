"""`make bench-simulate`: rounds per CPU second against the naive script and the memory floor.

Ratios within one run, process CPU time, one BLAS thread, the two sides by turns: the machine may
be shared and noisy, and absolute times mean little. Fails if the ratio is below the goal.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before NumPy loads

import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import naive
from coke.maths.coke import COKE
from coke.maths.features import FeatureSettings, draw_features
from coke.maths.graph import build_graph
from coke.maths.problem import Problem
from coke.maths.quadratic import Quadratic
from coke.maths.thresholds import Geometric
from coke.run.simulate import simulate

GOAL = 40.0  # times the rounds per CPU second of the naive script
LAM, RHO, V, MU = 1e-3, 1e-2, 1.0, 0.95
OUT = Path("out/bench-simulate.json")

Array = NDArray[np.float64]


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def against_naive(mapping: str, N: int = 20, L: int = 100, T: int = 5000) -> dict[str, float]:
    """Rounds per CPU second of both, by turns, and that they computed the same thing."""
    rng = np.random.default_rng(0)
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping=mapping, seed=0), 5)
    X = [rng.normal(size=(T, 5)) for _ in range(N)]
    y = [np.sin(x.sum(axis=1)) + 0.1 * rng.normal(size=T) for x in X]
    Phi = [features(x) for x in X]
    graph = build_graph("random", N, edges=95, seed=0)
    neighbours = [sorted(graph[i]) for i in range(N)]
    problem = Problem(Quadratic.from_rows(features, X, y, LAM / N))
    tested = Problem(problem.train, problem.train)  # test metrics cost what they cost on any rows
    algorithm = COKE(RHO, Geometric(V, MU))
    few, many, ratios, slow, fast, full = 30, 1500, [], [], [], []
    for _ in range(5):
        slow.append(few / cpu(lambda: naive.coke(Phi, y, neighbours, LAM, RHO, V, MU, few)))
        fast.append(
            many / cpu(lambda: deque(simulate(problem, graph, algorithm, rounds=many), maxlen=0))
        )
        full.append(
            many / cpu(lambda: deque(simulate(tested, graph, algorithm, rounds=many), maxlen=0))
        )
        ratios.append(fast[-1] / slow[-1])
    theta, sent, mse = naive.coke(Phi, y, neighbours, LAM, RHO, V, MU, few)
    *_, last = simulate(problem, graph, algorithm, rounds=few)
    np.testing.assert_allclose(last.state.theta, theta, atol=1e-10)
    assert last.ledger.transmissions == sent
    np.testing.assert_allclose(last.score.train, mse, rtol=1e-10)
    return {
        "entries": features.size,
        "naive": statistics.median(slow),
        "simulate": statistics.median(fast),
        "simulate_with_test_metrics": statistics.median(full),
        "ratio": statistics.median(ratios),
        "ratio_lowest": min(ratios),
    }


def bandwidth(entries: int = 50_000_000) -> float:
    """Bytes per CPU second of reading 400 MB once: the DRAM floor of one core."""
    x = np.ones(entries)
    return 8 * entries / min(cpu(lambda: x @ x) for _ in range(7))


def against_memory(N: int = 1000, D: int = 100) -> dict[str, float]:
    """Share of the floor: every round must read N inverses of D × D once."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(N, D, D)) / np.sqrt(D)
    A, b = Z @ Z.swapaxes(1, 2), rng.normal(size=(N, D))
    problem = Problem(Quadratic(A, b, np.full(N, 9.0), np.full(N, 5000.0), LAM / N))
    graph = build_graph("random", N, edges=3 * N, seed=0)
    rounds, shares, speed, floors = 60, [], [], []
    for _ in range(5):
        floor = bandwidth() / (8 * N * D * D)
        records = simulate(problem, graph, COKE(RHO, Geometric(V, MU)), rounds=rounds + 1)
        next(records)  # the first round also prepares the optimum
        speed.append(rounds / cpu(lambda r=records: deque(r, maxlen=0)))  # type: ignore[misc]
        shares.append(speed[-1] / floor)
        floors.append(floor)
    return {
        "rounds_per_second": statistics.median(speed),
        "floor_rounds_per_second": statistics.median(floors),
        "share_of_floor": statistics.median(shares),
    }


def main() -> int:
    """Runs all, prints a table, keeps the numbers as JSON."""
    results = {
        "N=20 L=100 T=5000, cos-phase": against_naive("cos-phase"),
        "N=20 L=100 T=5000, cos-sin": against_naive("cos-sin"),
        "N=1000, 100 entries": against_memory(),
    }
    for name, row in results.items():
        print(name)
        for key, value in row.items():
            print(f"  {key.replace('_', ' '):28s} {value:12.4g}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=2) + "\n")
    worst = min(row["ratio"] for row in results.values() if "ratio" in row)
    print(f"at least {worst:.0f} times the naive script (goal {GOAL:.0f}); numbers in {OUT}")
    return int(worst < GOAL)


if __name__ == "__main__":
    sys.exit(main())
