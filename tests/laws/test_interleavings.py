"""Every interleaving of a few sites (I15); the long versions are in benchmarks/protocol.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.exhaustive import Search
from kit.machines import (
    DEAF_IN_RESERVE,
    MUTE_WHEN_SHUT,
    NOTHING_OUTSTANDING,
    ONE_WORD,
    OWN_BEGINNING,
    RECOMPUTES,
    SENDS_FIRST,
    Machine,
    Model,
)
from kit.partings import PAIR, PATH, TRIANGLE_OF_EDGES, Partings, mute

MODELS = {
    "two steps": Model(),
    "news or silence": Model(steps=1, silence=True, flight=1),
    "resets": Model(flight=1, resets=1),
    "closed and opened": Model(steps=1, flight=1, closings=3),
    "kept in reserve, opened or shut": Model(steps=1, flight=1, closings=2, spare=True),
    "a disk that is empty again": Model(flight=1, rollbacks=1),
    "after a descent": Model(flight=1, begins=(1, 2)),
    "after a descent, resets": Model(steps=1, flight=1, begins=(2, 1), resets=1),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_interleaving_breaks_a_rule_or_leads_nowhere(model: Model) -> None:
    found = Search(model).run()
    assert found.states > 500
    assert found.violations == 0
    assert found.dead == 0


MUTANTS: dict[str, tuple[Model, Machine]] = {
    "sends before the image is on disk": (Model(1, 1, silence=True), SENDS_FIRST),
    "writes its word anew after a restart": (Model(1, 1, silence=True), RECOMPUTES),
    "keeps one word only": (Model(2, 1), ONE_WORD),
    "completes without the next word": (Model(2, 1, rollbacks=1), NOTHING_OUTSTANDING),
    "does not hear that a reserve is needed": (
        Model(1, 1, closings=1, spare=True),
        DEAF_IN_RESERVE,
    ),
    "does not answer who opens what is shut": (
        Model(1, 1, closings=1, spare=True),
        MUTE_WHEN_SHUT,
    ),
    "takes any beginning for its own": (Model(1, 1, begins=(1, 2)), OWN_BEGINNING),
}


@pytest.mark.parametrize(("model", "machine"), MUTANTS.values(), ids=MUTANTS)
def test_what_does_not_work_is_seen(model: Model, machine: Machine) -> None:
    found = Search(Model(**{**vars(model), "machine": machine})).run(first=True)
    assert found.violations or found.dead


TRIANGLE = Model(3, 2, sites=3, ring=True, resets=2)  # too many states for all of them


def test_random_walks_around_a_triangle_break_no_rule_and_can_be_finished() -> None:
    found = Search(TRIANGLE).walk(10, 150, seed=0)
    assert found.states > 500
    assert found.violations == 0
    assert found.dead == 0


def test_random_walks_around_a_triangle_see_what_does_not_work() -> None:
    mutant = replace(TRIANGLE, machine=SENDS_FIRST, silence=True)
    assert Search(mutant).walk(10, 150, seed=0).violations > 0


# The last letters: how sites part.

CALM = {"two": Partings(PAIR), "a path": Partings(PATH), "a triangle": Partings(TRIANGLE_OF_EDGES)}
WILD = {
    "two": Partings(PAIR, calm=False),
    "two, kills": Partings(PAIR, calm=False, kills=2),
    "a path": Partings(PATH, calm=False, flight=1),
    "a path, in order, a kill": Partings(PATH, kills=1),
}


@pytest.mark.parametrize("partings", CALM.values(), ids=CALM)
def test_nobody_waits_for_one_who_has_gone_where_nothing_is_lost(partings: Partings) -> None:
    """In no order of events: so nobody waits out the time that a site lingers."""
    found = partings.run()
    assert found.states > 20
    assert (found.early, found.stranded, found.dead) == (0, 0, 0)


@pytest.mark.parametrize("partings", WILD.values(), ids=WILD)
def test_nobody_goes_whose_end_a_neighbour_lacks(partings: Partings) -> None:
    """Unless that was killed; and all can go, but for those who wait for one who has gone."""
    found = partings.run()
    assert found.states > 100
    assert (found.early, found.dead) == (0, 0)


def test_ways_to_part_that_do_not_work_are_seen() -> None:
    """To leave in silence when CHECKED has come, and to go with the other's end alone."""
    assert Partings(PAIR, hear=mute).run().stranded > 0
    hasty = Partings(PAIR, calm=False, settled=lambda at: at.his is not None)
    assert hasty.run().early > 0
