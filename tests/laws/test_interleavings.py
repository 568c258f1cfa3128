"""Every interleaving of a few sites (I15); the long versions are in benchmarks/protocol.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.exhaustive import Search
from kit.machines import NOTHING_OUTSTANDING, ONE_WORD, RECOMPUTES, SENDS_FIRST, Machine, Model

MODELS = {
    "two steps": Model(),
    "news or silence": Model(steps=1, silence=True, flight=1),
    "resets": Model(flight=1, resets=1),
    "closed and opened": Model(steps=1, flight=1, closings=2),
    "a disk that is empty again": Model(flight=1, rollbacks=1),
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
