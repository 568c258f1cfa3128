"""Intervals, importance and the choice, as the command says them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from coke import load_model
from coke.learning.model import Closed, Model
from kit.commands import coke


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Three sites, one with few rows; the first column matters most, the last not at all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(640, 3))
    y = 10.0 + np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=640)
    site = np.repeat(["Aachen", "Bonn", "<Köln>"], [300, 300, 40])
    columns = {f"x{j}": X[:, j] for j in range(3)}
    pa.parquet.write_table(pa.table({**columns, "site": site, "y": y}), tmp_path / "r.parquet")
    return tmp_path


RUN = ["run", "--data", "r.parquet", "--target", "y", "--site", "site"]


def test_a_run_says_what_was_chosen_what_matters_and_what_intervals_hold(rows: Path) -> None:
    document = json.loads(coke(*RUN, "--out", "o", "--json", cwd=rows, drawn=True).stdout)
    model = load_model(rows / "o/model.coke")
    choice = document["choice"]
    assert set(choice) == {
        "name", "words", "inputs", "frequencies", "ridge", "errors", "judged", "lead", "bytes",
    }  # fmt: skip
    assert choice["name"] in ("linear", "plain", "tuned")
    assert choice["frequencies"] == len(model.features.omega)
    assert 0 < choice["bytes"] < document["bytes"]
    assert document["importance"] == model.importance().ranked
    assert list(document["importance"]) == ["x0", "x1", "x2"]
    coverage = document["coverage"]
    assert list(coverage) == sorted(coverage)
    assert coverage.pop("<Köln>") is None  # of 12 test rows
    assert all(0.8 < share <= 1 for share in coverage.values())
    page = (rows / "o/report.html").read_text()
    assert "What the sites chose" in page
    assert "x0 matters most" in page
    for name in ("importance", "curves", "coverage"):
        assert (rows / f"o/{name}.png").read_bytes().startswith(b"\x89PNG")
    said = coke(*RUN, cwd=rows).stdout.splitlines()
    assert set(choice["words"]) <= set(said)
    assert any(line.startswith("90 % intervals hold") for line in said)


def test_without_a_choice_nothing_is_said_of_one(rows: Path) -> None:
    """A model can be asked for its importance all the same."""
    plain = [*RUN, "--model", "plain", "--rounds", 3, "--json"]
    document = json.loads(coke(*plain, "--out", "p", cwd=rows).stdout)
    assert document["choice"] is None
    assert document["coverage"] is None
    assert document["importance"] is None
    assert "What the sites chose" not in (rows / "p/report.html").read_text()
    assert set(load_model(rows / "p/model.coke").importance().ranked) == {"x0", "x1", "x2"}


def test_predict_writes_intervals(rows: Path) -> None:
    coke(*RUN, "--out", "o", cwd=rows)
    coke("predict", "o/model.coke", "r.parquet", "--interval", 0.8, "--out", "p.parquet", cwd=rows)
    found = pa.parquet.read_table(rows / "p.parquet")
    assert found.column_names == ["prediction", "low", "high"]
    f, low, high = (column.to_numpy() for column in found.columns)
    wanted = load_model(rows / "o/model.coke").interval(rows / "r.parquet", 0.8)
    assert (np.array([f, low, high]) == np.array(wanted)).all()
    y = pa.parquet.read_table(rows / "r.parquet")["y"].to_numpy()
    assert 0.7 < np.mean((low <= y) & (y <= high)) < 0.95


@pytest.mark.parametrize(
    ("kind", "share", "said"),
    [
        ("numbers", 1.0, "expected a share between 0 and 1"),
        ("numbers", -0.5, "expected a share between 0 and 1"),
        ("numbers", "nan", "expected a share between 0 and 1"),
        ("numbers", 0.9999, "cannot say how far so rare a miss goes"),
        ("without", 0.9, "nobody added up how far this model misses"),
        ("classes", 0.9, "--proba"),
    ],
)
def test_intervals_that_cannot_be_are_refused(
    rows: Path, models: dict[str, Model], kind: str, share: float, said: str
) -> None:
    models[kind].save(rows / "m.coke")
    arguments = ["m.coke", "r.parquet", "--interval", share, "--out", "p.csv", "--json"]
    run = coke("predict", *arguments, cwd=rows, code=2)
    assert said in json.loads(run.stdout)["error"]
    assert not (rows / "p.csv").exists()


@pytest.fixture
def models() -> dict[str, Model]:
    """Of numbers with and without errors added up, and of classes."""
    from coke.data.units import Scaling
    from coke.maths.choice.misses import Misses
    from coke.maths.features.features import FeatureSettings, draw_features

    features = draw_features(FeatureSettings(4), 3)
    scaling, names = Scaling.none(3), ("x0", "x1", "x2")
    misses = Misses.of(np.linspace(0.01, 1.0, 400)[:, None], 400.0, np.ones(1))
    theta = np.ones((1, features.size))
    closed = Closed(misses)
    numbers = Model(theta, features, scaling, "quadratic", np.empty(0), names, (), closed)
    without = numbers._replace(closed=Closed())
    classes = without._replace(loss="logistic", classes=np.array([0, 1]))
    return {"numbers": numbers, "without": without, "classes": classes}


@pytest.mark.parametrize(("said", "found"), [("7", {0, 7}), ("auto", {0, 100, 300})])
def test_a_number_of_frequencies_or_auto(rows: Path, said: str, found: set[int]) -> None:
    """As an option, too, which is text at first."""
    choice = ["--features", said, "--rounds", 2, "--json"]
    document = json.loads(coke(*RUN, *choice, cwd=rows).stdout)["choice"]
    assert document["frequencies"] in found
