"""`coke predict`: columns carried along, scores, no formulas, and no memory for a hostile file."""

from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error

from coke import COKEClassifier, COKERegressor, Features, load_model
from coke.data.files import DIGEST, MAGIC, pack
from coke.errors import FileError
from coke.learning.modelfile import MOST
from coke.learning.predicting import _safe
from kit.commands import coke

T = 300
rng = np.random.default_rng(0)
X = rng.normal(size=(T, 2))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=T)
LABEL = np.where(X[:, 0] > 0, "=up", "down")
NOTE = ["=1+1", "+2", "-3.5", "@x", "-x", "\tt", 'say "=0"', "007", "", "ok"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of numbers, one of classes, and their rows, as CSV and as Parquet."""
    folder = tmp_path_factory.mktemp("predict")
    how: Any = {"model": "plain", "features": Features(n_features=10), "n_agents": 3}
    names = ["a", "b"]
    numbers = COKERegressor(**how).fit(X, y).model_._replace(columns=("a", "b"))
    classes = COKEClassifier(**how, loss="logistic").fit(X, LABEL).model_
    numbers.save(folder / "numbers.coke")
    classes._replace(columns=("a", "b"), targets=("label",)).save(folder / "classes.coke")
    columns = dict(zip(names, X.T, strict=True)) | {"y": y, "label": LABEL}
    table = pa.table({"=id": np.arange(T), "note": (NOTE * T)[:T], **columns})
    pa.parquet.write_table(table, folder / "rows.parquet", row_group_size=70)
    pa.csv.write_csv(table, folder / "rows.csv")
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_stand_beside_the_predictions_as_they_are(place: Path, kind: str) -> None:
    keep = ["--keep", "=id", "--keep", "note"]
    coke("predict", "numbers.coke", f"rows.{kind}", *keep, "--out", "p.parquet", cwd=place)
    found = pa.parquet.read_table(place / "p.parquet")
    assert found.column_names == ["=id", "note", "prediction"]
    assert [int(i) for i in found["=id"].to_pylist()] == list(range(T))
    assert [note or "" for note in found["note"].to_pylist()] == (NOTE * T)[:T]
    wanted = load_model(place / "numbers.coke").predict(X)
    np.testing.assert_allclose(found["prediction"].to_numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_scores_are_those_of_the_predictions(place: Path, kind: str) -> None:
    said: dict[str, Any] = {}
    for name in ("numbers", "classes"):
        run = coke("predict", f"{name}.coke", f"rows.{kind}", "--json", cwd=place)
        said |= json.loads(run.stdout)["score"]
    f = load_model(place / "numbers.coke").predict(X)
    assert said["y"] == pytest.approx(
        {"scored": T, "r2": r2_score(y, f), "rmse": root_mean_squared_error(y, f)}, rel=1e-5
    )
    model = load_model(place / "classes.coke")
    surprise = log_loss(LABEL, model.predict_proba(X), labels=list(model.classes))
    right = accuracy_score(LABEL, model.predict(X))
    assert said["label"] == pytest.approx(
        {"scored": T, "accuracy": right, "log_loss": surprise}, rel=1e-5
    )
    text = coke("predict", "classes.coke", f"rows.{kind}", cwd=place).stdout
    assert f"label: accuracy {right:.4g}, log loss {surprise:.4g} on {T} rows" in text


def test_no_cell_of_a_csv_file_is_a_formula(place: Path) -> None:
    keep = ["--keep", "=id", "--keep", "note"]
    coke("predict", "classes.coke", "rows.parquet", *keep, "--out", "p.csv", cwd=place)
    with (place / "p.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["'=id", "note", "prediction"]
    assert {row[2] for row in rows} == {"'=up", "down"}
    assert [row[1] for row in rows[: len(NOTE)]] == [
        *("'=1+1", "+2", "-3.5", "'@x", "'-x", "'\tt", 'say "=0"', "007", "", "ok")
    ]


@given(st.text(max_size=8) | st.text("=+-@0123456789.,e\t\rx", max_size=8))
def test_text_is_disarmed_and_nothing_else_is_changed(text: str) -> None:
    (found,) = _safe(pa.array([text.encode(errors="ignore").decode()])).to_pylist()
    text = text.encode(errors="ignore").decode()
    assert found.removeprefix("'" if found != text else "") == text
    number = found[1:] and set(found[1:]) <= set("0123456789.,eE+-")
    assert not found.startswith(("=", "@", "\t", "\r"))
    assert not found.startswith(("+", "-")) or number


@pytest.mark.parametrize(
    ("keep", "said"), [("nothing", "not in the file"), ("prediction", "not in the file")]
)
def test_columns_that_are_not_there_are_refused(place: Path, keep: str, said: str) -> None:
    run = coke("predict", "numbers.coke", "rows.csv", "--keep", keep, cwd=place, code=2)
    assert said in run.stderr


def test_a_kept_column_may_not_be_called_as_a_prediction(place: Path, tmp_path: Path) -> None:
    table = pa.parquet.read_table(place / "rows.parquet")
    pa.parquet.write_table(table.append_column("prediction", table["y"]), tmp_path / "r.parquet")
    given = ["predict", place / "numbers.coke", "r.parquet"]
    assert (
        "names of predictions" in coke(*given, "--keep", "prediction", cwd=tmp_path, code=2).stderr
    )
    coke(*given, cwd=tmp_path)


def peak(path: Path) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(FileError):
            load_model(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def large(path: Path, begin: bytes, size: int) -> Path:
    """A file that takes no room on disk."""
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size)
    return path


def test_a_hostile_model_file_is_refused_before_memory_is_asked_for(
    place: Path, tmp_path: Path
) -> None:
    """Foreign, too large, with a header that claims too much, or less than the file has."""
    whole = (place / "numbers.coke").read_bytes()
    claim = {"name": "theta", "dtype": "<f8", "shape": [1, MOST // 8]}
    head = json.dumps({"version": 1, "kind": "model", "meta": {}, "arrays": [claim]}).encode()
    begin = MAGIC + len(head).to_bytes(4, "little") + head
    hostile = [
        large(tmp_path / "consistent", begin, len(begin) + MOST + DIGEST),
        large(tmp_path / "foreign", b"PK", MOST - 1),
        large(tmp_path / "large", whole, MOST + 1),
        large(tmp_path / "header", MAGIC + b"\xff" * 4, MOST - 1),
        large(tmp_path / "longer", whole, MOST - 1),
        large(tmp_path / "shorter", whole[: len(whole) // 2], len(whole) // 2),
        large(tmp_path / "short", MAGIC, len(MAGIC) + DIGEST // 2),
    ]
    for path in hostile:
        assert peak(path) < 4e6, path.name


def test_a_model_whose_features_would_not_fit_is_refused(tmp_path: Path) -> None:
    """A file of some megabytes whose predictions of a thousand rows would take gigabytes."""
    L = 1 << 17
    arrays = {
        "theta": np.ones((1, 2 * L)), "omega": np.ones((L, 1)), "phase": np.empty(0),
        "x_shift": np.zeros(1), "x_scale": np.ones(1), "y_shift": np.zeros(1),
        "y_scale": np.ones(1), "knots": np.empty((2, 0, 0)),
    }  # fmt: skip
    meta = {"loss": "quadratic", "classes": [], "columns": ["a"], "targets": ["y"]}
    (tmp_path / "m.coke").write_bytes(pack("model", meta, arrays))
    with pytest.raises(FileError, match=r"262144 features, 1 outputs: expected 131072"):
        load_model(tmp_path / "m.coke")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileError, match="cannot be read"):
            load_model(path)
