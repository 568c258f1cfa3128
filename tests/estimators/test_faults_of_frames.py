"""Every column at fault of a frame is named at once; gaps unknown to training are filled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal

from coke import COKEClassifier, COKERegressor, load_model
from coke.errors import DataError
from kit.commands import coke

rng = np.random.default_rng(11)
X = rng.normal(size=(90, 3)) * [1.0, 20.0, 3.0] + [0.0, 300.0, -5.0]
y = X[:, 0] + 0.1 * X[:, 1]
FRAME = pd.DataFrame(X, columns=list("abc"))
HOLES = FRAME.copy()
HOLES.iloc[3, 1] = HOLES.iloc[4, 2] = np.nan
DATES = ["2024-01-02"] * 89


def plain(**given: Any) -> Any:
    return COKERegressor(n_agents=3, **({"model": "plain"} | given))


def refused(work: Any) -> str:
    with pytest.raises(DataError) as error:
        work()
    return str(error.value)


@pytest.mark.parametrize("values", [["x"] + [1.0] * 89, [[1]] * 90, [*DATES, "2.1.2024"]])
def test_a_fit_names_all_columns_at_fault(values: list[Any]) -> None:
    """Of two kinds, of none that is known, dates in two forms; and not those that are good."""
    frame = pd.DataFrame({"good": X[:, 0], "one": values, "fine": X[:, 1], "two": values})
    said = refused(lambda: plain().fit(frame, y))
    assert "'one'" in said
    assert "'two'" in said
    assert "'good'" not in said
    assert "'fine'" not in said


def test_infinite_values_of_a_frame_are_named() -> None:
    frame = FRAME.assign(word=["u", "v"] * 45)
    frame.iloc[1, 0] = frame.iloc[2, 2] = np.inf
    said = refused(lambda: plain().fit(frame, y))
    assert "'a'" in said
    assert "'c'" in said
    assert "'b'" not in said
    assert "'word'" not in said


@pytest.mark.parametrize("frames", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("word", [False, True])
def test_a_prediction_names_all_columns_at_fault(frames: Any, word: bool) -> None:
    """Whether the model was trained on text or on numbers only."""
    table = {name: FRAME[name].to_numpy() for name in FRAME}
    table |= {"word": np.array(["u", "v"] * 45)} if word else {}
    model = plain().fit(frames(table), y)
    said = refused(lambda: model.predict(frames(table | dict.fromkeys("ac", ["t"] * 90))))
    assert "'a'" in said
    assert "'c'" in said
    assert "'b'" not in said


@pytest.mark.parametrize("model", ["plain", "auto"])
@pytest.mark.parametrize("kind", [COKERegressor, COKEClassifier])
def test_a_gap_that_training_had_none_of_is_the_mean(kind: Any, model: str) -> None:
    """The agreed mean, in frames and arrays alike."""
    fitted = kind(n_agents=3, model=model).fit(FRAME, y if kind is COKERegressor else y > 30)
    assert fitted.model_.coding is None
    means = pd.Series(fitted.model_.scaling.x_shift, FRAME.columns)
    assert ((means - FRAME.mean()).abs() <= 2**-7 * FRAME.std()).all()
    wanted = fitted.model_.predict(HOLES.fillna(means).to_numpy())
    found = [fitted.predict(HOLES), fitted.predict(pl.from_pandas(HOLES))]
    found += [fitted.model_.predict(HOLES.to_numpy()), fitted.model_.predict(HOLES)]
    for one in found:
        close = one == wanted if kind is COKEClassifier else np.isclose(one, wanted, rtol=1e-9)
        assert close.all()
    untouched = np.isfinite(HOLES).all(axis=1)
    assert_array_equal(found[0][untouched], fitted.predict(FRAME)[untouched])


def test_a_model_without_means_refuses_gaps(tmp_path: Path) -> None:
    """Units of which the shift is no mean say so, in the file, too."""
    for scale in ("none", "minmax"):
        fitted = plain(scale=scale).fit(FRAME, y)
        fitted.model_.save(tmp_path / "model.coke")
        again = load_model(tmp_path / "model.coke")
        assert not again.centred
        assert "means" in refused(lambda again=again: again.predict(HOLES.to_numpy()))
        assert "'b'" in refused(lambda fitted=fitted: fitted.predict(HOLES))
        assert again.predict(X).shape == (90,)
    plain().fit(FRAME, y).model_.save(tmp_path / "model.coke")
    assert load_model(tmp_path / "model.coke").centred


def test_a_file_with_gaps_is_predicted_and_they_are_counted(tmp_path: Path) -> None:
    table = pa.table({**FRAME, "y": y})
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    coke(
        "run", "--data", "rows.parquet", "--target", "y", "--out", "o", "--rounds", 50, cwd=tmp_path
    )
    pa.parquet.write_table(pa.Table.from_pandas(HOLES), tmp_path / "holes.parquet")
    run = coke("predict", "o/model.coke", "holes.parquet", "--json", cwd=tmp_path)
    assert json.loads(run.stdout)["gaps"] == {"b": 1, "c": 1}
    model = load_model(tmp_path / "o/model.coke")
    found = pd.read_csv(tmp_path / "predictions.csv")["prediction"]
    np.testing.assert_allclose(found, model.predict(HOLES), rtol=1e-5)


def test_columns_in_another_order_are_refused_as_such() -> None:
    frame = pd.DataFrame({"age": np.arange(40.0), "ward": ["a", "b"] * 20})
    model = COKERegressor(n_agents=2, model="plain").fit(frame, frame["age"])
    with pytest.raises(DataError, match="in the same order as they were in fit"):
        model.predict(frame[["ward", "age"]])
