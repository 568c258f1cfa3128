"""`fast`: compiled rounds are a setting that all sites share; the answers are the plain ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke import History
from coke.errors import ConfigError
from coke.field.mission import Mission
from coke.learning.open import open_ready
from coke.maths import compiled
from coke.maths.losses.problem import Quadratic
from coke.settings import rules
from coke.settings.reading import checked_settings, example, merged
from coke.settings.sites import read_site
from kit.commands import coke
from kit.field import Field, made_rows
from kit.jobs import commands_on_ranks

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

numba = pytest.mark.skipif(not compiled.available(), reason="needs the extra `fast`")
SMALL = {"data.size_range": [60, 90], "data.agents": 5, "features.n_features": 10}


@numba
@pytest.mark.parametrize("algorithm", ["coke", "coke-paper"])
def test_compiled_runs_agree_with_plain_ones(folder: Path, algorithm: str) -> None:
    """The same rounds and bytes, losses to rounding; and a checkpoint of one is not the other's."""
    line = ["run", "small.toml", "--algorithm", algorithm, "--json"]
    fast = json.loads(coke(*line, "--fast", "--out", "o", cwd=folder).stdout)
    plain = json.loads(coke(*line, "--out", "p", cwd=folder).stdout)
    assert (fast["bytes"], fast["rounds"]) == (plain["bytes"], plain["rounds"])
    for key in ("train_mse", "global_test_mse", "optimum_train_mse"):
        assert fast[key] == pytest.approx(plain[key], rel=1e-9)
    settings = folder / "o" / "settings.json"
    settings.write_text(settings.read_text().replace('"fast": true', '"fast": false'))
    run = coke("run", "--resume", "o", "--rounds", 70, cwd=folder, code=2)
    assert "have changed" in run.stderr.replace("\n", " ")


@numba
def test_ranks_are_one_process_with_compiled_rounds_too(folder: Path) -> None:
    """But for the gaps, whose sums the compiled round of one process adds in its own order."""
    settings = ["small.toml", "--fast", "--algorithm", "coke-paper", "--tol", 1e-9]
    coke("run", *settings, "--out", "one", cwd=folder)
    commands_on_ranks(2, (folder, ["run", "--engine", "mpi", *settings, "--out", "two"]))
    path = "history-coke-paper.parquet"
    one, two = (History.from_parquet(folder / out / path) for out in ("one", "two"))
    for name in one.names:
        assert_allclose(two[name], one[name], rtol=1e-12 if "gap" in name else 0)
    assert (folder / "one/model.coke").read_bytes() == (folder / "two/model.coke").read_bytes()


@numba
def test_all_risks_that_train_are_compiled() -> None:
    settings = merged(example(), {**SMALL, "fast": True})
    task = open_ready(checked_settings(settings))
    for problem in (task.problem, task.case("coke").problem):
        assert isinstance(problem.train, Quadratic)
        assert problem.train.fast


@numba
def test_agents_share_the_setting_and_its_bits(tmp_path: Path) -> None:
    """It is among what sites compare before they train, and the agents are the simulation."""
    pytest.importorskip("zenoh", reason="agents need the extra coke-learn[agent]")
    field = Field(tmp_path / "net", made_rows(T=200), 3, 3, fast=True, rounds=30, tol=0.0)
    assert Mission(read_site(field.paths[0])).settings["fast"] == "True"
    try:
        field.start()
        assert field.wait(120) == [0] * 3
    finally:
        field.end()
    (last,) = {field.result(name)["rounds"] for name in field.names}
    assert_array_equal(field.theta(), field.twin(last)[-1].state.theta)


@pytest.mark.parametrize(
    ("changes", "there", "said"),
    [
        ({}, False, r"coke-learn\[fast\]"),
        ({"loss": "hinge"}, True, "only quadratic or least-squares rounds"),
    ],
)
def test_fast_is_refused_where_it_cannot_be(
    changes: dict[str, Any], there: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "find_spec", lambda name: there or None)
    with pytest.raises(ConfigError, match=said):
        checked_settings({"fast": True, **changes})
