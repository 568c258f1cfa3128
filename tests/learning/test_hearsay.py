"""Lies in every conversation of the agreement: bounded with the guard, seen without it.

A sample; `make bench-liars` tries all of them on real rows.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from coke.data.site import Kept
from coke.data.split import deal
from coke.data.tables import checked_rows
from coke.learning.doubts import outdone
from coke.learning.terms import Terms
from coke.maths.graph import Graph, build_graph
from coke.settings.reading import checked_settings
from kit.falsehoods import PROOF_LIES, TREE_LIES, fallen, proven
from kit.hearsay import HEARSAY, heard, honest_floor, missed, overheard
from kit.ready import held

N, LIAR = 8, 2


@cache
def _network() -> tuple[Kept, Graph]:
    """Waves of three inputs, of which one says nothing."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1200, 3)) * [1.0, 10.0, 0.1]
    y = np.sin(2 * X[:, 0]) + np.cos(0.2 * X[:, 1]) + 0.1 * rng.normal(size=len(X))
    sites = held(checked_rows(X, y), deal(y, N, seed=0), test=0.3)
    return sites, build_graph("random", N, edges=12, seed=1)


def _terms(guard: bool) -> Terms:
    given = {"guard": guard, "rounds": 40}
    return Terms(checked_settings(given), ("a", "b", "c"))


@cache
def _floor(guard: bool) -> tuple[float, int]:
    return honest_floor(*_network(), _terms(guard), LIAR)


def test_an_honest_agreement_is_nearly_as_good_with_the_guard() -> None:
    """Frequencies are drawn then, and not chosen, and nobody judges."""
    assert _floor(True)[0] <= 1.75 * _floor(False)[0]


LIES = [
    "units: means far off", "quantiles: far off", "bandwidths: tiny", "bandwidths: huge",
    "errors: plain is perfect", "errors: nothing but noise", "judge: sums turned",
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_the_agreement_costs_little_with_the_guard(lie: str) -> None:
    """By what honest sites have without one; and without it whatever it costs is seen."""
    for guard in (True, False):
        found = heard(*_network(), _terms(guard), LIAR, HEARSAY[lie], _floor(False)[0])
        if guard:
            assert found.harm <= 1.5
        else:
            assert found.harm <= 2 or found.warned


def test_some_of_these_lies_own_the_answer_without_the_guard() -> None:
    """Or the test above would say nothing."""
    lies = ("bandwidths: tiny", "errors: nothing but noise", "units: means far off")
    each = (heard(*_network(), _terms(False), LIAR, HEARSAY[lie], _floor(False)[0]) for lie in lies)
    assert max(one.harm for one in each) > 4


TREES = [name for name in TREE_LIES if "turned" in name or "root" in name]


@pytest.mark.parametrize("lie", TREES)
def test_a_lie_in_the_sums_of_a_descent_is_refused_or_seen(lie: str) -> None:
    """By messages that make no sense, a proof that does not hold, or a site's own rows."""
    task, _ = overheard(*_network(), _terms(False), LIAR, None)
    fell = fallen(task, "tree-newton", TREE_LIES[lie], LIAR)
    if fell.refused:
        return
    theta = task.case("tree-newton").theta(next(iter(fell.u.values())))
    harm = missed(task, theta, LIAR) / missed(task, task.optimum, LIAR)
    assert harm <= 2 or not fell.certified or any(outdone(task, theta, i) for i in range(N))


@pytest.mark.parametrize("lie", PROOF_LIES)
def test_nobody_takes_over_a_model_that_is_not_near_its_own(lie: str) -> None:
    task, _ = overheard(*_network(), _terms(True), LIAR, None)
    harm, kept = proven(task, PROOF_LIES[lie], LIAR)
    assert harm <= 1.2
    assert kept or "another" not in lie
