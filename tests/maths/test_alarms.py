"""Drift is seen where errors grow and stay large, and all sites act on it on the same tick."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.maths.algorithms.alarms import Errors, Notices, latest
from coke.maths.graph import adjacency, steps


def seen(squares: np.ndarray) -> list[bool]:
    errors, found = Errors.none(1), []
    for x in squares:
        errors = errors.after(np.array([x]), np.ones(1, bool))
        found.append(bool(errors.drift[0]))
    return found


def test_drift_is_seen_and_noise_is_not() -> None:
    """χ² errors never alarm, nor does one enormous row; ten times the variance does within 50."""
    e2 = np.random.default_rng(0).normal(size=5000) ** 2
    assert not any(seen(e2))
    e2[3000] = 1e9
    assert not any(seen(e2))
    e2[4000:] *= 10
    assert any(seen(e2)[4000:4050])


def test_rows_that_are_not_there_change_nothing() -> None:
    errors = Errors.none(2).after(np.ones(2), np.ones(2, bool))
    again = errors.after(np.array([5.0, 7.0]), np.array([False, False]))
    for a, b in zip(errors, again, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6), st.data())
def test_all_sites_act_on_one_tick_or_none_does(N: int, seed: int, data: st.DataObject) -> None:
    """Whoever saw drift whenever, on any connected graph, with `reach` at least its diameter."""
    graph = nx.path_graph(N)
    graph.add_edges_from(nx.gnm_random_graph(N, N, seed=seed).edges)
    W = adjacency(graph)
    reach = int(steps(W, np.arange(N)).max())
    when = data.draw(st.lists(st.integers(0, 80), min_size=N, max_size=N))
    notices, acted = Notices.none(np.arange(N), N, reach), []
    for tick in range(200):
        said = notices.said(np.array([tick >= at for at in when]), tick)
        notices = said.after(latest(W, said.told))
        enough = notices.enough(tick)
        assert enough.all() or not enough.any()
        acted.append(bool(enough.any()))
    assert any(acted)


def test_notices_of_a_few_sites_are_passed_on_once_and_counted() -> None:
    """A notice of one site of nine costs a message of each, and moves nobody."""
    W = adjacency(nx.cycle_graph(9))
    notices, total = Notices.none(np.arange(9), 9, 4), 0
    who = np.arange(9) == 4
    for tick in range(40):
        said = notices.said(who, tick)
        notices = said.after(latest(W, said.told))
        total += int((said.size > 0).sum())
        assert not notices.enough(tick).any()
    assert total == 9
