"""Agents run the rounds of the simulation: as many, within the same budget, for the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.engines.process import Record, simulate
from coke.field.carriers.memory import Fault, faithful, lossy
from coke.maths.ledger import Ledger
from kit.agents import Net, Nets


def twin(net: Net, **limits: Any) -> Record:
    """The last round of the same network in one process."""
    task, mission = net.task(), net.mission(net.names[0])
    way = task.case(mission.config.algorithm)
    tol = way.tol
    records = simulate(
        way.problem,
        net.graph,
        way.algorithm,
        tol=tol,
        reach=task.reach,
        spent=way.spent,
        scored=(),
        **limits,
    )
    return list(records)[-1]


def ended(net: Net) -> Ledger:
    """What all have spent on the agreement and the rounds; a proof may come after."""
    net.start()
    net.wait()
    return Ledger(*np.sum([net.node(name).spent for name in net.names], axis=0))


FAULTS = {"faithful": faithful, "lossy": lossy(2, loss=0.3, twice=0.1)}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("rounds", [1, 5])
def test_rounds_end_after_exactly_that_many(nets: Nets, rounds: int, fault: Fault) -> None:
    """Nobody is told of the end in place of a word that it needs for its own last round."""
    net = nets(rounds=rounds, fault=fault, sums=False)
    ledger, last = ended(net), twin(net, rounds=rounds)
    assert {net.node(name).k for name in net.names} == {last.k} == {rounds}
    assert_array_equal(net.theta(), last.state.theta)
    assert ledger == last.ledger
    assert not any(net.agents[name].outcome().converged for name in net.names)


@pytest.mark.parametrize("budget", [{"max_bytes": 2600}, {"max_transmissions": 70}])
def test_budgets_are_honoured_by_agents_too(nets: Nets, budget: dict[str, int]) -> None:
    net = nets(**budget)
    ledger, last = ended(net), twin(net, rounds=3000, **budget)
    assert not last.settled
    assert {net.node(name).k for name in net.names} == {last.k}
    assert_array_equal(net.theta(), last.state.theta)
    assert ledger == last.ledger
    assert ledger.bytes <= budget.get("max_bytes", np.inf)
    assert ledger.transmissions <= budget.get("max_transmissions", np.inf)


def test_a_budget_that_is_too_small_is_said_in_the_result(nets: Nets) -> None:
    """Nothing is said in round 1; with what a site says would do for it, it speaks."""
    net = nets(max_bytes=1)
    ledger = ended(net)
    told = [net.agents[name].outcome() for name in net.names]
    assert not any(learnt.converged for learnt in told)
    before = np.sum([net.node(name).setup.spent for name in net.names], axis=0)
    assert (ledger.transmissions, ledger.bytes) == tuple(before[:2])
    most = 0
    for learnt in told:
        assert learnt.lacking is not None
        assert "too small" in learnt.lacking
        most = max(most, int(learnt.lacking.partition("max_bytes=")[2].split()[0]))
    enough = nets(max_bytes=most)
    ended(enough)
    for name in enough.names:
        assert enough.agents[name].outcome().lacking is None
        assert enough.node(name).ledger.transmissions >= 1


def test_an_algorithm_without_a_basis_agrees_on_none(nets: Nets) -> None:
    """With units and all rounds given, nothing is said before round 1 but who knows whom."""
    net = nets(algorithm="dkla", rho=0.05, rounds=3, tol=0)
    ledger, last = ended(net), twin(net, rounds=3)
    for name in net.names:
        agreed = net.agents[name].agreed
        assert agreed is not None
        assert agreed.second is not None
        assert agreed.second.basis is None
    flood = np.array(ledger) - np.array(last.ledger)
    assert 0 < flood[1] < 300
