"""What a run says first, in the terminal, in JSON, in its report, and at an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coke.report import progress
from kit.commands import coke


def test_digits_are_known_together_and_not_alone(tmp_path: Path) -> None:
    """Ten sites that have seen two digits each: alone about 0.2, together as if pooled."""
    run = coke("run", "--example", "digits", "--out", "o", "--json", cwd=tmp_path)
    document = json.loads(run.stdout)
    verdict, settled = document["verdict"], document["settled"]
    assert settled is True
    assert len(verdict["sites"]) == 10
    assert all(0.15 < at["alone"]["accuracy"] < 0.25 for at in verdict["sites"].values())
    assert abs(verdict["together"]["accuracy"] - verdict["pooled"]["accuracy"]) <= 0.01
    assert verdict["together"]["accuracy"] > 0.9
    assert verdict["together"]["accuracy"] == pytest.approx(document["test_accuracy"])
    page = (tmp_path / "o/report.html").read_text("utf-8")
    first, *_ = page.partition("<table")
    assert verdict["text"] in first.replace("\u00a0", " ")
    assert first.count("<figure>") >= 5
    assert first.index("Predicted against true") < first.index("What each site gains")


def test_a_run_that_stopped_at_its_limit_says_so_everywhere(folder: Path) -> None:
    run = coke(
        "run", "small.toml", "--rounds", 4, "--tol", 1e-3, "--no-sums", "--out", "o", "--json",
        cwd=folder,
    )  # fmt: skip
    document = json.loads(run.stdout)
    assert document["settled"] is False
    assert any("not settled after 4 rounds" in line for line in document["warnings"])
    assert "warning: not settled after 4 rounds" in run.stderr
    assert "not settled after 4 rounds" in (folder / "o/report.html").read_text("utf-8")
    run = coke("run", "small.toml", "--rounds", 4, "--tol", 1e-3, "--no-sums", cwd=folder)
    assert "not settled after 4 rounds" in run.stdout.splitlines()[0]
    run = coke("run", "small.toml", "--algorithm", "dkla", "--rounds", 4, "--json", cwd=folder)
    document = json.loads(run.stdout)
    assert document["settled"] is None  # it has no tolerance
    assert "not settled" not in run.stderr


def test_without_rows_held_out_they_are_as_if_left_out(folder: Path) -> None:
    document = json.loads(coke("run", "small.toml", "--test", 0, "--json", cwd=folder).stdout)
    assert "left out" in document["verdict"]["of"]


def test_without_a_terminal_there_is_a_line_now_and_then(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    run = coke("run", "small.toml", "--tol", 1e-3, cwd=folder)
    (line, *_) = [line for line in run.stderr.splitlines() if line.startswith("coke: ")]
    assert "× what may be left" in line
    assert "rows/s" in line
