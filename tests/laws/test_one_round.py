"""Agents run the rounds of the simulation: as many, within the same budget, for the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.engines.process import Record, simulate
from coke.learning.task import algorithm_of
from coke.maths.ledger import Ledger
from kit.agents import Net, Nets


def twin(net: Net, **limits: Any) -> Record:
    """The last round of the same network in one process."""
    task, mission = net.task(), net.mission(net.names[0])
    way = task.way(algorithm_of(mission.config, mission.config.algorithm))
    tol = way.tolerance(mission.config.tolerance(mission.config.algorithm))
    records = simulate(
        way.problem, net.graph, way.algorithm, tol=tol, spent=way.spent, scored=(), **limits
    )
    return list(records)[-1]


def ended(net: Net) -> Ledger:
    net.start()
    net.wait(timeout=300)
    return Ledger(*np.sum([net.agents[name].outcome().ledger for name in net.names], axis=0))


@pytest.mark.xfail(strict=True, reason="agents begin a countdown at their last round")
@pytest.mark.parametrize("rounds", [1, 5])
def test_rounds_end_after_exactly_that_many(nets: Nets, rounds: int) -> None:
    net = nets(rounds=rounds)
    ledger, last = ended(net), twin(net, rounds=rounds)
    assert {net.site(name).k for name in net.names} == {last.k} == {rounds}
    assert_array_equal(net.theta(), last.state.theta)
    assert ledger == last.ledger
    assert not any(net.agents[name].outcome().converged for name in net.names)


@pytest.mark.xfail(strict=True, reason="agents refuse or ignore budgets")
@pytest.mark.parametrize("budget", [{"max_bytes": 2600}, {"max_transmissions": 70}])
def test_budgets_are_honoured_by_agents_too(nets: Nets, budget: dict[str, int]) -> None:
    net = nets(**budget)
    ledger, last = ended(net), twin(net, rounds=3000, **budget)
    assert not last.settled
    assert {net.site(name).k for name in net.names} == {last.k}
    assert_array_equal(net.theta(), last.state.theta)
    assert ledger == last.ledger
    assert ledger.bytes <= budget.get("max_bytes", np.inf)
    assert ledger.transmissions <= budget.get("max_transmissions", np.inf)


@pytest.mark.xfail(strict=True, reason="agents agree on a basis that dkla does not use")
def test_an_algorithm_without_a_basis_agrees_on_none(nets: Nets) -> None:
    """With units and all rounds given, nothing is said before round 1 but who knows whom."""
    net = nets(algorithm="dkla", rho=0.05, rounds=3, tol=0)
    ledger, last = ended(net), twin(net, rounds=3)
    talk = [net.agents[name] for name in net.names]
    assert all(agent.agreed is not None for agent in talk)
    flood = np.array(ledger) - np.array(last.ledger)
    assert 0 < flood[1] < 300
