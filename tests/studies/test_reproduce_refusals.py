"""Reproducing the paper with wrong requests, missing or changed data, Ctrl-C; theory and fetch."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from coke.studies.reproduce.experiments import (
    Job,
    run_all,
)
from kit.commands import COKE, command
from kit.processes import IGNORING, LONG, ctrl_c, group, wait_until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets


@pytest.fixture
def small_twitter(monkeypatch: Any, tmp_path: Path) -> Path:
    """A data folder that holds nothing but a small stand-in for the Twitter rows."""
    rng = np.random.default_rng(0)
    columns = {name: rng.random(200) for name in ("x0", "x1", "y")}
    (tmp_path / "data").mkdir()
    pa.parquet.write_table(pa.table(columns), tmp_path / "data" / "twitter_adaraker.parquet")
    monkeypatch.setenv("COKE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data" / "twitter_adaraker.parquet"


def test_bad_requests_are_refused(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    for arguments, said in {
        ("tabel1",): "Did you mean 'table1'",
        ("table1", "--seeds", "0"): "at least one seed",
        ("table1", "--rounds", "10"): "2000 rounds",
        ("table3", "--rounds", "30"): "2000 rounds",
        ("table4", "--rho", "0"): "expected a step size",
        ("table4", "--graph", "rings"): "Did you mean 'ring'",
    }.items():
        assert command(monkeypatch, "reproduce", *arguments, "--out", str(tmp_path)) == 2
        assert said in capsys.readouterr().err.replace("\n", " ")
    monkeypatch.setenv("COKE_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert command(monkeypatch, "reproduce", "table4", "--out", str(tmp_path)) == 2
    assert "coke data fetch energy" in capsys.readouterr().err.replace("\n", " ")


def test_missing_data_are_told_before_any_run(
    small_twitter: Path, monkeypatch: Any, tmp_path: Path, capsys: Any
) -> None:
    """Table 3 has its Twitter rows, not Tom's hardware; a damaged file is no better than none."""
    monkeypatch.setattr("coke.studies.reproduce.experiments.run_all", None)
    out = ["--out", str(tmp_path / "out")]
    assert command(monkeypatch, "reproduce", "table3", *out) == 2
    assert "coke data fetch toms_hardware" in capsys.readouterr().err
    small_twitter.write_bytes(b"PAR1")
    assert command(monkeypatch, "reproduce", "table1", *out) == 2
    assert "twitter_adaraker.parquet" in capsys.readouterr().err
    small_twitter.unlink()
    for named in ("table1", "figure1"):
        assert command(monkeypatch, "reproduce", named, *out) == 2
        assert "cannot be downloaded" in capsys.readouterr().err


def test_a_run_is_kept_for_its_data_and_its_constants(
    small_twitter: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    """Other rows, levels or marks make another result, so the kept one is not taken for it."""

    def kept() -> set[str]:
        run_all([Job("twitter-large", "iid", 0, 5)], tmp_path, 1, lambda done, total: None)
        return {path.name for path in (tmp_path / "jobs").iterdir()}

    assert len(kept()) == 1
    assert len(kept()) == 1
    table = pa.parquet.read_table(small_twitter)
    pa.parquet.write_table(table.slice(1), small_twitter)
    assert len(kept()) == 2
    monkeypatch.setattr("coke.studies.reproduce.experiments.CURVE", 200)
    assert len(kept()) == 3
    monkeypatch.setattr("coke.studies.reproduce.experiments.K", (1, 2))
    assert len(kept()) == 4
    monkeypatch.setattr("coke.studies.reproduce.experiments.LEVELS", {})
    assert len(kept()) == 5


@pytest.mark.usefixtures("small_twitter")
@pytest.mark.parametrize("shell", [[], IGNORING], ids=["heard", "ignored at first"])
@pytest.mark.parametrize("finished", [0, 1])
def test_ctrl_c_stops_and_says_what_is_kept(
    tmp_path: Path, shell: list[str], finished: int
) -> None:
    """While workers start, and while they work; a terminal sends it to them, too."""
    with group([*shell, *many_runs(tmp_path)], stderr=subprocess.PIPE) as process:
        wait_until(lambda: kept_runs(tmp_path) >= finished, process)
        ctrl_c(process)
        said = process.communicate(timeout=LONG)[1]  # to the end: nobody else can speak there
    assert process.returncode == 130
    assert "finished runs are kept in" in said
    assert "Traceback" not in said
    assert kept_runs(tmp_path) >= finished


@pytest.mark.usefixtures("small_twitter")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_do_not_outlive_the_command(tmp_path: Path, number: int) -> None:
    with group(many_runs(tmp_path), stderr=subprocess.PIPE) as process:
        wait_until(lambda: kept_runs(tmp_path) > 0, process)
        process.send_signal(number)
        process.communicate(timeout=LONG)  # returns when nobody is left to speak
    assert process.returncode == -number


@pytest.mark.usefixtures("small_twitter")
def test_ctrl_c_twice_leaves_nobody(tmp_path: Path) -> None:
    with group(many_runs(tmp_path), stderr=subprocess.PIPE) as process:
        wait_until(lambda: kept_runs(tmp_path) > 0, process)
        ctrl_c(process)
        ctrl_c(process)
        process.communicate(timeout=LONG)
    assert process.returncode in (130, -signal.SIGINT)


def many_runs(folder: Path) -> list[str]:
    """More than there is time for."""
    options = ["--seeds", "5000", "--rounds", "100", "--workers", "2", "--out", str(folder)]
    return [*COKE, "reproduce", "figure2", *options]


def kept_runs(folder: Path) -> int:
    """Minus one before the folder for them is there."""
    jobs = folder / "jobs"
    return len(list(jobs.glob("*.json"))) if jobs.exists() else -1


def test_theory_prints_the_guarantee_beside_what_is_measured(
    monkeypatch: Any, tmp_path: Path, capsys: Any
) -> None:
    small = "[data]\nagents = 4\nsize_range = [80, 120]\n[features]\nn_features = 10\n"
    (tmp_path / "c.toml").write_text("lambda = 0.5\nrho = 0.05\n" + small)
    assert command(monkeypatch, "theory", str(tmp_path / "c.toml"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["assumptions_hold"] is True
    assert 0 < found["measured_factor"] <= found["guaranteed_factor"] < 1
    assert found["best_guaranteed_factor"] <= found["guaranteed_factor"] + 1e-12
    assert command(monkeypatch, "theory", str(tmp_path / "c.toml")) == 0
    assert "guaranteed factor" in capsys.readouterr().out
    (tmp_path / "c.toml").write_text('loss = "hinge"\n' + small)
    assert command(monkeypatch, "theory", str(tmp_path / "c.toml")) == 2


def test_fetch_says_what_went_wrong(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    to = ["--to", str(tmp_path), "--json"]
    closed = ["--url", "http://127.0.0.1:9/x"]
    assert command(monkeypatch, "data", "fetch", "energy", *closed, *to) == 2
    assert "check the connection" in json.loads(capsys.readouterr().out)["error"]
    assert command(monkeypatch, "data", "fetch", "enrgy", *to) == 2
    said = capsys.readouterr()
    assert "Did you mean 'energy'" in json.loads(said.out)["error"]
    assert said.err.startswith("error:")  # no progress bar before it
    (tmp_path / "mine.zip").write_bytes(b"not an archive")
    file = ["--file", str(tmp_path / "mine.zip")]
    assert command(monkeypatch, "data", "fetch", "energy", *file, *to) == 2
    assert "not UCI's energydata_complete.csv" in json.loads(capsys.readouterr().out)["error"]
