"""What follows from releases: the same messages, good models, and attacks that find noise."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from test_attacks import off, rows, said

from coke.errors import InputError
from coke.maths.algorithms.coke import COKE, Geometric, automatic
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.features.mixtures import Gaussian, expected_gram
from coke.maths.features.whitening import Whitening
from coke.maths.losses.problem import Problem, Quadratic, statistics
from coke.privacy.attacks import (
    Known,
    _added_row,
    auc,
    full_view,
    membership_scores,
    population,
    reconstruct,
    recovered_rows,
)
from coke.privacy.noise import Budget, calibrated, draws, ranking_bound
from coke.privacy.private import SPREAD
from coke.privacy.release import (
    Release,
    private_risk,
    public_scaling,
)
from kit.problems import Array, shape_of
from kit.releases import DELTA, D, N, features_of, released


def test_messages_depend_on_the_release_alone() -> None:
    """Different raw rows, noise such that (Ã, b̃) is the same: the same bytes are said."""
    features, T, rng = features_of(), 200, np.random.default_rng(0)
    budget, graph = Budget(3.0, DELTA), nx.cycle_graph(4)
    noise = calibrated(budget, 1.0, 1.0, D)
    scale = np.full(draws(D), noise.s)
    scale[:-D][~np.equal(*np.tril_indices(D))] *= math.sqrt(0.5)
    worlds: list[list[Release]] = [[], []]
    yy: list[list[float]] = [[], []]
    for i in range(4):
        z, steps = rng.normal(size=draws(D)), []
        for world in range(2):
            X, y = rows(10 * i + world, T)
            A, b, square = statistics(features, X, np.clip(y, -1, 1))
            sums = T * np.concatenate([A[np.tril_indices(D)], b])
            steps.append(np.rint(sums / noise.grid))
            if world:  # the noise that leads from these rows to the other world's release
                z = (np.rint(scale * z / noise.grid) + steps[0] - steps[1]) * noise.grid / scale
            worlds[world].append(released(X, y, features, budget, z))
            yy[world].append(float(square.sum()))
        assert (steps[0] != steps[1]).mean() > 0.9
    heard = []
    for releases, squares in zip(worlds, yy, strict=True):
        risk = private_risk(releases, np.array(squares), 1e-3)
        uniform = [Gaussian(1.0, np.zeros(5), np.eye(5) / 3)]
        P = expected_gram(features, uniform) + risk.G * np.eye(D)
        problem = Problem(risk).whitened(Whitening.of(P))
        algorithm = automatic(2.0, shape_of(graph), SPREAD)
        hats, spoke = said(problem, graph, algorithm, 60)
        heard.append((hats.tobytes(), spoke.tobytes()))
    assert yy[0] != yy[1]
    assert heard[0] == heard[1]


def accuracy(T: int, epsilon: float, seed: int) -> float:
    """Test MSE of the private consensus model over that of the plain one."""
    rng, features = np.random.default_rng(seed), features_of(seed=seed)

    def site(n: int) -> tuple[Array, Array]:
        X = rng.normal(size=(n, 5))
        wave = 0.3 * np.sin(X[:, 0]) * np.cos(X[:, 1] / 2) + 0.2 * np.tanh(X[:, 3])
        return X, np.clip(wave + 0.14 * rng.normal(size=n), -1, 1)

    train, test = [site(T) for _ in range(N)], [site(1000) for _ in range(N)]
    plain = Quadratic.from_rows(features, [X for X, _ in train], [y for _, y in train], 1e-3 / N)
    held = Quadratic.from_rows(features, [X for X, _ in test], [y for _, y in test], 1e-3 / N)
    budget = Budget(epsilon, DELTA)
    releases = [released(X, y, features, budget, rng.normal(size=draws(D))) for X, y in train]
    noisy = private_risk(releases, plain.yy, 1e-3)
    both = held.global_losses(np.stack([plain.optimum(), noisy.optimum()]))
    return float(both[1] / both[0])


@pytest.mark.parametrize(("T", "epsilon", "most"), [(10_000, 1.0, 1.06), (1000, 3.0, 1.25)])
def test_privacy_costs_little_accuracy_where_rows_are_many(
    T: int, epsilon: float, most: float
) -> None:
    """The mean over three seeds."""
    assert np.mean([accuracy(T, epsilon, seed) for seed in range(3)]) <= most


def test_attacks_on_a_private_run_find_the_noise() -> None:
    """The messages give Ã away, which is all there is: no row, no newcomer, no member."""
    features, T, graph = features_of(sigma=1.0), 20, nx.cycle_graph(4)
    rng, budget = np.random.default_rng(0), Budget(1.0, DELTA)
    sites = [rows(i, T) for i in range(4)]
    releases = [released(X, y, features, budget, rng.normal(size=draws(D))) for X, y in sites]
    risk = private_risk(releases, np.ones(4), 1e-3)
    rho = 1.0  # the noise is large, and so is the curvature
    hats, spoke = said(Problem(risk), graph, COKE(rho, Geometric(1.0, 0.98)), 400)
    assert isinstance(risk.G, float)
    found = reconstruct(full_view(hats, spoke, graph, 0), Known(risk.G, rho, 2))
    exact, _, _ = statistics(features, *sites[0])
    assert off(found.A, risk.A[0]) < 1e-3
    assert off(found.A, exact) > 1
    starts = 1.5 * rng.normal(size=(300, 5))
    assert len(recovered_rows(features, found, T, starts)[0]) == 0


def test_nobody_finds_a_newcomer_or_a_member_in_releases() -> None:
    """ε = 1: the row added between two releases is not found; who is a member, hardly a guess."""
    features, T, budget = features_of(sigma=1.0), 100, Budget(1.0, DELTA)
    rng, apart, guess = np.random.default_rng(0), [], []
    for seed in range(10):
        X, y = rows(seed, T + 1)
        before, after = (
            released(X[:n], y[:n], features, budget, rng.normal(size=draws(D))).found
            for n in (T, T + 1)
        )
        x, _, miss = _added_row(features, before, after, T, rng.normal(size=(64, 5)))
        assert miss > 0.1
        apart.append(np.linalg.norm(x - X[-1]))
        guess.append(np.linalg.norm(X[-1]))  # by whoever takes the population's mean
    assert np.median(apart) >= np.median(guess)
    A, b = rows(1, 3000)
    usual, (others, targets) = population(features(A), b), rows(2, 1500)
    scores = []
    for seed in range(10, 20):
        X, y = rows(seed, T)
        found = released(X, y, features, budget, rng.normal(size=draws(D))).found
        inside = membership_scores(found, T, usual, features(X), y)
        scores.append(auc(inside, membership_scores(found, T, usual, features(others), targets)))
    assert 0.47 < np.mean(scores) < ranking_bound(budget)


@pytest.mark.parametrize("how", ["range", "sample", "gram"])
def test_a_basis_that_costs_no_privacy_serves(how: str) -> None:
    """Public P, or P of the noised statistics: the private optimum in at most 120 rounds."""
    features, T, graph = features_of(), 1000, nx.gnm_random_graph(N, 28, seed=1)
    rng, units = np.random.default_rng(0), public_scaling(-4 * np.ones(5), 4 * np.ones(5), (-1, 1))
    features = draw_features(FeatureSettings(25, sigma=1.5 / 4, seed=0), 5)
    releases = []
    for i in range(N):
        X, y = rows(i, T)
        z = rng.normal(size=draws(D))
        releases.append(released(units.inputs(X), y, features, Budget(3.0, DELTA), z))
    risk = private_risk(releases, np.ones(N), 1e-3)
    Phi = features(units.inputs(rng.normal(size=(500, 5))))
    G = {
        "range": expected_gram(features, [Gaussian(1.0, np.zeros(5), np.eye(5) / 3)]),
        "sample": Phi.T @ Phi / len(Phi),
        "gram": risk.A.mean(axis=0),
    }[how]
    problem = Problem(risk).whitened(Whitening.of(G + risk.G * np.eye(D)))
    hats, _ = said(problem, graph, automatic(2.0, shape_of(graph), SPREAD), 120)
    assert off(hats[-1], problem.everywhere(problem.optimum)) < 0.02


def test_public_units_come_from_public_ranges() -> None:
    """[low, high] ↦ [−1, 1], inputs and target."""
    units = public_scaling(np.array([0.0, -2.0]), np.array([10.0, 2.0]), (5.0, 9.0))
    np.testing.assert_allclose(units.inputs(np.array([[0.0, 2.0], [5.0, 0.0]])), [[-1, 1], [0, 0]])
    np.testing.assert_allclose(units.targets(np.array([5.0, 8.0])), [-1, 0.5])
    with pytest.raises(InputError, match="low below a high"):
        public_scaling(np.zeros(1), np.zeros(1), (0.0, 1.0))
