"""Every source gives its rows, a chunk at a time; or says why not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data import formats as openers
from coke.data.formats import open_table
from coke.data.npy import open_arrays
from coke.data.passes import _Streamed, stream_statistics
from coke.data.reading import Reading
from coke.data.sources import complete
from coke.data.units import columns_of, fit_scaling
from coke.errors import CokeError, DataError, FileError
from kit.streams import (
    DOUBLE,
    KINDS,
    LAM,
    SITES,
    TABLE,
    D,
    X,
    Y,
    expected,
    features,
    save,
    stream_columns,
)

MIXED = np.array([3, *SITES[1:]], dtype=object)


@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_leaves_the_statistics_of_its_rows(
    kind: str, mapping: str, tmp_path: Path
) -> None:
    source, phi = save(tmp_path)[kind](), features(mapping)
    assert all(len(chunk.y) <= 64 for chunk in source.chunks())
    scaling = fit_scaling("standard", D, stream_columns(source))
    names, risk, _ = stream_statistics(source, phi, scaling, lam=LAM, how=DOUBLE)
    wanted = expected(phi, fit_scaling("standard", D, columns_of(np.column_stack([X, Y]))))
    assert names == ("Aachen", "Bonn", "Köln")
    for got, want in zip((risk.A, risk.b, risk.yy), (wanted.A, wanted.b, wanted.yy), strict=True):
        assert_allclose(got, want, atol=1e-13)
    assert_array_equal(risk.T, wanted.T)
    assert risk.G == wanted.G


@pytest.mark.parametrize("many", [1, 100, 10**9])
def test_row_groups_are_read_some_at_a_time(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openers, "MANY", many)
    chunks = list(save(tmp_path)["parquet"]().chunks())
    assert_array_equal(np.concatenate([chunk.X for chunk in chunks]), X)
    assert_array_equal(np.concatenate([chunk.y for chunk in chunks]), Y)


NULLS = pa.table(
    {"a": [1.0, None, 3.0], "n": [None, 1, 2], "f": [True, None, False], "y": [1, 2, None]}
)


@pytest.mark.parametrize("kind", ["arrow", "csv"])
def test_nulls_are_missing_values(kind: str, tmp_path: Path) -> None:
    pa.csv.write_csv(NULLS, tmp_path / "rows.csv")
    source = open_table(NULLS if kind == "arrow" else tmp_path / "rows.csv", "y")
    (chunk,) = source.chunks()
    assert_array_equal(chunk.X, [[1, np.nan, 1], [np.nan, 1, np.nan], [3, 2, 0]])
    assert_array_equal(chunk.y, [1, 2, np.nan])


def test_csv_columns_that_begin_whole_may_go_on_in_fractions(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = 900_000
    path.write_text("a,y\n" + "1,2000000\n" * lines + "1.5,2.5\n")
    told = stream_columns(open_table(path, "y"))
    assert np.isclose(told.T, lines + 1)
    assert_array_equal(told.high, [1.5, 2e6])


def test_small_types_stay_small() -> None:
    def kind(*columns: Any) -> Any:
        table = pa.table({f"x{j}": pa.array([1, 0]).cast(c) for j, c in enumerate(columns)})
        (chunk,) = open_table(table.append_column("y", [[1.0, 2.0]]), "y").chunks()
        return chunk.X.dtype

    assert kind(pa.float32(), pa.int16(), pa.bool_()) == np.float32
    assert kind(pa.float32(), pa.int32()) == np.float64
    assert kind(pa.decimal128(20)) == np.float64


ONLY = Reading(numbers="with nothing agreed on")


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda f: open_arrays(X, Y[:-1]), DataError, r"expected \(T, d\)"),
        (lambda f: open_arrays(X[0], Y), DataError, r"expected \(T, d\)"),
        (lambda f: open_arrays(SITES[:, None], Y), DataError, "X holds <U6"),
        (lambda f: open_arrays(X, SITES), DataError, "y holds <U6"),
        (lambda f: open_arrays(f / "absent.npy", Y), FileError, "absent.npy: cannot be read"),
        (lambda f: open_table(f / "rows.xls", "y"), FileError, "rows.xls: cannot be read"),
        (lambda f: open_table(3, "y"), DataError, "cannot read rows from 3"),
        (lambda f: open_table(f / "absent.csv", "y"), FileError, "absent.csv: cannot be read"),
        (lambda f: open_table(f / "\0.parquet", "y"), FileError, "cannot be read"),
        (lambda f: open_table(TABLE, "z"), DataError, "unknown column 'z'"),
        (lambda f: open_table(TABLE, "y", how=ONLY), DataError, "'where' holds .*: inputs must be"),
        (lambda f: open_table(TABLE, "where", drop=["y"]), DataError, "'where' holds .* numbers"),
        (lambda f: open_table(TABLE, "y", site="y"), DataError, "have two parts"),
        (
            lambda f: open_table(pa.table([[1], [2]], ["y", "y"]), "y"),
            DataError,
            "more than once",
        ),
        (lambda f: list(complete(open_arrays(X, Y, MIXED))), DataError, "the site labels: cannot"),
    ],
)
def test_what_cannot_be_used_is_refused(
    call: Callable[[Path], Any], kind: type[CokeError], said: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=said):
        call(tmp_path)


class _Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("unpickled",)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.array([[_Trap()]]), allow_pickle=True)
    with pytest.raises(FileError, match="Python objects"):
        open_arrays(tmp_path / "X.npy", [1.0])


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    source = open_arrays(tmp_path / "X.npy", Y, chunk=50)
    chunks = source.chunks()
    next(chunks)
    with (tmp_path / "X.npy").open("r+b") as file:
        file.truncate(2000)
    with pytest.raises(FileError, match="ends too early"):
        list(chunks)


def statistics_of(folder: Path, name: str) -> _Streamed:
    if name.endswith(".npy"):
        source = open_arrays(folder / name, folder / "y.npy", chunk=64)
    else:
        source = open_table(folder / name, "y", site="where", chunk=64)
    return stream_statistics(source, features(d=len(source.columns)), lam=LAM)


@settings(max_examples=150)
@given(
    st.sampled_from(["X.npy", "rows.parquet", "rows.csv", "rows.feather"]),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_truncated_files_are_read_or_refused(name: str, share: float) -> None:
    """Binary formats notice a missing end; a CSV file's rows before the cut may be all there is."""
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        path = Path(folder) / name
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])
        try:
            risk = statistics_of(Path(folder), name).risk
        except CokeError:
            return
        assert name == "rows.csv"
        assert np.isfinite(risk.A).all()


@settings(max_examples=300)
@given(
    st.sampled_from(["X.npy", "rows.parquet", "rows.csv"]),
    st.lists(st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.integers(1, 255)), min_size=1),
    st.booleans(),
)
def test_damaged_files_are_read_or_refused(
    name: str, flips: list[tuple[float, int]], head: bool
) -> None:
    """Whatever a file holds, it is finite statistics or an error of this package's own."""
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        path = Path(folder) / name
        data = bytearray(path.read_bytes())
        for share, change in flips:
            data[int(share * (128 if head else len(data)))] ^= change
        path.write_bytes(data)
        try:
            names, risk, _ = statistics_of(Path(folder), name)
        except CokeError:
            return
        assert np.isfinite(risk.A).all()
        assert len(names) == len(risk.T)
