"""A sample of `make bench-chaos`: a few seeds of trouble, and that they are the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coke.field import edge
from coke.field.edge import End
from kit.chaos import Found, shaken
from kit.plans import planned

CALM = 4, 6, 10, 16, 22, 48, 56  # honest ones, short: by rounds, over the tree, sites that return
LIED = 3, 5, 17, 91, 20173  # with a liar


@pytest.mark.parametrize("seed", CALM)
def test_honest_sites_come_to_the_simulation_or_the_optimum(seed: int, tmp_path: Path) -> None:
    found = shaken(seed, tmp_path)
    assert not found.broken, f"{found.plan}: {found.broken}, after {dict(found.hit)}"
    assert len(found.held) == 4
    assert found.hit.total() > 0


@pytest.mark.parametrize("seed", LIED)
def test_a_liar_does_as_much_harm_as_is_stated_and_no_more(seed: int, tmp_path: Path) -> None:
    found = shaken(seed, tmp_path)
    assert found.plan.lie
    assert not found.broken, f"{found.plan}: {found.broken}, after {dict(found.hit)}"


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    def run(name: str) -> Found:
        return shaken(26, tmp_path / name)

    assert run("once").hit == run("again").hit
    assert planned(26) == planned(26) != planned(28)


def test_what_does_not_hold_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Duals of one end that drift by the last bit."""
    complete = edge.complete

    def drifting(at: edge.Edge, end: End) -> End:
        after = complete(at, end)
        moved = after.s == end.s + 1 == 5 and at.lower
        return after._replace(g=after.g + np.ldexp(1.0, -40)) if moved else after

    monkeypatch.setattr(edge, "complete", drifting)
    broken = " ".join(shaken(26, tmp_path).broken)
    assert "duals cancel" in broken
