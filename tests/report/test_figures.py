"""What the benchmarks say of themselves: goals, and how figures changed since earlier runs."""

from __future__ import annotations

import json
import math
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import figures

    return figures


def test_goals_are_missed_on_the_wrong_side_only(figures: Any) -> None:
    least, most = figures.Goal(least=4.0), figures.Goal(most=300.0)
    assert [least.missed(x) for x in (3.9, 4.0, 9.0, math.nan)] == [True, False, False, True]
    assert [most.missed(x) for x in (10.0, 300.0, 301.0, math.nan)] == [False, False, True, True]
    assert not least.missed(2.0, slack=2.0)
    assert least.missed(1.9, slack=2.0)


def test_a_run_is_compared_with_earlier_ones_on_such_a_machine(
    figures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "HISTORY", tmp_path / "history.jsonl")
    said = {"machine": "this", "size": "usual"}
    assert figures.earlier(said, "one") == {}
    for machine, value in (("this", 4.0), ("this", 6.0), ("other", 99.0), ("this", 8.0)):
        run = {"machine": machine, "size": "usual", "figures": {"one": {"speed": value}}}
        figures.keep(run, tmp_path / "out" / "bench.json", figures.HISTORY)
    before = figures.earlier(said, "one")
    assert before == {"speed": [4.0, 6.0, 8.0]}
    section = figures.Section("one", lambda size: {}, {"speed": figures.Goal(least=2.0)})
    (_, line) = figures.lines(section, {"speed": 3.0}, before)
    assert "≥ 2" in line
    assert "was 6 in 3 runs, -50%" in line


def test_the_history_tells_nobody_where_it_was_made(figures: Any) -> None:
    """Every line is a run with its date, machine and figures; no path, no name of a host."""
    lines = figures.HISTORY.read_text("utf-8").splitlines() if figures.HISTORY.exists() else []
    for line in lines:
        run = json.loads(line)
        assert set(run) == {"date", "machine", "size", "load", "figures"}
        assert str(Path.home()) not in line
    assert platform.node() not in figures.machine() or not platform.node()
    assert sys.prefix not in figures.machine()
