"""Sites on a network that fails in every way: the simulation's bits, and the same answer."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.engines.process import simulate
from coke.field import edge as edges
from coke.field.edge import Edge, End
from coke.field.node import Site
from coke.maths.algorithms.codecs import Coarse, Float64
from coke.maths.algorithms.coke import COKE, Geometric, Schedule, Shrinking
from coke.maths.arrays import Array
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
        sites = list(world.sites.values())
        assert {site.k for site in sites} == {r.k}
        assert_array_equal(np.concatenate([site.theta for site in sites]), r.state.theta)
        assert_array_equal([site.loss for site in sites], r.state.loss)
        assert Ledger(*np.sum([site.ledger for site in sites], axis=0).tolist()) == r.ledger
        if isinstance(algorithm.threshold, Shrinking):
            for site, h in zip(sites, r.state.h[:, 0], strict=True):
                assert {end.h for end in site.ends.values()} == {h}
        if before is not None:
            _completed_is(sites, before)
        before = r.state
    assert before is not None
    assert_array_equal(np.sum([_sum(site, "g") for site in sites], axis=0), 0)


def _sum(site: Site, what: str) -> Array:
    return np.sum([getattr(end, what) for end in site.ends.values()], axis=0)


def _completed_is(sites: list[Site], state: Any) -> None:
    for i, site in enumerate(sites):
        for end in site.ends.values():
            assert_array_equal(end.own, state.hat[i])
        assert_array_equal(_sum(site, "cp"), state.heard[i])
        assert_array_equal(_sum(site, "g"), state.g[i])


def test_sums_off_the_grid_are_not_the_simulations() -> None:
    """Why messages are on the grid: with float64 as it comes, bits part within a few rounds."""

    class Raw(Float64):
        def encode(self, x: Array) -> bytes:
            return x.tobytes()

        def decode(self, data: bytes, size: int) -> Array:
            return np.frombuffer(data).copy()

    case = whitened(8, 16, 13)._replace(algorithm=COKE(0.3, Geometric(0.0), Raw()))
    world = World(case, Faults())
    for _ in range(20):
        world.tick()
    *_, r = simulate(Problem(case.risk), case.graph, case.algorithm, rounds=20)
    thetas = np.concatenate([site.theta for site in world.sites.values()])
    assert np.allclose(thetas, r.state.theta)
    assert not np.array_equal(thetas, r.state.theta)


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_sites_that_wait_all_stop_after_the_simulations_last_round(
    algorithm: COKE, tol: float
) -> None:
    """And within 3 tol of the optimum."""
    case = SMALL._replace(algorithm=algorithm)
    *_, last = simulate(Problem(case.risk), case.graph, algorithm, rounds=900, tol=tol)
    assert last.settled
    world = World(case, Faults(), tol=tol)
    for _ in range(last.k + 1):
        assert not any(site.done for site in world.sites.values())
        world.tick()
    assert all(site.done and site.free and site.k == last.k for site in world.sites.values())
    assert not any(site.short for site in world.sites.values())
    thetas = np.concatenate([site.theta for site in world.sites.values()])
    assert_array_equal(thetas, last.state.theta)
    assert np.abs(thetas - case.optimum(range(6))).max() <= 3 * tol


def test_a_limit_ends_all_in_the_same_round_and_says_that_it_was_one() -> None:
    world, D = World(SMALL, Faults(), tol=1e-9), nx.diameter(SMALL.graph)
    for _ in range(20):
        world.tick()
    agent = world.agents[name(3)]
    agent.site = agent.site.declare()
    for _ in range(2 * D + 2):
        world.tick()
    assert all(s.done and s.short and s.free for s in world.sites.values())
    assert {s.k for s in world.sites.values()} == {20 + D}


# Faults (I1, I2, I5 to I9).


def test_kills_at_any_point_change_no_bit_where_sites_wait() -> None:
    """Before the image, after it, after sending: every durable θ is the undisturbed run's."""
    calm, wild = World(SMALL, Faults()), World(SMALL, Faults(kill=0.07), seed=3)
    thetas: dict[tuple[str, int], bytes] = {}
    for _ in range(150):
        calm.tick()
        thetas |= {(n, s.k): s.theta.tobytes() for n, s in calm.sites.items()}
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
    monkeypatch.setattr(Site, "round", eager)
    world = World(SMALL, GOING_ON._replace(awake=0.5), seed=2)
    assert world.until(1e-2, 4 * lockstep()[0]) < 0


def test_a_threshold_that_counts_sends_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No send, no decay."""
    plain = edges.freeze

    def counting(edge: Edge, end: End, theta: Array, quiet: int, *said: bool) -> End:
        h = Geometric(0.3, 0.9)(1 + int(end.h))
        after = plain(edge._replace(threshold=Schedule(lambda k: h)), end, theta, quiet, *said)
        assert after.out is not None
        return after._replace(h=end.h + bool(after.out.payload))

    monkeypatch.setattr(edges, "freeze", counting)
    assert World(SMALL, Faults()).until(GOAL, 4 * lockstep()[0]) < 0
