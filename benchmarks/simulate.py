"""`make bench-simulate`: CPU of a round against a naive script, Newton and the memory floor.

A round here is what the naive script does in one: the step, the training MSE, the counts; both
gaps come on top. Plain, and compiled where Numba is installed.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import naive
from coke.engines.process import simulate
from coke.maths import compiled
from coke.maths.algorithms.coke import COKE, Geometric
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.graph import Graph, build_graph
from coke.maths.losses import LOSSES
from coke.maths.losses import hinge as support
from coke.maths.losses.problem import Problem, Quadratic, matrix
from coke.maths.losses.risk import Argmin
from coke.maths.losses.rowwise import Rowwise
from figures import Found, Goal, Section, by_turns, cpu, main, ratio
from floors import FLOORS, memory

WAYS = ("plain", "fast") if compiled.available() else ("plain",)
LAM, RHO, V, MU = 1e-3, 1e-2, 1.0, 0.95

Array = NDArray[np.float64]


def rounds(problem: Problem, graph: Graph, n: int, rho: float = RHO) -> float:
    """CPU seconds of a round, without the first, which also prepares."""
    records = simulate(problem, graph, COKE(rho, Geometric(V, MU)), rounds=n + 1, scored=())
    next(records)
    return cpu(lambda: deque(records, maxlen=0)) / n


def against_naive(mapping: str, size: str, N: int = 20, L: int = 100, T: int = 5000) -> Found:
    """All ways against the naive script, and that they computed the same thing."""
    rng = np.random.default_rng(0)
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping=mapping, seed=0), 5)
    X = [rng.normal(size=(T, 5)) for _ in range(N)]
    y = [np.sin(x.sum(axis=1)) + 0.1 * rng.normal(size=T) for x in X]
    Phi = [features(x) for x in X]
    graph = build_graph("random", N, edges=95, seed=0)
    neighbours = [sorted(graph[i]) for i in range(N)]
    risk = Quadratic.from_rows(features, X, y, LAM / N)
    few, many, turns = (20, 500, 2) if size == "short" else (30, 1500, 7)

    def slow() -> float:
        return cpu(lambda: naive.coke(Phi, y, neighbours, LAM, RHO, V, MU, few)) / few

    problems = {way: Problem(replace(risk, fast=way == "fast")) for way in WAYS}
    ours = {way: partial(rounds, problem, graph, many) for way, problem in problems.items()}
    found = by_turns({**ours, "naive": slow}, turns)
    expected = naive.coke(Phi, y, neighbours, LAM, RHO, V, MU, few)
    for problem in problems.values():
        check(problem, graph, few, *expected)
    times = {f"naive / {way}, {mapping}": ratio(found["naive"], found[way]) for way in WAYS}
    return {f"naive, {mapping}, seconds a round": min(found["naive"])} | times


def check(problem: Problem, graph: Graph, n: int, theta: Array, sent: int, mse: float) -> None:
    """The answers of the naive script after n rounds."""
    *_, last = simulate(problem, graph, COKE(RHO, Geometric(V, MU)), rounds=n)
    np.testing.assert_allclose(last.state.theta, theta, atol=1e-10)
    assert last.ledger.transmissions == sent
    np.testing.assert_allclose(last.score.train, mse, rtol=1e-10)


def against_memory(size: str, N: int = 1000, D: int = 100) -> Found:
    """Share of the floor: every round must read N inverses of D × D once, or half of each."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(N, D, D)) / np.sqrt(D)
    A, b = Z @ Z.swapaxes(1, 2), rng.normal(size=(N, D))
    risk = Quadratic(A, b, np.full(N, 9.0), np.full(N, 5000.0), LAM / N)
    graph = build_graph("random", N, edges=3 * N, seed=0)

    def floor() -> float:
        return 8 * N * D * D / memory(3)

    problems = {way: Problem(replace(risk, fast=way == "fast")) for way in WAYS}
    ours = {way: partial(rounds, problem, graph, 60) for way, problem in problems.items()}
    found = by_turns({**ours, "floor": floor}, 2 if size == "short" else 7)
    return {f"memory floor / {way}, N = 1000": ratio(found["floor"], found[way]) for way in WAYS}


class Newton(Rowwise):
    """Logistic risks by Newton's method from the last answer on, to ‖g‖ ≤ 1e-8."""

    def argmin(self, pull: Array) -> Argmin:
        """As a researcher would write it."""
        rows = [y[:, None] * Phi for Phi, y in zip(self.Phi, self.y, strict=True)]
        G = matrix(self.G, self.size)
        H = [2.0 * (G + float(c) * np.eye(self.size)) for c in pull[:, 0]]

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


def classes(N: int = 20, L: int = 100, T: int = 500) -> tuple[Any, Any, float]:
    """Features, labels and λ/N of sites with two classes."""
    rng = np.random.default_rng(0)
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping="cos-phase", seed=0), 5)
    X = [rng.normal(size=(T, 5)) for _ in range(N)]
    y = [np.where(np.sin(x.sum(axis=1)) + 0.3 * rng.normal(size=T) > 0, 1.0, -1.0) for x in X]
    return tuple(features(x) for x in X), tuple(y), LAM / N


def against_lagrangian(rho: float) -> Found:
    """Rounds 2 to 61 of the hinge loss, with guesses at the rows on the margin and without."""
    problem = Problem(Rowwise(*classes(), LOSSES["hinge"]))
    graph = build_graph("random", 20, edges=95, seed=0)

    def alone() -> float:
        with mock.patch.object(support, "_guessed", return_value=None):
            return rounds(problem, graph, 60, rho)

    ours = partial(rounds, problem, graph, 60, rho)
    found = by_turns({"ours": ours, "alone": alone}, 3)
    return {f"Lagrangian alone / hinge, ρ = {rho:g}": ratio(found["alone"], found["ours"])}


def against_newton(rho: float, size: str) -> Found:
    """Rounds 2 to 61 of the logistic loss."""
    rows = *classes(), LOSSES["logistic"]
    problems = {"ours": Problem(Rowwise(*rows)), "newton": Problem(Newton(*rows))}
    graph = build_graph("random", 20, edges=95, seed=0)
    sides = {name: partial(rounds, problem, graph, 60, rho) for name, problem in problems.items()}
    found = by_turns(sides, 1 if size == "short" else 3)
    runs = (simulate(p, graph, COKE(rho), rounds=20) for p in problems.values())
    a, b = (deque(records, maxlen=1)[0].state.theta for records in runs)
    np.testing.assert_allclose(a, b, atol=1e-5)
    return {f"Newton / logistic, ρ = {rho:g}": ratio(found["newton"], found["ours"])}


def measure(size: str) -> Found:
    """All comparisons."""
    found = against_naive("cos-phase", size) | against_memory(size) | against_newton(1e-2, size)
    if size == "short":
        return found
    found |= against_naive("cos-sin", size) | against_newton(1e-3, size)
    return found | against_lagrangian(1e-2) | against_lagrangian(1e-3)


SIMULATE = Section(
    "simulate",
    measure,
    {
        "naive / plain, cos-phase": Goal(least=60.0),
        "naive / plain, cos-sin": Goal(least=60.0),
        "naive / fast, cos-phase": Goal(least=150.0),
        "naive / fast, cos-sin": Goal(least=150.0),
        "memory floor / fast, N = 1000": Goal(least=0.7),
        "Newton / logistic, ρ = 0.01": Goal(least=3.0),
        "Newton / logistic, ρ = 0.001": Goal(least=3.0),
        "Lagrangian alone / hinge, ρ = 0.01": Goal(least=2.0),
        "Lagrangian alone / hinge, ρ = 0.001": Goal(least=2.0),
    },
)

if __name__ == "__main__":
    sys.exit(main(FLOORS, SIMULATE))
