"""Reproducing the paper: the commands run, and what they write is what was measured."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose

from coke.cli import main
from coke.reproduce.experiments import (
    Curve,
    Job,
    Result,
    kept_rounds,
    levels_of,
    run_all,
    run_job,
    task_of,
)
from coke.reproduce.published import LEVELS, MARKS, METHODS, NAMES, SETTINGS, K, settings_of
from coke.reproduce.summary import levels_table, marks_table, statistics
from coke.reproduce.writing import caption, extent, levels_markdown, marks_markdown

DataFile = Callable[[str], Path]


def command(monkeypatch: Any, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["coke", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    code = stop.value.code
    assert isinstance(code, int)
    return code


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


def test_the_papers_tables_are_whole() -> None:
    """Seven marks and seven levels for three methods each, MSE falling, messages rising."""
    for marks in MARKS.values():
        assert marks.k == K
        for numbers in (*marks.train.values(), *marks.test.values()):
            assert len(numbers) == 7
            assert list(numbers) == sorted(numbers, reverse=True)
        assert list(marks.sent) == sorted(marks.sent)
        assert all(sent <= 10 * k for sent, k in zip(marks.sent, marks.k, strict=True))
    for pair in LEVELS.values():
        for levels in pair:
            assert list(levels.level) == sorted(levels.level, reverse=True)
            for name in METHODS:
                reached = [n for n in levels.sent[name] if n is not None]
                assert reached == sorted(reached)
            for coke, dkla in zip(levels.sent["coke"], levels.sent["dkla"], strict=True):
                assert coke is not None
                assert dkla is not None
                assert coke <= dkla
    assert {name for table in NAMES for name in settings_of(table)} == set(SETTINGS)


def fake(setting: str, seed: int, train: float, sent: int) -> Result:
    k = sorted(kept_rounds(2000))
    levels: dict[str, int | None] = dict.fromkeys(map(str, levels_of(setting)), sent)
    losses = [train + 0 * j for j in k]
    curve = Curve(k, losses, losses, losses, losses, [sent] * len(k), levels, [[0.0]] * len(k))
    scores = {"train": 1.0, "test": 1.0, "global_train": 1.0, "global_test": 1.0}
    methods = dict.fromkeys(METHODS, curve)
    return Result(Job(setting, "iid", seed), methods, scores, scores, 0.0)


def test_means_spreads_and_differences() -> None:
    """Two seeds at 0.020 and 0.024 have mean 0.022 and spread 0.002, and so on."""
    assert statistics([1.0, 3.0], 4.0) == {"mean": 2, "spread": 1, "paper": 4.0, "relative": -0.5}
    assert statistics([1.0], 0.0)["relative"] is None  # the paper's COKE sent 0 by k = 50 once
    results = [fake("energy", 0, 0.020, 100), fake("energy", 1, 0.024, 200)]
    rows = marks_table(MARKS["table4"], results)
    last = rows[-1]["dkla"]["train"]
    assert_allclose(last["mean"], 0.022)
    assert_allclose(last["relative"], 0.022 / 0.02147 - 1)
    assert rows[0]["coke"]["transmissions"]["paper"] == 0
    level = levels_table(LEVELS["table6"][0], results)[0]
    assert (level["coke"]["mean"], level["coke"]["paper"]) == (150, 11)
    assert_allclose(level["saving_paper"], 1 - 11 / 20)
    text = marks_markdown("table4", {"data": "Energy", "rows": rows, "behind_the_metric": []})
    assert "21.47 → 22 ± 2 (+2.5 %)" in text
    part = {"data": "Energy", "rows": [level]}
    assert "11 → 150" in levels_markdown("table6", {"parts": [part]})


def test_savings_compare_the_same_seeds() -> None:
    """DKLA alone reaches the level with seed 2, after 1000: that says nothing about COKE."""
    results = [fake("energy", seed, 0.02, sent) for seed, sent in enumerate((100, 200, 50))]
    key = str(levels_of("energy")[0])
    for result, dkla, coke in zip(results, (200, 400, 1000), (100, 200, None), strict=True):
        for name, sent in (("dkla", dkla), ("coke", coke)):
            curve = msgspec.structs.replace(result.methods[name], levels={key: sent})
            result.methods[name] = curve
    table = LEVELS["table6"][0]._replace(level=LEVELS["table6"][0].level[:1])
    (row,) = levels_table(table, results)
    assert row["saving"] == 0.5
    assert (row["dkla"]["reached"], row["coke"]["reached"]) == (3, 2)
    results[0].methods["coke"].levels[key] = results[1].methods["coke"].levels[key] = None
    assert levels_table(table, results)[0]["saving"] is None


def test_seeds_rounds_and_settings_are_told_as_they_were(monkeypatch: Any) -> None:
    """Numbers in the text are those of the runs, in the singular where there is one."""
    one = fake("energy", 0, 0.02, 100)
    assert extent([one]) == "1 seed of i.i.d. splits; 2000 rounds (Energy)."
    other = msgspec.structs.replace(one, job=Job("synthetic", "iid", 1, 5000))
    third = msgspec.structs.replace(one, job=Job("energy", "sorted", 0))
    assert extent([one, other, third]) == (
        "2 seeds of i.i.d. splits, 1 seed of sorted splits; "
        "2000 rounds (Energy), 5000 rounds (Synthetic)."
    )
    monkeypatch.setattr("coke.reproduce.writing.RHO", 0.5)
    monkeypatch.setattr("coke.reproduce.writing.ETA", 0.25)
    monkeypatch.setitem(SETTINGS, "energy", SETTINGS["energy"]._replace(agents=7))
    assert "ρ = 0.5, η = 0.25" in caption(SETTINGS["energy"])
    rows = marks_table(MARKS["table4"], [one])
    assert rows[0]["dkla"]["transmissions"]["paper"] == 7 * 50
    text = marks_markdown("table4", {"data": "Energy", "rows": rows, "behind_the_metric": []})
    assert "send 7 a round" in text
    assert "| 350 |" in text


def test_a_job_is_the_papers_experiment(data_file: DataFile, monkeypatch: Any) -> None:
    """Energy as its caption says: 10 sites, 70 % for training, 200 entries; near the paper."""
    monkeypatch.setenv("COKE_DATA", str(data_file("energy.parquet").parent))
    job = Job("energy", "iid", 0)
    risk = task_of(job).problem.train
    assert len(risk.T) == 10
    assert risk.size == 200
    assert_allclose(risk.T.sum(), 0.7 * 18_604, atol=10)
    result = run_job(job)
    curve = result.methods["dkla"]
    assert curve.k[-1] == 2000
    assert_allclose(curve.train[-1], 21.47e-3, rtol=0.08)
    assert_allclose(result.methods["coke"].train[-1], curve.train[-1], rtol=0.005)
    assert result.methods["coke"].sent[-1] < curve.sent[-1] == 20_000
    assert result.optimum["train"] <= curve.global_train[-1] * (1 + 1e-9)
    hit = curve.levels[str(23e-3)]
    assert hit is not None
    at = curve.k[np.searchsorted(-np.array(curve.train), -23e-3)]
    assert hit <= 10 * at  # counted in the very round, not at the next one kept


def test_the_command_writes_tables_figures_and_json(
    data_file: DataFile, monkeypatch: Any, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("COKE_DATA", str(data_file("toms_hardware.parquet").parent))
    arguments = ["reproduce", "table2", "--seeds", "1", "--out", str(tmp_path), "--json"]
    assert command(monkeypatch, *arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "reproduction.json").read_text())
    assert [row["k"] for row in found["table2"]["rows"]] == list(K)
    assert len(found["table2"]["behind_the_metric"]) == 10
    text = (tmp_path / "reproduction.md").read_text()
    assert "## table2: Tom's hardware" in text
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    assert len(kept) == 2  # i.i.d. and sorted
    assert command(monkeypatch, *arguments) == 0  # what was done is not done again
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()} == kept


def test_figures(data_file: DataFile, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("COKE_DATA", str(data_file("twitter_adaraker.parquet").parent))
    wanted = ["figure1", "figure2", "figure3"]
    options = ["--seeds", "1", "--rounds", "30", "--out", str(tmp_path)]
    assert command(monkeypatch, "reproduce", *wanted, *options) == 0
    for name in wanted:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_bad_requests_are_refused(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    for arguments, said in {
        ("tabel1",): "Did you mean 'table1'",
        ("table1", "--seeds", "0"): "at least one seed",
        ("table1", "--rounds", "10"): "2000 rounds",
        ("table3", "--rounds", "30"): "2000 rounds",
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
    monkeypatch.setattr("coke.reproduce.experiments.run_all", None)
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


def test_all_goes_without_twitter_where_it_is_missing(
    data_file: DataFile, monkeypatch: Any, tmp_path: Path, capsys: Any
) -> None:
    for name in ("energy.parquet", "air_quality.parquet", "toms_hardware.parquet"):
        (tmp_path / name).symlink_to(data_file(name))
    monkeypatch.setenv("COKE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def faked(jobs: list[Job], *_: Any) -> list[Result]:
        return [msgspec.structs.replace(fake(j.setting, j.seed, 0.02, 9), job=j) for j in jobs]

    monkeypatch.setattr("coke.reproduce.experiments.run_all", faked)
    out = tmp_path / "out"
    assert command(monkeypatch, "reproduce", "--seeds", "3", "--out", str(out), "--json") == 0
    said = capsys.readouterr()
    assert list(json.loads(said.out)) == ["table2", "table4", "table5", "table6"]
    text = (out / "reproduction.md").read_text()
    assert "3 seeds of i.i.d. splits, 2 seeds of sorted splits" in text
    for told in (text, said.err):
        assert "Left out: table1, table3, figure1, figure2, figure3. " in told
        assert "cannot be downloaded" in told
    assert command(monkeypatch, "reproduce", "all", "figure1", "--out", str(out)) == 2
    assert "error: twitter_adaraker.parquet" in capsys.readouterr().err


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
    monkeypatch.setattr("coke.reproduce.experiments.CURVE", 200)
    assert len(kept()) == 3
    monkeypatch.setattr("coke.reproduce.experiments.K", (1, 2))
    assert len(kept()) == 4
    monkeypatch.setattr("coke.reproduce.experiments.LEVELS", {})
    assert len(kept()) == 5


@pytest.mark.usefixtures("small_twitter")
def test_ctrl_c_stops_and_says_what_is_kept(tmp_path: Path) -> None:
    options = ["--seeds", "2", "--rounds", "1000000", "--workers", "2", "--out", str(tmp_path)]
    code = "from coke.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "reproduce", "figure2", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "jobs").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "finished runs are kept in" in said


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
