"""COKE, DKLA and CTA: agreement with the paper's equations, and what its theorems promise."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from coke.engines.process import simulate
from coke.errors import GraphError, InputError
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.coke import COKE, Geometric, Schedule, Sequential, dkla
from coke.maths.algorithms.cta import CTA
from coke.maths.graph import Graph, adjacency, build_graph, degrees
from coke.maths.losses import LOSSES
from coke.maths.losses.one_vs_rest import OneVsRest
from coke.maths.losses.problem import Problem, Quadratic
from coke.maths.losses.risk import Risk
from coke.maths.losses.rowwise import Rowwise
from coke.threads import OneThread
from kit import literal
from kit.mailbox import Mailbox
from kit.problems import GRAPHS, ROUNDING, Case, case, neighbours, row_norms

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
        v = 1.0 if name == "COKE" else 0.0
        trace = literal.coke(Phi, c.y, neighbours(graph), c.lam, 0.2, lambda k: v * 0.95**k, 25)
    else:
        assert isinstance(algorithm, CTA)
        trace = literal.cta(Phi, c.y, neighbours(graph), c.lam, algorithm.eta, 25)
    records = list(simulate(c.problem, graph, algorithm, rounds=25))
    for k, r in enumerate(records):
        assert_allclose(r.state.theta, trace.theta[k], rtol=0, atol=1e-12)
        if trace.gamma:
            assert_allclose(0.2 * r.state.g, trace.gamma[k], rtol=0, atol=1e-12)
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
        assert_allclose(r.state.g.sum(axis=0), 0, atol=1e-13)
        assert np.abs(r.state.g).max() > 0 or not r.ledger.transmissions
    assert censored > 0  # else this says nothing about censoring


def test_a_silent_agents_word_stands_and_its_news_is_small() -> None:
    """Silent: θ̂ stays and ‖θ − θ̂‖ < h(k). Not silent: ‖θ − θ̂ᵏ⁻¹‖ ≥ h(k) and θ̂ = θ."""
    c, h = case(), Geometric(1.0, 0.95)
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


def risks() -> dict[str, Risk]:
    """Every kind of local risk, for six agents, with regularisers of both kinds."""
    rng = np.random.default_rng(5)
    root = rng.normal(size=(16, 16))
    G = root @ root.T / 160 + 0.05 * np.eye(16)
    found: dict[str, Risk] = {f"quadratic, L = {L}": case(L=L).problem.train for L in (8, 33, 100)}
    q = found["quadratic, L = 8"]
    assert isinstance(q, Quadratic)
    found["quadratic, matrix"] = Quadratic(q.A, q.b, q.yy, q.T, G)
    Phi = tuple(case(L=8).Phi)
    labels = [[np.where(rng.normal(size=len(P)) > 0, 1.0, -1.0) for P in Phi] for _ in range(10)]
    for name in ("logistic", "hinge"):
        found[name] = Rowwise(Phi, tuple(labels[0]), 0.02, LOSSES[name])
        found[f"{name}, matrix"] = Rowwise(Phi, tuple(labels[0]), G, LOSSES[name])
    y = tuple(5.0 * yi for yi in case(L=8).y)  # some rows are within δ, some beyond
    found["huber"] = Rowwise(Phi, y, 0.02, LOSSES["huber"])
    found["huber, matrix"] = Rowwise(Phi, y, G, LOSSES["huber"])
    first, *others = map(tuple, labels)
    found["one against the rest"] = OneVsRest(
        Rowwise(Phi, first, 0.02, LOSSES["logistic"]), tuple(others)
    )
    return found


RISKS = risks()


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("risk", RISKS.values(), ids=RISKS)
def test_one_row_agents_equal_the_simulation_bit_for_bit(algorithm: Algorithm, risk: Risk) -> None:
    """N agents that hold one row each and only pass messages do what N rows in one array do."""
    problem, graph, N = Problem(risk), GRAPHS["random"], 6
    agents = [_Agent(algorithm, problem, graph, i) for i in range(N)]
    rounds = 40 if isinstance(risk, Quadratic) else 8
    for r in simulate(problem, graph, algorithm, rounds=rounds):
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
        self.algorithm, self.alone = algorithm, OneThread()
        with self.alone.limit():  # as in a simulation: the bits of an inverse depend on threads
            self.own = algorithm.local(risk, degrees(adjacency(graph))[i : i + 1])
        self.state: Any = algorithm.start(risk)
        W = sparse.csr_array(algorithm.weights(adjacency(graph))[[i]])
        self.mailbox = Mailbox(W, risk.size)

    def speak(self, k: int) -> Any:
        with self.alone.limit():
            self.state, said = self.algorithm.speak(self.own, self.state, k)
        return self.state.hat[0] if said.size[0, 0] else None

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


def test_scores_only_where_asked_for_change_nothing_else() -> None:
    """`scored` leaves θ, messages and training loss alone; the last round is always scored."""
    c = case()
    every = list(simulate(c.problem, GRAPHS["ring"], CENSORED, rounds=25))
    some = list(simulate(c.problem, GRAPHS["ring"], CENSORED, rounds=25, scored=range(0, 26, 10)))
    for a, b in zip(every, some, strict=True):
        assert_array_equal(a.state.theta, b.state.theta)
        assert a.score.train == b.score.train
        seen = b.k in (10, 20, 25)
        assert (a.score.global_train == b.score.global_train) == seen
        assert np.isnan(b.score.global_train) == (not seen)


def test_settling_means_moved_agreed_and_said() -> None:
    """Stops at the tolerance, and not while a high threshold keeps everybody silent."""
    c = case(lam=2.0)
    *_, last = simulate(c.problem, GRAPHS["ring"], CENSORED, rounds=2000, tol=1e-6)
    assert last.settled
    assert last.k < 2000
    assert last.optimality_gap < 1e-4
    mute = COKE(0.2, Schedule(lambda k: 1e9))
    *_, last = simulate(c.problem, GRAPHS["ring"], mute, rounds=50, tol=1e-3)
    assert last.k == 50
    assert not last.settled


def test_what_cannot_be_simulated_is_refused_before_the_first_round() -> None:
    c = case()
    apart = nx.Graph([(0, 1), (2, 3), (4, 5)])
    with pytest.raises(GraphError, match="3 components"):
        simulate(c.problem, apart, CENSORED, rounds=5)
    with pytest.raises(InputError, match="rounds=0"):
        simulate(c.problem, GRAPHS["ring"], CENSORED, rounds=0)
    with pytest.raises(InputError, match="tol=-1"):
        simulate(c.problem, GRAPHS["ring"], CENSORED, rounds=5, tol=-1)


def test_bits_do_not_depend_on_the_number_of_blas_threads() -> None:
    """Statistics, inverses and rounds run on one thread, whatever the machine would use."""
    code = """
import hashlib, numpy as np
from coke import COKERegressor, Until
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 5))
model = COKERegressor(n_agents=4, limits=Until(rounds=20)).fit(X, np.sin(X.sum(axis=1)))
print(hashlib.blake2b(model.thetas_.tobytes() + model.optimum_.tobytes()).hexdigest())
"""
    found = set()
    for threads in ("1", "2"):
        env = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        found.add(run.stdout)
    assert len(found) == 1
    assert found != {""}
