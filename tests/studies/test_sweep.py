"""A sweep of many settings is every one of them alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.engines.process import Record, simulate
from coke.errors import InputError
from coke.maths.algorithms.codecs import Coarse
from coke.maths.algorithms.coke import COKE, Geometric, Schedule, Sequential, Shrinking, dkla
from coke.maths.graph import Graph
from coke.maths.losses import LOSSES
from coke.maths.losses.problem import Problem
from coke.maths.losses.rowwise import Rowwise
from coke.studies.compare.sweep import Swept, sweep
from kit.problems import GRAPHS, ROUNDING, case

SETTINGS = (
    dkla(0.1),
    dkla(1e-3),
    COKE(0.1, Geometric(0.5, 0.9)),
    COKE(0.02, Geometric(1.0, 0.95)),
    COKE(1.0, Geometric(0.1, 0.85)),
    COKE(0.1, Sequential([0.3, 0.3, 0.1, 0.01, 0.0])),
    COKE(0.1, Shrinking(0.5)),
    COKE(0.3, Schedule(lambda k: 0.2 / k)),
)
ROUNDS = 40


def agree(swept: Swept, alone: Record, s: int) -> None:
    """Setting s of a sweep and the run of that setting alone."""
    at = swept.on.tolist().index(s)
    assert_array_equal(swept.spoke[:, at], alone.spoke)
    assert swept.ledger(s) == alone.ledger
    assert_allclose(swept.theta[:, at], alone.state.theta, atol=ROUNDING)
    ours = (swept.train[s], swept.test[s], swept.global_train[s], swept.global_test[s])
    assert_allclose(ours, alone.score, rtol=ROUNDING)


def compare(problem: Problem, graph: Graph, algorithms: Any, **asked: Any) -> None:
    runs = [simulate(problem, graph, a, rounds=ROUNDS, **asked) for a in algorithms]
    records = sweep(problem, graph, algorithms, rounds=ROUNDS, **asked)
    for swept, *alone in zip(records, *runs, strict=True):
        for s, record in enumerate(alone):
            agree(swept, record, s)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_sweep_is_every_setting_alone(graph: Graph) -> None:
    """θ up to rounding, the same agents speak, the same losses; held-out rows included."""
    train = case().problem.train
    compare(Problem(train, case(seed=1).problem.train), graph, SETTINGS)


def test_so_it_is_with_few_neighbours_among_many() -> None:
    """Where the product with the graph is a sparse one."""
    compare(case(N=90, L=3).problem, nx.cycle_graph(90), SETTINGS[:4], scored=range(0, 99, 7))


def test_so_it_is_with_a_matrix_for_a_regulariser() -> None:
    train: Any = case().problem.train
    root = np.random.default_rng(3).normal(size=(train.size, train.size))
    problem = Problem(replace(train, G=root @ root.T / train.size))
    compare(problem, GRAPHS["random"], SETTINGS)


def test_so_it_is_with_several_outputs_though_others_stop() -> None:
    """Of two targets, the second another function of the same rows."""
    train: Any = case().problem.train
    both = replace(train, b=np.hstack([train.b, -0.5 * train.b[:, ::-1]]), yy=2.0 * train.yy)
    problem, graph, left = Problem(both), GRAPHS["random"], [0, 2, 5]

    def going(swept: Swept) -> Any:
        return np.isin(np.arange(len(SETTINGS)), left) | (swept.k < 5)

    runs = [simulate(problem, graph, SETTINGS[s], rounds=ROUNDS) for s in left]
    records = sweep(problem, graph, SETTINGS, rounds=ROUNDS, going=going)
    for swept, *alone in zip(records, *runs, strict=True):
        for s, record in zip(left, alone, strict=True):
            agree(swept, record, s)


def test_so_it_is_for_one_agent_without_a_regulariser() -> None:
    """Of least norm, as features outnumber rows."""
    problem = case(N=1, L=60, lam=0.0).problem
    swept = list(sweep(problem, nx.empty_graph(1), SETTINGS[:3], rounds=2))[-1]
    *_, alone = simulate(problem, nx.empty_graph(1), SETTINGS[0], rounds=2)
    for s in range(3):
        assert_allclose(swept.theta[:, s], alone.state.theta, atol=1e-6)


POSITIVE = st.floats(1e-3, 1.0)
COKES = st.builds(COKE, POSITIVE, st.builds(Geometric, POSITIVE, st.floats(0.5, 0.99)))


@settings(max_examples=25)
@given(st.lists(COKES, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_settings_do_not_know_of_each_other(algorithms: list[COKE], random: Any) -> None:
    """Permuted settings give permuted answers."""
    order = random.sample(range(len(algorithms)), len(algorithms))
    problem, graph = case().problem, GRAPHS["ring"]
    *_, one = sweep(problem, graph, algorithms, rounds=15)
    *_, other = sweep(problem, graph, [algorithms[s] for s in order], rounds=15)
    assert_allclose(other.theta, one.theta[:, order], atol=ROUNDING)
    assert_array_equal(other.spent, one.spent[order])


def test_settings_that_stop_keep_their_last_and_change_no_other() -> None:
    problem, graph = case().problem, GRAPHS["random"]
    whole = list(sweep(problem, graph, SETTINGS, rounds=ROUNDS))

    def going(record: Swept) -> Any:
        """Setting s runs for 5 (s + 1) rounds."""
        return record.k < 5 * (np.arange(len(SETTINGS)) + 1)

    some = list(sweep(problem, graph, SETTINGS, rounds=99, going=going))
    assert len(some) == 5 * len(SETTINGS)
    for s in range(len(SETTINGS)):
        stop = 5 * (s + 1) - 1
        for k, record in enumerate(some):
            assert (s in record.on) == (k <= stop)
            assert_allclose(record.train[s], whole[min(k, stop)].train[s], rtol=ROUNDING)
            assert record.ledger(s) == whole[min(k, stop)].ledger(s)


def test_records_are_not_written_over() -> None:
    records = sweep(case().problem, GRAPHS["ring"], SETTINGS, rounds=3)
    first = next(records)
    before = [np.copy(field) for field in first]
    list(records)
    for field, copy in zip(first, before, strict=True):
        assert_array_equal(field, copy)


def test_a_threshold_of_zero_is_never_silent_even_without_news() -> None:
    """0 ≥ 0: DKLA sends in every round, also where every θ stays at zero."""
    train: Any = case().problem.train
    nothing = Problem(replace(train, b=0.0 * train.b))
    for record in sweep(nothing, GRAPHS["ring"], [dkla(0.1), dkla(0.3)], rounds=3):
        assert record.spoke.all()


def test_losses_are_scored_where_asked() -> None:
    records = list(sweep(case().problem, GRAPHS["ring"], SETTINGS, rounds=6, scored=(2,)))
    assert [bool(np.isfinite(r.global_train).all()) for r in records] == [
        k in (2, 6) for k in range(1, 7)
    ]
    assert all(np.isfinite(r.train).all() for r in records)


@pytest.mark.parametrize(
    ("algorithms", "rounds", "said"),
    [
        ((), 5, "0 settings for 5 rounds"),
        (SETTINGS, 0, "8 settings for 0 rounds"),
        ((COKE(0.1, codec=Coarse()),), 5, "coded messages or warm starts"),
        ((COKE(0.1, warm=True),), 5, "coded messages or warm starts"),
    ],
)
def test_what_cannot_be_swept_is_refused(algorithms: Any, rounds: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sweep(case().problem, GRAPHS["ring"], algorithms, rounds=rounds)


def test_other_losses_are_refused() -> None:
    made = case()
    labels = tuple(np.where(y > 0.5, 1.0, -1.0) for y in made.y)
    margin = Rowwise(tuple(made.Phi), labels, 0.1, LOSSES["logistic"])
    with pytest.raises(InputError, match="logistic loss: expected the quadratic"):
        sweep(Problem(margin), GRAPHS["ring"], SETTINGS, rounds=5)
