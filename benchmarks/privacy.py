"""`python benchmarks/privacy.py`: the figures of docs/privacy.md, each beside what was noted.

Plain mode: how well the attacks do. dp mode: the audit, what privacy costs in accuracy, with and
without a secure sum, the bases that cost no privacy, and how badly the attacks do then. Sections:
leak, audit, accuracy, classes, collusion, basis, attacks; all by default. Ends non-zero if a
promise is broken.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; others share the machine

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import networkx as nx
import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax

import coke.privacy.attacks as attack
from coke import DP, Coke, COKEClassifier, Features
from coke.engines.process import simulate
from coke.maths.algorithms.coke import COKE, Geometric, automatic
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.mixtures import Gaussian, expected_gram
from coke.maths.features.whitening import Whitening
from coke.maths.graph import Graph
from coke.maths.losses.codes import sharpest, surprises
from coke.maths.losses.problem import Problem, Quadratic, matrix, statistics
from coke.maths.losses.risk import local_only
from coke.privacy.auditing import audited
from coke.privacy.noise import (
    Budget,
    Noise,
    Statistics,
    _profile,
    _separation,
    calibrated,
    draws,
    projected,
    ranking_bound,
    shared,
    steps,
    unpacked,
)
from coke.privacy.private import SPREAD
from coke.privacy.release import (
    AllSites,
    Release,
    entropy_normals,
    private_risk,
)
from kit import clouds
from kit.problems import shape_of
from leaks import LAM, D, N, Rows, broken, d, features_of, leak, off, promise, risk_of, said, waves

DELTA, SEEDS, LEVEL = 1e-5, 20, 0.185
EPSILONS = (10.0, 3.0, 1.0)
Normals = Callable[[int], Array]
NOTED = {  # test MSE: plain, alone, ε = 10, 3, 1
    ("iid", 1000): (0.0228, 0.0242, 0.0240, 0.0269, 0.0325),
    ("iid", 10_000): (0.0222, 0.0224, 0.0222, 0.0224, 0.0230),
    ("differ", 1000): (0.0380, 0.0508, 0.0397, 0.0437, 0.0514),
    ("differ", 10_000): (0.0349, 0.0463, 0.0349, 0.0351, 0.0357),
}
MEMBERS = {60: 0.95, 100: 0.86, 300: 0.73, 1000: 0.64, 3000: 0.57}


def smooth(rng: np.random.Generator, T: int, shift: float) -> Rows:
    """Rows to learn from, targets within ±1; sites differ by the level of the target.

    The noted table's data are not on record. Amplitude, noise and LEVEL are such that the worst of
    its twenty cells is near; nothing else was fitted.
    """
    X = rng.normal(size=(T, d))
    f = 0.345 * np.sin(X[:, 0]) * np.cos(X[:, 1] / 2) + 0.23 * np.tanh(X[:, 3]) + shift
    return X, np.clip(f + 0.133 * rng.normal(size=T), -1, 1)


def drawn(features: DrawnFeatures, rows: Rows, noise: Noise, normals: Normals) -> Array:
    """One site's statistics and noise, in steps."""
    X, y = rows
    A, b, _ = statistics(features, X, np.clip(y, -1, 1))
    return steps(Statistics(A, b), len(y), noise, normals(draws(features.size)))


def released(
    features: DrawnFeatures, rows: Rows, epsilon: float, normals: Normals = entropy_normals
) -> Release:
    """As `private_statistics` makes it, without the file."""
    noise, T = calibrated(Budget(epsilon, DELTA), 1.0, 1.0, features.size), len(rows[1])
    found = unpacked(drawn(features, rows, noise, normals) * noise.grid / T, features.size)
    return Release(Statistics(projected(found.A), found.b), T, noise.s, ())


def summed(
    features: DrawnFeatures, sites: list[Rows], epsilon: float, normals: Normals
) -> Quadratic:
    """The risk after a secure sum of sites of equal size, one of which may tell its noise."""
    noise, T = calibrated(Budget(epsilon, DELTA), 1.0, 1.0, features.size), len(sites[0][1])
    noise = noise._replace(s=shared(noise.s, N, 1))
    total = sum(drawn(features, rows, noise, normals) for rows in sites)
    mean = unpacked(np.asarray(total) * noise.grid / (N * T), features.size)
    release = Release(Statistics(projected(mean.A), mean.b), T, noise.s * math.sqrt(N), ())
    return private_risk([release] * N, np.ones(N), LAM, AllSites(N, 1 / T**2))


def audit() -> None:
    """The worst pair of one-row sites, 200 000 draws of system entropy."""
    print("Audit: 95 % lower bound of ε on the worst pair, 200 000 draws, δ = 1e-5")
    for epsilon in (1.0, 3.0, 10.0):
        noise = calibrated(Budget(epsilon, DELTA), 1.0, 1.0, 2)
        whole = audited(noise, DELTA, entropy_normals, 200_000)
        half = audited(noise._replace(s=noise.s / 2), DELTA, entropy_normals, 200_000)
        print(f"  ε = {epsilon:g}, s = {noise.s:.3f}: {whole:.2f}; with half the noise {half:.2f}")
        promise(f"at most ε = {epsilon:g}", whole <= epsilon)
        if epsilon < 10:
            promise("half the noise is caught", half > epsilon)


def mses(T: int, differ: bool, seed: int) -> list[float]:
    """Test MSE of the plain optimum, the sites alone, private optima, and those of secure sums."""
    rng, features = np.random.default_rng(seed), features_of(seed, 1.5)
    shifts = np.linspace(-LEVEL, LEVEL, N) * differ
    train = [smooth(rng, T, c) for c in shifts]
    held = risk_of(features, [smooth(rng, 2000, c) for c in shifts])
    plain, normals = risk_of(features, train), rng.standard_normal
    models = [plain.optimum()]
    for epsilon in EPSILONS:
        releases = [released(features, rows, epsilon, normals) for rows in train]
        models.append(private_risk(releases, plain.yy, LAM).optimum())
    models += [summed(features, train, epsilon, normals).optimum() for epsilon in EPSILONS]
    found = held.global_losses(np.stack(models)).tolist()
    return [found[0], float(held.global_losses(local_only(plain)).mean()), *found[1:]]


def accuracy() -> None:
    """The noted table, and the same by a secure sum."""
    print(f"Accuracy: test MSE (D = 50, N = 10), mean of {SEEDS} seeds, ± its error, and as noted")
    print(f"  {'':17}{'plain':>21}{'alone':>21}{'ε = 10':>21}{'ε = 3':>21}{'ε = 1':>21}")
    for (split, T), noted in NOTED.items():
        table = np.array([mses(T, split == "differ", seed) for seed in range(SEEDS)])
        found, error = table.mean(axis=0), table.std(axis=0, ddof=1) / math.sqrt(SEEDS)
        own, by_sum = found[:5], found[5:]
        cells = zip(own, error[:5], noted, strict=True)
        print(
            f"  {split:7}T = {T:<6}" + "".join(f" {x:.4f} ± {e:.4f} {n:.4f}" for x, e, n in cells)
        )
        print(f"  by a secure sum: {'':43}" + "".join(f" {x:.4f}{'':14}" for x in by_sum))
        far = np.abs(own / noted - 1).max()
        promise(f"within 10 % of the noted figures: {far:.1%}", far <= 0.1)
        promise("a secure sum is never worse", bool((by_sum <= own[2:]).all()))
        if T == 10_000:
            promise(f"ε = 1: {own[4] / own[0]:.3f} ≤ 1.06 × plain", own[4] <= 1.06 * own[0])
        else:
            promise(f"ε = 3: {own[3] / own[0]:.3f} ≤ 1.25 × plain", own[3] <= 1.25 * own[0])


def classes() -> None:
    """A classifier on ten sites of 1000 rows, 16 inputs, ten classes; and by a secure sum."""
    print("Classes: accuracy, L = 100, σ = 1.5, mean of 3 seeds; what privacy loses; log loss at s")
    for ways, kept in ((1, ("ε = 3", "ε = 3, sum")), (2, ("ε = 3, sum",))):
        found = [learnt(seed, ways) for seed in range(3)]
        print(f"  {ways} clouds a class: plain {np.mean([one['plain'][0] for one in found]):.3f}")
        for how in found[0]:
            lost = float(np.mean([one["plain"][0] - one[how][0] for one in found]))
            said = ", ".join(f"{np.mean([one[how][k] for one in found]):.3f}" for k in (1, 2, 3))
            print(f"    {how:12} loses {lost:.3f}; log loss {said} (s, best s, s = K)")
            if how in kept:
                promise(f"{how}: {lost:.3f} ≤ .05", lost <= 0.05)


def learnt(seed: int, ways: int) -> dict[str, tuple[float, float, float, float]]:
    """Accuracy on new rows, and log loss with the sharpness found, the best and K."""
    rng = np.random.default_rng(seed)
    X, y = clouds.clouds(rng, clouds.SITES * clouds.ROWS, ways)
    X_test, labels = clouds.clouds(rng, 4000, ways)
    budgets: dict[str, DP | None] = {"plain": None}
    public: dict[str, Any] = {"delta": DELTA, "classes": list(range(clouds.K))}
    for epsilon in EPSILONS:
        budgets[f"ε = {epsilon:g}"] = DP(epsilon, **public)
        budgets[f"ε = {epsilon:g}, sum"] = DP(epsilon, secure_sum=True, **public)
    found = {}
    for name, privacy in budgets.items():
        model = COKEClassifier(
            n_agents=clouds.SITES, privacy=privacy, scale="public", ranges=clouds.RANGES,
            features=Features(100, sigma=1.5), algorithm=Coke(whitening="range"), random_state=seed,
        ).fit(X, y)  # fmt: skip
        f, own = model.decision_function(X_test), model.model_.closed.sharpness or math.nan
        best = sharpest(surprises(f, labels))
        losses = [-log_softmax(s * f, axis=1)[np.arange(4000), labels].mean()
                  for s in (own, best, clouds.K)]  # fmt: skip
        found[name] = (model.score(X_test, labels), *map(float, losses))
    return found


def collusion() -> None:
    """What is left of ε where more sites collude than a secure sum was made for."""
    print("Secure sum of 10 sites for colluding = 1: ε if c sites put together what they know")
    for epsilon in (1.0, 3.0):
        mu, left = _separation(Budget(epsilon, DELTA)), {}
        for c in (1, 2, 5, 8, 9):
            closer = mu * math.sqrt((N - 1) / (N - c))
            left[c] = brentq(lambda e, at=closer: _profile(e, at) - DELTA, 1e-6, 1000)
        print(f"  ε = {epsilon:g}: " + ", ".join(f"{e:.2f} (c = {c})" for c, e in left.items()))
        promise("as promised for c = 1", left[1] <= epsilon)


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
            "range": expected_gram(features, [Gaussian(1.0, np.zeros(d), np.eye(d) / 3)]),
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
    problem = Problem(risk, held).whitened(Whitening.of(G + matrix(risk.G, D)))
    method, tol = automatic(2.0, shape_of(graph), SPREAD), 1e-3 * SPREAD
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


def private_run(rng: np.random.Generator, features: DrawnFeatures) -> None:
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
    apart: list[float] = []
    guess: list[float] = []
    for _ in range(20):
        X, y = waves(rng, 1001)
        pair = [released(features, (X[:n], y[:n]), 10.0).found for n in (1000, 1001)]
        x = attack._added_row(features, pair[0], pair[1], 1000, rng.normal(size=(96, d)))[0]
        apart.append(float(np.linalg.norm(x - X[-1])))
        guess.append(float(np.linalg.norm(X[-1])))  # to the population's mean
    near, base = float(np.median(apart)), float(np.median(guess))
    promise(f"added row, 20 times: {near:.1f} off; guessing the mean {base:.1f}", near >= base)


SECTIONS = {
    one.__name__: one for one in (leak, audit, accuracy, classes, collusion, basis, attacks)
}

if __name__ == "__main__":
    for name in sys.argv[1:] or SECTIONS:
        SECTIONS[name]()
    sys.exit(f"{len(broken)} promises broken: {broken}" if broken else 0)
