"""Histories and checkpoints: read back exactly, gone on with exactly, or refused."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.engines.checkpoint import check_same, load_checkpoint, save_checkpoint
from coke.engines.fingerprint import fingerprint
from coke.engines.history import History
from coke.engines.process import simulate
from coke.errors import FileError, InputError
from coke.maths.algorithms.coke import COKE, Geometric
from kit.forging import DEEP, VALUES, forged, forgeries, parts_of
from kit.problems import GRAPHS, case

ALGORITHM = COKE(0.2, Geometric(1.0, 0.9))
PRINT = fingerprint(case().problem, GRAPHS["ring"], ALGORITHM)


def history(rounds: int = 30) -> tuple[History, Any]:
    c = case()
    h, r = History("coke", "mse", map(str, range(6))), None
    for r in simulate(c.problem, GRAPHS["ring"], ALGORITHM, rounds=rounds):
        h.append(r)
    return h, r


def test_a_history_is_a_table() -> None:
    h, _ = history(7)
    frame = h.to_frame()
    assert_array_equal(frame["train_mse"], h["train_mse"])
    assert frame.shape == (7, len(h.names) + 1)
    assert repr(h).startswith("<History of coke at 6 sites: 7 rounds, ")
    assert "no round" in repr(History("coke", "mse", "ab"))


def test_history_to_parquet_and_back(tmp_path: Path) -> None:
    h, _ = history()
    h.to_parquet(tmp_path / "h.parquet")
    again = History.from_parquet(tmp_path / "h.parquet")
    assert again.labels == h.labels
    for name in h.names:
        assert_array_equal(again[name], h[name])
        assert again[name].dtype == h[name].dtype
    assert_array_equal(again.spoke, h.spoke)
    assert h.spoke.sum() == h["transmissions"][-1]
    assert np.isnan(h["test_mse"]).all()  # no test rows in this case
    assert h.last()["test_mse"] is None
    h.to_parquet(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "h.parquet").read_bytes()


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        History.from_parquet(tmp_path / "absent.parquet")
    pa.parquet.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(FileError, match="not a history"):
        History.from_parquet(tmp_path / "other.parquet")
    h, _ = history()
    pa.parquet.write_table(h.table().drop_columns(["bytes"]), tmp_path / "part.parquet")
    with pytest.raises(FileError, match="not a history"):
        History.from_parquet(tmp_path / "part.parquet")
    with pytest.raises(InputError, match="Did you mean 'train_mse'"):
        h["trian_mse"]


N3 = pa.list_(pa.bool_(), 3)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("spoke", pa.array([[(1, True)]] * 3, type=pa.map_(pa.int64(), pa.bool_()))),
        ("spoke", pa.array([[True] * 3] * 3, type=N3)),
        ("spoke", pa.array([[True] * 6, None, [True] * 6], type=pa.list_(pa.bool_(), 6))),
        ("spoke", pa.array([[None] * 6] * 3, type=pa.list_(pa.bool_(), 6))),
        ("spoke", pa.array([[True] * 6] * 3)),
        ("bytes", pa.array(["1", "2", "3"])),
        ("bytes", pa.array([1.0, 2.0, 3.0])),
        ("bytes", pa.array([1, None, 3])),
        ("train_mse", pa.nulls(3)),
        ("train_mse", pa.array(["1", "2", "3"])),
        ("train_mse", pa.array([1.0, None, 3.0])),
    ],
)
def test_a_history_of_other_types_is_refused(name: str, values: Any, tmp_path: Path) -> None:
    table = history(3)[0].table()
    other = table.set_column(table.column_names.index(name), name, values)
    pa.parquet.write_table(other, tmp_path / "h.parquet")
    with pytest.raises(FileError, match="not a history"):
        History.from_parquet(tmp_path / "h.parquet")


@given(VALUES | st.just(DEEP))
def test_a_history_of_other_labels_is_refused(value: Any) -> None:
    labels = value if isinstance(value, str) else json.dumps(value)
    table = history(1)[0].table().replace_schema_metadata({b"coke": labels.encode()})
    with pytest.raises(FileError, match="not a history"):
        History.from_table(table)


def test_a_resumed_run_is_the_same_run_bit_for_bit(tmp_path: Path) -> None:
    """Stopped after 12 of 30 rounds, saved, loaded, gone on: all numbers as without the stop."""
    c, path = case(), tmp_path / "c.coke"
    whole, last = history(30)
    begun, at = history(12)
    save_checkpoint(path, at, begun, PRINT, {"rounds": 30})
    saved, found = load_checkpoint(path)
    check_same(path, found, PRINT)
    assert saved.config == {"rounds": 30}
    r = None
    for r in simulate(c.problem, GRAPHS["ring"], ALGORITHM, rounds=30, resume=saved.checkpoint):
        saved.history.append(r)
    assert r is not None
    assert_array_equal(r.state.theta, last.state.theta)
    assert_array_equal(r.state.g, last.state.g)
    for name, column in (("whole", whole), ("parts", saved.history)):
        column.to_parquet(tmp_path / name)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_a_checkpoint_of_other_data_or_agents_is_refused(tmp_path: Path) -> None:
    h, at = history(3)
    save_checkpoint(tmp_path / "c.coke", at, h, PRINT, {})
    saved, found = load_checkpoint(tmp_path / "c.coke")
    with pytest.raises(FileError, match="have changed"):
        check_same("c.coke", found, fingerprint(case(seed=5).problem, GRAPHS["ring"], ALGORITHM))
    with pytest.raises(InputError, match="resume with the same"):
        simulate(case(N=4).problem, GRAPHS["ring"].subgraph(range(4)), ALGORITHM, rounds=5,
                 resume=saved.checkpoint)  # fmt: skip


@cache
def checkpoint_bytes() -> bytes:
    h, at = history(3)
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder) / "c.coke", at, h, PRINT, {})
        return (Path(folder) / "c.coke").read_bytes()


@settings(max_examples=200)
@given(st.data())
def test_a_forged_checkpoint_is_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Whatever a forger writes is a FileError, or a checkpoint whose history can be used."""
    whole = checkpoint_bytes()
    path = tmp_path_factory.mktemp("c") / "c.coke"
    path.write_bytes(data.draw(forgeries(whole)))
    try:
        saved, _ = load_checkpoint(path)
    except FileError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert saved.history.table().num_rows == saved.checkpoint.k
    assert "theta" in saved.checkpoint.state


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e300, -1.0, 0.5])
def test_a_checkpoint_with_impossible_counts_is_refused(bad: float, tmp_path: Path) -> None:
    header, body = parts_of(checkpoint_bytes())
    path = tmp_path / "c.coke"
    assert header["arrays"][0]["name"] == "rows"
    path.write_bytes(forged(header, np.float64(bad).tobytes() + body[8:]))
    with pytest.raises(FileError, match="counts"):
        load_checkpoint(path)


@given(st.data())
def test_a_damaged_checkpoint_is_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    path, whole = tmp_path_factory.mktemp("c") / "c.coke", checkpoint_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(FileError):
        load_checkpoint(path)
