"""Rows with class labels and their features in files: the same bits, and little memory."""

from __future__ import annotations

import errno
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest

from coke.data.ondisk import OnDisk
from coke.data.reading import text
from coke.data.site import Kept
from coke.engines.process import simulate
from coke.errors import CokeError, ConfigError, DataError, FileError
from coke.learning.open import _open_sites, open_ready
from coke.maths.algorithms.coke import COKE
from coke.maths.features.whitening import Whitening
from coke.maths.graph import build_graph
from coke.maths.losses import LOSSES
from coke.maths.losses.problem import Problem
from coke.maths.losses.rowwise import Rowwise
from coke.settings.declaration import Features, Settings
from coke.settings.reading import checked_settings
from kit.commands import coke
from kit.ready import ready, rows_of

GRAPH = build_graph("ring", 4, seed=0)


def sites(T: int, classes: int) -> Kept:
    """Four sites with T rows each, and a few for testing."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(T, 3)) for _ in range(8)]
    y = [np.floor(classes * (0.999 * np.sin(x[:, 0] + x[:, 1]) ** 2)).astype(int) for x in X]
    few = [slice(None)] * 4 + [slice(20)] * 4
    X, y = ([part[some] for part, some in zip(parts, few, strict=True)] for parts in (X, y))
    return Kept(tuple("abcd"), tuple(X[:4]), tuple(y[:4]), tuple(X[4:]), tuple(y[4:]))


@pytest.mark.parametrize(("loss", "classes"), [("logistic", 2), ("logistic", 3), ("hinge", 2)])
def test_a_run_from_files_is_the_run_from_memory(loss: str, classes: int, tmp_path: Path) -> None:
    """θ, losses, the optimum and the whitened problem, to the last bit; no file is left."""
    found = []
    for room in (np.empty, OnDisk(tmp_path)):
        features = {"n_features": 6, "sigma": 1.5}
        rows = replace(sites(60, classes), room=room)
        task = ready(rows, GRAPH, loss=loss, lam=1e-2, features=features)
        whitened = task.case("coke").problem
        *_, last = simulate(whitened, GRAPH, COKE(0.1), rounds=5)
        assert not [*tmp_path.iterdir()]
        numbers = last.state.theta, last.state.loss, np.array(last.score), task.problem.optimum
        found.append(b"".join(part.tobytes() for part in numbers))
    assert found[0] == found[1]


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_features_in_files_take_no_memory(loss: str, tmp_path: Path) -> None:
    """Nor do rounds, losses and the optimum copy them."""
    T, D = 20_000, 100
    features, data = {"n_features": D // 2, "sigma": 1.0}, {"scale": "none"}
    rows = replace(sites(T, 2), room=OnDisk(tmp_path))
    tracemalloc.start()
    task = ready(rows, GRAPH, loss=loss, lam=1e-2, features=features, data=data)
    before = tracemalloc.get_traced_memory()[1]
    *_, last = simulate(task.problem, GRAPH, COKE(0.1), rounds=2)
    _ = task.problem.optimum
    _ = task.problem.whitened(Whitening(np.tri(D)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(last.score.train)
    size = 4 * T * D * 8
    assert max(before, most) <= 0.6 * size  # a chunk and its square root, labels, margins


def test_classes_share_their_features_also_when_whitened(tmp_path: Path) -> None:
    rows = replace(sites(40, 3), room=OnDisk(tmp_path))
    features, data = {"n_features": 4, "sigma": 1.0}, {"scale": "none"}
    task = ready(rows, GRAPH, loss="logistic", lam=1e-2, features=features, data=data)
    for problem in (task.problem, task.case("coke").problem):
        parts = problem.train.parts  # type: ignore[attr-defined]
        assert len(parts) == 3
        assert all(part.Phi is parts[0].Phi for part in parts)


def test_a_full_disk_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert OnDisk(tmp_path)((0, 5)).shape == (0, 5)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(FileError, match=r"no room for 0.08 GB of numbers: .*No space"):
        OnDisk(tmp_path)((10**5, 100))
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="name a folder on a disk"):
        OnDisk(tmp_path / "file")((5, 5))


def test_the_command_leaves_the_same_model(tmp_path: Path) -> None:
    rows = sites(50, 2)
    columns = {f"x{j}": np.concatenate(rows.X)[:, j] for j in range(3)}
    where = np.repeat(rows.names, 50)
    table = pa.table({**columns, "y": np.concatenate(rows.y), "where": where})
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    line = ["run", "--data", "rows.parquet", "--target", "y", "--site", "where", "--loss", "hinge"]
    line += ["--model", "plain", "--features", "5", "--rounds", "8"]
    coke(*line, "--out", "memory", cwd=tmp_path)
    coke(*line, "--on-disk", "scratch", "--out", "disk", cwd=tmp_path)
    one, two = ((tmp_path / name / "model.coke").read_bytes() for name in ("memory", "disk"))
    assert one == two
    assert not [*(tmp_path / "scratch").iterdir()]


LABELS: dict[str, Any] = {
    "text": ["no", "yes", "perhaps", None],
    "numbers": [3, -1, 7, None],
    "large": [2**53, 2**53 + 1, 2**53 + 2, None],
    "halves": np.array([3.0, -1.0, 7.0, np.nan], np.float16),
    "floats": [3.0, -1.0, np.inf, np.nan],
    "truth": [True, False, True, None],
}


def saved(folder: Path, kind: str, T: int = 300) -> pa.Table:
    """Rows with a few classes in every form that can be read, some rows without one."""
    rng = np.random.default_rng(0)
    X, where = rng.normal(size=(T, 3)), rng.integers(0, 3, T)
    which = rng.choice(4, T, p=[0.4, 0.3, 0.25, 0.05])
    y = pa.array([LABELS[kind][i] for i in which], from_pandas=True)
    inputs = {f"x{j}": X[:, j] for j in range(3)}
    table = pa.table({**inputs, "y": y, "where": np.array(["a", "b", "c"])[where]})
    pa.parquet.write_table(table, folder / "rows.parquet", row_group_size=40)
    pa.csv.write_csv(table, folder / "rows.csv")
    (folder / "sites").mkdir()
    for place, name in enumerate("abc"):
        some = table.filter(pa.array(where == place)).drop_columns(["where"])
        pa.parquet.write_table(some, folder / "sites" / f"{name}.parquet")
    return table


def settings(folder: Path, source: str, **more: Any) -> Settings:
    data = {"file": str(folder / source), "target": "y", "missing": "drop", **more}
    data |= {} if source == "sites" else {"site": "where"}
    how: dict[str, Any] = {"model": "plain", "loss": "hinge", "lambda": 1e-2}
    return checked_settings({**how, "data": data, "features": {"n_features": 5}})


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("source", ["rows.parquet", "rows.csv", "sites"])
def test_rows_read_in_chunks_are_those_read_at_once(source: str, kind: str, tmp_path: Path) -> None:
    """Inputs, class labels, who holds them and which are for testing; and so the optimum."""
    saved(tmp_path, kind)
    at_once = settings(tmp_path, "rows.parquet" if source == "sites" else source)
    in_chunks = settings(tmp_path, source, on_disk=str(tmp_path / "scratch"))
    wanted, found = _open_sites(at_once), _open_sites(in_chunks)
    assert (found.columns, found.sites.names) == (wanted.columns, wanted.sites.names)
    assert isinstance(found.sites, Kept)
    assert isinstance(wanted.sites, Kept)
    for a, b in zip(rows_of(found.sites), rows_of(wanted.sites), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    one, other = (open_ready(how) for how in (at_once, in_chunks))
    assert one.agreement.classes.tolist() == other.agreement.classes.tolist()
    assert one.agreement.classes.dtype == other.agreement.classes.dtype
    np.testing.assert_array_equal(one.problem.optimum, other.problem.optimum)


LATE = {
    "text": ("1", "other"),
    "truth": ("true", "maybe"),
    "dates": ("2020-01-01", "x"),
}


@pytest.mark.parametrize("kind", LATE)
def test_classes_of_a_text_file_are_of_the_kind_of_all_its_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the first few."""
    monkeypatch.setattr(text, "BLOCK", 1 << 12)
    first, late = LATE[kind]
    lines = [f"{i % 7},{i % 3},{'ab'[i % 2]},{first if i < 600 else late}" for i in range(700)]
    (tmp_path / "rows.csv").write_text("\n".join(["x0,x1,where,y", *lines]) + "\n")
    one, other = (
        open_ready(settings(tmp_path, "rows.csv", **more)).agreement.classes.tolist()
        for more in ({}, {"on_disk": str(tmp_path / "scratch")})
    )
    assert one == other == sorted([first, late])


def test_text_that_is_none_is_refused_either_way(tmp_path: Path) -> None:
    saved(tmp_path, "text")
    table = pa.parquet.read_table(tmp_path / "rows.parquet")
    spoilt = pa.array([b"\xff", b"a"] * 150).view(pa.string())
    pa.parquet.write_table(table.set_column(3, "y", spoilt), tmp_path / "rows.parquet")
    for more in ({}, {"on_disk": str(tmp_path / "scratch")}):
        with pytest.raises(CokeError, match="cannot be read"):
            open_ready(settings(tmp_path, "rows.parquet", **more))


def test_arrays_with_class_labels_are_read_in_chunks_too(tmp_path: Path) -> None:
    table = saved(tmp_path, "text").filter(pc.field("y").is_valid())
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    np.save(tmp_path / "X.npy", X)
    for name, column in (("y", "y"), ("s", "where")):
        np.save(tmp_path / f"{name}.npy", np.array(table[column].to_pylist()))
    y, s = (str(tmp_path / f"{name}.npy") for name in "ys")
    source = settings(tmp_path, "X.npy", on_disk=str(tmp_path / "scratch"), target=y)
    source = msgspec.structs.replace(source, data=msgspec.structs.replace(source.data, site=s))
    one, other = (open_ready(how) for how in (settings(tmp_path, "rows.parquet"), source))
    assert one.agreement.classes.tolist() == other.agreement.classes.tolist()
    np.testing.assert_array_equal(one.problem.optimum, other.problem.optimum)
    with pytest.raises(ConfigError, match=r"losses other than .* data\.on_disk"):
        open_ready(settings(tmp_path, "X.npy", target=y))


def test_files_whose_classes_are_of_different_kinds_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "numbers")
    table = pa.table({**{f"x{j}": [1.0] for j in range(3)}, "y": ["yes"]})
    pa.parquet.write_table(table, tmp_path / "sites" / "b.parquet")
    with pytest.raises(DataError, match="all text, all numbers"):
        open_ready(settings(tmp_path, "sites"))


def test_rows_on_disk_take_little_memory(tmp_path: Path) -> None:
    """A chunk, and some bytes a row for its number, class and site."""
    T, d, D = 60_000, 100, 50
    rng = np.random.default_rng(0)
    inputs = {f"x{j}": rng.normal(size=T) for j in range(d)}
    where, y = np.array(["a", "b"])[rng.integers(0, 2, T)], rng.integers(0, 2, T)
    table = pa.table({**inputs, "y": y, "where": where})
    pa.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=5000)
    del inputs, table
    how = settings(tmp_path, "rows.parquet", on_disk=str(tmp_path / "scratch"))
    features = Features(n_features=D // 2)
    how = msgspec.structs.replace(how, features=features, whitening="gram")
    tracemalloc.start()
    task = open_ready(how)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(task.problem.train.T) == T - 2 * round(0.3 * T / 2)
    assert most <= 0.7 * (8 * T * d)


def test_a_row_on_disk_takes_few_bytes_of_memory(tmp_path: Path) -> None:
    """Its number, class, site and place: at most 90."""
    most = []
    for T in (50_000, 100_000):
        rng = np.random.default_rng(0)
        y, where = (np.array(["no", "yes"])[rng.integers(0, 2, T)] for _ in range(2))
        table = pa.table({"x": rng.normal(size=T), "y": y, "where": where})
        pa.parquet.write_table(table, tmp_path / "rows.parquet")
        del table, y, where
        how = settings(tmp_path, "rows.parquet", on_disk=str(tmp_path / "scratch"))
        tracemalloc.start()
        _open_sites(how)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] - most[0] <= 90 * 50_000


def test_the_quadratic_loss_keeps_no_features(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"use data\.out_of_core"):
        open_ready(checked_settings({"data": {"on_disk": str(tmp_path)}}))


def test_a_risk_by_hand_needs_no_room() -> None:
    Phi = np.random.default_rng(0).normal(size=(9, 2))
    risk = Rowwise((Phi[:4], Phi[4:]), (np.ones(4), -np.ones(5)), 0.1, LOSSES["logistic"])
    assert np.isfinite(Problem(risk).optimum).all()
