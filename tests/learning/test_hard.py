"""The generator of hard tables: always the same ones, and all of them can be learnt from."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from coke.maths.losses import LOSSES
from kit.hard import MOST_SITES, HardCase, hard_cases


def _same(one: HardCase, other: HardCase) -> bool:
    rows = zip([*one.X, *one.y], [*other.X, *other.y], strict=True)
    return (
        (one.name, one.settings) == (other.name, other.settings)
        and all(np.array_equal(a, b) for a, b in rows)
        and list(one.graph.edges) == list(other.graph.edges)
    )


def test_a_case_is_the_same_however_many_are_drawn() -> None:
    few, many = list(hard_cases(10, seed=1)), list(islice(hard_cases(40, seed=1), 10))
    assert all(map(_same, few, many))
    assert not any(map(_same, few, hard_cases(10, seed=2)))


def test_cases_are_as_different_as_they_say() -> None:
    cases = list(hard_cases(300, seed=0))
    T = [[len(y) for y in case.y] for case in cases]
    assert {len(t) for t in T} == set(range(2, MOST_SITES + 1))
    assert sum(max(t) == 1 for t in T) > 20
    assert sum(max(t) > 50 * min(t) for t in T) > 20
    assert sum(case.settings["lambda"] < 1e-5 for case in cases) > 100
    assert max(np.abs(X).max() for case in cases for X in case.X) > 1e5


@pytest.mark.parametrize("loss", LOSSES)
def test_every_case_can_be_learnt_from(loss: str) -> None:
    for case in hard_cases(15, seed=3, loss=loss):
        ready = case.ready()
        assert ready.names == tuple(sorted(set(case.sites.tolist())))
        assert np.isfinite(ready.optimum).all(), case.name
        assert (
            ready.problem.train.objectives(ready.optimum[None])[0]
            <= (ready.problem.train.objectives(np.zeros((1, ready.problem.train.size)))[0])
        )
