"""Rows in, sites out: nothing lost, nothing twice, and clear words about what cannot be used."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.scaling import fit_scaling, scaled
from coke.data.sites import by_label, deal, split_rows
from coke.data.synthetic import synthetic_rows
from coke.data.tables import Rows, checked_rows, read_rows
from coke.errors import CokeError, DataError, FileError

COLUMNS: dict[str, list[Any]] = {
    "a": [1.0, 2.0, 3.0, 4.0],
    "b": [1, 0, 1, 0],
    "where": ["x", "y", "x", "y"],
    "y": [0.1, 0.2, 0.3, 0.4],
}


def sources(folder: Path) -> dict[str, Any]:
    table = pa.table(COLUMNS)
    pa.parquet.write_table(table, folder / "rows.parquet")
    pa.csv.write_csv(table, folder / "rows.csv")
    return {
        "arrow": table,
        "pandas": pd.DataFrame(COLUMNS),
        "polars": pl.DataFrame(COLUMNS),
        "parquet": folder / "rows.parquet",
        "csv": str(folder / "rows.csv"),
    }


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "parquet", "csv"])
def test_every_source_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    rows = read_rows(sources(tmp_path)[kind], "y", site="where")
    assert_array_equal(rows.X, np.array([COLUMNS["a"], COLUMNS["b"]], dtype=float).T)
    assert_array_equal(rows.y, COLUMNS["y"])
    assert rows.columns == ("a", "b")
    assert rows.sites is not None
    assert rows.sites.tolist() == COLUMNS["where"]


@given(
    T=st.integers(1, 80),
    data=st.data(),
    split=st.sampled_from(["iid", "sorted"]),
    seed=st.integers(0, 99),
)
def test_dealing_out_uses_every_row_once(T: int, data: Any, split: str, seed: int) -> None:
    N = data.draw(st.integers(1, T))
    y = np.random.default_rng(seed).normal(size=T)
    parts = deal(y, N, split=split, seed=seed)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(T))
    sizes = [len(part) for part in parts.values()]
    assert max(sizes) - min(sizes) <= 1
    if split == "sorted":
        ends = [(y[part].min(), y[part].max()) for part in parts.values()]
        assert all(a[1] <= b[0] for a, b in pairwise(ends))


@given(seed=st.integers(0, 500))
def test_drawn_sizes_stay_in_their_range_and_use_every_row(seed: int) -> None:
    """The paper's Twitter split: 10 sites of 1200 to 1400 rows, 13800 in all."""
    parts = deal(np.zeros(13_800), 10, size_range=(1200, 1400 + 100), seed=seed)
    sizes = [len(part) for part in parts.values()]
    assert sum(sizes) == 13_800
    assert min(sizes) >= 1200
    assert max(sizes) <= 1500
    assert len(set(sizes)) > 3


def test_given_sizes() -> None:
    parts = deal(np.arange(10.0), 3, split="sorted", sizes=[5, 3, 2], seed=0)
    assert [part.tolist() for part in parts.values()] == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]


@given(test=st.floats(0, 0.95), seed=st.integers(0, 50))
def test_every_site_holds_out_its_share_and_keeps_a_row(test: float, seed: int) -> None:
    labels = np.array([0] * 1 + [1] * 2 + [2] * 50)
    rows = Rows(np.arange(53.0)[:, None], np.arange(53.0), labels, ("x",))
    sites = split_rows(rows, by_label(labels), test=test, seed=seed)
    for i, T in enumerate((1, 2, 50)):
        assert len(sites.y[i]) + len(sites.y_test[i]) == T
        assert len(sites.y[i]) >= 1
        assert abs(len(sites.y_test[i]) - test * T) <= 1
        assert sorted([*sites.y[i], *sites.y_test[i]]) == sorted(rows.y[labels == i])
        assert_array_equal(sites.X[i][:, 0], sites.y[i])  # rows stay whole


@pytest.mark.parametrize("how", ["none", "standard", "minmax"])
def test_scaling_uses_training_rows_of_all_sites_and_can_be_undone(how: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(3, 5, size=(60, 4))
    X[:, 2] = 7.0  # a constant column
    rows = checked_rows(X, rng.normal(10, 2, 60), np.repeat(["a", "b", "c"], 20))
    sites = split_rows(rows, by_label(rows.sites), test=0.3, seed=0)  # type: ignore[arg-type]
    scaling = fit_scaling(how, sites, scale_target=True)
    units = scaled(sites, scaling, scale_target=True)
    Z, z = np.concatenate(units.X), np.concatenate(units.y)
    varying = [0, 1, 3]
    if how == "standard":
        assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
        assert_allclose(Z.std(axis=0)[varying], 1)
        assert_allclose([z.mean(), z.std()], [0, 1], atol=1e-12)
    if how == "minmax":
        assert_allclose(Z[:, varying].min(axis=0), 0, atol=1e-15)
        assert_allclose(Z[:, varying].max(axis=0), 1)
        assert_allclose([z.min(), z.max()], [0, 1], atol=1e-15)
    assert np.isfinite(Z).all()
    assert_allclose(scaling.predictions(z), np.concatenate(sites.y))


def test_the_synthetic_problem_is_the_papers() -> None:
    """20 sites of 4000 to 6000 rows in R⁵; noise variance 0.1 around a smooth function."""
    rows = synthetic_rows(20, (4000, 6000), seed=0)
    assert rows.sites is not None
    T = np.bincount(rows.sites)
    assert len(T) == 20
    assert 4000 <= T.min() < T.max() <= 6000
    assert rows.X.shape == (T.sum(), 5)
    assert_allclose(np.cov(rows.X.T), np.eye(5), atol=0.02)
    # A cubic polynomial fits a bump of width 5 all but exactly: what is left over is the noise.
    x = rows.X / 3
    monomials = [np.ones(len(x)), *x.T]
    for i in range(5):
        for j in range(i, 5):
            monomials.append(x[:, i] * x[:, j])
            monomials.extend(x[:, i] * x[:, j] * x[:, k] for k in range(j, 5))
    P = np.stack(monomials, axis=1)
    left = rows.y - P @ np.linalg.lstsq(P, rows.y)[0]
    assert 0.097 < left.var() < 0.115
    again = synthetic_rows(20, (4000, 6000), seed=0)
    assert_array_equal(again.y, rows.y)


def hole(column: str, value: Any) -> pa.Table:
    return pa.table({**COLUMNS, column: [value, *COLUMNS[column][1:]]})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: read_rows(pa.table(COLUMNS), "z"), "unknown column 'z'"),
        (lambda: read_rows(pa.table(COLUMNS), "y", site="were"), "Did you mean 'where'"),
        (lambda: read_rows(pa.table(COLUMNS), "y", drop=["c"]), "unknown column 'c'"),
        (lambda: read_rows(pa.table(COLUMNS), "y"), "column 'where' holds string.*--drop where"),
        (lambda: read_rows(hole("a", None), "y", site="where"), r"in a \(1\).*--missing drop"),
        (lambda: read_rows(hole("a", np.inf), "y", site="where"), r"infinite values in a \(1\)"),
        (lambda: read_rows(hole("y", np.nan), "y", site="where"), "the target"),
        (lambda: read_rows(hole("y", None), "y", site="where"), r"in y \(1\)"),
        (lambda: read_rows(hole("where", None), "y", site="where"), r"in where \(1\)"),
        (lambda: read_rows(pa.table({"y": [1.0]}), "y"), "no input columns"),
        (lambda: read_rows({"y": [1]}, "y"), "cannot read rows from a dict"),
        (lambda: read_rows("rows.xlsx", "y"), ".parquet or .csv"),
        (lambda: checked_rows(np.zeros(3), np.zeros(3)), r"X has shape \(3,\)"),
        (lambda: checked_rows(np.zeros((3, 1)), np.zeros(2)), r"y \(2,\)"),
        (lambda: checked_rows(np.zeros((0, 1)), np.zeros(0)), "no rows"),
        (lambda: checked_rows(np.zeros((3, 1)), np.zeros(3), ["a"]), r"one label a row, \(3,\)"),
        (lambda: checked_rows(np.zeros((2, 1)), np.zeros(2), [1.0, np.nan]), "1 rows have no site"),
        (lambda: checked_rows(np.zeros((2, 1)), np.zeros(2), ["a", None]), "1 rows have no site"),
        (lambda: by_label(np.array(["a", 1], dtype=object)), "different kinds"),
        (lambda: deal(np.zeros(3), 4, seed=0), "every site needs a row"),
        (lambda: deal(np.zeros(3), 2, split="idd", seed=0), "Did you mean 'iid'"),
        (lambda: deal(np.zeros(3), 2, sizes=[1, 1], seed=0), "sum 2.*with sum 3"),
        (lambda: deal(np.zeros(3), 2, sizes=[3, 0], seed=0), "at least 1"),
        (lambda: deal(np.zeros(30), 2, size_range=(1, 3), seed=0), "cannot add up to 30"),
        (lambda: synthetic_rows(0, (1, 2), seed=0), "0 agents"),
    ],
)
def test_bad_rows_are_refused(make: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        make()


@pytest.mark.parametrize("name", ["absent.csv", "damaged.parquet"])
def test_unreadable_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(FileError, match="cannot be read"):
        read_rows(tmp_path / name, "y")


def test_missing_rows_can_be_left_out() -> None:
    table = pa.table({"x": [1.0, None, 3.0, np.nan], "y": [1.0, 2.0, None, 4.0], "s": list("abcd")})
    rows = read_rows(table, "y", site="s", missing="drop")
    assert rows.X.tolist() == [[1.0]]
    with pytest.raises(DataError, match="all 2 rows"):
        read_rows(pa.table({"x": [None, 1.0], "y": [1.0, None]}), "y", missing="drop")


@given(st.binary(max_size=300))
def test_any_csv_bytes_are_read_or_refused(data: bytes) -> None:
    """Whatever a file holds, it is rows or an error of this package's own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(b"x,y\n" + data)
        try:
            rows = read_rows(path, "y")
        except CokeError:
            return
        assert np.isfinite(rows.X).all()
