"""Rows in, sites out: nothing lost, nothing twice, and clear words about what cannot be used."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.data.reading import Reading
from coke.data.split import by_label, deal
from coke.data.synthetic import synthetic_rows
from coke.data.tables import checked_rows, read_rows
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


def column(values: Any, **others: Any) -> pa.Table:
    """COLUMNS with some replaced."""
    return pa.table({**COLUMNS, **others, "a": values})


def hole(column: str, value: Any) -> pa.Table:
    return pa.table({**COLUMNS, column: [value, *COLUMNS[column][1:]]})


ONLY = Reading(numbers="with nothing agreed on")
TWICE = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["x", "x", "y"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: read_rows(pa.table(COLUMNS), "z"), "unknown column 'z'"),
        (lambda: read_rows(pa.table(COLUMNS), "y", site="were"), "Did you mean 'where'"),
        (lambda: read_rows(pa.table(COLUMNS), "y", drop=["c"]), "unknown column 'c'"),
        (
            lambda: read_rows(pa.table(COLUMNS), "y", how=ONLY),
            "column 'where' holds .*--drop where",
        ),
        (lambda: read_rows(hole("a", None), "y", site="where"), r"in a \(1\).*--missing drop"),
        (lambda: read_rows(hole("a", np.inf), "y", site="where"), r"infinite values in a \(1\)"),
        (lambda: read_rows(hole("y", np.nan), "y", site="where"), "the target"),
        (lambda: read_rows(hole("y", None), "y", site="where"), r"in y \(1\)"),
        (lambda: read_rows(hole("where", None), "y", site="where"), r"in where \(1\)"),
        (lambda: read_rows(pa.table({"y": [1.0]}), "y"), "no input columns"),
        (lambda: read_rows(pa.table(COLUMNS), "y", drop=["y"]), r"\['y'\] are to be dropped"),
        (
            lambda: read_rows(pa.table(COLUMNS), "y", site="where", drop=["b", "where"]),
            r"\['where'\] are to be dropped",
        ),
        (lambda: read_rows(pa.table(COLUMNS), "y", site="y"), "have two parts"),
        (lambda: read_rows(TWICE, "y"), r"columns \['x'\] are there more than once"),
        (lambda: read_rows(pd.DataFrame([[1, 2, 3]], columns=["x", "x", "y"]), "y"), "'x', 'x'"),
        (
            lambda: read_rows(pd.DataFrame({"x": [1, "b"], "y": [1, 2]}), "y"),
            "column 'x'.*one type",
        ),
        (lambda: read_rows(pd.DataFrame({"x": [1j], "y": [1]}), "y"), "column 'x'.*one type"),
        (lambda: read_rows(pd.DataFrame({"x": [[1], 2], "y": [1, 2]}), "y"), "cannot be read"),
        (lambda: read_rows(pd.DataFrame({"x": [], "y": []}), "y"), "no rows"),
        (lambda: read_rows(pl.Series([1, 2]), "y"), "the table cannot be read"),
        (lambda: read_rows(column([None] * 4), "y", site="where"), r"in a \(4\)"),
        (lambda: read_rows(column([[1]] * 4), "y", site="where"), "'a' holds list<.*numbers"),
        (lambda: read_rows(column([b"a"] * 4), "y", site="where"), "'a' holds binary"),
        (lambda: checked_rows([["a"]], [1]), "X holds <U1"),
        (lambda: checked_rows([["1"]], [1]), "X holds <U1"),
        (lambda: checked_rows([[1, 2], [3]], [1, 2]), "X cannot be read as an array"),
        (lambda: checked_rows(np.array([["a"]], dtype=object), [1]), "numbers only"),
        (lambda: checked_rows(np.array([[10**400]], dtype=object), [1]), "numbers only"),
        (lambda: checked_rows(np.array([["2020-01-01"]], "M8[D]"), [1]), "X holds datetime64"),
        (lambda: checked_rows([[1.0]], [[1], [2, 3]]), "y cannot be read as an array"),
        (lambda: checked_rows([[1.0]], np.array(["2020"], "M8[Y]")), "y holds datetime64"),
        (lambda: checked_rows([[1.0], [2.0]], ["a", None]), r"the target \(1\)"),
        (lambda: checked_rows([[1.0]], [1], [[1], [2, 3]]), "sites cannot be read as an array"),
        (lambda: read_rows({"y": [1]}, "y"), "cannot read rows from a dict"),
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


ODD: dict[str, Any] = {
    "list": [[1.0]] * 4,
    "struct": [{"a": 1}] * 4,
    "timestamp": [dt.datetime(2020, 1, 1)] * 4,
    "date": [dt.date(2020, 1, 1)] * 4,
    "binary": [b"a"] * 4,
    "dictionary of dates": pa.array([dt.date(2020, 1, 1)] * 4).dictionary_encode(),
}


@pytest.mark.parametrize("missing", ["refuse", "drop"])
@pytest.mark.parametrize("kind", ODD)
def test_targets_must_be_numbers_or_labels(kind: str, missing: str) -> None:
    with pytest.raises(DataError, match=r"column 'y' holds .*a target must be"):
        read_rows(pa.table({**COLUMNS, "y": ODD[kind]}), "y", site="where", missing=missing)


@pytest.mark.parametrize("kind", ["list", "struct", "binary"])
def test_site_labels_must_be_single_values(kind: str) -> None:
    with pytest.raises(DataError, match=r"column 'where' holds .*site labels must be"):
        read_rows(pa.table({**COLUMNS, "where": ODD[kind]}), "y", site="where")


LABELS: dict[str, tuple[Any, list[Any]]] = {
    "text": (["p", "q", "p", "q"], ["p", "q", "p", "q"]),
    "large text": (pa.array(["p", "q"] * 2, pa.large_string()), ["p", "q"] * 2),
    "whole": ([3, 1, 3, 1], [3, 1, 3, 1]),
    "floats": ([0.5, 1.0, 0.5, 1.0], [0.5, 1.0, 0.5, 1.0]),
    "decimals": ([Decimal("0.5"), Decimal("1.0")] * 2, [0.5, 1.0] * 2),
    "booleans": ([True, False] * 2, [True, False] * 2),
    "categories": (pa.array(["p", "q"] * 2).dictionary_encode(), ["p", "q"] * 2),
    "numbered categories": (pa.array([3, 1] * 2).dictionary_encode(), [3, 1] * 2),
    "runs": (pc.run_end_encode(pa.array([3, 3, 1, 1])), [3, 3, 1, 1]),
}


@pytest.mark.parametrize("missing", ["refuse", "drop"])
@pytest.mark.parametrize("name", LABELS)
def test_targets_and_sites_come_back_plain(name: str, missing: str) -> None:
    values, wanted = LABELS[name]
    rows = read_rows(column(COLUMNS["a"], y=values), "y", site="where", missing=missing)
    assert [(type(c), c) for c in rows.y.tolist()] == [(type(c), c) for c in wanted]
    rows = read_rows(column(COLUMNS["a"], where=values), "y", site="where", missing=missing)
    assert rows.sites is not None
    assert [(type(c), c) for c in rows.sites.tolist()] == [(type(c), c) for c in wanted]
    assert sum(map(len, by_label(rows.sites).values())) == 4


@pytest.mark.parametrize("missing", ["refuse", "drop"])
def test_categories_of_pandas_and_polars_are_text(missing: str) -> None:
    frames: list[Any] = [
        pd.DataFrame(COLUMNS).astype({"where": "category"}),
        pl.DataFrame(COLUMNS).with_columns(pl.col("where").cast(pl.Categorical)),
        pl.DataFrame(COLUMNS),
    ]
    for frame in frames:
        rows = read_rows(frame, "y", site="where", missing=missing)
        assert rows.sites is not None
        assert rows.sites.tolist() == COLUMNS["where"]
        rows = read_rows(frame, "where", drop=["y"], missing=missing)
        assert rows.y.tolist() == COLUMNS["where"]


def test_sites_may_be_days_or_times() -> None:
    for values in ([dt.date(2020, 1, d) for d in (2, 1, 2, 1)], pd.to_datetime(["2020-01-02"] * 4)):
        rows = read_rows(column(COLUMNS["a"], where=values), "y", site="where")
        assert rows.sites is not None
        assert rows.sites[0].startswith("2020-01-02")


def test_a_float_site_must_not_be_missing() -> None:
    with pytest.raises(DataError, match="1 rows have no site"):
        read_rows(column(COLUMNS["a"], where=[1.0, 2.0, np.nan, 1.0]), "y", site="where")


@pytest.mark.parametrize(
    "values",
    [
        [Decimal("1.5"), Decimal("-2"), Decimal(0), Decimal("1e10")],
        pa.array([1.5, -2.0, 0.0, 1e10]).dictionary_encode(),
        pa.array([1.5, -2.0, 0.0, 1e10], pa.float32()),
    ],
)
def test_decimals_and_categories_of_numbers_are_inputs(values: Any) -> None:
    rows = read_rows(column(values), "y", site="where")
    assert rows.X[:, 0].tolist() == [1.5, -2.0, 0.0, 1e10]
    assert rows.X.dtype == np.float64


def test_a_missing_category_is_missing() -> None:
    """Also where the dictionary, not the index, says so."""
    sites = pa.DictionaryArray.from_arrays([0, 1, 0, 0], pa.array(["a", None]))
    table = pa.table({**COLUMNS, "where": sites})
    with pytest.raises(DataError, match=r"in where \(1\)"):
        read_rows(table, "y", site="where")
    assert len(read_rows(table, "y", site="where", missing="drop").y) == 3


def test_row_numbers_of_pandas_are_no_input() -> None:
    frame = pd.DataFrame(COLUMNS).iloc[[0, 1, 3]]
    assert "__index_level_0__" in pa.table(frame).column_names
    assert read_rows(frame, "y", site="where").columns == ("a", "b")


def test_csv_edges(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for content, kind, said in (
        (b"", DataError, "no rows"),
        (b"\n\n", DataError, "no rows"),
        (b"x,y\n", DataError, "rows.csv: no rows"),
        (b"x,y", (DataError, FileError), "rows.csv: "),
        (b"x,x,y\n1,2,3\n", DataError, r"rows.csv: columns \['x'\] are there more than once"),
    ):
        path.write_bytes(content)
        with pytest.raises(kind, match=said):
            read_rows(path, "y")
    path.write_bytes(b"\xef\xbb\xbfx,y\n1,2\n")  # the mark that Excel puts in front
    rows = read_rows(path, "y")
    assert rows.columns == ("x",)
    assert (rows.X.tolist(), rows.y.tolist()) == ([[1.0]], [2])


@pytest.mark.parametrize("name", ["absent.csv", "damaged.parquet", "\0.csv"])
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


CELLS = st.sampled_from(["x", "y", "", "1", "-2.5e3", "nan", "2020-01-01", '"', "ü", "true"])
LINES = st.lists(st.lists(CELLS, max_size=4).map(",".join), max_size=5).map("\n".join)
CONTENT = st.binary(max_size=300) | LINES.map(str.encode)
HEADS = st.sampled_from([b"x,y\n", b"\xef\xbb\xbfy,x\r\n", b"x,y,s\n", b"y,y\n", b"s,x,y\n", b""])


@settings(max_examples=300)
@given(
    HEADS | CONTENT, CONTENT, st.sampled_from([None, "s", ""]), st.sampled_from(["refuse", "drop"])
)
def test_any_csv_bytes_are_read_or_refused(
    head: bytes, data: bytes, site: str | None, missing: str
) -> None:
    """Whatever a file holds, it is rows or an error of this package's own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(head + data)
        try:
            rows = read_rows(path, "y", site=site, missing=missing)
        except CokeError:
            return
        assert np.isfinite(rows.X).all()
