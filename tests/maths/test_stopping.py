"""Stopping without a coordinator, and within a budget."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.engines.process import Record, simulate
from coke.errors import InputError
from coke.maths.algorithms.coke import COKE, Geometric, automatic, dkla
from coke.maths.algorithms.stopping import NEVER, Here, Limits, Quiet, Stopping, at_first, counted
from coke.maths.features.whitening import Whitening
from coke.maths.graph import adjacency, build_graph
from coke.maths.losses.problem import Problem, Quadratic
from kit.problems import GRAPHS, case, shape_of
from kit.tracked import GradientTracking


def neighbourhoods(graph: nx.Graph) -> list[list[int]]:
    return [[i, *graph[i]] for i in range(len(graph))]


def ends(graph: nx.Graph, ok: np.ndarray) -> list[int]:
    """The round after which each site stops, if ok[k, i] says who was ok in round k + 1."""
    quiet, far = at_first(len(graph)), nx.eccentricity(graph)
    reach = np.array([far[i] for i in range(len(graph))])
    stopped = [0] * len(graph)
    for k, now in enumerate(ok, start=1):
        near = neighbourhoods(graph)
        least = Quiet(
            np.array([quiet.count[n].min() for n in near]),
            np.array([quiet.countdown[n].min() for n in near]),
        )
        quiet = counted(least, now, reach)
        for i, n in enumerate(near):
            if quiet.countdown[n].min() <= 1 and not stopped[i]:
                stopped[i] = k
        if all(stopped):
            break
    return stopped


@given(seed=st.integers(0, 400), n=st.integers(2, 9))
def test_all_stop_after_the_same_round_and_only_after_a_common_ok(seed: int, n: int) -> None:
    """If any stops, all do, at once; and there was a round in which all were ok."""
    rng = np.random.default_rng(seed)
    graph = build_graph("random", n, edges=min(n * (n - 1) // 2, n - 1 + seed % 4), seed=seed)
    ok = rng.random((60, n)) < rng.choice([0.5, 0.9, 0.99])
    found = ends(graph, ok)
    assert len(set(found)) == 1
    if found[0]:
        least = nx.radius(graph)
        assert ok[: found[0] - least + 1].all(axis=1).any()


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_once_all_are_ok_it_takes_twice_the_radius_and_one_at_most(graph: nx.Graph) -> None:
    """The site in the middle knows first; with the diameter for all it would take as many more."""
    ok = np.zeros((100, len(graph)), dtype=bool)
    ok[20:] = True
    (last,) = set(ends(graph, ok))
    assert 20 < last <= 20 + 2 * nx.radius(graph) + 1


@given(seed=st.integers(0, 100))
def test_the_simulation_hears_what_every_site_would(seed: int) -> None:
    """Counts and countdowns are the least of one's own and one's neighbours', shortfalls any's."""
    rng = np.random.default_rng(seed)
    graph = build_graph("random", 7, edges=9, seed=seed)
    count, ends, short = rng.integers(0, 9, 7), rng.integers(1, 9, 7), rng.random(7) < 0.3
    watch = Stopping(Limits(1, 0.1), Here.all(adjacency(graph)))
    found = watch.least(Quiet(count, ends, short))
    near = neighbourhoods(graph)
    assert_array_equal(found.count, [count[n].min() for n in near])
    assert_array_equal(found.countdown, [ends[n].min() for n in near])
    assert_array_equal(found.short, [short[n].any() for n in near])


def test_a_site_alone_stops_at_once() -> None:
    quiet = counted(at_first(1), np.array([True]), 0)
    assert quiet.done().all()
    assert at_first(1).countdown[0] == NEVER


def whitened(graph: nx.Graph) -> Problem:
    q = case(L=20, lam=0.01).problem.train
    assert isinstance(q, Quadratic)
    return Problem(q.whitened(Whitening.of(q.A.mean(axis=0) + 0.01 / 6 * np.eye(q.size))))


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_where_the_automatic_method_stops_nothing_is_far(graph: nx.Graph, tol: float) -> None:
    """‖u_i − u*‖ is a small multiple of tol at the end, on every graph."""
    problem = whitened(graph)
    records = list(
        simulate(problem, graph, automatic(2.0, shape_of(graph), 1.0), rounds=3000, tol=tol)
    )
    last = records[-1]
    assert last.settled
    assert all(not r.settled for r in records[:-1])
    assert last.optimality_gap <= 10 * tol
    first = next(r for r in records if (r.quiet.countdown < NEVER).any())
    # The first declaration spreads; nobody waits for another.
    assert last.k == first.k + first.quiet.countdown.min() - 1
    near = [last.quiet.countdown[n].min() for n in neighbourhoods(graph)]
    assert_array_equal(near, 1)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_tolerance_is_one_of_theta_whatever_else_messages_say(graph: nx.Graph) -> None:
    """With (θ̂, ŷ) in a message: a step η∇ of at most tol is ‖θ_i − θ*‖ ≤ tol/η, for ∇² ≈ 2I."""
    eta, tol = 0.03, 1e-4
    last = list(simulate(whitened(graph), graph, GradientTracking(eta), rounds=2000, tol=tol))[-1]
    assert last.settled
    assert last.state.hat.shape[1] == 2 * last.state.theta.shape[1]
    assert last.optimality_gap <= tol / eta


def test_resuming_stops_where_the_undisturbed_run_does() -> None:
    graph = GRAPHS["ring"]
    problem, how = whitened(graph), automatic(2.0, shape_of(graph), 1.0)
    whole = list(simulate(problem, graph, how, rounds=500, tol=1e-3))
    for k in (1, len(whole) // 2, len(whole) - 2):
        at = whole[k].checkpoint()
        rest = list(simulate(problem, graph, how, rounds=500, tol=1e-3, resume=at))
        assert rest[-1].k == whole[-1].k
        assert_array_equal(rest[-1].state.theta, whole[-1].state.theta)
        assert rest[-1].ledger == whole[-1].ledger


def final(**limits: Any) -> Record:
    graph = GRAPHS["random"]
    how = COKE(0.15, Geometric(1.0, 0.95))
    spent = np.tile([2, 30, 100], (6, 1))
    return list(simulate(case().problem, graph, how, rounds=400, tol=1e-9, spent=spent, **limits))[
        -1
    ]


def test_a_budget_is_kept_and_ends_the_run_everywhere_at_once() -> None:
    for name, most in (("max_bytes", 30_000), ("max_transmissions", 200)):
        last = final(**{name: most})
        column = ("max_transmissions", "max_bytes").index(name)
        assert (last.spent[:, column] <= most / 6).all()  # each within its share, so all within
        assert not last.settled
        assert last.k < 400
        assert last.quiet.short.any()
    # Enough for everything changes nothing.
    assert final(max_bytes=10**9).ledger == final().ledger


def test_too_small_a_budget_is_refused_with_the_smallest_that_would_do() -> None:
    graph = GRAPHS["random"]
    spent = np.tile([2, 30, 100], (6, 1))
    size = case().problem.train.size * 8
    for name, least in (("max_bytes", 6 * (30 + size)), ("max_transmissions", 6 * 3)):

        def run(most: int, name: str = name) -> Record:
            limits: Any = {name: most}
            records = simulate(case().problem, graph, dkla(0.1), rounds=5, spent=spent, **limits)
            return next(iter(records))

        with pytest.raises(InputError, match=f"the smallest that would do is {name}={least}"):
            run(least - 1)
        assert run(least).k == 1
    with pytest.raises(InputError, match="max_bytes=0"):
        final(max_bytes=0)
