"""`make bench-simulate`: rounds per CPU second against a naive script, Newton and the memory floor.

A round here is what the naive script does in one: the step, the training MSE, the counts; both
gaps come on top. Plain, and compiled where Numba is installed. Ratios within one run, process CPU
time, one BLAS thread, the sides by turns: the machine may be shared and noisy, and absolute times
mean little. Fails if a ratio is below its goal.
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
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import naive
from coke.maths import compiled
from coke.maths.classification import Margin
from coke.maths.coke import COKE
from coke.maths.features import FeatureSettings, draw_features
from coke.maths.graph import Graph, build_graph
from coke.maths.problem import Problem
from coke.maths.quadratic import Quadratic
from coke.maths.risks import Argmin
from coke.maths.thresholds import Geometric
from coke.run.simulate import simulate

GOALS = {
    "plain": 60.0,  # times the rounds per CPU second of the naive script
    "fast": 150.0,
    "plain share": 0.7,  # of the rounds that reading D² numbers an agent from memory would allow
    "fast share": 0.7,
    "logistic": 3.0,  # times the rounds per CPU second of warm-started Newton
}
WAYS = ("plain", "fast") if compiled.available() else ("plain",)
LAM, RHO, V, MU = 1e-3, 1e-2, 1.0, 0.95
OUT = Path("out/bench-simulate.json")

Array = NDArray[np.float64]


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def rounds(problem: Problem, graph: Graph, n: int, rho: float = RHO, looks: bool = False) -> float:
    """Rounds per CPU second, without the first, which also prepares."""
    scored = None if looks else ()
    algorithm = COKE(rho, Geometric(V, MU))
    records = simulate(problem, graph, algorithm, rounds=n + 1, scored=scored)
    next(records)
    return n / cpu(lambda: deque(records, maxlen=0))


def against_naive(mapping: str, N: int = 20, L: int = 100, T: int = 5000) -> dict[str, float]:
    """Rounds per CPU second of all ways, by turns, and that they computed the same thing."""
    rng = np.random.default_rng(0)
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping=mapping, seed=0), 5)
    X = [rng.normal(size=(T, 5)) for _ in range(N)]
    y = [np.sin(x.sum(axis=1)) + 0.1 * rng.normal(size=T) for x in X]
    Phi = [features(x) for x in X]
    graph = build_graph("random", N, edges=95, seed=0)
    neighbours = [sorted(graph[i]) for i in range(N)]
    risk = Quadratic.from_rows(features, X, y, LAM / N)
    problems = {way: Problem(replace(risk, fast=way == "fast")) for way in WAYS}
    few, found = 30, {"entries": [float(features.size)]}
    for _ in range(5):
        slow = few / cpu(lambda: naive.coke(Phi, y, neighbours, LAM, RHO, V, MU, few))
        found.setdefault("naive", []).append(slow)
        for way, problem in problems.items():
            speed = rounds(problem, graph, 1500)
            found.setdefault(f"{way} rounds per second", []).append(speed)
            found.setdefault(way, []).append(speed / slow)
            every = rounds(problem, graph, 500, looks=True) / slow
            found.setdefault(f"{way}, global losses too", []).append(every)
    expected = naive.coke(Phi, y, neighbours, LAM, RHO, V, MU, few)
    for problem in problems.values():
        check(problem, graph, few, *expected)
    return {name: statistics.median(values) for name, values in found.items()}


def check(problem: Problem, graph: Graph, n: int, theta: Array, sent: int, mse: float) -> None:
    """The answers of the naive script after n rounds."""
    *_, last = simulate(problem, graph, COKE(RHO, Geometric(V, MU)), rounds=n)
    np.testing.assert_allclose(last.state.theta, theta, atol=1e-10)
    assert last.ledger.transmissions == sent
    np.testing.assert_allclose(last.score.train, mse, rtol=1e-10)


def bandwidth(entries: int = 50_000_000) -> float:
    """Bytes per CPU second of reading 400 MB once: the DRAM floor of one core."""
    x = np.ones(entries)
    return 8 * entries / min(cpu(lambda: x @ x) for _ in range(7))


def against_memory(N: int = 1000, D: int = 100) -> dict[str, float]:
    """Share of the floor: every round must read N inverses of D × D once, or half of each."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(N, D, D)) / np.sqrt(D)
    A, b = Z @ Z.swapaxes(1, 2), rng.normal(size=(N, D))
    risk = Quadratic(A, b, np.full(N, 9.0), np.full(N, 5000.0), LAM / N)
    graph = build_graph("random", N, edges=3 * N, seed=0)
    found: dict[str, list[float]] = {}
    for _ in range(5):
        floor = bandwidth() / (8 * N * D * D)
        found.setdefault("floor rounds per second", []).append(floor)
        for way in WAYS:
            speed = rounds(Problem(replace(risk, fast=way == "fast")), graph, 60)
            found.setdefault(f"{way} rounds per second", []).append(speed)
            found.setdefault(f"{way} share", []).append(speed / floor)
    return {name: statistics.median(values) for name, values in found.items()}


class Newton(Margin):
    """Logistic risks by Newton's method from the last answer on, to ‖g‖ ≤ 1e-8."""

    def argmin(self, pull: Array) -> Argmin:
        """As a researcher would write it."""
        rows = [y[:, None] * Phi for Phi, y in zip(self.Phi, self.y, strict=True)]
        H = [2.0 * self._curvature(float(c)) for c in pull[:, 0]]

        def one(Z: Array, H: Array, p: Array, theta: Array) -> Array:
            while True:
                a = 1.0 / (1.0 + np.exp(Z @ theta))
                g = H @ theta - p - Z.T @ a / len(Z)
                if np.linalg.norm(g) <= 1e-8:
                    return theta
                curve = Z.T @ ((a * (1.0 - a) / len(Z))[:, None] * Z)
                theta = theta - np.linalg.solve(H + curve, g)

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            theta = np.stack([one(*at) for at in zip(rows, H, p, start, strict=True)])
            return theta, self.losses(theta)

        return solve


def against_newton(rho: float, N: int = 20, L: int = 100, T: int = 500) -> dict[str, float]:
    """Rounds 2 to 61 of the logistic loss."""
    rng = np.random.default_rng(0)
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping="cos-phase", seed=0), 5)
    X = [rng.normal(size=(T, 5)) for _ in range(N)]
    y = [np.where(np.sin(x.sum(axis=1)) + 0.3 * rng.normal(size=T) > 0, 1.0, -1.0) for x in X]
    rows = tuple(features(x) for x in X), tuple(y), LAM / N, "logistic"
    ours, newton = Problem(Margin(*rows)), Problem(Newton(*rows))
    graph = build_graph("random", N, edges=95, seed=0)
    found: dict[str, list[float]] = {"newton": [], "ours": [], "logistic": []}
    for _ in range(3):
        found["newton"].append(rounds(newton, graph, 60, rho))
        found["ours"].append(rounds(ours, graph, 60, rho))
        found["logistic"].append(found["ours"][-1] / found["newton"][-1])
    ends = [deque(simulate(p, graph, COKE(rho), rounds=20), maxlen=1)[0] for p in (ours, newton)]
    np.testing.assert_allclose(ends[0].state.theta, ends[1].state.theta, atol=1e-5)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> int:
    """Runs all, prints a table, keeps the numbers as JSON."""
    results = {
        "N=20 L=100 T=5000, cos-phase": against_naive("cos-phase"),
        "N=20 L=100 T=5000, cos-sin": against_naive("cos-sin"),
        "N=1000, 100 entries": against_memory(),
        "logistic, N=20 L=100 T=500, rho=0.01": against_newton(1e-2),
        "logistic, N=20 L=100 T=500, rho=0.001": against_newton(1e-3),
    }
    missed = []
    for name, row in results.items():
        print(name)
        for key, value in row.items():
            goal = GOALS.get(key, 0.0)
            print(f"  {key:28s} {value:12.4g}" + (f"   (goal {goal:g})" if goal else ""))
            missed += [f"{name}: {key}"] if value < goal else []
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=2) + "\n")
    print(
        f"numbers in {OUT}; " + ("below the goal: " + "; ".join(missed) if missed else "all well")
    )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
