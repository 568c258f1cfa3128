"""Predictions of many rows: those of one row at a time, in the memory of a few."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.blocks import ROWS, SHORT
from coke.data.units import Scaling
from coke.errors import DataError, FileError
from coke.learning.model import Closed, Model
from coke.learning.predicting import Asked, predict_file
from coke.maths.choice.misses import BINS, Misses
from coke.maths.features.features import FeatureSettings, draw_features

D, COLUMNS = 5, tuple(f"x{j}" for j in range(5))
X = np.random.default_rng(1).normal(size=(3 * ROWS + 7, D))


def model(norm: float = 10.0, loss: str = "quadratic", classes: Any = ()) -> Model:
    features = draw_features(FeatureSettings(40, sigma=2.0, seed=1), D)
    theta = np.random.default_rng(0).normal(size=(max(1, len(classes)), features.size))
    theta *= norm / np.linalg.norm(theta, axis=1, keepdims=True)
    scaling = Scaling(np.full(D, 0.5), np.full(D, 1.5), np.array([5.0]), np.array([3.0]))
    closed = Closed(Misses(np.full((len(theta), BINS), 10.0), 640.0, np.ones(len(theta))))
    return Model(theta, features, scaling, loss, np.array(classes), COLUMNS, closed=closed)


MODELS = {
    "numbers": model(),
    "large": model(1e5),
    "classes": model(loss="logistic", classes=["a", "b", "c"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_decisions_are_those_of_the_formula(name: str) -> None:
    """Within 1e-6 ‖θ‖ in float32, to rounding with a large θ."""
    m = MODELS[name]
    norm = np.linalg.norm(m.theta, axis=1).max()
    wanted = m.features(m.scaling.inputs(X)) @ m.theta.T
    off = abs(m.decision(X) - wanted).max()
    assert off <= (1e-6 if norm <= SHORT else 1e-13) * norm
    assert (off > 1e-12 * norm) == (norm <= SHORT)


@given(st.integers(0, len(X) - 1), st.integers(1, len(X)), st.sampled_from(sorted(MODELS)))
def test_a_row_is_predicted_alike_alone_and_among_others(first: int, n: int, name: str) -> None:
    """But for rounding, in float32 or, of few rows, not."""
    m, some = MODELS[name], X[first : first + n]
    norm = float(np.linalg.norm(m.theta, axis=1).max())
    all_of_them = m.decision(X)[first : first + n]
    assert_allclose(m.decision(some), all_of_them, rtol=0, atol=1e-6 * norm)
    assert_allclose(m.decision(np.asfortranarray(some)), all_of_them, rtol=0, atol=1e-6 * norm)


def save(folder: Path, kind: str, X: Any) -> Path:
    table = pa.table({"id": np.arange(len(X))} | dict(zip(COLUMNS, X.T, strict=True)))
    path = folder / f"rows.{kind}"
    writers: dict[str, Callable[[], object]] = {
        "npy": lambda: np.save(path, X),
        "parquet": lambda: pa.parquet.write_table(table, path, row_group_size=1000),
        "csv": lambda: pa.csv.write_csv(table, path),
        "feather": lambda: pa.feather.write_feather(table, path),
    }
    writers[kind]()
    return path


@pytest.mark.parametrize("kind", ["npy", "parquet", "csv", "feather"])
@pytest.mark.parametrize("out", ["p.csv", "p.parquet"])
@pytest.mark.parametrize("name", ["numbers", "classes"])
def test_a_file_is_predicted_as_its_rows_are(
    tmp_path: Path, kind: str, out: str, name: str
) -> None:
    m, numbers = MODELS[name], name == "numbers"
    asked = Asked(interval=0.8) if numbers else Asked(proba=True)
    assert predict_file(m, save(tmp_path, kind, X), tmp_path / out, asked).rows == len(X)
    read = pa.csv.read_csv if out.endswith("csv") else pa.parquet.read_table
    found = {c: v.to_numpy() for c, v in zip(*_columns(read(tmp_path / out)), strict=True)}
    if numbers:
        for column, wanted in zip(("prediction", "low", "high"), m.interval(X, 0.8), strict=True):
            assert_allclose(found[column], wanted, rtol=0, atol=1e-4)
    else:
        P = m.predict_proba(X)
        for j, label in enumerate("abc"):
            assert_allclose(found[f"p_{label}"], P[:, j], rtol=0, atol=1e-4)
        sure = np.sort(P, axis=1)[:, -1] - np.sort(P, axis=1)[:, -2] > 1e-4
        assert_array_equal(found["prediction"][sure], m.predict(X)[sure])


def _columns(table: pa.Table) -> tuple[list[str], list[pa.ChunkedArray]]:
    return table.column_names, table.columns


@pytest.mark.parametrize(
    ("kind", "spoil", "error", "said"),
    [
        ("parquet", lambda X: X[:0], DataError, "no rows"),
        ("npy", lambda X: X[:, :3], DataError, "the model needs 5"),
        ("parquet", lambda X: np.where(X[2000, 1] == X, np.nan, X), DataError, "x1 .1."),
        ("npy", lambda X: np.where(X[2000, 1] == X, np.inf, X), DataError, "x1 .1."),
    ],
)
def test_files_that_cannot_be_predicted_leave_nothing(
    tmp_path: Path, kind: str, spoil: Any, error: type[Exception], said: str
) -> None:
    path = save(tmp_path, kind, X)
    if kind == "npy":
        np.save(path, spoil(X))
    else:
        pa.parquet.write_table(pa.table(dict(zip(COLUMNS, spoil(X).T, strict=True))), path)
    with pytest.raises(error, match=said):
        predict_file(
            MODELS["numbers"]._replace(centred=False), path, tmp_path / "p.parquet", Asked()
        )
    assert sorted(tmp_path.iterdir()) == [path]


def test_missing_columns_and_files_are_refused(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"x0": X[:, 0]}), tmp_path / "few.parquet")
    with pytest.raises(DataError, match=r"columns \['x1', 'x2', 'x3', 'x4'\] are missing"):
        predict_file(model(), tmp_path / "few.parquet", tmp_path / "p.csv", Asked())
    words = pa.table({name: ["one"] for name in COLUMNS})
    pa.parquet.write_table(words, tmp_path / "words.parquet")
    with pytest.raises(DataError, match="inputs must be numbers"):
        predict_file(model(), tmp_path / "words.parquet", tmp_path / "p.csv", Asked())
    with pytest.raises(FileError, match="cannot be read"):
        predict_file(model(), tmp_path / "none.parquet", tmp_path / "p.csv", Asked())


def peak(work: Any) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Of predictions only by the predictions; of a file to a file not at all."""
    m, many = model(), np.tile(X, (40, 1))  # 123 000 rows; their features would take 40 MB
    m.predict(X)
    assert peak(lambda: m.predict(many)) <= 3 * 8 * len(many) + 4e6
    np.save(tmp_path / "few.npy", np.tile(X, (10, 1)))
    np.save(tmp_path / "many.npy", many)
    few, all_ = (
        peak(lambda name=name: predict_file(m, tmp_path / name, tmp_path / "p.parquet", Asked()))
        for name in ("few.npy", "many.npy")
    )
    assert all_ <= 1.1 * few + 1e5
