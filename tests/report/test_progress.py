"""How far a run has come: a bar shows what ends it."""

from __future__ import annotations

import numpy as np
import pytest

from coke.engines.process import Record
from coke.learning.ready import Ready
from coke.learning.train import Effects, train
from coke.report.progress import _WHOLE, _Way
from kit.hard import hard_cases


def records(ready: Ready, algorithm: str) -> list[Record]:
    """Of all its rounds."""
    found = list[Record]()
    train(ready, algorithm, Effects(watch=lambda _, r: found.append(r), handled=False))
    return found


@pytest.mark.parametrize("algorithm", ["coke", "tree-newton"])
def test_a_bar_is_full_when_a_run_ends_and_not_before(algorithm: str) -> None:
    """Where all are near enough for a proof, though they move by more than the tolerance."""
    moving = 0
    for case in hard_cases(6, seed=2):
        ready = case.ready(**{"lambda": 1e-2})
        found, tol = records(ready, algorithm), ready.case("coke").tol
        assert tol is not None
        way = _Way(1.0, 10**6)
        full = [way.at(r, "mse")[0] == _WHOLE for r in found]
        assert full == [r.away <= 1.0 for r in found]
        assert full[-1]
        assert not full[0]
        if algorithm == "coke":  # all ends a reach or two after the first round that was enough
            assert len(full) - full.index(True) >= min(ready.reach)
            moving += found[-1].consensus_gap > tol
    assert moving or algorithm != "coke"


def test_where_nothing_tells_a_bar_counts_rounds() -> None:
    """The paper's methods have no tolerance."""
    ready = next(hard_cases(1, seed=2)).ready(rounds=4)
    found = records(ready, "dkla")
    assert np.isinf([r.away for r in found]).all()
    way = _Way(1.0, 4)
    assert [way.at(r, "mse")[0] for r in found] == [250, 500, 750, 1000]
    assert "4 of 4 rounds" in way.at(found[-1], "mse")[2]
