"""Algorithms that are not elastic: in lockstep on agents, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.sparse.csgraph import laplacian

from coke.engines.process import simulate
from coke.errors import ConfigError, ConvergenceError, InputError
from coke.field.carriers.memory import lossy
from coke.field.frames import Standing
from coke.field.mission import _elastic
from coke.field.state import image, restored
from coke.maths.algorithms import ALGORITHMS
from coke.maths.algorithms.algorithm import Spoken
from coke.maths.algorithms.cta import CTA
from coke.maths.graph import metropolis
from coke.maths.ledger import Ledger
from coke.maths.losses.problem import Problem
from coke.maths.losses.risk import Risk
from coke.settings.sites import checked_site
from kit.agents import A, B, Nets, fails, others
from kit.events import SMALL, Faults, World, name
from kit.tracking import ENTRY, Tracking, TrackingState

CASE = SMALL._replace(algorithm=Tracking(0.05))


@pytest.fixture
def tracked(nets: Nets, monkeypatch: pytest.MonkeyPatch) -> Nets:
    """Networks whose sites track gradients, under a name that settings know."""
    monkeypatch.setitem(ALGORITHMS, "cta", ENTRY)

    def make(**settings: Any) -> Any:
        net = nets(algorithm="cta", eta=0.2, **settings)
        for table in net.table.values():
            table["patience"] = "wait"
        return net

    return make


# Nodes.

LIMITS: dict[str, dict[str, Any]] = {
    "tolerance": {"tol": 1e-3},
    "rounds": {"rounds": 30},
    "bytes": {"max_bytes": 5000},
    "messages": {"max_transmissions": 100},
}
FAULTS = {
    "none": Faults(),
    "loss": Faults(loss=0.2, double=0.1, late=1),
    "kills": Faults(kill=0.05),
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_sites_in_lockstep_are_the_simulation_bit_for_bit(
    limits: dict[str, Any], faults: Faults
) -> None:
    """θ, θ̂, rounds and ledger, whatever is lost and whoever is killed."""
    limits = {"rounds": 900, **limits}
    *_, last = simulate(Problem(CASE.risk), CASE.graph, CASE.algorithm, **limits)
    world = World(CASE, faults, seed=1, **limits)
    while not all(node.free for node in world.nodes.values()):
        world.tick()
        assert world.t < 10_000
    nodes = list(world.nodes.values())
    assert {node.k for node in nodes} == {last.k}
    assert_array_equal(np.concatenate([node.theta for node in nodes]), last.state.theta)
    assert Ledger(*np.sum([node.ledger for node in nodes], axis=0).tolist()) == last.ledger
    assert {node.short for node in nodes} == {not last.settled}
    for i, node in enumerate(nodes):
        for end in node.ends.values():
            assert_array_equal(end.own, last.state.hat[i])
            assert not end.g.any()


def test_the_algorithms_state_is_part_of_the_image() -> None:
    world = World(CASE, Faults())
    for _ in range(7):
        world.tick()
    node = world.nodes[name(2)]
    back = restored(image(node), node.setup)
    assert image(back) == image(node)
    for x, y in zip(node.state, back.state, strict=True):
        assert_array_equal(x, y)


def test_an_edge_that_starts_again_or_closes_stops_the_site() -> None:
    world = World(CASE, Faults())
    for _ in range(5):
        world.tick()
    node = world.nodes[name(2)]
    neighbour, end = next(iter(node.ends.items()))
    for standing in (Standing(1, False), Standing(0, True)):
        with pytest.raises(ConvergenceError, match=f"to {neighbour} has started again or is"):
            node.hear(neighbour, standing)
    for change in (node.join, node.close):
        with pytest.raises(ConvergenceError, match="has started again or is closed"):
            change(neighbour)
    assert end.out is not None
    far = end._replace(cp=np.full(24, 4096.0), box=(end.out, None))
    whole = {n: e._replace(box=(e.out, None)) for n, e in node.ends.items()}
    with pytest.raises(ConvergenceError, match="needs every word"):
        node._replace(ends={**whole, neighbour: far}).round()


@dataclass(frozen=True)
class Private(Tracking):
    """It goes on with what nobody was told."""

    def speak(self, own: Risk, s: TrackingState, k: int) -> tuple[TrackingState, Spoken]:
        s, spoken = super().speak(own, s, k)
        return s._replace(hat=s.hat + 1.0), spoken


def test_messages_that_do_not_tell_what_the_algorithm_goes_on_with_are_refused() -> None:
    world = World(SMALL._replace(algorithm=Private()), Faults())
    with pytest.raises(InputError, match="goes on with another"):
        world.tick()


# Agents.


@pytest.mark.parametrize("faulty", [False, True], ids=["quiet", "lossy, and one starts again"])
def test_agents_in_lockstep_are_the_simulation_bit_for_bit(tracked: Nets, faulty: bool) -> None:
    net = tracked(tol=3e-2)
    if faulty:
        net.memory.fault = lossy(3, loss=0.2, twice=0.1)
    net.start()
    if faulty:
        net.until(lambda: net.rounds() >= 5)
        net.stop(B)
        net.start(B)
    net.wait()
    task, setup = net.task(), net.node(A).setup
    records = simulate(
        task.problem,
        net.graph,
        Tracking(0.2),
        rounds=3000,
        tol=setup.limits.tol,
        reach=task.reach,
        scored=(),
    )
    *_, last = records
    assert last.settled
    assert {net.node(n).k for n in net.names} == {last.k}
    assert_array_equal(net.theta(), last.state.theta)
    sent = np.sum([net.node(n).ledger for n in net.names], axis=0).tolist()
    assert Ledger(*sent) == last.ledger
    for n in net.names:
        learnt = net.agents[n].outcome()
        assert learnt.converged
        assert set(learnt.asymmetry.values()) <= {0.0, None}


def test_a_neighbour_that_leaves_stops_agents_in_lockstep(tracked: Nets) -> None:
    net = tracked(tol=0.0)
    net.start()
    net.until(lambda: net.rounds() >= 5)
    net.agents[B].leave()
    for n in others(net, B):
        if B in net.friends[n]:
            error = fails(net, n)
            assert isinstance(error, ConvergenceError)
            assert "has started again or is closed" in str(error)


def _file(**site: Any) -> dict[str, Any]:
    table = {"name": "a", "network": "net", "neighbours": {"b": ""}, **site}
    data = {"file": "rows", "target": "y"}
    return {"algorithm": "cta", "eta": 0.2, "data": data, "site": table}


def test_messages_without_a_codec_are_refused_with_that_reason() -> None:
    assert CTA().codec is None
    with pytest.raises(ConfigError, match="its messages are raw float64 numbers"):
        _elastic(checked_site(_file(patience="wait")), None)


def test_what_cannot_be_in_lockstep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "cta", ENTRY)
    _elastic(checked_site(_file(patience="wait")), None)
    for wrong in ({}, {"patience": 3.0}, {"patience": "wait", "joins": True}):
        with pytest.raises(ConfigError, match='expected patience = "wait" and no site that joins'):
            _elastic(checked_site(_file(**wrong)), None)


def _by_size(G: sparse.csr_array) -> sparse.csr_array:
    """I − L/(N + 1): on a site's own edges, but of a number that it does not know."""
    return sparse.csr_array(sparse.eye_array(G.shape[0]) - laplacian(G) / (G.shape[0] + 1.0))


@pytest.mark.parametrize("far", [lambda G: metropolis(G) @ metropolis(G), _by_size])
def test_weights_that_need_more_than_the_neighbours_are_refused(
    tracked: Nets, monkeypatch: pytest.MonkeyPatch, far: Callable[..., Any]
) -> None:
    monkeypatch.setattr(Tracking, "weights", lambda self, G: far(G))
    net = tracked(agents=4, edges=3)
    net.start()
    net.until(lambda: bool(net.errors))
    net.stop()
    assert all(
        "need more of the graph than a site knows" in str(error) for error in net.errors.values()
    )
