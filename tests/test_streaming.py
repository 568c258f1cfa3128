"""One pass over any source leaves the statistics of its rows, in the memory of a few chunks."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from coke.data.passes import Passing, Streamed, complete, stream_columns, stream_statistics
from coke.data.scaling import Scaling, columns_of, fit_scaling
from coke.data.streaming import Chunk, Source, open_arrays, open_table
from coke.errors import CokeError, DataError, FileError, InputError
from coke.maths.features import Features, FeatureSettings, draw_features
from coke.maths.quadratic import Quadratic

D, LAM = 3, 1e-2
DOUBLE = Passing("double")
Array = NDArray[np.float64]
rng = np.random.default_rng(0)
X: Array = rng.normal(size=(200, D)) * [1.0, 5.0, 0.1] + [0.0, 50.0, 3.0]
Y: Array = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200) + 7.0
SITES = np.array(["Köln", "Aachen", "Bonn"])[rng.integers(0, 3, 200)]
MIXED = np.array([3, *SITES[1:]], dtype=object)
TABLE = pa.table({**{f"x{j}": X[:, j] for j in range(D)}, "y": Y, "where": SITES})


def features(mapping: str = "cos-sin", d: int = D, L: int = 6, sigma: float = 2.0) -> Features:
    return draw_features(FeatureSettings(L, sigma=sigma, mapping=mapping, seed=1), d)


def expected(phi: Features, scaling: Scaling, keep: Any = slice(None)) -> Quadratic:
    """From all rows in memory, site by site."""
    Z, y, where = scaling.inputs(X)[keep], scaling.targets(Y)[keep], SITES[keep]
    parts = [where == name for name in sorted(set(where))]
    return Quadratic.from_rows(phi, [Z[p] for p in parts], [y[p] for p in parts], LAM / len(parts))


def save(folder: Path) -> dict[str, Callable[[], Source]]:
    for name, array in (("X", X), ("F", np.asfortranarray(X)), ("y", Y), ("s", SITES)):
        np.save(folder / f"{name}.npy", array)
    pa.parquet.write_table(TABLE, folder / "rows.parquet", row_group_size=70)
    pa.csv.write_csv(TABLE, folder / "rows.csv")
    pa.feather.write_feather(TABLE, folder / "rows.feather", chunksize=60)
    tables = {
        "arrow": TABLE,
        "pandas": pd.DataFrame(TABLE.to_pydict()),
        "polars": pl.DataFrame(TABLE.to_pydict()),
        "parquet": folder / "rows.parquet",
        "csv": str(folder / "rows.csv"),
        "feather": folder / "rows.feather",
    }
    by_row, by_column, y, s = (folder / f"{name}.npy" for name in "XFys")
    return {
        "arrays": lambda: open_arrays(X, Y, SITES, chunk=64),
        "npy": lambda: open_arrays(by_row, str(y), s, chunk=64),
        "npy by column": lambda: open_arrays(by_column, y, s, chunk=64),
    } | {
        name: lambda table=table: open_table(table, "y", site="where", chunk=64)
        for name, table in tables.items()
    }


KINDS = (
    "arrays", "npy", "npy by column", "arrow", "pandas", "polars", "parquet", "csv", "feather",
)  # fmt: skip


@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_leaves_the_statistics_of_its_rows(
    kind: str, mapping: str, tmp_path: Path
) -> None:
    source, phi = save(tmp_path)[kind](), features(mapping)
    assert all(len(chunk.y) <= 64 for chunk in source.chunks())
    scaling = fit_scaling("standard", D, stream_columns(source))
    names, risk = stream_statistics(source, phi, scaling, lam=LAM, how=DOUBLE)
    wanted = expected(phi, fit_scaling("standard", D, columns_of(np.column_stack([X, Y]))))
    assert names == ("Aachen", "Bonn", "Köln")
    for got, want in zip((risk.A, risk.b, risk.yy), (wanted.A, wanted.b, wanted.yy), strict=True):
        assert_allclose(got, want, atol=1e-13)
    assert_array_equal(risk.T, wanted.T)
    assert risk.G == wanted.G


@given(st.integers(1, 250), st.permutations(range(10)))
def test_chunks_do_not_change_moments_and_ranges(chunk: int, order: list[int]) -> None:
    """Merged over any chunks, in any order of the rows, they are those of all rows."""
    rows = np.concatenate([np.arange(i, 200, 10) for i in order])
    told = stream_columns(open_arrays(X[rows], Y[rows], chunk=chunk))
    whole = columns_of(np.column_stack([X, Y]))
    assert told.T == whole.T
    assert_allclose(np.stack(told[1:]), np.stack(whole[1:]), rtol=1e-12)


def many(T: int = 20_000, d: int = 20) -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(T, d))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=T)


def mse(risk: Quadratic, theta: Array) -> float:
    return float(risk.global_losses(theta[None])[0])


def objective(risk: Quadratic, theta: Array) -> float:
    return float(risk.objectives(theta[None])[0])


@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
@pytest.mark.parametrize("given_as", [np.float32, np.float64])
@pytest.mark.parametrize(("sigma", "lam"), [(4.5, 1e-3), (20.0, 1e-6)])
def test_single_precision_does_not_change_the_answer(
    mapping: str, given_as: Any, sigma: float, lam: float
) -> None:
    """A within 1e-6 and the MSE within 1e-8; the objective also where features are collinear.

    The columns' offsets are large beside their spread, and what float32 loses of them is made good.
    """
    X, y = many()
    X = (X * 0.1 + np.linspace(-300.0, 300.0, 20)).astype(given_as)
    source, phi = open_arrays(X, y), features(mapping, 20, 50, sigma)
    scaling = fit_scaling("standard", 20, stream_columns(source))
    fast = stream_statistics(source, phi, scaling, lam=lam).risk
    slow = stream_statistics(source, phi, scaling, lam=lam, how=DOUBLE).risk
    assert 0 < abs(fast.A - slow.A).max() <= 1e-6 * abs(slow.A).max()
    assert abs(fast.b - slow.b).max() <= 1e-6 * np.sqrt(slow.yy[0] * abs(slow.A).max())
    theta, best = fast.optimum(), slow.optimum()
    assert objective(slow, theta) <= (1 + 1e-7) * objective(slow, best)
    if sigma < 10:
        assert objective(slow, theta) <= (1 + 1e-11) * objective(slow, best)
        assert abs(mse(slow, theta) - mse(slow, best)) <= 1e-8 * mse(slow, best)
        assert abs(mse(fast, theta) - mse(slow, best)) <= 1e-8 * mse(slow, best)


@pytest.mark.parametrize("far", [1e3, 1e30, 1e200])
def test_blocks_beyond_single_precision_are_done_in_double(far: float) -> None:
    """Angles that float32 cannot tell: the bits are those of the float64 pass."""
    X, y = many(3000)
    X[1024:] *= far
    source, phi = open_arrays(X, y), features(d=20)
    double = stream_statistics(source, phi, lam=LAM, how=DOUBLE).risk
    assert_allclose(stream_statistics(source, phi, lam=LAM).risk.A, double.A, atol=1e-7)
    large = open_arrays(X[1024:], 1e20 * y[1024:])
    fast, slow = (
        stream_statistics(large, phi, lam=LAM, how=Passing(p)) for p in ("auto", "double")
    )
    assert_array_equal(fast.risk.A, slow.risk.A)
    assert_array_equal(fast.risk.b, slow.risk.b)


def test_targets_beyond_single_precision_are_no_obstacle() -> None:
    source, phi = open_arrays(X, 1e60 * Y), features()
    fast, slow = (
        stream_statistics(source, phi, lam=LAM, how=Passing(p)) for p in ("auto", "double")
    )
    assert_array_equal(fast.risk.b, slow.risk.b)


@pytest.mark.parametrize("precision", ["auto", "double"])
def test_threads_change_no_bit(precision: str) -> None:
    X, y = many(30_000)
    source, phi = open_arrays(X, y, np.arange(30_000) % 7, chunk=5000), features(d=20, L=40)
    one, two, five = (
        stream_statistics(source, phi, lam=LAM, how=Passing(precision, workers)).risk
        for workers in (1, 2, 5)
    )
    for other in (two, five):
        for a, b in zip(
            (one.A, one.b, one.yy, one.T), (other.A, other.b, other.yy, other.T), strict=True
        ):
            assert a.tobytes() == b.tobytes()


def endless(chunks: int) -> Source:
    """Rows that are nowhere."""

    def generate() -> Iterator[Chunk]:
        for seed in range(chunks):
            rng = np.random.default_rng(seed)
            yield Chunk(rng.normal(size=(2000, 20)), rng.normal(size=2000), None, ())

    return Source(tuple(f"x{j}" for j in range(20)), None, generate)


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_does_not_grow_with_the_rows(workers: int) -> None:
    def peak(chunks: int) -> int:
        tracemalloc.start()
        how = Passing(workers=workers)
        stream_statistics(endless(chunks), features(d=20, L=50), lam=LAM, how=how)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(5)
    assert peak(60) <= 1.3 * peak(15)


def test_progress_counts_rows() -> None:
    seen: list[int] = []
    source = open_arrays(X, Y, chunk=64)
    names, _ = stream_statistics(source, features(), lam=LAM, how=Passing(progress=seen.append))
    assert seen == [64, 128, 192, 200]
    assert source.rows == 200
    assert names == ("0",)


def test_rows_with_missing_values_are_left_out_or_refused() -> None:
    holes, y = X.copy(), Y.copy()
    holes[3, 1], holes[150, 2], y[70] = np.nan, np.inf, np.nan
    where = SITES.astype(object)
    where[8] = None
    source, phi = open_arrays(holes, y, where, chunk=64), features()
    plain = Scaling(np.zeros(D), np.ones(D), 0.0, 1.0)
    risk = stream_statistics(source, phi, lam=LAM, how=Passing("double", missing="drop")).risk
    wanted = expected(phi, plain, np.setdiff1d(np.arange(200), [3, 8, 70, 150]))
    assert_allclose(risk.A, wanted.A, atol=1e-13)
    assert_array_equal(risk.T, wanted.T)
    with pytest.raises(DataError, match=r"rows 1 to 64: .*x1 \(1\)"):
        list(complete(source))
    with pytest.raises(DataError, match=r"rows 65 to 128: .*the target \(1\)"):
        list(complete(open_arrays(X, y, chunk=64)))
    with pytest.raises(DataError, match="1 rows have no site"):
        list(complete(open_arrays(X, Y, where)))
    with pytest.raises(DataError, match="no rows left of 2"):
        list(complete(open_arrays(np.full((2, 1), np.nan), [1, 2]), Passing(missing="drop")))


def test_a_site_that_is_no_number_is_missing() -> None:
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0], "s": [7.0, np.nan, 8.0]})
    source = open_table(table, "y", site="s")
    with pytest.raises(DataError, match="1 rows have no site"):
        list(complete(source))
    how = Passing(missing="drop")
    assert stream_statistics(source, features(d=1), lam=LAM, how=how).names == ("7.0", "8.0")


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


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda f: open_arrays(X, Y[:-1]), DataError, r"expected \(T, d\)"),
        (lambda f: open_arrays(X[0], Y), DataError, r"expected \(T, d\)"),
        (lambda f: open_arrays(SITES[:, None], Y), DataError, "X holds <U6"),
        (lambda f: open_arrays(X, SITES), DataError, "y holds <U6"),
        (lambda f: open_arrays(f / "absent.npy", Y), FileError, "absent.npy: cannot be read"),
        (lambda f: open_table(f / "rows.xls", "y"), DataError, "ending in .parquet, .csv"),
        (lambda f: open_table(3, "y"), DataError, "cannot read rows from 3"),
        (lambda f: open_table(f / "absent.csv", "y"), FileError, "absent.csv: cannot be read"),
        (lambda f: open_table(f / "\0.parquet", "y"), FileError, "cannot be read"),
        (lambda f: open_table(TABLE, "z"), DataError, "unknown column 'z'"),
        (lambda f: open_table(TABLE, "y"), DataError, "'where' holds string: inputs must be"),
        (lambda f: open_table(TABLE, "where", drop=["y"]), DataError, "'where' holds .* numbers"),
        (lambda f: open_table(TABLE, "y", site="y"), DataError, "both target and site"),
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


def test_settings_that_cannot_be_used_are_refused() -> None:
    source = open_arrays(X, Y)
    for how, said in (
        (Passing("half"), "unknown precision 'half'"),
        (Passing(workers=0), "workers=0"),
        (Passing(missing="guess"), "unknown treatment"),
    ):
        with pytest.raises(InputError, match=said):
            stream_statistics(source, features(), lam=LAM, how=how)
    with pytest.raises(InputError, match="features for 4 inputs: expected 3"):
        stream_statistics(source, features(d=4), lam=LAM)
    with pytest.raises(DataError, match="beyond 1e150"):
        stream_statistics(open_arrays(np.full((5, D), 1.7e308), np.ones(5)), features(), lam=LAM)
    with pytest.raises(DataError, match="beyond 1e150"):
        stream_statistics(open_arrays(X, Y * 1e200), features(), lam=LAM)


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


def statistics_of(folder: Path, name: str) -> Streamed:
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
            names, risk = statistics_of(Path(folder), name)
        except CokeError:
            return
        assert np.isfinite(risk.A).all()
        assert len(names) == len(risk.T)
