"""The attacks on plain mode, for `python benchmarks/privacy.py`, and what its sections share."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np

import coke.privacy.attacks as attack
from coke.engines.process import simulate
from coke.maths.algorithms.coke import COKE, Geometric, automatic, dkla
from coke.maths.arrays import Array, Mask
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.features.whitening import Whitening
from coke.maths.graph import Graph
from coke.maths.losses.problem import Problem, Quadratic, statistics
from coke.privacy.noise import Statistics
from kit.problems import shape_of

N, D, d, RHO, LAM = 10, 50, 5, 0.01, 1e-3
PAPER = COKE(RHO, Geometric(1.0, 0.98))
Rows = tuple[Array, Array]
broken: list[str] = []


def promise(what: str, kept: bool) -> None:
    """Prints it, and remembers a broken one."""
    print(f"  {'kept  ' if kept else 'BROKEN'}  {what}")
    if not kept:
        broken.append(what)


def features_of(seed: int, sigma: float = 1.0, L: int = D // 2) -> DrawnFeatures:
    return draw_features(FeatureSettings(L, sigma=sigma, seed=seed), d)


def waves(rng: np.random.Generator, T: int) -> Rows:
    """Rows to attack."""
    X = rng.normal(size=(T, d))
    return X, 0.5 * np.sin(X.sum(axis=1)) + 0.1 * rng.normal(size=T)


def risk_of(features: DrawnFeatures, sites: list[Rows], lam: float = LAM) -> Quadratic:
    return Quadratic.from_rows(features, [X for X, _ in sites], [y for _, y in sites], lam / N)


def said(problem: Problem, graph: Graph, algorithm: COKE, rounds: int) -> tuple[Array, Mask]:
    """θ̂ (K, N, D) and who spoke (K, N)."""
    records = list(simulate(problem, graph, algorithm, rounds=rounds, scored=()))
    return np.array([r.state.hat for r in records]), np.array([r.spoke for r in records])


def off(found: Array, true: Array) -> float:
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def leak() -> None:
    """Plain COKE around one site, six seeds; then what follows from A_i and b_i."""
    print("The leak (D = 50, N = 10, 28 edges, 400 rounds, T_i = 300): worst ‖A − A_i‖/‖A_i‖")
    worst = 0.0
    for seed in range(6):
        rng, features = np.random.default_rng(seed), features_of(seed)
        risk = risk_of(features, [waves(rng, 300) for _ in range(N)])
        graph = nx.gnm_random_graph(N, 28, seed=seed)
        errors = {}
        for name, algorithm in (("coke", PAPER), ("dkla", dkla(RHO))):
            hats, spoke = said(Problem(risk), graph, algorithm, 400)
            views = [attack.full_view(hats, spoke, graph, i) for i in range(N)]
            known = [attack.Known(LAM / N, RHO, len(graph[i])) for i in range(N)]
            pairs = zip(views, known, risk.A, strict=True)
            errors[name] = [off(attack.reconstruct(view, k).A, A) for view, k, A in pairs]
        worst = max(worst, *errors["coke"])
        silent, never = max(errors["coke"]), np.median(errors["dkla"])
        print(f"  seed {seed}: coke {silent:.1e}, dkla {never:.2f}")
    promise(f"reproduced on six seeds: {worst:.1e} < 1e-6", worst < 1e-6)
    active()
    rows_and_inversion()


def active() -> None:
    """A patient neighbour on its own edge: the paper's COKE, and ours with coarse messages."""
    rng, graph = np.random.default_rng(0), nx.gnm_random_graph(N, 28, seed=0)
    sites = [waves(rng, 300) for _ in range(N)]
    risk, spy = risk_of(features_of(0, 2.0), sites), min(graph[0])
    for patience in (100, 200, 400):
        plan = attack.Probing(spy, 0, np.eye(D), patience)
        replies = attack.probe(risk, graph, PAPER, plan)
        A = attack.from_probes(plan.probes, replies, attack.Known(LAM / N, RHO, len(graph[0])))
        print(f"  probing one edge, patience {patience}: {off(A, risk.A[0]):.1e} (noted 1.9e-4)")
    small = risk_of(features_of(0, 1.5, 8), sites)
    white = small.whitened(Whitening.of(small.A.mean(axis=0) + LAM / N * np.eye(16)))
    ours, G = automatic(2.0, shape_of(graph), 0.4), np.asarray(white.G)
    plan = attack.Probing(spy, 0, rng.normal(size=(128, 16)), 30)
    replies = attack.probe(white, graph, ours, plan)
    A = attack.from_probes(plan.probes, replies, attack.Known(G, ours.rho, len(graph[0])))
    blurred, guess = off(A, white.A[0]), off(np.eye(16) - G, white.A[0])
    print(f"  probing the automatic method, D = 16: {blurred:.2f}; to guess P gives {guess:.2f}")


def rows_and_inversion() -> None:
    """φ → x, all rows of small sites, and the row that was added."""
    rng, features = np.random.default_rng(1), features_of(1)
    starts, points = rng.normal(size=(96, d)), rng.normal(size=(100, d))
    found = [attack._inverted(features, features(x[None])[0], starts)[0] for x in points]
    hits = int((np.abs(np.array(found) - points).max(axis=1) < 1e-6).sum())
    promise(f"φ(x) → x for {hits} of 100 points (noted 97 to 100)", hits >= 97)
    for T in (5, 10, 20):
        X, y = waves(rng, T)
        A, b, _ = statistics(features, X, y)
        begin = 1.5 * rng.normal(size=(600, d))
        got, _ = attack.recovered_rows(features, Statistics(A, b), T, begin)
        far = np.abs(got[:, None] - X).max(axis=2).min(axis=1).max() if len(got) else math.inf
        promise(f"T_i = {T}: {len(got)} rows, off by {far:.0e}", len(got) == T and far < 1e-9)
    X, y = waves(rng, 30_001)
    pair = [Statistics(*statistics(features, X[:n], y[:n])[:2]) for n in (30_000, 30_001)]
    x, target, _ = attack._added_row(features, pair[0], pair[1], 30_000, starts)
    far = max(np.abs(x - X[-1]).max(), abs(target - y[-1]))
    promise(f"one row more among 30 000: off by {far:.0e}", far < 1e-6)
