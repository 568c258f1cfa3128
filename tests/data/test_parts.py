"""Sites whose rows are read a chunk at a time: what reading them all at once would give."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.npy import open_arrays
from coke.data.out_of_core import pass_over
from coke.data.site import Kept
from coke.data.sources import Chunk, Passing, Source, joined
from coke.data.units import Making, Scaling, columns_of, fit_scaling
from coke.errors import CokeError, DataError
from coke.learning.open import _open_sites, open_ready
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.losses.problem import Quadratic
from coke.settings.reading import checked_settings
from kit.commands import coke
from kit.parted import HOW, PLAIN, SITES, X, Y, any_way, config, equal, save_all, whole


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return save_all(tmp_path)


@any_way
def test_streams_leave_the_statistics_of_the_same_rows(
    chunk: int, agents: set[int], seed: int, test: float
) -> None:
    """Training and test rows are those of `split_rows`: moments, ranges and statistics agree."""
    here, plain = sorted(agents), whole(test, seed).of(sorted(agents))
    streams = pass_over(open_arrays(X, Y, SITES, chunk=chunk), HOW, test=test, seed=seed).of(here)
    assert streams.names == plain.names
    scaling = units_of(plain)
    for i, (x, y) in enumerate(zip(plain.X, plain.y, strict=True)):
        told = streams.columns(i)
        rows = np.column_stack([x, y])
        assert len(y) == told.T
        assert_allclose([told.mean, told.sd], [rows.mean(axis=0), rows.std(axis=0)], rtol=1e-9)
        assert_array_equal([told.low, told.high], [rows.min(axis=0), rows.max(axis=0)])
    phi = draw_features(FeatureSettings(5, sigma=2.0, seed=1), 3)
    problem = streams.problem(Making(phi, scaling, "quadratic", np.empty(0), 0.1))
    parts = {"train": (plain.X, plain.y), "test": (plain.X_test, plain.y_test)}
    for name, (xs, ys) in parts.items():
        Z, z = [scaling.inputs(x) for x in xs], [scaling.targets(y) for y in ys]
        agree(getattr(problem, name), Quadratic.from_rows(phi, Z, z, 0.1), 1e-12)


def units_of(sites: Kept) -> Scaling:
    rows = np.column_stack([np.concatenate(sites.X), np.concatenate(sites.y)])
    return fit_scaling("standard", 3, columns_of(rows))


def agree(found: Any, wanted: Quadratic, within: float) -> None:
    """The statistics; no test rows at all are no risk."""
    if not wanted.T.any():
        assert found is None
        return
    found, wanted = found.sums, wanted.sums
    assert_array_equal(found.T, wanted.T)
    for a, b in ((found.A, wanted.A), (found.b, wanted.b), (found.yy, wanted.yy)):
        assert_allclose(a, b, atol=within * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("kind", ["file", "folder", "arrays"])
@pytest.mark.parametrize(("precision", "within"), [("auto", 1e-6), ("double", 1e-12)])
def test_a_streamed_task_is_the_loaded_one(
    files: Path, kind: str, precision: str, within: float
) -> None:
    """Units, statistics, agreement and basis, whichever way the rows are given."""
    wanted = open_ready(config(files, "file", out_of_core=False))
    found = open_ready(config(files, kind, out_of_core=True, precision=precision))
    assert found.names == wanted.names
    assert set(found.graph.edges) == set(wanted.graph.edges)
    assert found.rows is None
    assert_array_equal(found.spent, wanted.spent)
    assert_allclose(found.spread, wanted.spread, rtol=1e-12)
    for name in ("train", "test"):
        agree(getattr(found.problem, name), getattr(wanted.problem, name).sums, within)
    ours, theirs = found.case("coke"), wanted.case("coke")
    assert_allclose(ours.spread, theirs.spread, rtol=1e-6)
    assert_allclose(found.problem.optimum, wanted.problem.optimum, atol=1e3 * within)


def test_a_folder_of_files_is_a_file_with_a_column_of_sites(files: Path) -> None:
    """In memory: the same rows at the same sites."""
    file, folder = (
        _open_sites(config(files, kind, out_of_core=False)) for kind in ("file", "folder")
    )
    assert isinstance(file.sites, Kept)
    assert isinstance(folder.sites, Kept)
    equal(folder.sites, file.sites)
    assert folder.columns == file.columns


def test_the_command_passes_over_rows(files: Path) -> None:
    """The losses of the loaded run to single precision."""
    source = ["--data", "rows.parquet", "--target", "y", "--site", "where", "--whitening", "gram"]
    line = ["run", *source, "--model", "plain", "--rounds", 20, "--features", 8, "--json"]
    loaded = json.loads(coke(*line, cwd=files).stdout)
    run = coke(*line, "--out-of-core", "--out", "o", cwd=files)
    passed = json.loads(run.stdout)
    assert passed["bytes"] == loaded["bytes"]
    for key in ("train_mse", "test_mse", "global_test_mse", "optimum_train_mse"):
        assert passed[key] == pytest.approx(loaded[key], rel=1e-5), key
    settings = json.loads((files / "o/settings.json").read_text())
    assert settings["data"]["out_of_core"]


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """But for a byte a row, which says what is held out."""

    def peak(rows: int) -> int:
        source = open_arrays(
            np.broadcast_to(X[:1], (rows, 3)), np.broadcast_to(Y[:1], rows), np.arange(rows) % 2
        )
        tracemalloc.start()
        streams = pass_over(source, Passing(), test=0.3, seed=0)
        phi = draw_features(FeatureSettings(5, seed=1), 3)
        streams.problem(Making(phi, units, "quadratic", np.empty(0), 0.1))
        assert streams.columns(1).T
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    units = units_of(whole(0.0, 0))
    peak(1000)
    small, large = peak(50_000), peak(200_000)
    assert large <= 1.2 * small + 5 * 150_000  # and four for a moment, to draw it


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss": "logistic"}, 'loss = "logistic": that needs rows'),
        ({"whitening": "mixture"}, 'whitening = "mixture" of auto: that needs rows'),
        ({"algorithm": "dkla", "beside": ["coke"], "whitening": "moments"}, "of coke"),
        ({"data": {"split": "iid"}}, 'split = "iid": that needs rows'),
        ({"data": {"precision": "half"}}, "unknown precision"),
        ({"data": {"site": None}}, "data.out_of_core without sites"),
        ({"data": {"file": None, "target": None, "site": None}}, "data.out_of_core without sites"),
        ({"data": {"file": "X.npy", "out_of_core": False}}, "add data.out_of_core = true"),
        ({"data": {"file": "sites"}}, "its files are the sites"),
        ({"data": {"file": ".", "site": None}}, "0 files"),
    ],
)
def test_what_needs_rows_in_memory_is_refused_out_of_core(
    files: Path, changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    (files / "rows.parquet").rename(files / "rows.pq")
    data = {"file": "rows.parquet", "target": "y", "site": "where", "out_of_core": True}
    table = {**data, **changes.pop("data", {})}
    with pytest.raises(CokeError, match=said):
        open_ready(
            checked_settings({"model": "plain", "whitening": "gram", **changes, "data": table})
        )


def test_the_papers_methods_go_out_of_core_with_any_whitening(files: Path) -> None:
    """They have none."""
    wanted = config(files, "file", out_of_core=True, algorithm="dkla")
    mixed = checked_settings({**wanted.plain(), "whitening": "mixture"})
    assert open_ready(mixed).case("dkla").problem.test is not None


def sources(columns: Sequence[Sequence[str]]) -> dict[str, Source]:
    return {str(i): Source(tuple(names), 1, lambda: iter(())) for i, names in enumerate(columns)}


def test_files_with_other_columns_are_refused() -> None:
    assert joined(sources([["a", "b"], ["a", "b"]])).rows == 2
    said = "columns of 0: 1 lacks 'b'; 2 lacks 'a' and has also 'c'"
    with pytest.raises(DataError, match=said):
        joined(sources([["a", "b"], ["a"], ["c", "b"]]))


def test_files_may_have_their_columns_in_another_order() -> None:
    chunk = Chunk(np.arange(6.0).reshape(3, 2), np.zeros(3), None, ())
    both = {name: Source(tuple(name), 3, lambda: iter([chunk])) for name in ("ab", "ba")}
    first, second = joined(both).chunks()
    assert_array_equal(first.X, chunk.X)
    assert_array_equal(second.X, chunk.X[:, ::-1])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("out_of_core", [False, True])
def test_a_site_whose_file_has_no_rows_is_named(
    files: Path, out_of_core: bool, suffix: str
) -> None:
    """Rather than left out in silence."""
    empty = pa.table({**PLAIN}).slice(0, 0)
    path = files / "sites" / f"Ahlen.{suffix}"
    (pa.csv.write_csv if suffix == "csv" else pa.parquet.write_table)(empty, path)
    with pytest.raises(CokeError, match="Ahlen"):
        open_ready(config(files, "folder", out_of_core))
