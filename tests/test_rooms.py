"""Features of rows with class labels in files: the same bits, and little memory."""

from __future__ import annotations

import errno
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from coke.config import from_settings
from coke.data.rooms import OnDisk
from coke.data.sites import Sites
from coke.errors import ConfigError, FileError
from coke.loading import load_task
from coke.maths import classification
from coke.maths.classification import Margin, end_to_end, mapped
from coke.maths.coke import COKE
from coke.maths.features import FeatureSettings
from coke.maths.graph import build_graph
from coke.maths.problem import Problem
from coke.maths.whitening import Whitening
from coke.prepare import Choices, prepare
from coke.run.simulate import simulate
from commands import coke

GRAPH = build_graph("ring", 4, seed=0)


def sites(T: int, classes: int) -> Sites:
    """Four sites with T rows each, and a few for testing."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(T, 3)) for _ in range(8)]
    y = [np.floor(classes * (0.999 * np.sin(x[:, 0] + x[:, 1]) ** 2)).astype(int) for x in X]
    few = [slice(None)] * 4 + [slice(20)] * 4
    X, y = ([part[some] for part, some in zip(parts, few, strict=True)] for parts in (X, y))
    return Sites(tuple("abcd"), tuple(X[:4]), tuple(y[:4]), tuple(X[4:]), tuple(y[4:]))


@pytest.mark.parametrize(("loss", "classes"), [("logistic", 2), ("logistic", 3), ("hinge", 2)])
def test_a_run_from_files_is_the_run_from_memory(loss: str, classes: int, tmp_path: Path) -> None:
    """θ, losses, the optimum and the whitened problem, to the last bit; no file is left."""
    found = []
    for room in (np.empty, OnDisk(tmp_path)):
        how = Choices(FeatureSettings(6, sigma=1.5, seed=0), loss, 1e-2, "standard", room=room)
        task = prepare(sites(60, classes), ("a", "b", "c"), GRAPH, how)
        whitened = task.way(None).problem
        *_, last = simulate(whitened, GRAPH, COKE(0.1), rounds=5)
        assert not [*tmp_path.iterdir()]
        numbers = last.state.theta, last.state.loss, np.array(last.score), task.problem.optimum
        found.append(b"".join(part.tobytes() for part in numbers))
    assert found[0] == found[1]


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_features_in_files_take_no_memory(loss: str, tmp_path: Path) -> None:
    """Nor do rounds, losses and the optimum copy them."""
    T, D = 20_000, 100
    how = Choices(FeatureSettings(D // 2, seed=0), loss, 1e-2, "none", room=OnDisk(tmp_path))
    rows = sites(T, 2)
    tracemalloc.start()
    task = prepare(rows, ("a", "b", "c"), GRAPH, how)
    before = tracemalloc.get_traced_memory()[1]
    *_, last = simulate(task.problem, GRAPH, COKE(0.1), rounds=2)
    _ = task.problem.optimum
    _ = task.problem.whitened(Whitening(np.tri(D)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(last.score.train)
    features = 4 * T * D * 8
    assert max(before, most) <= 0.6 * features  # a chunk and its square root, labels, margins


def test_parts_that_lie_end_to_end_are_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification, "CHUNK", 2)
    parts = mapped(lambda x: np.hstack([x, x]), [np.ones((n, 2)) for n in (3, 0, 5)], 4, np.empty)
    whole = end_to_end(parts)
    np.testing.assert_array_equal(whole, np.ones((8, 4)))
    assert all(np.shares_memory(whole, part) for part in parts if len(part))
    other = [*parts[1:], parts[0]]
    np.testing.assert_array_equal(end_to_end(other), np.concatenate(other))
    assert not np.shares_memory(end_to_end(other), whole)


def test_classes_share_their_features_also_when_whitened(tmp_path: Path) -> None:
    how = Choices(FeatureSettings(4, seed=0), "logistic", 1e-2, "none", room=OnDisk(tmp_path))
    task = prepare(sites(40, 3), ("a", "b", "c"), GRAPH, how)
    for problem in (task.problem, task.way(None).problem):
        parts = problem.train.parts  # type: ignore[attr-defined]
        assert len(parts) == 3
        assert all(part.Phi is parts[0].Phi for part in parts)


def test_a_full_disk_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert OnDisk(tmp_path)((0, 5)).shape == (0, 5)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(FileError, match=r"no room for 0.08 GB of features: .*No space"):
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
    line += ["--features", "5", "--rounds", "8"]
    coke(*line, "--out", "memory", cwd=tmp_path)
    coke(*line, "--on-disk", "scratch", "--out", "disk", cwd=tmp_path)
    one, two = ((tmp_path / name / "model.coke").read_bytes() for name in ("memory", "disk"))
    assert one == two
    assert not [*(tmp_path / "scratch").iterdir()]


def test_the_quadratic_loss_keeps_no_features(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"use data\.stream"):
        load_task(from_settings({"data": {"on_disk": str(tmp_path)}}))


def test_a_risk_by_hand_needs_no_room() -> None:
    Phi = np.random.default_rng(0).normal(size=(9, 2))
    risk = Margin((Phi[:4], Phi[4:]), (np.ones(4), -np.ones(5)), 0.1, "logistic")
    assert np.isfinite(Problem(risk).optimum).all()
