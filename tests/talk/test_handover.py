"""From a descent to rounds: both ends of an edge begin alike, whoever has heard the last order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.engines.process import simulate
from coke.learning.descending import Descending
from coke.learning.ready import Ready
from coke.maths.algorithms.codecs import GRID, LIMIT
from coke.maths.algorithms.coke import COKE
from coke.maths.graph import Shape
from coke.talk.handover import Handed, Stage, handed
from coke.talk.place import Place
from kit.descents import rounds_after
from kit.hard import HardCase, hard_cases

CASES = list(hard_cases(25, seed=7))


def begun(ready: Ready, most: int = 12) -> list[list[Handed]]:
    """What each site's rounds would begin with, after every order."""
    case, names = ready.case("tree-newton"), ready.names
    assert isinstance(case.algorithm, COKE)
    near = {n: [names[j] for j in ready.graph[i]] for i, n in enumerate(names)}
    rho, found = case.algorithm.rho, list[list[Handed]]()
    descents = Descending(ready, case)
    for _ in itertools.islice(descents.sweeps(), most):
        found.append([descents._sites[n].handed(near[n], rho) for n in names])
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_duals_cancel_to_the_bit_though_some_lag_by_an_order(case: HardCase) -> None:
    """On every edge, of the later of both orders, which both ends know; and all is on the grid."""
    ready, rng = case.ready(), np.random.default_rng(0)
    after = begun(ready)
    for before, now in itertools.pairwise(after):
        late = rng.random(len(now)) < 0.5
        sites = [before[i] if late[i] else now[i] for i in range(len(now))]
        for i, j in ready.graph.edges:
            mine, his = sites[i].bases[ready.names[j]], sites[j].bases[ready.names[i]]
            at = max(sites[i].at, sites[j].at)
            if not at:
                continue
            assert_array_equal(mine[at].x, his[at].x)
            assert_array_equal(mine[at].g, 0.0 - his[at].g)
            for x in mine[at][:2]:
                assert_array_equal(x, np.rint(x / GRID) * GRID)
                assert np.abs(x).max() <= LIMIT


def near(ready: Ready) -> Descending:
    """The descents as far as the first order after which rounds begin with something."""
    descents = Descending(ready, ready.case("tree-newton"))
    for _ in descents.sweeps():
        if descents._first.handed([], 1.0).at:
            break
    return descents


@pytest.mark.parametrize("case", [CASES[6], CASES[16], CASES[23]], ids=lambda case: case.name)
def test_rounds_go_on_to_the_same_optimum_sooner_and_cheaper_than_afresh(case: HardCase) -> None:
    """Σγ is zero all the way, to the bit."""
    ready = case.ready()
    way, most = ready.case("tree-newton"), ready.agreement.terms.settings.rounds
    records = rounds_after(ready, near(ready)._sites, way.spent)
    for record in records:
        assert_array_equal(record.state.g.sum(axis=0), 0.0)
    limits: dict[str, Any] = {"rounds": most, "tol": way.tol, "reach": ready.reach, "scored": ()}
    last = records[-1]
    *_, afresh = simulate(way.problem, ready.graph, way.algorithm, spent=way.spent, **limits)
    assert last.settled
    assert last.optimality_gap <= 2.0 * afresh.optimality_gap
    assert last.k < afresh.k
    assert last.ledger.bytes < afresh.ledger.bytes


def test_where_the_next_step_is_long_rounds_begin_with_nothing() -> None:
    """A model that is still far off is worse than none."""
    place = Place.later("a", Shape(2, 1, 1, 1))
    stage = {1: Stage(np.ones(4), np.zeros(4), {})}
    for length, at in ((0.24, 1), (0.26, 0)):
        assert handed(place, stage, 1, length * np.ones(4), ["b"], 1.0).at == at
