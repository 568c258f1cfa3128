"""`python benchmarks/privacy.py`: the figures of docs/privacy.md, each beside what was noted.

Plain mode: how well the attacks do. dp mode: the audit, what privacy costs in accuracy, the bases
that cost no privacy, and how badly the attacks do then. Sections: leak, audit, accuracy, basis,
attacks; all by default. Ends non-zero if a promise is broken.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; others share the machine

import math
import sys
from collections.abc import Callable

import networkx as nx
import numpy as np

import coke.maths.attacks as attack
from coke.data.private import Release, entropy_normals, private_risk, range_inputs, spread_for
from coke.maths.arrays import Array, Mask
from coke.maths.automatic import automatic
from coke.maths.coke import COKE, dkla
from coke.maths.features import Features, FeatureSettings, draw_features
from coke.maths.graph import Graph
from coke.maths.privacy import (
    Budget,
    Statistics,
    calibrated,
    draws,
    noised,
    projected,
    ranking_bound,
)
from coke.maths.problem import Problem, local_only
from coke.maths.quadratic import Quadratic, statistics
from coke.maths.risks import matrix
from coke.maths.thresholds import Geometric
from coke.maths.whitening import expected_gram, whitening
from coke.run.simulate import simulate

N, D, d, RHO, LAM, DELTA = 10, 50, 5, 0.01, 1e-3, 1e-5
PAPER = COKE(RHO, Geometric(1.0, 0.98))
Rows = tuple[Array, Array]
Normals = Callable[[int], Array]
NOTED = {  # test MSE: plain, alone, ε = 10, 3, 1
    ("iid", 1000): (0.0228, 0.0242, 0.0240, 0.0269, 0.0325),
    ("iid", 10_000): (0.0222, 0.0224, 0.0222, 0.0224, 0.0230),
    ("differ", 1000): (0.0380, 0.0508, 0.0397, 0.0437, 0.0514),
    ("differ", 10_000): (0.0349, 0.0463, 0.0349, 0.0351, 0.0357),
}
MEMBERS = {60: 0.95, 100: 0.86, 300: 0.73, 1000: 0.64, 3000: 0.57}
broken: list[str] = []


def promise(what: str, kept: bool) -> None:
    """Prints it, and remembers a broken one."""
    print(f"  {'kept  ' if kept else 'BROKEN'}  {what}")
    if not kept:
        broken.append(what)


def features_of(seed: int, sigma: float = 1.0, L: int = D // 2) -> Features:
    return draw_features(FeatureSettings(L, sigma=sigma, seed=seed), d)


def waves(rng: np.random.Generator, T: int) -> Rows:
    """Rows to attack."""
    X = rng.normal(size=(T, d))
    return X, 0.5 * np.sin(X.sum(axis=1)) + 0.1 * rng.normal(size=T)


def smooth(rng: np.random.Generator, T: int, shift: float) -> Rows:
    """Rows to learn from: noise .14, targets within ±1; sites differ by the level of the target."""
    X = rng.normal(size=(T, d))
    f = 0.3 * np.sin(X[:, 0]) * np.cos(X[:, 1] / 2) + 0.2 * np.tanh(X[:, 3]) + shift
    return X, np.clip(f + 0.14 * rng.normal(size=T), -1, 1)


def risk_of(features: Features, sites: list[Rows], lam: float = LAM) -> Quadratic:
    return Quadratic.from_rows(features, [X for X, _ in sites], [y for _, y in sites], lam / N)


def said(problem: Problem, graph: Graph, algorithm: COKE, rounds: int) -> tuple[Array, Mask]:
    """θ̂ (K, N, D) and who spoke (K, N)."""
    records = list(simulate(problem, graph, algorithm, rounds=rounds, scored=()))
    return np.array([r.state.hat for r in records]), np.array([r.spoke for r in records])


def off(found: Array, true: Array) -> float:
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def released(
    features: Features, rows: Rows, epsilon: float, normals: Normals = entropy_normals
) -> Release:
    """As `private_statistics` makes it, without the file."""
    X, y = rows
    A, b, _ = statistics(features, X, np.clip(y, -1, 1))
    noise = calibrated(Budget(epsilon, DELTA), 1.0, 1.0, features.size)
    found = noised(Statistics(A, b), len(y), noise, normals(draws(features.size)))
    return Release(Statistics(projected(found.A), found.b), len(y), noise.s, ())


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
        plan = attack.Plan(spy, 0, np.eye(D), patience)
        replies = attack.probe(risk, graph, PAPER, plan)
        A = attack.from_probes(plan.probes, replies, attack.Known(LAM / N, RHO, len(graph[0])))
        print(f"  probing one edge, patience {patience}: {off(A, risk.A[0]):.1e} (noted 1.9e-4)")
    small = risk_of(features_of(0, 1.5, 8), sites)
    white = small.whitened(whitening(small.A.mean(axis=0) + LAM / N * np.eye(16)))
    ours, G = automatic("mse", graph, 0.4), np.asarray(white.G)
    plan = attack.Plan(spy, 0, rng.normal(size=(128, 16)), 30)
    replies = attack.probe(white, graph, ours, plan)
    A = attack.from_probes(plan.probes, replies, attack.Known(G, ours.rho, len(graph[0])))
    blurred, guess = off(A, white.A[0]), off(np.eye(16) - G, white.A[0])
    print(f"  probing the automatic method, D = 16: {blurred:.2f}; to guess P gives {guess:.2f}")


def rows_and_inversion() -> None:
    """φ → x, all rows of small sites, and the row that was added."""
    rng, features = np.random.default_rng(1), features_of(1)
    starts, points = rng.normal(size=(96, d)), rng.normal(size=(100, d))
    found = [attack.inverted(features, features(x[None])[0], starts)[0] for x in points]
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
    x, target, _ = attack.added_row(features, pair[0], pair[1], 30_000, starts)
    far = max(np.abs(x - X[-1]).max(), abs(target - y[-1]))
    promise(f"one row more among 30 000: off by {far:.0e}", far < 1e-6)


def audit() -> None:
    """The worst pair of one-row sites, 200 000 draws of system entropy."""
    print("Audit: 95 % lower bound of ε on the worst pair, 200 000 draws, δ = 1e-5")
    for epsilon in (1.0, 3.0, 10.0):
        noise = calibrated(Budget(epsilon, DELTA), 1.0, 1.0, 2)
        whole = attack.audited(noise, DELTA, entropy_normals, 200_000)
        half = attack.audited(noise._replace(s=noise.s / 2), DELTA, entropy_normals, 200_000)
        print(f"  ε = {epsilon:g}, s = {noise.s:.3f}: {whole:.2f}; with half the noise {half:.2f}")
        promise(f"at most ε = {epsilon:g}", whole <= epsilon)
        if epsilon < 10:
            promise("half the noise is caught", half > epsilon)


def mses(T: int, differ: bool, seed: int) -> list[float]:
    """Test MSE of the plain optimum, the sites alone, and private optima at ε = 10, 3, 1."""
    rng, features = np.random.default_rng(seed), features_of(seed, 1.5)
    shifts = np.linspace(-0.18, 0.18, N) * differ
    train = [smooth(rng, T, c) for c in shifts]
    held = risk_of(features, [smooth(rng, 2000, c) for c in shifts])
    plain = risk_of(features, train)
    models = [plain.optimum()]
    for epsilon in (10.0, 3.0, 1.0):
        releases = [released(features, rows, epsilon, rng.standard_normal) for rows in train]
        models.append(private_risk(releases, plain.yy, LAM).optimum())
    found = held.global_losses(np.stack(models)).tolist()
    return [found[0], float(held.global_losses(local_only(plain)).mean()), *found[1:]]


def accuracy() -> None:
    """The noted table. Its data are not on record; these have the same sizes and like errors."""
    print("Accuracy: test MSE (D = 50, N = 10), mean of 5 seeds, and the noted figure")
    print(f"  {'':22}{'plain':>15}{'alone':>15}{'ε = 10':>15}{'ε = 3':>15}{'ε = 1':>15}")
    for (split, T), noted in NOTED.items():
        found = np.mean([mses(T, split == "differ", seed) for seed in range(5)], axis=0)
        cells = "".join(f"{x:9.4f} {n:.4f}" for x, n in zip(found, noted, strict=True))
        print(f"  {split:7}T = {T:<10} {cells}")
        print(f"  farthest from the noted figures: {np.abs(found / noted - 1).max():.1%}")
        if T == 10_000:
            promise(f"ε = 1: {found[4] / found[0]:.3f} ≤ 1.06 × plain", found[4] <= 1.06 * found[0])
        else:
            promise(f"ε = 3: {found[3] / found[0]:.3f} ≤ 1.25 × plain", found[3] <= 1.25 * found[0])


def basis() -> None:
    """P that costs no privacy: from public ranges, a public sample, or the noised Ã themselves."""
    print("Basis: rounds, bytes and MSE over the private optimum's until `coke` stops (tol 1e-3)")
    graph = nx.gnm_random_graph(N, 28, seed=1)
    for epsilon, T in ((1.0, 1000), (1.0, 10_000), (10.0, 10_000)):
        rng, features = np.random.default_rng(1), features_of(1, 1.5 / 4)
        sites = [(X / 4, y) for X, y in (smooth(rng, T, 0.0) for _ in range(N))]  # range ±4
        risk = private_risk([released(features, rows, epsilon) for rows in sites], np.ones(N), LAM)
        Phi = features(rng.normal(size=(500, d)) / 4)
        ways = {
            "range": expected_gram(features, range_inputs(d)),
            "sample": Phi.T @ Phi / len(Phi),
            "gram": risk.A.mean(axis=0),
        }
        for name, G in ways.items():
            k, sent, ratio = stopped(risk, risk_of(features, sites), graph, G)
            agreed = 2 * (N - 1) * 4 * D * (D + 1) // 2 if name == "gram" else 0
            case = f"ε = {epsilon:g}, T = {T}, {name}: {k} rounds, {sent} B, {agreed} B to agree"
            promise(f"{case}; {ratio:.4f} ≤ 1.01", ratio <= 1.01)


def stopped(risk: Quadratic, held: Quadratic, graph: Graph, G: Array) -> tuple[int, int, float]:
    """Rounds, bytes and MSE over the optimum's when the automatic method stops."""
    problem = Problem(risk, held).whitened(whitening(G + matrix(risk.G, D)))
    method, tol = automatic("mse", graph, spread_for(1.0)), 1e-3 * spread_for(1.0)
    last = list(simulate(problem, graph, method, rounds=500, tol=tol, scored=()))[-1]
    best = problem.score(problem.everywhere(problem.optimum)).global_test
    return last.k, last.ledger.bytes, last.score.global_test / best


def attacks() -> None:
    """Membership in plain statistics and in releases, and the other attacks on a private run."""
    most = np.array([ranking_bound(Budget(e, DELTA)) for e in (10, 3, 1)])
    bounds = " ".join(f"{p:.2f}" for p in most)
    print(f"Who was in the data: AUC (noted) in plain statistics;  ε = 10, 3, 1 (bounds {bounds})")
    rng, features = np.random.default_rng(0), features_of(0)

    def fresh(T: int) -> Rows:
        X, y = waves(rng, T)
        return features(X), y

    usual = attack.population(*fresh(5000))

    def score(found: Statistics, T: int, members: Rows, others: Rows) -> float:
        inside = attack.membership_scores(found, T, usual, *members)
        return attack.auc(inside, attack.membership_scores(found, T, usual, *others))

    for T, noted in MEMBERS.items():
        table: list[list[float]] = []
        for _ in range(max(3, 2000 // T)):
            X, y = waves(rng, T)
            members, others = (features(X), y), fresh(2000)
            A, b, _ = statistics(features, X, y)
            kinds = [Statistics(A, b), *(released(features, (X, y), e).found for e in (10, 3, 1))]
            table.append([score(found, T, members, others) for found in kinds])
        means = np.mean(table, axis=0)
        private = " ".join(f"{x:.2f}" for x in means[1:])
        promise(f"T_i = {T:<5}{means[0]:.2f} ({noted:.2f});  {private}", means[0] > noted - 0.01)
        promise("no better than the bounds", bool((means[1:] < most + 0.01).all()))
    private_run(rng, features)


def private_run(rng: np.random.Generator, features: Features) -> None:
    """Reconstruction, row recovery and the added row against ε = 10, the weakest of the three."""
    graph, T = nx.gnm_random_graph(N, 28, seed=0), 20
    sites = [waves(rng, T) for _ in range(N)]
    risk = private_risk([released(features, rows, 10.0) for rows in sites], np.ones(N), LAM)
    hats, spoke = said(Problem(risk), graph, COKE(0.1, Geometric(1.0, 0.98)), 400)
    view = attack.full_view(hats, spoke, graph, 0)
    found = attack.reconstruct(view, attack.Known(risk.G, 0.1, len(graph[0])))
    exact = statistics(features, *sites[0])[0]
    near, far = off(found.A, risk.A[0]), off(found.A, exact)
    promise(f"full view, ε = 10: {near:.0e} from Ã, {far:.2f} from A", near < 1e-6 and far > 0.3)
    got = attack.recovered_rows(features, found, T, 1.5 * rng.normal(size=(600, d)))[0]
    promise(f"rows recovered: {len(got)}", len(got) == 0)
    X, y = waves(rng, 1001)
    pair = [released(features, (X[:n], y[:n]), 10.0).found for n in (1000, 1001)]
    x, _, miss = attack.added_row(features, pair[0], pair[1], 1000, rng.normal(size=(96, d)))
    promise(f"added row: φ off by {miss:.2f}, x by {np.abs(x - X[-1]).max():.1f}", miss > 0.1)


SECTIONS = {one.__name__: one for one in (leak, audit, accuracy, basis, attacks)}

if __name__ == "__main__":
    for name in sys.argv[1:] or SECTIONS:
        SECTIONS[name]()
    sys.exit(f"{len(broken)} promises broken: {broken}" if broken else 0)
