"""What a run may cost is told before it starts, and is not far from what it does."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from coke.learning.costs import Expected, expected
from coke.learning.open import open_ready
from coke.learning.train import train
from coke.settings.reading import checked_settings
from kit.commands import coke


def rows(path: Path, N: int, T: int) -> Path:
    rng = np.random.default_rng(0)
    lines = [f"{x},{np.sin(3 * x)},{i % N}" for i, x in enumerate(rng.normal(size=N * T))]
    path.write_text("x,y,who\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("N", "T"), [(100, 10), (8, 600)])
def test_the_estimate_is_within_a_factor_of_ten(tmp_path: Path, N: int, T: int) -> None:
    """Of few and of many rows a site; the machine may be busy, or another."""
    data = {"file": str(rows(tmp_path / "rows.csv", N, T)), "target": "y", "site": "who"}
    settings = checked_settings({"data": data, "model": "plain", "rounds": 300, "tol": 0.0})
    told: list[Expected] = []
    begun = time.process_time()
    train(open_ready(settings, foretell=told.append), "coke")
    took = time.process_time() - begun
    (costs,) = told
    assert costs.sites == N
    assert 0.1 * took < costs.seconds < 10 * took + 1


def test_it_grows_with_sites_rounds_and_features(tmp_path: Path) -> None:
    file = str(rows(tmp_path / "rows.csv", 20, 5))
    many = str(rows(tmp_path / "more.csv", 40, 5))

    def costs(file: str, **more: object) -> Expected:
        data = {"file": file, "target": "y", "site": "who"}
        settings = checked_settings({"data": data, "model": "plain", **more})
        found: list[Expected] = []
        open_ready(settings, foretell=found.append)
        return found[0]

    least = costs(file)
    for other in (costs(many), costs(file, features={"n_features": 200})):
        assert other.seconds > least.seconds
        assert other.bytes > least.bytes
    assert costs(file, rounds=2000).seconds > least.seconds
    assert costs(file, beside=["dkla"]).rounds == 2 * least.rounds


def test_only_long_runs_are_foretold_and_never_on_stdout(tmp_path: Path) -> None:
    file = rows(tmp_path / "rows.csv", 30, 10)
    command = ["run", "--data", str(file), "--target", "y", "--site", "who", "--model", "plain"]
    short = coke(*command, "--json", cwd=tmp_path)
    assert "take about" not in short.stderr
    long = coke(*command, "--json", "--rounds", "100000", "--max-bytes", "100000", cwd=tmp_path)
    assert "100000 rounds of 30 sites take about" in long.stderr
    assert "take about" not in long.stdout


def test_nothing_is_said_of_losses_whose_cost_is_not_known(tmp_path: Path) -> None:
    data = {"file": str(rows(tmp_path / "rows.csv", 4, 9)), "target": "y", "site": "who"}
    settings = checked_settings({"data": data, "loss": "huber", "model": "plain", "rounds": 2})
    told: list[Expected] = []
    ready = open_ready(settings, foretell=told.append)
    assert not told
    assert ready.sites is not None
    assert expected(ready.sites, settings) is None
