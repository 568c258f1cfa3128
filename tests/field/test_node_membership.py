"""Sites that are cut off, leave, die, return and join (I10): those present find their optimum."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from coke.field.node import Node
from kit.events import (
    GOAL,
    SMALL,
    Faults,
    World,
    forgotten,
    invariants,
    lockstep,
    name,
)


def _cut(world: World) -> None:
    world.cut = lambda a, b: (a < name(3)) != (b < name(3))


def _healed(world: World) -> None:
    world.cut = lambda a, b: False


def _leaves(world: World) -> None:
    """Gracefully."""
    world.take(name(0), world.agents[name(0)].node.leave())
    world.agents[name(0)].gone = True


def _dies(world: World) -> None:
    world.agents[name(0)].gone = True


def _back(world: World) -> None:
    """With its old disk; its neighbours open their edges."""
    world.agents[name(0)].gone = False
    for n, node in world.nodes.items():
        if name(0) in node.ends:
            world.take(n, node.join(name(0)))


def _joins(world: World) -> None:
    around = sorted(world.problem.graph[5])
    world.add(5, around)
    for n in map(name, around):
        world.take(n, world.nodes[n].join(name(5)))


def _resets(world: World) -> None:
    for n in map(name, (1, 2, 4)):
        node = world.nodes[n]
        world.take(n, node.join(next(iter(node.open))))


def _rolled_back(world: World) -> None:
    """An old backup, here the very first one."""
    agent = world.agents[name(2)]
    setup = agent.node.setup
    agent.node = agent.disk = Node(setup, setup.ends(agent.node.ends), setup.start())


Change = Callable[[World], None]
CHANGES: dict[str, dict[int, Change]] = {
    "partition": {40: _cut, 90: _healed},
    "leaves": {40: _leaves},
    "dies and is forgotten": {40: _dies, 60: forgotten},
    "dies, is forgotten and comes back": {30: _dies, 50: forgotten, 90: _back},
    "joins": {50: _joins},
    "edges start again": {40: _resets, 60: _resets},
    "an old backup": {50: _rolled_back},
}


@pytest.mark.parametrize("patience", [math.inf, 1], ids=["waiting", "going on"])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_whoever_is_present_finds_their_optimum(
    changes: dict[int, Change], patience: float
) -> None:
    """≤ 1e-9 from the optimum of those present, in 1.2 × their lockstep after the last event."""
    joining = [5] if _joins in changes.values() else []
    world = World(SMALL, Faults(patience), absent=joining)
    for t in range(max(changes)):
        world.tick()
        invariants(world)
        if t + 1 in changes:
            changes[t + 1](world)
    gone = [i for i in SMALL.graph if name(i) not in world.nodes]
    assert world.until(GOAL, int(1.2 * lockstep(*gone)[0]), invariants) > 0
    present = {n: set(node.open) for n, node in world.nodes.items()}
    assert all(a in present[b] for a, others in present.items() for b in others)


def test_a_solver_is_prepared_anew_when_the_number_of_neighbours_changes() -> None:
    """θ of a site that all have left is its own minimum."""
    setup = SMALL.setup(0)
    node = Node(setup, setup.ends([name(1), name(2)]), setup.start())
    node = node.round().node.leave().node
    alone = node.round().node
    best = SMALL.optimum([0])
    np.testing.assert_allclose(alone.theta[0], best, rtol=1e-12)
    assert not np.allclose(node.theta[0], best)
