"""The end, without a coordinator (I13): nobody declares early, everybody ends, and knows it.

The last letters of whole agents, too: nobody waits in vain, and a crash changes no bit. All orders
of them between a few sites are in tests/laws/test_interleavings.py.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.field.frames import CHECK, CHECKED, DONE, PARTED, Standing, Word, decode, is_word
from coke.field.node import Node
from coke.maths.algorithms.stopping import NEVER
from kit import driven
from kit.agents import PACE, Net, Nets
from kit.driven import Driven
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
        setup = replace(agent.node.setup, reach=50)
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


# Whole agents: the last rounds, the sum after them, and the last letters.


MODELS: dict[str, dict[str, Any]] = {
    "plain": {"tol": 1e-3},
    "auto, with one more sum": {
        "model": "auto", "lambda": "auto", "tol": 1e-2, "features": {"n_features": 6},
        "data": {"file": "rows", "target": "y", "test": 0.0, "scale": "standard"},
    },
}  # fmt: skip


def _nobody(sender: str, receiver: str) -> None:
    """Is killed."""


def _calm(net: Net) -> Driven:
    """The undisturbed run, in which nobody would ever be given up."""
    found = Driven(net, _nobody, pace=driven.PACE._replace(linger=inf))
    found.run()
    return found


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_nobody_lingers_where_nothing_is_lost(nets: Nets, settings: dict[str, Any]) -> None:
    """All end though none would ever give up; every edge is compared from both ends."""
    found = _calm(nets(**settings))
    assert not [event for event in found.events if event.kind in ("late", "spoilt")]
    for agent in found.agents.values():
        assert set(agent.outcome().asymmetry.values()) == {0.0}
        assert (agent.outcome().closed.misses is None) == (settings is MODELS["plain"])


def test_nor_do_threads(nets: Nets) -> None:
    net = nets(tol=1e-3, pace=PACE._replace(linger=inf))
    net.start()
    net.wait()
    assert all(set(net.agents[n].outcome().asymmetry.values()) == {0.0} for n in net.names)


def test_whoever_does_not_part_is_waited_for_no_longer_than_a_while(nets: Nets) -> None:
    """And named. Nobody hears the last letters here."""
    net = nets(tol=1e-3, pace=PACE._replace(linger=0.3))
    net.memory.fault = lambda sender, receiver, frame: () if frame[0] >= CHECK else (frame,)
    net.start()
    net.wait()
    for n in net.names:
        late = {event.who for event in net.status[n].events if event.kind == "late"}
        assert late == net.friends[n]
        assert net.agents[n].outcome().converged


def _last(frame: bytes) -> object:
    """What tells a frame of the ending from others: a countdown's words, DONE and last letters."""
    if frame[0] in (DONE, CHECK, CHECKED, PARTED):
        return frame[0]
    word = decode(frame, 100) if is_word(frame) else None
    return (word.step,) if isinstance(word, Word) and word.quiet < 0 else None


@pytest.mark.parametrize("who", [0, 1], ids=["the sender", "the receiver"])
@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_a_kill_at_any_frame_of_the_ending_changes_no_bit(
    nets: Nets, settings: dict[str, Any], who: int
) -> None:
    """As it is sent or before it arrives: all end, with θ of the undisturbed run.

    The sum's messages are in test_choosing_agents.py.
    """
    net, calm = nets(**settings), _calm(nets(**settings))
    wild = Driven(net, lambda *ends: ends[who], _last)
    wild.run()
    kinds = {kind for _, _, kind in wild.met}
    assert kinds >= {DONE, CHECK, CHECKED}
    assert any(isinstance(kind, tuple) for kind in kinds)
    assert wild.kills > 20
    for n, agent in wild.agents.items():
        (node, other) = agent.node, calm.agents[n].node
        assert node is not None
        assert other is not None
        assert (node.k, node.done) == (other.k, True)
        assert_array_equal(node.theta, other.theta)
