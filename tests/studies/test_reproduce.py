"""Reproducing the paper: the commands run, and what they write is what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.testing import assert_allclose

from coke.report.reproduction import _caption, extent, levels_markdown, marks_markdown
from coke.studies.reproduce.experiments import (
    Curve,
    Job,
    Result,
    _graph_of,
    _kept_rounds,
    _levels_of,
    _ready_of,
    run_job,
)
from coke.studies.reproduce.published import LEVELS, MARKS, METHODS, NAMES, SETTINGS, K, settings_of
from coke.studies.reproduce.summary import _levels_table, _marks_table, _statistics
from kit.commands import command

DataFile = Callable[[str], Path]


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
    k = sorted(_kept_rounds(2000))
    levels: dict[str, int | None] = dict.fromkeys(map(str, _levels_of(setting)), sent)
    losses = [train + 0 * j for j in k]
    curve = Curve(k, losses, losses, losses, losses, [sent] * len(k), levels, [[0.0]] * len(k))
    scores = {"train": 1.0, "test": 1.0, "global_train": 1.0, "global_test": 1.0}
    methods = dict.fromkeys(METHODS, curve)
    return Result(Job(setting, "iid", seed), methods, scores, scores, 0.0)


def test_means_spreads_and_differences() -> None:
    """Two seeds at 0.020 and 0.024 have mean 0.022 and spread 0.002, and so on."""
    assert _statistics([1.0, 3.0], 4.0) == {"mean": 2, "spread": 1, "paper": 4.0, "relative": -0.5}
    assert _statistics([1.0], 0.0)["relative"] is None  # the paper's COKE sent 0 by k = 50 once
    results = [fake("energy", 0, 0.020, 100), fake("energy", 1, 0.024, 200)]
    rows = _marks_table(MARKS["table4"], results)
    last = rows[-1]["dkla"]["train"]
    assert_allclose(last["mean"], 0.022)
    assert_allclose(last["relative"], 0.022 / 0.02147 - 1)
    assert rows[0]["coke"]["transmissions"]["paper"] == 0
    level = _levels_table(LEVELS["table6"][0], results)[0]
    assert (level["coke"]["mean"], level["coke"]["paper"]) == (150, 11)
    assert_allclose(level["saving_paper"], 1 - 11 / 20)
    text = marks_markdown("table4", {"data": "Energy", "rows": rows, "behind_the_metric": []})
    assert "21.47 → 22 ± 2 (+2.5 %)" in text
    part = {"data": "Energy", "rows": [level]}
    assert "11 → 150" in levels_markdown("table6", {"parts": [part]})


def test_savings_compare_the_same_seeds() -> None:
    """DKLA alone reaches the level with seed 2, after 1000: that says nothing about COKE."""
    results = [fake("energy", seed, 0.02, sent) for seed, sent in enumerate((100, 200, 50))]
    key = str(_levels_of("energy")[0])
    for result, dkla, coke in zip(results, (200, 400, 1000), (100, 200, None), strict=True):
        for name, sent in (("dkla", dkla), ("coke", coke)):
            curve = msgspec.structs.replace(result.methods[name], levels={key: sent})
            result.methods[name] = curve
    table = LEVELS["table6"][0]._replace(level=LEVELS["table6"][0].level[:1])
    (row,) = _levels_table(table, results)
    assert row["saving"] == 0.5
    assert (row["dkla"]["reached"], row["coke"]["reached"]) == (3, 2)
    results[0].methods["coke"].levels[key] = results[1].methods["coke"].levels[key] = None
    assert _levels_table(table, results)[0]["saving"] is None


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
    ring = msgspec.structs.replace(one, job=Job("energy", "iid", 0, rho=0.25, graph="ring"))
    assert extent([ring]).endswith("(Energy). Not the captions': ρ = 0.25, ring graphs.")
    monkeypatch.setattr("coke.report.reproduction.RHO", 0.5)
    monkeypatch.setattr("coke.report.reproduction.ETA", 0.25)
    monkeypatch.setitem(SETTINGS, "energy", SETTINGS["energy"]._replace(agents=7))
    assert "ρ = 0.5, η = 0.25" in _caption(SETTINGS["energy"])
    rows = _marks_table(MARKS["table4"], [one])
    assert rows[0]["dkla"]["transmissions"]["paper"] == 7 * 50
    text = marks_markdown("table4", {"data": "Energy", "rows": rows, "behind_the_metric": []})
    assert "send 7 a round" in text
    assert "| 350 |" in text


def test_another_step_and_network_are_taken_where_asked_for() -> None:
    job = Job("energy", "iid", 0, rho=0.25, graph="ring")
    assert sorted(d for _, d in _graph_of(job).degree) == [2] * 10
    assert _graph_of(Job("energy", "iid", 0)).number_of_edges() == 28


def test_a_job_is_the_papers_experiment(data_file: DataFile, monkeypatch: Any) -> None:
    """Energy as its caption says: 10 sites, 70 % for training, 200 entries; near the paper."""
    monkeypatch.setenv("COKE_DATA", str(data_file("energy.parquet").parent))
    job = Job("energy", "iid", 0)
    risk = _ready_of(job).problem.train
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


def test_all_goes_without_twitter_where_it_is_missing(
    data_file: DataFile, monkeypatch: Any, tmp_path: Path, capsys: Any
) -> None:
    for name in ("energy.parquet", "air_quality.parquet", "toms_hardware.parquet"):
        (tmp_path / name).symlink_to(data_file(name))
    monkeypatch.setenv("COKE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def faked(jobs: list[Job], *_: Any) -> list[Result]:
        return [msgspec.structs.replace(fake(j.setting, j.seed, 0.02, 9), job=j) for j in jobs]

    monkeypatch.setattr("coke.studies.reproduce.experiments.run_all", faked)
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
