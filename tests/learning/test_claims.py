"""Claims by name: a site that lies about its rows moves the units of all by little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.site import Site
from coke.data.split import deal
from coke.data.units import Columns, fit_scaling
from coke.errors import MessageError
from coke.learning import agreement
from coke.learning.doubts import doubted, doubts
from coke.learning.ready import Ready
from coke.learning.terms import Terms
from coke.maths.graph import build_graph
from coke.maths.guards import FAR, HEAVY, Claims
from coke.talk.sums import given as told_before
from coke.talk.told import Told, tell
from kit.agents import made_rows
from kit.ready import held, ready

Change = Callable[[Told], Told]
N, LIAR = 8, 3


def _columns(**change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def lie(told: Told) -> Told:
        found: Any = {name: made(getattr(told.columns, name)) for name, made in change.items()}
        return told._replace(columns=told.columns._replace(**found))

    return lie


LIES: dict[str, Change] = {
    "T = 1e15": lambda told: told._replace(columns=told.columns._replace(T=1e15)),
    "means + 1e6": _columns(mean=lambda mean: mean + 1e6),
    "T = 1e15, means + 1e6 sd": lambda told: told._replace(
        columns=told.columns._replace(T=1e15, mean=told.columns.mean + 1e6 * told.columns.sd)
    ),
    "sd 1e6": _columns(sd=lambda sd: 1e6 * sd),
    "no spread at all": _columns(sd=lambda sd: 0 * sd),
    "T = 1e15, no spread": lambda told: told._replace(
        columns=told.columns._replace(T=1e15, sd=0 * told.columns.sd)
    ),
}


def _agreed(monkeypatch: pytest.MonkeyPatch, lie: Change | None, guard: bool = True) -> Ready:
    plain, rows = agreement._told, made_rows(800)
    names = list(map(str, range(N)))

    def told(site: Site, terms: Terms) -> Told:
        own = plain(site, terms)
        return lie(own) if lie is not None and site.name == names[LIAR] else own

    monkeypatch.setattr(agreement, "_told", told)
    sites = held(rows, dict(zip(names, deal(rows.y, N, seed=0).values(), strict=True)))
    graph = build_graph("random", N, edges=14, seed=0)
    features = {"n_features": 30, "sigma": 2.0}
    return ready(sites, graph, guard=guard, data={"scale": "standard"}, features=features)


def _rmse(task: Ready) -> float:
    """Of the optimum, in the target's own units."""
    risk, theta = task.problem.train, task.problem.optimum
    losses = risk.losses(np.tile(theta, (N, 1)))
    return float(np.sqrt(losses.mean()) * task.agreement.units.y_scale[0])


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lying_agreement_costs_little(monkeypatch: pytest.MonkeyPatch, lie: Change) -> None:
    """RMSE at most 1.25 times the honest one."""
    honest = _rmse(_agreed(monkeypatch, None))
    assert _rmse(_agreed(monkeypatch, lie)) <= 1.25 * honest


def test_without_names_it_costs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = _rmse(_agreed(monkeypatch, None, guard=False))
    lie = LIES["T = 1e15, means + 1e6 sd"]
    assert _rmse(_agreed(monkeypatch, lie, guard=False)) >= 3 * honest


HARMFUL = [name for name in LIES if name != "no spread at all"]


@pytest.mark.parametrize("lie", HARMFUL)
def test_without_names_a_site_sees_by_its_own_rows_that_units_are_not_theirs(
    monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    task = _agreed(monkeypatch, LIES[lie], guard=False)
    assert all(doubts(task, i) for i in range(N) if i != LIAR)


@pytest.mark.parametrize("split", ["iid", "sorted"])
def test_of_honest_units_nobody_doubts(monkeypatch: pytest.MonkeyPatch, split: str) -> None:
    """Σ_s T_s (m_s² + sd_s²) = T in every column, however rows are dealt."""
    rows = made_rows(800)
    sites = held(rows, deal(rows.X[:, 0], N, split=split, seed=0))
    task = ready(sites, build_graph("ring", N, seed=0), data={"scale": "standard"})
    assert not any(doubts(task, i) for i in range(N))


def test_units_that_cannot_be_those_of_all_rows_are_doubted() -> None:
    own = Columns(50.0, np.array([4.0]), np.ones(1), np.empty(0), np.empty(0))
    units = fit_scaling("standard", 1, own._replace(mean=np.zeros(1)), 0)
    assert doubted(own, units, 100.0)
    assert not doubted(own, units, 100.0, clipped=True)
    assert not doubted(own, units, 1000.0)


def test_honest_claims_of_sites_that_are_much_alike_count_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_name, summed = (_agreed(monkeypatch, None, guard).agreement.units for guard in (True, False))
    assert_allclose(by_name.x_scale, summed.x_scale, rtol=0.02)
    assert_allclose(by_name.x_shift, summed.x_shift, atol=0.02)


@given(st.integers(3, 12), st.integers(0, 10**6))
def test_one_claim_of_many_moves_little(n: int, seed: int) -> None:
    """Whatever one of n ≥ 3 sites says: within a few spreads of what most say."""
    rng = np.random.default_rng(seed)
    mean, sd = rng.uniform(-1, 1, size=(n, 2)), rng.uniform(0.5, 1.5, size=(n, 2))
    T = rng.integers(50, 100, size=n).astype(float)
    honest = Claims(T, mean, sd).bounded()
    assert_array_equal(honest.mean, mean)
    assert_array_equal(honest.sd, sd)
    assert_array_equal(honest.T, T)
    mean[0], sd[0], T[0] = 10.0 ** rng.uniform(0, 12, size=2), 10.0 ** rng.uniform(0, 12), 1e15
    lied = Claims(T, mean, sd).bounded()
    assert lied.T[0] <= HEAVY * 100
    assert (lied.sd[0] <= FAR * 20).all()
    assert np.abs(lied.mean[0]).max() <= 12 * FAR


def test_claims_that_were_changed_on_the_way_are_refused() -> None:
    own = Told(Columns(5.0, np.zeros(1), np.ones(1), np.empty(0), np.empty(0)))
    other = own._replace(columns=own.columns._replace(T=6.0))
    for claims, fine in (({"a": own, "b": other}, True), ({"a": other, "b": other}, False)):
        total = msgspec.msgpack.encode({name: told.encode() for name, told in claims.items()})
        talk = tell(told_before([total]), own, "a", 2)
        if fine:
            with pytest.raises(StopIteration):
                next(talk)
        else:
            with pytest.raises(MessageError, match="changed on the way"):
                next(talk)


@pytest.mark.parametrize("names", [["liar"], ["a", *(f"made-up-{i}" for i in range(9))]])
def test_as_many_claim_as_there_are_sites(names: list[str]) -> None:
    """A root that leaves others out, and a site that makes some up, are found out."""
    own = Told(Columns(5.0, np.zeros(1), np.ones(1), np.empty(0), np.empty(0)))
    total = msgspec.msgpack.encode(dict.fromkeys(names, own.encode()))
    with pytest.raises(MessageError, match="of 2 in all"):
        next(tell(told_before([total]), own, "a", 2))
