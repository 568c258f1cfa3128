"""Plain COKE leaks, and so much: every attack that docs/privacy.md speaks of, reproduced."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from coke.engines.process import simulate
from coke.errors import InputError
from coke.maths.algorithms.coke import COKE, Geometric, automatic, dkla
from coke.maths.arrays import Mask
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.features.whitening import Whitening
from coke.maths.graph import Graph
from coke.maths.losses.problem import Problem, Quadratic, statistics
from coke.privacy.attacks import (
    Gradients,
    Known,
    Probing,
    _added_row,
    _inverted,
    auc,
    from_gradients,
    from_probes,
    full_view,
    membership_scores,
    neighbours_view,
    population,
    probe,
    reconstruct,
    recovered_rows,
)
from coke.privacy.auditing import _least_epsilon
from coke.privacy.noise import Statistics
from kit.problems import Array, shape_of

N, RHO, LAM = 10, 0.01, 1e-3
PAPER = COKE(RHO, Geometric(1.0, 0.98))


def rows(seed: int, T: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, 5))
    return X, 0.5 * np.sin(X.sum(axis=1)) + 0.1 * rng.normal(size=T)


def features_of(seed: int, L: int = 25, mapping: str = "cos-sin") -> DrawnFeatures:
    return draw_features(FeatureSettings(L, sigma=1.0, mapping=mapping, seed=seed), 5)


def problem_of(features: DrawnFeatures, seed: int, T: int = 300) -> tuple[Problem, list[Array]]:
    X, y = zip(*(rows(100 * seed + i, T) for i in range(N)), strict=True)
    return Problem(Quadratic.from_rows(features, X, y, LAM / N)), list(X)


def said(problem: Problem, graph: Graph, algorithm: COKE, rounds: int) -> tuple[Array, Mask]:
    """θ̂ (K, N, D) and who spoke (K, N)."""
    records = list(simulate(problem, graph, algorithm, rounds=rounds, scored=()))
    return np.array([r.state.hat for r in records]), np.array([r.spoke for r in records])


def off(found: Array, true: Array) -> float:
    """‖found − true‖ / ‖true‖."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def known(graph: Graph, i: int) -> Known:
    return Known(LAM / N, RHO, len(graph[i]))


@pytest.mark.parametrize("seed", range(6))
def test_messages_around_a_site_give_its_statistics_away(seed: int) -> None:
    """D + 1 messages determine A_i and b_i: plain COKE keeps nothing secret, DKLA little."""
    problem, _ = problem_of(features_of(seed), seed)
    risk, graph = problem.train, nx.gnm_random_graph(N, 28, seed=seed)
    assert isinstance(risk, Quadratic)
    hats, spoke = said(problem, graph, PAPER, 400)
    for i in range(N):
        found = reconstruct(full_view(hats, spoke, graph, i), known(graph, i))
        assert off(found.A, risk.A[i]) < 1e-6
        assert off(found.b, risk.b[i]) < 1e-6
    hats, spoke = said(problem, graph, dkla(RHO), 400)
    less = reconstruct(full_view(hats, spoke, graph, 0), known(graph, 0))
    assert 1e-3 < off(less.A, risk.A[0]) < 10  # never silent, it soon repeats itself


def test_rows_of_a_small_site_follow_from_its_messages() -> None:
    """T_i = 20: every (x, y), from nothing but what was said around the site."""
    features, T = features_of(0), 20
    problem, X = problem_of(features, 0, T)
    graph = nx.gnm_random_graph(N, 28, seed=0)
    hats, spoke = said(problem, graph, PAPER, 400)
    found = reconstruct(full_view(hats, spoke, graph, 3), known(graph, 3))
    starts = 1.5 * np.random.default_rng(0).normal(size=(600, 5))
    got, y = recovered_rows(features, found, T, starts)
    true, truth = rows(3, T)
    np.testing.assert_array_equal(true, X[3])
    which = np.abs(got[:, None] - true).max(axis=2).argmin(axis=1)
    assert sorted(which) == list(range(T))
    np.testing.assert_allclose(got, true[which], atol=1e-8)
    np.testing.assert_allclose(y, truth[which], atol=1e-8)


def test_an_only_neighbour_sees_everything_and_others_what_they_hear() -> None:
    """Agent 0 hangs on 1 alone; 2 and 3 hear all neighbours of each other; 1 and 2 do not."""
    graph = nx.Graph([(0, 1), (1, 2), (1, 3), (2, 3), (1, 4), (4, 5)])
    hats = np.random.default_rng(0).normal(size=(5, 6, 3))
    spoke = np.ones((5, 6), dtype=np.bool_)
    for i, n in ((0, 1), (2, 3), (2, 1), (5, 4)):
        mine, whole = neighbours_view(hats, spoke, graph, i, n), full_view(hats, spoke, graph, i)
        np.testing.assert_allclose(mine.heard, whole.heard)
    mine = neighbours_view(hats, spoke, graph, 1, 2)
    np.testing.assert_allclose(mine.heard, hats[:, [2, 3]].sum(axis=1) + 2 * hats[:, 1])
    with pytest.raises(InputError, match="no neighbour"):
        neighbours_view(hats, spoke, graph, 0, 5)


def test_a_patient_neighbour_needs_only_its_own_edge() -> None:
    """A probe δ moves the next message by 2ρ (2A + 2G + 2ρd)⁻¹ δ."""
    problem, _ = problem_of(features_of(0, L=8), 0)
    graph = nx.gnm_random_graph(N, 28, seed=0)
    assert isinstance(problem.train, Quadratic)
    assert len(set(graph[1]) - set(graph[4])) > 1  # the victim has neighbours the spy cannot hear
    errors = []
    for patience in (20, 500):
        plan = Probing(spy=4, victim=1, probes=np.eye(16), patience=patience)
        replies = probe(problem.train, graph, PAPER, plan)
        A = from_probes(plan.probes, replies, known(graph, 1))
        errors.append(off(A, problem.train.A[1]))
    assert errors[1] < 1e-3 < 1e-1 < errors[0]


def test_the_first_message_of_dkla_is_the_sites_own_ridge_model() -> None:
    """θ_i¹ = (A_i + (λ/N + ρ d_i) I)⁻¹ b_i."""
    problem, _ = problem_of(features_of(1), 1)
    graph = nx.cycle_graph(N)
    hats, _ = said(problem, graph, dkla(RHO), 1)
    assert isinstance(problem.train, Quadratic)
    ridge = problem.train.A[0] + (LAM / N + 2 * RHO) * np.eye(50)
    np.testing.assert_allclose(hats[0, 0], np.linalg.solve(ridge, problem.train.b[0]), atol=1e-12)


def test_coarse_messages_of_the_automatic_method_only_blur() -> None:
    """Equations hold for a warm start in a whitened basis; in float64 they give A_i away too."""
    problem, _ = problem_of(features_of(0, L=5), 0, T=20)
    graph = nx.cycle_graph(N)
    assert isinstance(problem.train, Quadratic)
    basis = Whitening.of(problem.train.A.mean(axis=0) + LAM / N * np.eye(10))
    white = problem.whitened(basis)
    risk, coarse = white.train, automatic(2.0, shape_of(graph), 0.4)
    assert isinstance(risk, Quadratic)
    assert not isinstance(risk.G, float)
    public = Known(risk.G, coarse.rho, 2, warm=True)
    exact = COKE(coarse.rho, coarse.threshold, None, warm=True)
    errors = {}
    for name, algorithm in (("coarse", coarse), ("exact", exact)):
        hats, spoke = said(white, graph, algorithm, 400)
        view = full_view(hats, spoke, graph, 0)
        guess = np.eye(10) - risk.G if name == "coarse" else None
        errors[name] = off(reconstruct(view, public, guess).A, risk.A[0])
    assert errors["exact"] < 1e-6
    assert 1e-3 < errors["coarse"] < 1.0


@given(seed=st.integers(0, 500), D=st.integers(2, 8), K=st.integers(1, 3))
def test_gradients_at_enough_places_give_statistics_away(seed: int, D: int, K: int) -> None:
    """(D + K)/K of them tell A and b; along differences of fewer places A is known, too."""
    rng = np.random.default_rng(seed)
    root, b = rng.normal(size=(D, 2 * D)), rng.normal(size=(K, D))
    A, G = root @ root.T / (2 * D), 0.1
    most = -(-(D + K) // K)
    u = rng.normal(size=(most, K, D))
    g = 2.0 * (u @ A + G * u - b)

    def found(m: int) -> Statistics:
        told = Gradients(u[:m].reshape(m, -1), g[:m].reshape(m, -1), np.full(m, 1e-9))
        return from_gradients(told, G, np.eye(D), K)

    assert np.abs(found(most).A - A).max() < 1e-5
    assert np.abs(found(most).b - b.ravel()).max() < 1e-5
    some = found(2)
    if 2 * K < D + K:
        assert np.abs(some.A - A).max() > 1e-5


@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
def test_features_are_one_to_one_for_an_attacker(mapping: str) -> None:
    """φ(x) → x for at least 97 % of points at D = 50, d = 5."""
    features = features_of(2, 25 if mapping == "cos-sin" else 50, mapping)
    rng = np.random.default_rng(0)
    starts, hits = rng.normal(size=(96, 5)), 0
    for x in rng.normal(size=(40, 5)):
        found, _ = _inverted(features, features(x[None])[0], starts)
        hits += bool(np.abs(found - x).max() < 1e-6)
    assert hits >= 39


@pytest.mark.parametrize(("seed", "T"), [(0, 2000), (1, 2000), (3, 30_000)])
def test_one_row_more_between_two_runs_is_read_off(seed: int, T: int) -> None:
    """(T + 1)A' − TA = φφᵀ, whatever the sign of the eigenvector, even among 30 000 rows."""
    features = features_of(3)
    X, y = rows(seed, T + 1)
    before = Statistics(*statistics(features, X[:-1], y[:-1])[:2])
    after = Statistics(*statistics(features, X, y)[:2])
    starts = np.random.default_rng(0).normal(size=(64, 5))
    x, target, miss = _added_row(features, before, after, T, starts)
    np.testing.assert_allclose(x, X[-1], atol=1e-9)
    assert target == pytest.approx(y[-1], abs=1e-9)
    assert miss < 1e-9


def test_statistics_tell_who_was_in_the_data() -> None:
    """AUC at least .93, .86 and .73 for T_i = 60, 100 and 300, against rows of the same kind."""
    features = features_of(0)

    def fresh(seed: int, T: int) -> tuple[Array, Array]:
        X, y = rows(seed, T)
        return features(X), y

    usual, others = population(*fresh(1, 4000)), fresh(2, 1500)
    for T, least in ((60, 0.93), (100, 0.86), (300, 0.73)):
        scores = []
        for seed in range(10, 10 + 600 // T):
            Phi, y = fresh(seed, T)
            found = Statistics(Phi.T @ Phi / T, Phi.T @ y / T)
            inside = membership_scores(found, T, usual, Phi, y)
            scores.append(auc(inside, membership_scores(found, T, usual, *others)))
        assert np.mean(scores) > least


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_auc_is_the_chance_to_rank_a_member_higher(a: list[int], b: list[int]) -> None:
    """P(a > b) + ½ P(a = b)."""
    pairs = [(x > z) + 0.5 * (x == z) for x in a for z in b]
    found = auc(np.array(a, dtype=np.float64), np.array(b, dtype=np.float64))
    assert found == pytest.approx(np.mean(pairs))


def test_the_bound_on_epsilon_holds_as_often_as_it_says() -> None:
    """Randomised response with chance p has ε = log(p/(1 − p)); the bound is below it 95 times."""
    p, n, rng = 0.7, 2000, np.random.default_rng(0)
    hits = binom.rvs(n, [[1 - p, p]] * 2000, random_state=rng)
    bounds = np.array([_least_epsilon((int(a), int(b)), n, 0.0) for a, b in hits])
    true = np.log(p / (1 - p))
    assert np.mean(bounds <= true) >= 0.95
    assert bounds.mean() > 0.8 * true
    assert _least_epsilon((0, 0), n, 0.0) == 0.0
    assert _least_epsilon((n, n), n, 0.0) < 0.0
    assert _least_epsilon((0, n // 2), n, 0.3) < _least_epsilon((0, n // 2), n, 0.0)
    assert _least_epsilon((0, n // 2), n, 0.6) == 0.0


def test_where_no_equation_is_left_rows_are_where_the_search_began() -> None:
    """T ≥ D: A has full rank, says nothing of any x, and every start is a solution."""
    features = features_of(0, L=3)
    X, y = rows(0, features.size)
    found = Statistics(*statistics(features, X, y)[:2])
    starts = np.random.default_rng(1).normal(size=(features.size, 5))
    assert np.array_equal(recovered_rows(features, found, len(X), starts)[0], starts)
