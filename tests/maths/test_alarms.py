"""Drift is seen where errors grow and stay large, and all sites act on it on the same tick."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.maths.algorithms.alarms import Errors, Notices, latest
from coke.maths.graph import adjacency, steps


def seen(squares: np.ndarray, y: np.ndarray | None = None) -> list[bool]:
    """Whether a site sees drift, row by row; nothing of the targets is predicted, or these are."""
    errors, found = Errors.none(1), []
    targets = np.sqrt(squares) if y is None else y
    for x, target in zip(squares, targets, strict=True):
        errors = errors.after(np.full((1, 2), x), np.array([[target]]), np.ones(1, bool))
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


def test_errors_that_grow_with_what_there_is_to_predict_are_no_drift() -> None:
    """A week with targets, and errors with them, three times as large; then errors alone grow."""
    rng = np.random.default_rng(0)
    y, e = rng.normal(size=2000), 0.3 * rng.normal(size=2000)
    y[1000:1200] *= 3.0
    e[1000:1200] *= 3.0
    e[1800:] *= 4.0
    found = seen(e**2, y)
    assert not any(found[:1800])
    assert any(found[1800:1850])


def test_what_the_fast_layer_follows_is_no_drift() -> None:
    """Errors of the common model alone."""
    e2, errors = np.random.default_rng(0).normal(size=900) ** 2, Errors.none(1)
    for t, x in enumerate(e2):
        paid = np.array([[x if t < 600 else 50.0 * x, x]])
        errors = errors.after(paid, np.array([[np.sqrt(x)]]), np.ones(1, bool))
        assert not errors.drift[0]
    assert errors.size[0] > 2.0  # but thresholds follow it


def test_rows_that_are_not_there_change_nothing() -> None:
    errors = Errors.none(2).after(np.ones((2, 2)), np.ones((2, 1)), np.ones(2, bool))
    again = errors.after(np.array([[5.0, 7.0]] * 2), np.ones((2, 1)), np.array([False, False]))
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
