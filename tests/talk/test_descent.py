"""Down the tree: one model at all sites, duals that sum to zero, and a proof that holds."""

from __future__ import annotations

import struct
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.errors import MessageError
from coke.learning.descending import Descending, descent_of
from coke.learning.ready import Ready
from coke.learning.train import train
from coke.maths.algorithms.steps import decoded, stepped
from coke.maths.algorithms.tree_newton import BEGIN, END, HESSIAN, SHIFT, STEP
from coke.maths.losses.excess import values
from coke.talk.conversation import outcome
from coke.talk.descent import Descent
from coke.talk.tree import above, ending, lengthened, proven, short
from kit.hard import HardCase, hard_cases

CASES = list(hard_cases(25, seed=7))


def descended(ready: Ready) -> Descending:
    found = Descending(ready, ready.case("tree-newton"))
    for _ in found.sweeps():
        pass
    return found


def truth(ready: Ready, u: Any) -> float:
    """Σ_i R_i(u) − min."""
    problem = ready.case("tree-newton").problem
    risk, N = problem.train, len(problem.train.T)
    at, best = (values(risk, np.tile(x, (N, 1))).sum() for x in (u, problem.optimum))
    return float(at - best)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hard_tables_are_certified(case: HardCase) -> None:
    """Within 1 % of the optimum, and the proof is no less than the truth."""
    ready = case.ready()
    found = descended(ready)
    sites = list(found._sites.values())
    for site in sites[1:]:
        assert_array_equal(site.u, sites[0].u)
        assert site.certificate == sites[0].certificate
    assert found.certificate is not None
    assert found.certificate.holds
    assert truth(ready, found.u) <= found.certificate.gap * (1.0 + 1e-6) + 1e-12


@pytest.mark.parametrize("case", CASES[:6], ids=lambda case: case.name)
def test_both_ends_of_an_edge_know_the_same(case: HardCase) -> None:
    """After every sweep, to the bit: so the duals sum to zero, but for rounding in the sum."""
    ready = case.ready()
    found = Descending(ready, ready.case("tree-newton"))
    above = {place.name: place.parent for place in ready.places if place.parent is not None}
    for _ in found.sweeps():
        sites = found._sites
        for child, parent in above.items():
            here = sites[parent]._walked.here
            assert_array_equal(sites[child]._walked.here.above, here.below[child])
        duals = np.array([site.gamma for site in sites.values()])
        assert np.abs(duals.sum(axis=0)).max() <= 1e-14 * np.abs(duals).sum(axis=0).max()


@pytest.mark.parametrize("loss", ["least-squares", "huber", "logistic", "softmax"])
def test_other_losses_are_certified_too(loss: str) -> None:
    for case in hard_cases(4, seed=3, loss=loss):
        found = descended(case.ready(**{"lambda": 1e-3}))
        assert found.certificate is not None
        assert found.certificate.holds, case.name


@pytest.mark.parametrize("loss", ["quadratic", "hinge", "logistic"])
def test_a_consensus_is_brought_together_and_proven(loss: str) -> None:
    """COKE's models differ a little; all sites adopt one, and the proof holds of it."""
    case = next(hard_cases(1, seed=5, loss=loss))
    ready = case.ready(**{"lambda": 1e-2}, tol=1e-4)
    trained = train(ready, "coke")
    assert trained.theta is not None
    assert trained.certificate is not None
    assert not np.ptp(trained.theta, axis=0).any()
    risk, N = ready.problem.train, len(ready.names)
    best = values(risk, np.tile(ready.optimum, (N, 1))).sum()
    above = values(risk, trained.theta).sum() - best
    assert above <= trained.certificate.gap * (1.0 + 1e-6) + 1e-9
    assert trained.certificate.share <= 0.05


def test_a_refused_proof_is_mended_where_sums_are_allowed() -> None:
    """One round is no consensus: with sums the sites go on, without they say what is proven."""
    case = CASES[0]
    loose = {"lambda": 1e-3, "rounds": 3, "tol": 0.0}
    alone = train(case.ready(**loose, sums=False), "coke")
    mended = train(case.ready(**loose | {"rounds": 40}), "coke")
    assert alone.certificate is not None
    assert not alone.certificate.holds
    assert "not certified" in alone.ended.warning
    assert mended.certificate is not None
    assert mended.certificate.holds
    assert not mended.ended.warning


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(1e-9, 1e9))
def test_what_is_stepped_is_decoded(x: list[float], step: float) -> None:
    near, data = stepped(np.array(x), step)
    assert_array_equal(decoded(data, len(x))[0], near)
    assert np.abs(near - x).max() <= max(0.75 * step, 2.0**-46 * np.abs(x).max())


@given(st.binary(max_size=60))
def test_an_order_of_any_bytes_is_taken_or_refused(order: bytes) -> None:
    """Nothing but MessageError, and numbers that stay finite."""
    site = _leaf()
    try:
        site._taken(order)
    except MessageError:
        return
    assert np.isfinite(site.u).all()


def test_more_sites_below_than_there_are_is_refused() -> None:
    site = _parent()
    answer = struct.pack("<Iff", 2**32 - 1, 1.0, 1.0)
    with pytest.raises(MessageError, match="sites below"):
        site._answer(BEGIN, dict.fromkeys(site.place.children, answer))


@given(st.binary(max_size=60), st.integers(0, END - 1))
def test_an_answer_of_any_bytes_is_taken_or_refused(answer: bytes, kind: int) -> None:
    site = _parent()
    child = site.place.children[0]
    try:
        site._answer(kind, dict.fromkeys(site.place.children, answer) | {child: answer})
    except MessageError:
        return
    assert np.isfinite(site.gamma).all()


READY = CASES[0].ready(**{"lambda": 1e-3})
CASE = READY.case("tree-newton")


def _leaf() -> Descent:
    leaf = next(i for i, place in enumerate(READY.places) if not place.children)
    return descent_of(READY, CASE, leaf)


def _parent() -> Descent:
    some = next(i for i, place in enumerate(READY.places) if place.children)
    return descent_of(READY, CASE, some)


@pytest.mark.parametrize("kind", [BEGIN, STEP, SHIFT, HESSIAN])
def test_a_site_that_forbids_sums_adds_nothing_up_whoever_asks(kind: int) -> None:
    """Not even for a root that should not ask: it answers proofs alone."""
    ready = CASES[0].ready(**{"lambda": 1e-3}, sums=False)
    leaf = next(i for i, place in enumerate(ready.places) if not place.children)
    site = descent_of(ready, ready.case("coke"), leaf)
    with pytest.raises(MessageError, match="does not allow"):
        site._taken(bytes([kind, 0]))
    assert not site.u.any()


@pytest.mark.parametrize("sites", [5, 40])
def test_where_sites_are_alike_a_proof_is_next_to_the_truth(sites: int) -> None:
    """However many they are: what rounding leaves of all others' shares the root takes up."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=60)
    settings = next(hard_cases(1, seed=9)).settings
    ready = HardCase("alike", [X] * sites, [y] * sites, nx.complete_graph(sites), settings).ready(
        **{"lambda": 1e-3}
    )
    found = descended(ready)
    proven, true = found.certificate, truth(ready, found.u)
    assert proven is not None
    assert proven.holds
    assert (1 - 1e-6) * true <= proven.gap <= 1.25 * true


def test_one_site_alone_needs_nobody() -> None:
    case = next(hard_cases(1, seed=9))
    ready = HardCase(
        case.name, case.X[:1], case.y[:1], case.graph.subgraph([0]).copy(), case.settings
    ).ready(**{"lambda": 1e-3})
    site = descent_of(ready, ready.case("tree-newton"), 0)
    outcome(site.talk())
    assert site.certificate is not None
    assert site.certificate.holds


@given(st.just(0.0) | st.floats(1e-36, 1e300))  # what is less may be flushed to zero
def test_a_short_number_is_no_less_and_hardly_more(x: float) -> None:
    found = lengthened(short(x))
    assert found >= x
    assert found <= 1.01 * x or x > 3e38


@given(st.lists(st.just(0.0) | st.floats(1e-36, 3e38), min_size=3, max_size=3))
def test_an_end_never_claims_more_than_was_proven(told: list[float]) -> None:
    """More is left to gain than was found, of less; and what the root tells it stands by."""
    gap, *others = proven(ending(told), told)
    assert gap >= told[0]
    for found, x in zip(others, told[1:], strict=True):
        assert 0.99 * x <= found <= x
    with pytest.raises(MessageError, match="proves less"):
        proven(ending(told), [1.02 * gap + 1e-30, *told[1:]])


def test_what_sites_remember_of_moves_saves_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models next to free of noise take many orders, which go along earlier ones in part."""
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(40, 3)) for _ in range(6)]
    y = [np.sin(2.0 * x[:, 0]) * x[:, 1] for x in X]
    settings = next(hard_cases(1, seed=9)).settings
    case = HardCase("smooth", X, y, nx.cycle_graph(6), settings)
    more = {"lambda": 1e-5, "features": {"n_features": 60, "sigma": 1.0}}
    usual = descended(case.ready(**more)).spent.sum(axis=0)
    monkeypatch.setattr("coke.maths.algorithms.visited._TOLD", 1e30)  # all coefficients are zero
    without = descended(case.ready(**more)).spent.sum(axis=0)
    assert usual[1] < 0.9 * without[1]
    assert usual[2] < 0.9 * without[2]


@given(st.floats(allow_nan=False))
def test_a_number_is_told_as_the_least_float32_that_is_no_less(x: float) -> None:
    found = above(x)
    assert found >= x
    with np.errstate(over="ignore", under="ignore"):
        before = float(np.nextafter(np.float32(found), np.float32(-np.inf)))
        assert found == np.float32(found)
        assert before < x or found == x == -np.inf
