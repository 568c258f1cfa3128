"""Of a file with everybody's rows, those of some sites; little more is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal

from coke.data.formats import open_table
from coke.data.npy import open_arrays
from coke.data.out_of_core import pass_over
from coke.data.picking import owners, picked
from coke.data.sources import Passing, Source
from coke.data.split import by_label, split
from coke.data.tables import checked_rows
from coke.data.units import Making, Scaling
from coke.errors import CokeError, DataError
from coke.learning.open import _open_rows
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.losses.problem import Quadratic
from kit.parted import HOW, SITES, T, X, Y, any_way, config, equal, save_all, whole
from kit.ready import held, rows_of


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return save_all(tmp_path)


@pytest.mark.parametrize("labelled", [False, True])
@any_way
def test_picked_rows_are_those_of_the_sites(
    chunk: int, agents: set[int], seed: int, test: float, labelled: bool
) -> None:
    """Of any sites, whatever the chunks, by their numbers or by the sites' labels."""
    source = open_arrays(X, Y, SITES, chunk=chunk)
    rows = owners(source, HOW)
    assert rows.sites is not None
    places = split(by_label(rows.sites), test=test, seed=seed)
    found = picked(source, HOW, places.of(sorted(agents)), rows, by_label=labelled)
    equal(found, whole(test, seed).of(sorted(agents)))


ORDER = np.argsort(SITES, kind="stable")
NUMBERS = np.unique(SITES, return_inverse=True)[1]
SORTED = {
    "text": SITES[ORDER],
    "numbers": NUMBERS[ORDER] - 2,
    "categories": pa.array(SITES[ORDER]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", SORTED)
@pytest.mark.parametrize("agents", [[0], [1, 2], [3]])
def test_of_a_sorted_file_little_more_than_the_sites_rows_is_read(
    kind: str, agents: list[int], tmp_path: Path
) -> None:
    """Parquet's row groups tell which sites they hold; rows and statistics are those of before."""
    inputs = {f"x{j}": X[ORDER, j] for j in range(3)}
    table = pa.table({**inputs, "y": Y[ORDER], "where": SORTED[kind]})
    pa.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=10)
    source, read = open_table(tmp_path / "rows.parquet", "y", site="where", chunk=10), list[int]()
    rows = owners(source, HOW)
    assert rows.sites is not None
    sites = split(by_label(rows.sites), test=0.3, seed=1).of(agents)
    wanted = held(checked_rows(X[ORDER], Y[ORDER], SITES[ORDER]), by_label(SITES[ORDER]),
                        test=0.3, seed=1).of(agents)  # fmt: skip
    counting = HOW._replace(progress=read.append)
    found = picked(source, counting, sites, rows, by_label=True)
    for a, b in zip(rows_of(found), rows_of(wanted), strict=True):
        for x, y in zip(a, b, strict=True):
            assert_array_equal(x, y)
    own = sum(map(len, (*sites.train, *sites.test)))
    assert own <= read[-1] <= own + 20
    streams = pass_over(source, HOW, test=0.3, seed=1).of(agents)
    assert own <= (streams.source.rows or 0) <= own + 20
    assert [streams.columns(i).T for i in range(len(agents))] == [len(y) for y in wanted.y]


def test_of_a_folder_only_the_sites_files_are_read(files: Path) -> None:
    """The others may be gone by then."""
    source = _open_rows(config(files, "folder", out_of_core=False))
    rows = owners(source, HOW)
    assert rows.sites is not None
    places = split(by_label(rows.sites), test=0.3, seed=0)
    for name in ("Aachen.parquet", "Bonn.csv", "Köln.parquet"):
        (files / "sites" / name).unlink()
    equal(picked(source, HOW, places.of([3]), rows, by_label=True), whole(0.3, 0).of([3]))
    with pytest.raises(CokeError, match="Bonn"):
        picked(source, HOW, places.of([1, 3]), rows, by_label=True)


def test_missing_inputs_are_found_where_they_are_read() -> None:
    """By whoever reads that site's rows; to drop them everybody must know of them."""
    holes = X.copy()
    holes[np.flatnonzero(SITES == "Ulm")[5], 1] = np.nan
    source = open_arrays(holes, Y, SITES, chunk=10)
    rows = owners(source, HOW)
    assert rows.sites is not None
    places = split(by_label(rows.sites), test=0.0, seed=0)
    with pytest.raises(DataError, match=r"rows near those of site .*Ulm.*: .*x1 \(1\)"):
        picked(source, HOW, places.of([3]), rows, by_label=True)
    assert len(owners(source, HOW._replace(missing="drop")).y) == T - 1


def test_a_file_that_changes_between_passes_is_refused() -> None:
    rows = owners(open_arrays(X, Y, SITES), HOW)
    assert rows.sites is not None
    places = split(by_label(rows.sites), test=0.0, seed=0)
    more = np.where(SITES == "Bonn", "Köln", SITES)
    for other in (open_arrays(X[:-20], Y[:-20], SITES[:-20]), open_arrays(X, Y, more)):
        with pytest.raises(DataError, match="did a file change"):
            picked(other, HOW, places.of([0, 2]), rows, by_label=True)


def parquet(path: Path, sites: Any) -> Source:
    inputs = {f"x{j}": X[:, j] for j in range(3)}
    pa.parquet.write_table(pa.table({**inputs, "y": Y, "where": sites}), path, row_group_size=10)
    return open_table(path, "y", site="where", chunk=25)


@pytest.mark.parametrize("kind", ["parquet", "sorted parquet", "arrays", "many sites"])
@pytest.mark.parametrize("agents", [[0], [1, 3], [0, 2, 3]])
def test_sites_alone_have_the_bits_they_have_among_all(
    kind: str, agents: list[int], tmp_path: Path
) -> None:
    """So ranks leave one process's files: moments and statistics depend on a site's rows only."""
    where = {"sorted parquet": np.sort(SITES), "many sites": np.arange(T) % 60}.get(kind, SITES)
    arrays = open_arrays(X, Y, where, chunk=25)
    source = parquet(tmp_path / "rows.parquet", where) if "parquet" in kind else arrays
    every = pass_over(source, Passing(), test=0.3, seed=0)
    some = every.of(agents)
    for at, i in enumerate(agents):
        for a, b in zip(every.columns(i), some.columns(at), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    phi = draw_features(FeatureSettings(5, sigma=2.0, seed=1), 3)
    plain = Scaling.none(3)
    whole, part = (
        streams.problem(Making(phi, plain, "quadratic", np.empty(0), 0.1))
        for streams in (every, some)
    )
    for risk, alone in ((whole.train, part.train), (whole.test, part.test)):
        assert isinstance(risk, Quadratic)
        assert isinstance(alone, Quadratic)
        for a, b in ((risk.A, alone.A), (risk.b, alone.b), (risk.yy, alone.yy)):
            assert a[agents].tobytes() == b.tobytes()


def test_a_nested_column_is_not_mistaken_for_the_sites(tmp_path: Path) -> None:
    inner = [{"b": 0}] * 30 + [{"b": 7}] * 30
    table = pa.table({"a": inner, "x": X[:60, 0], "y": Y[:60], "a.b": np.tile([0, 1], 30)})
    pa.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=10)
    source = open_table(tmp_path / "rows.parquet", "y", site="a.b", drop=["a"], chunk=10)
    streams = pass_over(source, Passing(), test=0.0, seed=0)
    assert streams.of([0]).columns(0).T == 30


def test_zeros_of_both_signs_are_one_site() -> None:
    where = np.where(np.arange(60) < 30, 0.0, -0.0)
    where[::2] = 5.0
    streams = pass_over(open_arrays(X[:60], Y[:60], where, chunk=10), Passing(), test=0.0, seed=0)
    assert streams.names == ("0.0", "5.0")
    assert streams.of([0]).columns(0).T == 30


@pytest.mark.parametrize("agent", [0, 3])
def test_a_stream_whose_file_changes_is_refused(agent: int, tmp_path: Path) -> None:
    """Aachen has got some of Ulm's rows."""
    path = tmp_path / "rows.npy"
    np.save(path, SITES)
    streams = pass_over(open_arrays(X, Y, path), Passing(), test=0.0, seed=0).of([agent])
    np.save(path, np.where((SITES == "Ulm") & (np.arange(T) < 150), "Aachen", SITES))
    with pytest.raises(DataError, match="did a file change"):
        streams.columns(0)


def test_sites_in_another_byte_order_are_read() -> None:
    numbers = np.arange(T, dtype=">i8") % 3
    assert pass_over(open_arrays(X, Y, numbers), Passing(), test=0.0, seed=0).own == (0, 1, 2)
