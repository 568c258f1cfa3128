"""Sites on a network that fails in every way: the simulation's bits, and the same answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.engines.process import simulate
from coke.field.frames import encode
from coke.field.node import Node
from coke.maths.algorithms.codecs import Coarse, Coded, Float64
from coke.maths.algorithms.coke import COKE, Geometric, Schedule, Shrinking
from coke.maths.arrays import Array, Mask
from coke.maths.ledger import Ledger
from coke.maths.losses.problem import Problem
from kit.events import (
    GOAL,
    GOING_ON,
    SMALL,
    Faults,
    World,
    eager,
    invariants,
    lockstep,
    name,
    whitened,
)

ALGORITHMS = {
    "coarse, shrinking, warm": COKE(0.3, Shrinking(0.5), Coarse(), warm=True),
    "float64, shrinking, warm": COKE(0.3, Shrinking(0.5), Float64(), warm=True),
    "coarse, geometric": COKE(0.3, Geometric(0.3, 0.9), Coarse()),
}

# The same bits as the simulation (I3, I4, I12).


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_sites_that_wait_are_the_simulation_bit_for_bit(algorithm: COKE) -> None:
    """θ, θ̂, heard, g, h, losses and the ledger, for 300 rounds on a random graph; Σg = 0."""
    case = whitened(8, 16, 13)._replace(algorithm=algorithm)
    world, before = World(case, Faults()), None
    for r in simulate(Problem(case.risk), case.graph, algorithm, rounds=300):
        world.tick()
        nodes = list(world.nodes.values())
        assert {node.k for node in nodes} == {r.k}
        assert_array_equal(np.concatenate([node.theta for node in nodes]), r.state.theta)
        assert_array_equal([node.state.loss[0] for node in nodes], r.state.loss)
        assert Ledger(*np.sum([node.ledger for node in nodes], axis=0).tolist()) == r.ledger
        if isinstance(algorithm.threshold, Shrinking):
            for node, h in zip(nodes, r.state.h[:, 0], strict=True):
                assert {end.h for end in node.ends.values()} == {h}
        if before is not None:
            _completed_is(nodes, before)
        before = r.state
    assert before is not None
    assert_array_equal(np.sum([_sum(node, "g") for node in nodes], axis=0), 0)


def _sum(node: Node, what: str) -> Array:
    return np.sum([getattr(end, what) for end in node.ends.values()], axis=0)


def _completed_is(nodes: list[Node], state: Any) -> None:
    for i, node in enumerate(nodes):
        for end in node.ends.values():
            assert_array_equal(end.own, state.hat[i])
        assert_array_equal(_sum(node, "cp"), state.heard[i])
        assert_array_equal(_sum(node, "g"), state.g[i])


def test_sums_off_the_grid_are_not_the_simulations() -> None:
    """Why messages are on the grid: with float64 as it comes, bits part within a few rounds."""

    class Raw(Float64):
        def coded(self, X: Array) -> Coded:
            return super().coded(X)._replace(values=X, message=lambda i: X[i].tobytes())

        def decode(self, data: bytes, size: int) -> Array:
            return np.frombuffer(data).copy()

    case = whitened(8, 16, 13)._replace(algorithm=COKE(0.3, Geometric(0.0), Raw()))
    world = World(case, Faults())
    for _ in range(20):
        world.tick()
    *_, r = simulate(Problem(case.risk), case.graph, case.algorithm, rounds=20)
    thetas = np.concatenate([node.theta for node in world.nodes.values()])
    assert np.allclose(thetas, r.state.theta)
    assert not np.array_equal(thetas, r.state.theta)


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_sites_that_wait_all_stop_after_the_simulations_last_round(
    algorithm: COKE, tol: float
) -> None:
    """And within 3 tol of the optimum; the farthest site is as far as the simulation says."""
    case = SMALL._replace(algorithm=algorithm)
    world = World(case, Faults(), tol=tol)
    for last in simulate(Problem(case.risk), case.graph, algorithm, rounds=900, tol=tol):
        world.tick()
        assert not any(node.done for node in world.nodes.values())
        assert max(node.away for node in world.nodes.values()) == last.away
    assert last.settled
    assert last.away <= 1.0
    world.tick()
    assert all(node.done and node.free and node.k == last.k for node in world.nodes.values())
    assert not any(node.short for node in world.nodes.values())
    thetas = np.concatenate([node.theta for node in world.nodes.values()])
    assert_array_equal(thetas, last.state.theta)
    assert np.abs(thetas - case.optimum(range(6))).max() <= 3 * tol


LIMITS: dict[str, dict[str, Any]] = {
    "one round": {"rounds": 1},
    "rounds": {"rounds": 20},
    "bytes": {"rounds": 900, "max_bytes": 1500},
    "messages": {"rounds": 900, "max_transmissions": 80},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_limits_end_all_after_the_simulations_last_round(
    algorithm: COKE, limits: dict[str, Any]
) -> None:
    """The same θ, rounds and ledger; and everybody says that it was a limit."""
    case = SMALL._replace(algorithm=algorithm)
    *_, last = simulate(Problem(case.risk), case.graph, algorithm, tol=1e-9, **limits)
    world = World(case, Faults(), tol=1e-9, **limits)
    for _ in range(last.k + 1):
        assert not any(node.done for node in world.nodes.values())
        world.tick()
    nodes = list(world.nodes.values())
    assert all(n.done and n.short and n.k == last.k and n.need is None for n in nodes)
    assert_array_equal(np.concatenate([n.theta for n in nodes]), last.state.theta)
    assert Ledger(*np.sum([n.ledger for n in nodes], axis=0).tolist()) == last.ledger
    world.tick()
    assert all(node.free for node in world.nodes.values())


def test_long_headers_are_booked_as_in_a_simulation() -> None:
    """Where the farthest site may be 130 steps away counts outgrow the short header."""
    reach, tol, bare = 130, 1e3, 0
    world = World(SMALL, Faults(), tol=tol)
    for agent in world.agents.values():
        agent.node = agent.node._replace(setup=replace(agent.node.setup, reach=reach))
    far = np.full(len(SMALL.graph), reach)
    problem, how = Problem(SMALL.risk), SMALL.algorithm
    for r in simulate(problem, SMALL.graph, how, rounds=900, tol=tol, reach=far):
        world.tick()
        nodes = list(world.nodes.values())
        assert Ledger(*np.sum([n.ledger for n in nodes], axis=0).tolist()) == r.ledger
        sent = [end.out for n in nodes for end in n.ends.values() if end.out is not None]
        bare += sum(len(encode(word)) for word in sent)
    assert r.settled
    assert r.ledger.wire_bytes == bare
    assert bare > 2 * SMALL.graph.number_of_edges() * 6 * r.k + 5


ROUGH = {
    "loss": Faults(loss=0.3, double=0.1, late=2),
    "kills": Faults(kill=0.1),
    "half asleep": Faults(awake=0.5, loss=0.1),
}


@pytest.mark.parametrize("faults", ROUGH.values(), ids=ROUGH)
@pytest.mark.parametrize("rounds", [1, 2, 15])
def test_nobody_is_told_the_end_in_place_of_a_word(faults: Faults, rounds: int) -> None:
    """Where sites wait, all make exactly so many rounds, whatever gets lost: the same bits."""
    *_, last = simulate(Problem(SMALL.risk), SMALL.graph, SMALL.algorithm, rounds=rounds)
    for seed in range(10):
        world = World(SMALL, faults, seed=seed, rounds=rounds)
        while not all(node.free for node in world.nodes.values()):
            world.tick()
            assert world.t < 200 * (rounds + 10)
        assert {node.k for node in world.nodes.values()} == {rounds}
        assert all(node.short for node in world.nodes.values())
        assert_array_equal([node.theta[0] for node in world.nodes.values()], last.state.theta)


def test_whoever_was_away_when_others_gave_up_still_makes_the_last_round() -> None:
    """Its neighbours are done, say so, and say the words that it lacks."""
    *_, last = simulate(Problem(SMALL.risk), SMALL.graph, SMALL.algorithm, rounds=8)
    world = World(SMALL, Faults(), rounds=8)
    for _ in range(7):
        world.tick()
    world.agents[name(0)].gone = True
    world.mail[name(0)].clear()
    for _ in range(3):
        world.tick()
    for n, node in world.nodes.items():
        world.take(n, node.round(force=True))
        assert (world.nodes[n].k, world.nodes[n].done) == (8, True)
    world.agents[name(0)].gone = False
    while not all(node.free for node in world.nodes.values()):
        world.tick()
        assert world.t < 100
    assert_array_equal(np.concatenate([n.theta for n in world.nodes.values()]), last.state.theta)
    ends = {(a, b): end for a, node in world.nodes.items() for b, end in node.ends.items()}
    assert all((end.s, end.out) == (8, None) for end in ends.values())
    assert all((end.g == -ends[b, a].g).all() for (a, b), end in ends.items())


@pytest.mark.parametrize("seed", range(5))
def test_a_quiet_end_is_the_same_round_everywhere_whatever_gets_lost(seed: int) -> None:
    *_, last = simulate(Problem(SMALL.risk), SMALL.graph, SMALL.algorithm, rounds=900, tol=1e-2)
    world = World(SMALL, Faults(loss=0.3, double=0.1, late=1), seed=seed, tol=1e-2)
    while not all(node.free for node in world.nodes.values()):
        world.tick()
        assert world.t < 5000
    assert {node.k for node in world.nodes.values()} == {last.k}
    assert not any(node.short for node in world.nodes.values())


def test_a_site_whose_first_word_is_too_much_stays_silent_and_says_what_it_needs() -> None:
    """A byte for each of six sites: nobody speaks, all end, and know what would have done."""
    world = World(SMALL, Faults(), max_bytes=6)
    for _ in range(nx.diameter(SMALL.graph) + 1):
        world.tick()
    nodes = world.nodes.values()
    assert all(node.done and node.short for node in nodes)
    assert {node.ledger.bytes for node in nodes} == {0}
    for node in nodes:
        assert node.need is not None
        enough = node.setup.sites * node.need.bytes
        assert node.need.bytes > 1
        share = World(SMALL, Faults(), max_bytes=enough).limits.share(node.setup.sites)
        assert (np.array(node.need) <= share).all()


# Faults (I1, I2, I5 to I9).


def test_kills_at_any_point_change_no_bit_where_sites_wait() -> None:
    """Before the image, after it, after sending: every durable θ is the undisturbed run's."""
    calm, wild = World(SMALL, Faults()), World(SMALL, Faults(kill=0.07), seed=3)
    thetas: dict[tuple[str, int], bytes] = {}
    for _ in range(150):
        calm.tick()
        thetas |= {(n, s.k): s.theta.tobytes() for n, s in calm.nodes.items()}
    seen: set[tuple[str, int]] = set()
    while len(seen) < 6 * 100:
        wild.tick()
        invariants(wild)
        for n, agent in wild.agents.items():
            assert agent.disk.k == 0 or agent.disk.theta.tobytes() == thetas[n, agent.disk.k]
            seen.add((n, agent.disk.k))
    assert wild.kills > 100


FAULTS: dict[str, tuple[Faults, float]] = {  # and ticks, as a multiple of lockstep
    "loss, doubles, reordering": (GOING_ON._replace(loss=0.2, double=0.1, late=1), 6),
    "awake half of the time": (GOING_ON._replace(awake=0.5), 4),
    "awake a fifth of the time": (GOING_ON._replace(awake=0.2), 10),
    "kills": (GOING_ON._replace(kill=0.05), 4),
    "all of it": (Faults(1, 1, 0.2, 0.1, 0.02, 0.5), 16),
}


@pytest.mark.parametrize(("faults", "most"), FAULTS.values(), ids=FAULTS)
def test_faults_cost_time_and_hardly_any_steps(faults: Faults, most: float) -> None:
    """≤ 1e-9 in at most 1.15 times the steps; ends agree exactly after every tick."""
    ticks, steps = lockstep()
    world = World(SMALL, faults, seed=2)
    assert world.until(GOAL, int(most * ticks), invariants) > 0
    assert world.steps() <= 1.15 * steps


def test_a_dual_that_goes_on_without_the_pair_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why g moves on completed steps only: in every own round it would be off."""
    monkeypatch.setattr(Node, "round", eager)
    world = World(SMALL, GOING_ON._replace(awake=0.5), seed=2)
    assert world.until(1e-2, 4 * lockstep()[0]) < 0


def _alone(threshold: Schedule | Shrinking, warm: bool = False) -> tuple[Node, str]:
    """A node with one neighbour, and who that is."""
    case = SMALL._replace(algorithm=COKE(0.3, threshold, Coarse(), warm=warm))
    setup = case.setup(0)
    return Node(setup, setup.ends([name(1)]), setup.start()), name(1)


def _stepped(node: Node, neighbour: str) -> Node:
    """After a step in which the neighbour said nothing."""
    end = node.ends[neighbour]
    assert end.out is not None
    heard = end._replace(box=(end.out._replace(payload=b""), None))
    return node._replace(ends={neighbour: heard}).round().node


def test_thresholds_count_steps_of_the_edge_or_shrink_in_silence() -> None:
    """h(s + 1) for a sequence, also after the edge began anew; `factor` smaller after silence."""
    asked: list[int] = []

    def h(k: int) -> float:
        asked.append(k)
        return 0.0

    node, n = _alone(Schedule(h))
    node = node.round().node
    for _ in range(3):
        node = _stepped(node, n)
    assert asked == [1, 2, 3, 4]
    node = node.join(n).node
    assert asked[4:] == [1]
    _stepped(node, n)
    assert asked[5:] == [2]
    node, n = _alone(Shrinking(1e6, 0.5, 0.75))
    node = node.round().node
    assert node.ends[n].h == 0.5 * 1e6 * 0.75
    far = node._replace(ends={n: node.ends[n]._replace(h=0.1, own=np.full(12, 4.0))})
    assert _stepped(far, n).ends[n].h == 0.1  # it had news
    later = _stepped(node._replace(ends={n: node.ends[n]._replace(s=9)}), n)
    assert later.ends[n].h == 0.5 * 1e6 * 0.75**11


def test_a_warm_edge_speaks_first_whatever_the_threshold() -> None:
    node, n = _alone(Shrinking(1e6, 0.5), warm=True)
    node = node.round().node
    first, again = node.ends[n].out, node.join(n).node.ends[n].out
    assert first is not None
    assert again is not None
    assert first.payload == again.payload != b""


class Sends:
    """A threshold that falls with every message, and not with every step."""

    start = 0.27

    def at(self, h: Array, k: int) -> Array:
        return h

    def after(self, h: Array, news: Mask) -> Array:
        return np.where(news, 0.9 * h, h)


def test_a_threshold_that_counts_sends_never_ends() -> None:
    """No send, no decay."""
    case = SMALL._replace(algorithm=COKE(SMALL.algorithm.rho, Sends(), Coarse()))
    assert World(case, Faults()).until(GOAL, 4 * lockstep()[0]) < 0
