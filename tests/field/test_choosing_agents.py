"""Agents that choose a model: the simulation's bits, whoever is killed after which message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.data.tables import checked_rows
from coke.errors import MessageError
from coke.learning.choice import TUNED, Choice
from coke.learning.ready import Ready, joining
from coke.learning.train import train
from coke.maths.choice.misses import BINS, Misses
from coke.maths.ledger import Ledger
from kit.agents import Net, Nets
from kit.driven import Driven

AUTO: dict[str, Any] = {
    "lambda": "auto", "features": {"n_features": 6}, "rounds": 12, "tol": 0.0, "model": "auto",
    "data": {"file": "rows", "target": "y", "test": 0.0, "scale": "standard"},
}  # fmt: skip
CRASHES: dict[str, Callable[[str, str], str | None]] = {
    "nobody": lambda sender, receiver: None,
    "the sender": lambda sender, receiver: sender,
    "the receiver": lambda sender, receiver: receiver,
}


def made(nets: Nets, *, by_target: bool) -> Net:
    """Dealt, or a few rows a site with a range of targets of its own: then a judge is needed."""
    sites, rows = 3, 120 if by_target else 240
    net, rng = nets(agents=sites, edges=sites - 1, **AUTO), np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    y = np.sin(2 * X[:, 0]) + np.exp(X[:, 1]) + 0.1 * rng.normal(size=rows)
    net.rows = checked_rows(X, y)
    order = np.argsort(y) if by_target else np.arange(rows)
    net.parts = dict(enumerate(map(np.sort, np.array_split(order, sites))))
    return net


def choice_of(ready: Ready | None) -> Choice:
    assert ready is not None
    assert ready.agreement.choice is not None
    return ready.agreement.choice


def same(one: Choice, other: Choice) -> None:
    """To the bit."""
    assert one._replace(best=other.best, bandwidths=other.bandwidths) == other
    assert_array_equal(one.bandwidths, other.bandwidths)
    assert (one.best.name, one.best.ridge) == (other.best.name, other.best.ridge)
    assert_array_equal(one.best.knots, other.best.knots)
    assert_array_equal(one.best.features.omega, other.best.features.omega)
    assert one.best.features.linear == other.best.features.linear


@pytest.mark.parametrize("by_target", [False, True], ids=["dealt", "sorted"])
@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_agents_are_the_simulation_whoever_is_killed_after_each_message(
    nets: Nets, crash: Callable[[str, str], str | None], by_target: bool
) -> None:
    """The choice, θ and the bytes: a conversation held again from the disk says the same."""
    net = made(nets, by_target=by_target)
    task = net.task()
    choice, trained, case = choice_of(task), train(task, "coke"), task.case("coke")
    assert choice.errors.keys() >= {TUNED}
    assert bool(choice.judged) == by_target
    driven = Driven(net, crash)
    driven.run()
    assert trained.theta is not None
    assert trained.model is not None
    assert trained.model.closed.misses is not None
    assert len(driven.met) > (40 if by_target else 20)
    assert driven.kills == (0 if crash is CRASHES["nobody"] else len(driven.met))
    ends = []
    for i, agent in enumerate(driven.agents.values()):
        ready = agent.agreed
        assert ready is not None
        same(choice_of(ready), choice)
        assert agent._agree.ledger == Ledger(*case.spent[i].tolist())
        ends.append(agent.outcome())
        assert_array_equal(agent.mission.theta(ready, ends[-1].theta), trained.theta[i])
        assert_array_equal(ready.agreement.units.knots, task.agreement.units.knots)
        misses = ends[-1].closed.misses
        assert misses is not None
        assert_array_equal(misses.counts, trained.model.closed.misses.counts)
        assert misses.unit == trained.model.closed.misses.unit
    assert_array_equal(np.sum([end.ledger for end in ends], axis=0), trained.ended.ledger)


@pytest.mark.parametrize("by_target", [False, True], ids=["dealt", "sorted"])
def test_a_newcomer_has_the_choice_from_the_totals(nets: Nets, by_target: bool) -> None:
    """Whatever its own rows would have spoken for."""
    net = made(nets, by_target=by_target)
    driven = Driven(net, CRASHES["nobody"])
    driven.run()
    agreed = driven.agents["site-0"].agreed
    assert agreed is not None
    net.rows = net.rows._replace(y=-(net.rows.y**2))
    late = net.mission("site-1")
    joined = joining(late.rows, late.terms, agreed.totals, late.wanted)
    same(choice_of(joined), choice_of(agreed))
    with pytest.raises(MessageError, match="fewer totals"):
        joining(late.rows, late.terms, agreed.totals[:-2], late.wanted)


def test_errors_that_cannot_be_cost_nobody_the_model(
    nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Misses, "of", lambda errors, rows, unit: Misses(np.full((1, BINS), -9.0), 1.0, unit)
    )
    driven = Driven(made(nets, by_target=False), CRASHES["nobody"])
    driven.run()
    for agent in driven.agents.values():
        learnt = agent.outcome()
        assert learnt.closed.misses is None
        assert np.isfinite(learnt.theta).all()
