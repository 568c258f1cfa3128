"""The theorems, measured: bounds that hold on random problems, and the paper's slips shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from coke.data.synthetic import _bumps
from coke.engines.process import simulate
from coke.errors import InputError
from coke.maths.algorithms.coke import dkla
from coke.maths.features.features import FeatureSettings, draw_features, gram
from coke.maths.graph import Graph, build_graph
from coke.maths.losses.problem import Quadratic
from coke.maths.theory import (
    Assumptions,
    Constants,
    _network_constants,
    degrees_of_freedom,
    features_needed,
)
from kit.problems import GRAPHS, Array, Case, case


class Witness(NamedTuple):
    """Free constants of Theorem 2 that make a ρ admissible."""

    eta1: float
    eta2: float
    eta3: float
    nu: float


def incidence(graph: Graph) -> tuple[Array, Array]:
    """S₋ and S₊ (N, 2E), a column per arc."""
    arcs = [arc for a, b in graph.edges for arc in ((a, b), (b, a))]
    tail, head = np.zeros((2, len(graph), len(arcs)))
    tail[[a for a, _ in arcs], range(len(arcs))] = 1.0
    head[[b for _, b in arcs], range(len(arcs))] = 1.0
    return tail - head, tail + head


def rho_bound(c: Constants, w: Witness) -> float:
    """Theorem 2's upper bound on ρ for given constants."""
    bounds = (
        4.0 * c.m / w.eta1,
        (w.nu - 1.0) * c.s_min**2 / (w.nu * w.eta3 * c.s_max**2),
        (c.m - w.eta3 * w.nu * c.M**2 / c.s_min**2) / (w.eta1 / 4.0 + w.eta2 * c.s_max**2 / 8.0),
    )
    return min(bounds)


def witness(c: Constants, rho: float) -> Witness:
    """Constants that make ρ admissible, for any ρ > 0: each bound is twice ρ or more."""
    nu = 2.0
    eta3 = min(0.5 * c.m * c.s_min**2 / (nu * c.M**2), 0.25 / (rho * c.spread**2))
    return Witness(0.5 * c.m / rho, c.m / (rho * c.s_max**2), eta3, nu)


def shrinkage(c: Case, graph: Graph, rho: float, rounds: int) -> Iterator[tuple[float, float]]:
    """Theorem 4's ρ‖ϑᵏ − ϑ*‖² + ‖βᵏ − β*‖²/ρ before and after every round of DKLA."""
    risk, (S_minus, S_plus) = c.problem.train, incidence(graph)
    star = c.problem.everywhere(c.problem.optimum)
    beta_star = -np.linalg.pinv(S_minus) @ risk.gradient(star)
    beta = np.zeros_like(beta_star)
    before = rho * np.sum((S_plus.T @ star / 2) ** 2) + np.sum(beta_star**2) / rho
    for r in simulate(c.problem, graph, dkla(rho), rounds=rounds):
        beta = beta + rho / 2 * S_minus.T @ r.state.theta
        assert_allclose(S_minus @ beta, rho * r.state.g, atol=1e-9)  # γ = S₋β: the same algorithm
        away = S_plus.T @ (r.state.theta - star) / 2
        now = rho * np.sum(away**2) + np.sum((beta - beta_star) ** 2) / rho
        yield float(before), float(now)
        before = now


def quadratic(c: Case) -> Quadratic:
    assert isinstance(c.problem.train, Quadratic)
    return c.problem.train


@given(
    seed=st.integers(0, 1000),
    N=st.integers(2, 7),
    lam=st.floats(1e-3, 10),
    log_rho=st.floats(-3, 1),
)
def test_the_error_never_shrinks_slower_than_theorem_4_says(
    seed: int, N: int, lam: float, log_rho: float
) -> None:
    """By 1/(1 + δ_d) or faster in every round, whatever the problem, the graph and ρ > 0."""
    c, graph = case(N, L=4, lam=lam, seed=seed), build_graph("random", N, seed=seed)
    rate = Constants.of(quadratic(c), graph).rate(10**log_rho)
    for before, now in shrinkage(c, graph, 10**log_rho, rounds=60):
        assert now <= before / (1 + rate.delta) + 1e-12 * (1 + before)


def test_the_papers_printed_rate_is_no_bound() -> None:
    """With σ̃²_min(S₋) multiplied instead of divided, δ_d promises more than happens; ours holds."""
    c, graph, rho = case(6, L=4, lam=20.0), nx.path_graph(6), 0.05
    k = Constants.of(quadratic(c), graph)
    printed = max(
        min(
            (1 - 1 / nu) / k.spread**2,
            k.m / (rho / 4 * k.s_max**2 + nu / rho * k.M**2 * k.s_min**2),
        )
        for nu in np.geomspace(1.001, 1e4, 400)
    )
    slowest = max(now / before for before, now in shrinkage(c, graph, rho, rounds=200))
    assert 1 / (1 + printed) < slowest <= 1 / (1 + k.rate(rho).delta)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_network_constants_are_singular_values(graph: nx.Graph) -> None:
    """Of the incidence matrices, whose squares are the Laplacians of the updates."""
    S_minus, S_plus = incidence(graph)
    s_min, s_max = _network_constants(graph)
    values = np.linalg.svd(S_minus, compute_uv=False)
    assert_allclose(s_min, values[values > 1e-9].min())
    assert_allclose(s_max, np.linalg.svd(S_plus, compute_uv=False).max())
    assert_allclose(S_minus @ S_minus.T / 2, nx.laplacian_matrix(graph).toarray(), atol=1e-12)


def test_convexity_constants_are_those_of_the_risk() -> None:
    """m‖δ‖² ≤ ⟨∇R_i(a) − ∇R_i(b), δ⟩ and ‖∇R_i(a) − ∇R_i(b)‖ ≤ M‖δ‖, both attained."""
    risk = quadratic(case(lam=0.7))
    k = Constants.of(risk, GRAPHS["ring"])
    rng = np.random.default_rng(0)
    low, high = np.inf, 0.0
    for direction in [*rng.normal(size=(200, 6, risk.size)), *_eigenvectors(risk)]:
        g = risk.gradient(direction) - risk.gradient(0 * direction)
        low = min(low, (np.sum(g * direction, 1) / np.sum(direction**2, 1)).min())
        high = max(high, (np.linalg.norm(g, axis=1) / np.linalg.norm(direction, axis=1)).max())
    assert_allclose([k.m, k.M], [low, high], rtol=1e-9)


def _eigenvectors(risk: Quadratic) -> list[np.ndarray]:
    vectors = np.linalg.eigh(risk.A)[1]
    return [vectors[:, :, j] for j in range(risk.size)]


CONSTANTS = st.builds(
    lambda m, kappa, s, spread: Constants(m, m * kappa, s, s * spread),
    st.floats(1e-4, 10),
    st.floats(1, 1e5),
    st.floats(0.01, 10),
    st.floats(1, 1e3),
)


@settings(max_examples=200)
@given(c=CONSTANTS, log_rho=st.floats(-6, 6))
def test_every_step_size_is_admissible_in_theorem_2(c: Constants, log_rho: float) -> None:
    """For any ρ there are η₁, η₂, η₃ > 0, ν > 1 whose bound is above it: the widest is (0, ∞)."""
    rho = 10**log_rho
    w = witness(c, rho)
    assert min(w.eta1, w.eta2, w.eta3) > 0
    assert w.nu > 1
    assert rho_bound(c, w) > rho


@settings(max_examples=100)
@given(c=CONSTANTS, log_rho=st.floats(-4, 4), log_nu=st.floats(-8, 8))
def test_the_best_nu_and_rho_are_best(c: Constants, log_rho: float, log_nu: float) -> None:
    """No other ν gives a better guarantee, and no other ρ a better one with its best ν."""
    rho, nu = 10**log_rho, 1 + 10**log_nu
    rate = c.rate(rho)
    assert c.delta(rho, nu) <= rate.delta * (1 + 1e-6)
    assert rate.delta <= c.rate(c.best_rho()).delta * (1 + 1e-6)
    assert rate.delta > 0
    assert 0 < rate.factor < 1 or rate.delta < 2**-52  # where √(1/(1 + δ_d)) rounds to one


def test_degrees_of_freedom_count_directions() -> None:
    """Between 0 and T, falling in λ; T rows apart from each other are T directions."""
    assert_allclose(degrees_of_freedom(np.eye(10), 0.1), 10 / (1 + 1.0))
    X = np.random.default_rng(0).normal(size=(50, 3))
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 8)
    d = [degrees_of_freedom(K, lam) for lam in (1e-6, 1e-4, 1e-2, 1.0)]
    assert 50 > d[0] > d[1] > d[2] > d[3] > 0
    direct = np.trace(K @ np.linalg.inv(K + 1e-2 * 50 * np.eye(50)))
    assert_allclose(d[2], direct, rtol=1e-8)


@pytest.mark.parametrize("T", [400, 1600])
def test_the_features_of_theorem_3_are_enough(T: int) -> None:
    """λ = 1/√T and its L: excess risk ≤ 3λ + 1/√T on the synthetic problem with ‖f‖ = 1.

    A handful of features is not enough, so the bound says something.
    """
    rng = np.random.default_rng(0)
    b, centres = rng.uniform(size=50), rng.normal(size=(50, 5))
    b /= np.sqrt(b @ gram("gaussian", centres, centres, 5.0) @ b)  # ‖f‖_H = 1
    N, lam = 4, 1 / np.sqrt(T)
    X = [rng.normal(size=(T // N, 5)) for _ in range(N)]
    y = [_bumps(x, centres, b) + 0.05 * rng.normal(size=len(x)) for x in X]
    everything, fresh = np.concatenate(X), rng.normal(size=(4000, 5))
    d = degrees_of_freedom(gram("gaussian", everything, everything, 5.0), lam)

    def excess(L: int) -> float:
        f = draw_features(FeatureSettings(L, sigma=5.0, mapping="cos-phase", seed=3), 5)
        # the theorem's λ is of a mean over rows, ours of a sum over agents: N λ / N each
        theta = Quadratic.from_rows(f, X, y, lam).optimum()
        return float(np.mean((f(fresh) @ theta - _bumps(fresh, centres, b)) ** 2))

    L = features_needed(d, lam)
    assert excess(L) <= 3 * lam + 1 / np.sqrt(T)
    assert excess(2) > 3 * excess(L)


def test_assumptions_are_checked() -> None:
    c = case(lam=1.0)
    assert Assumptions.of(quadratic(c), GRAPHS["ring"]).hold
    assert not Assumptions.of(quadratic(c), nx.empty_graph(6)).connected
    q = quadratic(c)
    uneven = Quadratic(q.A, q.b, q.yy, np.array([1.0, 1, 1, 1, 1, 50]), q.G)
    assert Assumptions.of(uneven, GRAPHS["ring"]).sizes_within == 49
    assert not Assumptions.of(uneven, GRAPHS["ring"]).hold
    flat = Quadratic(0 * q.A, q.b, q.yy, q.T, 0.0)
    assert not Assumptions.of(flat, GRAPHS["ring"]).strongly_convex


def test_what_the_theorems_do_not_cover_is_refused() -> None:
    flat = Constants(0.0, 1.0, 1.0, 2.0)
    with pytest.raises(InputError, match="λ > 0"):
        flat.rate(0.1)
    with pytest.raises(InputError, match="ρ > 0"):
        Constants(1.0, 1.0, 1.0, 2.0).rate(0.0)
    with pytest.raises(InputError, match="at least two"):
        _network_constants(nx.empty_graph(1))
    with pytest.raises(InputError, match="not connected"):
        _network_constants(nx.empty_graph(3))
    with pytest.raises(InputError, match="between 0 and 1"):
        features_needed(10, 0.1, epsilon=1.5)
