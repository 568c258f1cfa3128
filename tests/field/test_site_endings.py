"""The end, without a coordinator (I13): nobody declares early, everybody ends, and knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coke.field.node import Site
from coke.field.words import Place, Word, decode, encode
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
        if all(getattr(site, how) for site in world.sites.values()):
            return True
    return False


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("faults", ENDINGS.values(), ids=ENDINGS)
def test_nobody_declares_early_and_everybody_ends(faults: Faults, tol: float) -> None:
    """max |θ − θ*| ≤ 3 tol once a countdown begins; all are done, and know that all are."""
    world, best = World(SMALL, faults, seed=4, tol=tol), SMALL.optimum(range(6))
    for _ in range(30 * lockstep()[0]):
        world.tick()
        if any(site.countdown < NEVER for site in world.sites.values()):
            break
    assert max(np.abs(s.theta - best).max() for s in world.sites.values()) <= 3 * tol
    assert _ends(world, 300)
    assert _ends(world, 100, "free")


def test_nobody_stops_while_a_neighbour_is_missing() -> None:
    """By intent; once its edges are closed, all do."""
    world = World(SMALL, GOING_ON, tol=1e-3)
    world.agents[name(0)].gone = True
    for _ in range(3 * lockstep()[0]):
        world.tick()
    assert not any(site.done for site in world.sites.values())
    forgotten(world)
    assert _ends(world, 200)


def _counting() -> Site:
    """A site in the middle of a quiet time: its neighbours count as it does."""
    world = World(SMALL, Faults(), tol=0.5)
    for agent in world.agents.values():
        setup = replace(agent.site.setup, diameter=50)
        agent.site = agent.disk = agent.site._replace(setup=setup)
    while min(site.laps for site in world.sites.values()) < 3:
        world.tick()
    return world.sites[name(2)]


def test_counts_go_by_laps_in_which_all_was_well() -> None:
    """A round without a neighbour's word is none; one with something left to do begins anew."""
    site = _counting()
    longer = {n: end._replace(quiet=9) for n, end in site.ends.items()}
    site = site._replace(ends=longer)
    alone = site.round(force=True).site  # nobody has answered its last words
    assert alone.laps == alone.round(force=True).site.laps == site.laps >= 3
    strict = site._replace(setup=replace(site.setup, tol=0.0))
    assert strict.round(force=True).site.laps == 0
    for fine in (True, False):
        heard = {n: e._replace(box=(e.out, None)) for n, e in site.ends.items()}
        lap = site._replace(ends=heard, fine=fine).round().site
        assert (lap.laps > 0) == fine


def test_an_edge_that_begins_anew_counts_for_nothing() -> None:
    """Its first word says 0; a neighbour that closes an edge in a round is told so."""
    site = _counting()
    neighbour, end = next(iter(site.ends.items()))
    ((_, data),) = site.join(neighbour).letters
    word = decode(data, 12)
    assert isinstance(word, Word)
    assert (word.epoch, word.step, word.quiet) == (1, 0, 0)
    wild = end._replace(strikes=2, cp=np.full(12, 4096.0), g=end.own, box=(end.out, None))
    wild = wild._replace(own=np.full(12, -4096.0))
    turn = site._replace(ends={**site.ends, neighbour: wild}).round(force=True)
    assert dict(turn.letters)[neighbour] == encode(Place(1, True))


def test_done_sites_that_fall_silent_leave_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a done site answers every word by STOP."""
    plain, faults = World.send, Faults(loss=0.3)
    assert _ends(World(SMALL, faults, seed=1, tol=1e-2), 1500)

    def mute(self: World, sender: str, letters: Any) -> None:
        plain(self, sender, () if self.agents[sender].site.done else letters)

    monkeypatch.setattr(World, "send", mute)
    assert not _ends(World(SMALL, faults, seed=1, tol=1e-2), 1500)
