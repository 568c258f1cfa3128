"""COKE, DKLA and CTA: agreement with the paper's equations, and what its theorems promise."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import literal
from coke.maths.algorithm import Algorithm
from coke.maths.coke import COKE, dkla
from coke.maths.cta import CTA
from coke.maths.graph import Graph, build_graph, degrees
from coke.maths.problem import Problem
from coke.maths.quadratic import Quadratic
from coke.maths.thresholds import Geometric, Sequential
from coke.run.exchange import Mailbox
from coke.run.simulate import simulate
from problems import GRAPHS, ROUNDING, Case, case, neighbours, row_norms

CENSORED = COKE(0.2, Geometric(1.0, 0.95))
ALGORITHMS: dict[str, Algorithm] = {"DKLA": dkla(0.2), "COKE": CENSORED, "CTA": CTA(0.3)}


@given(
    seed=st.integers(0, 10_000),
    N=st.integers(2, 7),
    mapping=st.sampled_from(["cos-sin", "cos-phase"]),
    name=st.sampled_from(sorted(ALGORITHMS)),
)
def test_simulation_equals_the_papers_equations(seed: int, N: int, mapping: str, name: str) -> None:
    """θ and γ to 1e-12 and every message count, on random graphs and problems."""
    c = case(N, L=5, mapping=mapping, lam=0.1, seed=seed)
    graph = build_graph("random", N, seed=seed)
    Phi = [np.array([literal.phi(x, list(c.features.omega), _phases(c)) for x in X]) for X in c.X]
    algorithm = ALGORITHMS[name]
    if isinstance(algorithm, COKE):
        h = algorithm.threshold
        trace = literal.coke(Phi, c.y, neighbours(graph), c.lam, algorithm.rho, h, 25)
    else:
        assert isinstance(algorithm, CTA)
        trace = literal.cta(Phi, c.y, neighbours(graph), c.lam, algorithm.eta, 25)
    records = list(simulate(c.problem, graph, algorithm, rounds=25))
    for k, r in enumerate(records):
        assert_allclose(r.state.theta, trace.theta[k], rtol=0, atol=1e-12)
        if trace.gamma:
            assert_allclose(r.state.gamma, trace.gamma[k], rtol=0, atol=1e-12)
        assert np.count_nonzero(r.spoke) == trace.messages[k]
        assert r.ledger.transmissions == sum(trace.messages[: k + 1])
        assert_allclose(r.score.train, literal.mse(Phi, c.y, trace.theta[k]), rtol=1e-10)
    assert_allclose(c.problem.optimum, literal.optimum(Phi, c.y, c.lam), rtol=0, atol=1e-12)


def _phases(c: Case) -> list[float] | None:
    return list(c.features.phase) if len(c.features.phase) else None


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("v", [0.0, 1.0], ids=["DKLA", "COKE"])
def test_every_agent_reaches_the_centralised_optimum_linearly(graph: Graph, v: float) -> None:
    """W connected, γ⁰ = 0, h(k) = v μᵏ, μ < 1, ρ small  ⟹  max_i ‖θ_iᵏ − θ*‖ ≤ C qᵏ with q < 1.

    A method that converges like 1/k breaks this bound within 300 rounds.
    """
    c = case(lam=2.0)
    C, q = 2.0, 0.97
    records = simulate(c.problem, graph, COKE(0.15, Geometric(v, 0.95)), rounds=900)
    for r in records:
        away = row_norms(r.state.theta - c.problem.optimum).max()
        assert away <= C * q**r.k + ROUNDING
        assert_allclose(r.optimality_gap, away, atol=1e-15)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_duals_sum_to_zero_whoever_was_censored(graph: Graph) -> None:
    """Σ_i γ_iᵏ = 0: every edge adds ρδ at one end and −ρδ at the other."""
    censored = 0
    for r in simulate(case().problem, graph, CENSORED, rounds=60):
        censored += int(np.count_nonzero(~r.spoke))
        assert_allclose(r.state.gamma.sum(axis=0), 0, atol=1e-13)
        assert np.abs(r.state.gamma).max() > 0 or not r.ledger.transmissions
    assert censored > 0  # else this says nothing about censoring


def test_a_silent_agents_word_stands_and_its_news_is_small() -> None:
    """Silent: θ̂ stays and ‖θ − θ̂‖ < h(k). Not silent: ‖θ − θ̂ᵏ⁻¹‖ ≥ h(k) and θ̂ = θ."""
    c, h = case(), CENSORED.threshold
    before = np.zeros((6, c.features.size))
    seen: set[bool] = set()
    for r in simulate(c.problem, GRAPHS["random"], CENSORED, rounds=80):
        hat, theta = r.state.hat, r.state.theta
        assert_array_equal(hat[~r.spoke], before[~r.spoke])
        assert (row_norms(theta - hat)[~r.spoke] < h(r.k)).all()
        assert_array_equal(hat[r.spoke], theta[r.spoke])
        assert (row_norms(theta - before)[r.spoke] >= h(r.k)).all()
        before, seen = hat, seen | set(r.spoke.tolist())
    assert seen == {True, False}


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_relabelling_agents_permutes_the_answer(algorithm: Algorithm) -> None:
    """Names carry no weight."""
    c, graph = case(), GRAPHS["random"]
    order = np.random.default_rng(1).permutation(6)
    risk = c.problem.train
    assert isinstance(risk, Quadratic)
    other = Quadratic(risk.A[order], risk.b[order], risk.yy[order], risk.T[order], risk.G)
    place = {int(old): new for new, old in enumerate(order)}
    moved = nx.relabel_nodes(graph, place)
    plain = simulate(c.problem, graph, algorithm, rounds=30)
    permuted = simulate(Problem(other), moved, algorithm, rounds=30)
    for a, b in zip(plain, permuted, strict=True):
        assert_allclose(b.state.theta, a.state.theta[order], atol=1e-12)
        assert_array_equal(b.spoke, a.spoke[order])


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("L", [8, 33, 100])
def test_one_row_agents_equal_the_simulation_bit_for_bit(algorithm: Algorithm, L: int) -> None:
    """N agents that hold one row each and only pass messages do what N rows in one array do."""
    c, graph, N = case(L=L), GRAPHS["random"], 6
    agents = [_Agent(algorithm, c.problem, graph, i) for i in range(N)]
    for r in simulate(c.problem, graph, algorithm, rounds=40):
        spoken = [agent.speak(r.k) for agent in agents]
        for agent in agents:
            for n, word in enumerate(spoken):
                if word is not None and n in agent.mailbox.senders:
                    agent.mailbox.deliver(n, word)
        for agent in agents:
            agent.listen()
        assert_array_equal([word is not None for word in spoken], r.spoke)
        for name, rows in r.state._asdict().items():
            alone = np.concatenate([getattr(agent.state, name) for agent in agents])
            assert_array_equal(alone, rows, err_msg=f"round {r.k}: {name}")


class _Agent:
    """One site: its own risk, its own row of state, and a mailbox."""

    def __init__(self, algorithm: Algorithm, problem: Problem, graph: Graph, i: int):
        risk = problem.train.rows(slice(i, i + 1))
        self.algorithm = algorithm
        self.own = algorithm.local(risk, degrees(graph)[i : i + 1])
        self.state: Any = algorithm.start(risk)
        W = sparse.csr_array(algorithm.weights(graph)[[i]])
        self.mailbox = Mailbox(W, risk.size)

    def speak(self, k: int) -> Any:
        self.state, news = self.algorithm.speak(self.own, self.state, k)
        return self.state.hat[0] if news[0, 0] else None

    def listen(self) -> None:
        self.state = self.algorithm.listen(self.own, self.state, self.mailbox.heard())


def test_cta_reaches_the_optimum_where_sites_agree() -> None:
    """With equal risks everywhere diffusion has no bias: θ → θ*, at a gradient method's pace."""
    c = case(N=1, lam=1.0)
    risk = c.problem.train
    assert isinstance(risk, Quadratic)
    N = 5
    same = Quadratic(
        np.repeat(risk.A, N, 0),
        np.repeat(risk.b, N, 0),
        np.repeat(risk.yy, N),
        np.repeat(risk.T, N),
        0.2,
    )
    *_, last = simulate(Problem(same), nx.cycle_graph(N), CTA(0.3), rounds=400)
    assert last.optimality_gap < 1e-9


def test_any_non_increasing_sequence_can_be_a_threshold() -> None:
    """A sequence that equals v μᵏ gives the same run; its last value holds."""
    c = case()
    values = [0.95**k for k in range(1, 41)]
    a = simulate(c.problem, GRAPHS["ring"], COKE(0.2, Sequential(values)), rounds=40)
    b = simulate(c.problem, GRAPHS["ring"], COKE(0.2, Geometric(1.0, 0.95)), rounds=40)
    for x, y in zip(a, b, strict=True):
        assert_allclose(x.state.theta, y.state.theta, atol=1e-14)
    assert Sequential(values)(500) == values[-1]


def test_censoring_saves_messages_at_nearly_the_same_answer() -> None:
    """The paper's claim on a small problem: fewer messages, and θ* all the same."""
    c = case(lam=2.0)
    *_, loud = simulate(c.problem, GRAPHS["random"], dkla(0.15), rounds=300)
    *_, quiet = simulate(c.problem, GRAPHS["random"], COKE(0.15, Geometric(1.0, 0.95)), rounds=300)
    assert quiet.ledger.transmissions < 0.9 * loud.ledger.transmissions
    assert quiet.optimality_gap < 1e-4
