"""`coke run --online`: a file's rows as if they came, in one process and on ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coke.data.timed import Clocked
from coke.errors import DataError
from coke.settings.declaration import KNOBS
from kit.commands import coke
from kit.jobs import commands_on_ranks

ONLINE = (
    "--time", "when", "--site", "station", "--target", "y", "--model", "plain", "--features", "10",
    "--json",
)  # fmt: skip


def stations(T: int = 130, N: int = 3, drift: int = 10**9) -> pd.DataFrame:
    """Hour by hour, one row a station."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(T, N, 2))
    y = np.sin(X.sum(axis=2)) + 0.1 * rng.normal(size=(T, N))
    y[drift:] *= -1
    hours = pd.date_range("2026-01-01", periods=T, freq="h")
    return pd.DataFrame({
        "a": X[..., 0].ravel(), "b": X[..., 1].ravel(), "y": y.ravel(),
        "station": [f"s{n}" for _ in range(T) for n in range(N)], "when": hours.repeat(N),
    })  # fmt: skip


def learnt(folder: Path, rows: pd.DataFrame, *more: Any) -> dict[str, Any]:
    rows.to_csv(folder / "rows.csv", index=False)
    run = coke("run", "--online", "rows.csv", *ONLINE, *more, cwd=folder)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_a_stream_in_a_file_is_predicted_learnt_from_and_reported(tmp_path: Path) -> None:
    """Better than the last value, one alarm after the drift, and every odd row counted."""
    rows = stations(320, N=4, drift=200)
    rows.loc[30:39, "a"] = np.nan
    far = rows.iloc[[5]].assign(when=pd.Timestamp("2031-01-01"))
    twice = pd.concat([rows, rows.iloc[100:107], far]).sample(frac=1.0, random_state=0)
    found = learnt(tmp_path, twice, "--out", "out")
    assert found["arrivals"] == {
        "taken": 1270, "late": 0, "too_late": 0, "twice": 7, "ahead": 1, "gaps": 10,
    }  # fmt: skip
    said = found["prequential"]
    assert said["second_half"]["ours"] < said["last"]
    (alarm,) = found["alarms"]
    assert "2026-01-09T08" <= alarm < "2026-01-11"
    assert found["bytes_per_day"] == pytest.approx(found["bytes"] * 24 / 320)
    ticks = pd.read_parquet(tmp_path / "out" / "prequential.parquet")
    assert ticks["rows"].sum() == 1270
    assert ticks["loss"].sum() / 1270 == pytest.approx(said["ours"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "last value" in page
    assert "7 twice" in page


def test_the_order_of_a_file_says_nothing(tmp_path: Path) -> None:
    rows = stations(60)
    one, other = (
        learnt(tmp_path, rows),
        learnt(tmp_path, rows.sort_values("station", kind="stable")),
    )
    assert one == other


def test_ranks_have_the_bits_of_one_process(tmp_path: Path) -> None:
    """Predictions tick by tick, the proven model of the end, and every byte."""
    args = (
        "run",
        "--online",
        "../rows.csv",
        *ONLINE,
        "--out",
        "out",
        "--finish",
        "--memory",
        "inf",
    )
    stations().to_csv(tmp_path / "rows.csv", index=False)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    alone = json.loads(coke(*args, cwd=tmp_path / "one").stdout)
    (told,) = commands_on_ranks(2, (tmp_path / "two", [*args, "--engine", "mpi"]))
    assert json.loads(told) == alone
    assert "certified" in alone["finished"]["text"]
    for name in ("model.coke", "prequential.parquet"):
        one, two = (tmp_path / who / "out" / name for who in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--privacy", "dp"], "privacy"),
        (["--loss", "huber"], "rows are needed again"),
        (["--algorithm", "dkla"], "learnt by auto or coke"),
        (["--max-bytes", "1000"], "budget"),
        (["--drop", "when"], "when"),
        (["--resume", "out"], "read again"),
        (["--on-gap", "refuse"], "missing values in ['a']"),
    ],
)
def test_what_a_stream_cannot_have_is_refused_with_the_reason(
    tmp_path: Path, more: list[str], why: str
) -> None:
    rows = stations(20)
    rows.loc[3, "a"] = np.nan
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run = coke("run", "--online", "rows.csv", *ONLINE, *more, cwd=tmp_path, code=2)
    assert why in run.stderr


def test_text_among_the_inputs_is_refused_by_name(tmp_path: Path) -> None:
    rows = stations(20)
    rows["wind"] = "NW"
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run = coke("run", "--online", "rows.csv", *ONLINE, cwd=tmp_path, code=2)
    assert "--drop wind" in run.stderr
    coke("run", "--online", "rows.csv", *ONLINE, "--drop", "wind", cwd=tmp_path)


def test_columns_that_come_or_go_are_refused_by_name() -> None:
    import pyarrow as pa

    clock = Clocked("t", ["y"])
    table = pa.table({"t": [1.0, 2.5], "a": [0.0, None], "y": [1.0, 2.0]})
    found = clock.rows(table)
    np.testing.assert_array_equal(found.ticks, [1, 2])
    assert np.isnan(found.X[1, 0])
    with pytest.raises(DataError, match=r"with \['b'\]"):
        clock.rows(table.append_column("b", pa.array([1.0, 2.0])))
    with pytest.raises(DataError, match=r"without \['a'\]"):
        clock.rows(table.rename_columns(["t", "c", "y"]))


def test_gaps_may_take_the_last_value_of_their_site() -> None:
    import pyarrow as pa

    clock = Clocked("t", ["y"], site="s", on_gap="last")
    table = pa.table({
        "t": [1, 1, 2, 2], "s": ["p", "q", "p", "q"], "a": [3.0, None, None, 5.0], "y": [0.0] * 4,
    })  # fmt: skip
    np.testing.assert_array_equal(clock.rows(table).X[:, 0], [3.0, np.nan, 3.0, 5.0])
    assert set(KNOBS["stream.on_gap"].knob.choices) == {"leave", "last", "refuse"}
