"""Rows out of order, late, twice, from the future, with gaps: handled and counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.data.arrivals import LATE, Arrivals, Due, positions
from coke.errors import DataError


def taken(arrivals: Arrivals, site: Any, tick: Any, value: Any = None) -> list[Due]:
    site = np.asarray(site)
    X = np.arange(len(site), dtype=float)[:, None] if value is None else np.asarray(value)[:, None]
    return list(arrivals.due(X, X[:, 0], site, tick))


def test_rows_are_handed_out_tick_by_tick_whatever_their_order() -> None:
    found = taken(Arrivals(2), [0, 1, 0, 1], [3, 1, 1, 2])
    assert [one.tick for one in found] == [1, 2, 3]
    assert [[rows.tolist() for rows in one.rows] for one in found] == [
        [[2], [1]],
        [[], [3]],
        [[0], []],
    ]


def test_a_late_row_comes_with_the_next_tick_and_keeps_its_age() -> None:
    arrivals = Arrivals(2)
    taken(arrivals, [0, 1], [10, 10])
    (one,) = taken(arrivals, [1, 0], [7, 11], [5.0, 6.0])
    assert one.tick == 11
    assert one.age[1].tolist() == [4.0]
    (alone,) = taken(arrivals, [0], [5], [7.0])
    assert (alone.tick, alone.age[0].tolist()) == (12, [7.0])
    assert arrivals.counts.late == 2


def test_a_row_that_comes_twice_counts_once() -> None:
    arrivals = Arrivals(2)
    taken(arrivals, [0, 1], [1, 1], [2.0, 2.0])
    assert taken(arrivals, [0, 0, 1], [1, 1, 1], [2.0, 3.0, 2.0])[0].rows[0].tolist() == [1]
    assert (arrivals.counts.twice, arrivals.counts.taken) == (2, 3)


def test_a_wrong_clock_is_left_out_and_a_gap_of_all_is_not() -> None:
    arrivals = Arrivals(4)
    taken(arrivals, [0, 1, 2, 3], [1, 1, 1, 1])
    found = taken(arrivals, [0, 1, 2, 3], [2, 2, 10**9, 2])
    assert [one.tick for one in found] == [2]
    assert arrivals.counts.ahead == 1
    assert taken(arrivals, [0, 1, 2, 3], [10**6] * 4)[0].tick == 10**6
    assert taken(arrivals, [0], [10**6 - LATE - 1]) == []
    assert arrivals.counts.too_late == 1


def test_gaps_are_left_out_and_counted() -> None:
    arrivals = Arrivals(1)
    found = taken(arrivals, [0, 0, 0], None, [1.0, np.nan, np.inf])
    assert [one.rows[0].tolist() for one in found] == [[0]]
    assert arrivals.counts.gaps == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=12), max_size=6)
)
def test_nothing_is_lost_and_nothing_counted_twice(calls: list[list[tuple[int, int]]]) -> None:
    """Every row that was given is handed out once or counted out; ticks only go forward."""
    arrivals, total, last = Arrivals(3), 0, -1
    handed = list[tuple[int, int]]()
    for n, call in enumerate(calls):
        site = np.array([s for s, _ in call], np.int64)
        tick = np.array([t for _, t in call], np.int64)
        values = np.array([100 * n + k % 5 for k in range(len(call))], float)
        for one in taken(arrivals, site, tick, values):
            assert one.tick > last
            last = one.tick
            for s, (rows, ages) in enumerate(zip(one.rows, one.age, strict=True)):
                assert (ages >= 0).all()
                handed += [(s, int(one.tick - age)) for age in ages]
                assert (site[rows] == s).all()
        total += len(call)
    counts = arrivals.counts
    assert counts.taken == len(handed)
    assert counts.taken + counts.twice + counts.too_late + counts.ahead + counts.gaps == total


@pytest.mark.parametrize("tick", [[1.5, 2.0], ["a", "b"], [1], [[1, 2]], [2.0**60, 1.0]])
def test_ticks_that_are_none_are_refused(tick: Any) -> None:
    with pytest.raises(DataError, match="whole numbers"):
        taken(Arrivals(1), [0, 0], tick)


def test_a_new_site_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="'c'"):
        positions(["a", "c"], ["a", "b"])
