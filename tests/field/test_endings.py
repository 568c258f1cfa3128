"""The end, without a coordinator (I13): nobody declares early, everybody ends, and knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coke.field.frames import Standing, Word
from coke.field.node import Node
from coke.maths.algorithms.stopping import NEVER
from kit.events import (
    GOING_ON,
    SMALL,
    Faults,
    World,
    forgotten,
    lockstep,
    name,
)

ENDINGS = {
    "waiting": Faults(),
    "going on, half asleep": GOING_ON._replace(awake=0.5),
    "loss": GOING_ON._replace(loss=0.2, double=0.1, late=2),
    "kills": GOING_ON._replace(kill=0.05),
    "one is slow": Faults(patience=3, slow=10),
}


def _ends(world: World, most: int, how: str = "done") -> bool:
    for _ in range(most):
        world.tick()
        if all(getattr(node, how) for node in world.nodes.values()):
            return True
    return False


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("faults", ENDINGS.values(), ids=ENDINGS)
def test_nobody_declares_early_and_everybody_ends(faults: Faults, tol: float) -> None:
    """max |θ − θ*| ≤ 3 tol once a countdown begins; all are done, and know that all are."""
    world, best = World(SMALL, faults, seed=4, tol=tol), SMALL.optimum(range(6))
    for _ in range(30 * lockstep()[0]):
        world.tick()
        if any(node.countdown < NEVER for node in world.nodes.values()):
            break
    assert max(np.abs(s.theta - best).max() for s in world.nodes.values()) <= 3 * tol
    assert _ends(world, 300)
    assert _ends(world, 100, "free")


def test_nobody_stops_while_a_neighbour_is_missing() -> None:
    """By intent; once its edges are closed, all do."""
    world = World(SMALL, GOING_ON, tol=1e-3)
    world.agents[name(0)].gone = True
    for _ in range(3 * lockstep()[0]):
        world.tick()
    assert not any(node.done for node in world.nodes.values())
    forgotten(world)
    assert _ends(world, 200)


def _counting() -> Node:
    """A site in the middle of a quiet time: its neighbours count as it does."""
    world = World(SMALL, Faults(), tol=0.5)
    for agent in world.agents.values():
        setup = replace(agent.node.setup, diameter=50)
        agent.node = agent.disk = agent.node._replace(setup=setup)
    while min(node.laps for node in world.nodes.values()) < 3:
        world.tick()
    return world.nodes[name(2)]


def test_counts_go_by_laps_in_which_all_was_well() -> None:
    """A round without a neighbour's word is none; one with something left to do begins anew."""
    node = _counting()
    longer = {n: end._replace(quiet=9) for n, end in node.ends.items()}
    node = node._replace(ends=longer)
    alone = node.round(force=True).node  # nobody has answered its last words
    assert alone.laps == alone.round(force=True).node.laps == node.laps >= 3
    strict = node._replace(setup=replace(node.setup, limits=node.setup.limits._replace(tol=0.0)))
    assert strict.round(force=True).node.laps == 0
    for fine in (True, False):
        heard = {n: e._replace(box=(e.out, None)) for n, e in node.ends.items()}
        lap = node._replace(ends=heard, fine=fine).round().node
        assert (lap.laps > 0) == fine


def test_an_edge_that_begins_anew_counts_for_nothing() -> None:
    """Its first word says 0; a neighbour that closes an edge in a round is told so."""
    node = _counting()
    neighbour, end = next(iter(node.ends.items()))
    ((_, word),) = node.join(neighbour).frames
    assert isinstance(word, Word)
    assert (word.epoch, word.step, word.quiet) == (1, 0, 0)
    wild = end._replace(strikes=2, cp=np.full(12, 4096.0), g=end.own, box=(end.out, None))
    wild = wild._replace(own=np.full(12, -4096.0))
    after = node._replace(ends={**node.ends, neighbour: wild}).round(force=True)
    assert dict(after.frames)[neighbour] == Standing(1, True)


def test_done_sites_that_fall_silent_leave_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a done site answers: by the word that is asked for, or by DONE."""
    plain, faults = World.send, Faults(loss=0.3)
    assert _ends(World(SMALL, faults, seed=1, tol=1e-2), 1500)

    def mute(self: World, sender: str, frames: Any) -> None:
        plain(self, sender, () if self.agents[sender].node.done else frames)

    monkeypatch.setattr(World, "send", mute)
    assert not _ends(World(SMALL, faults, seed=1, tol=1e-2), 1500)
