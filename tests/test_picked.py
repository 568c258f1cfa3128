"""Of a file with everybody's rows, those of some sites; little more is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal

from coke.data.parts import numbered, open_streams, picked
from coke.data.sites import by_label, split_rows
from coke.data.streaming import open_arrays, open_table
from coke.data.tables import checked_rows
from coke.errors import CokeError, DataError
from coke.loading import open_rows
from parted import HOW, SITES, T, X, Y, any_way, config, equal, save_all, whole


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
    rows = numbered(source, HOW)
    assert rows.sites is not None
    split = split_rows(rows, by_label(rows.sites), test=test, seed=seed)
    found = picked(source, HOW, split.of(sorted(agents)), by_label=labelled)
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
    source, read = open_table(tmp_path / "rows.parquet", "y", site="where"), list[int]()
    rows = numbered(source, HOW)
    assert rows.sites is not None
    sites = split_rows(rows, by_label(rows.sites), test=0.3, seed=1).of(agents)
    wanted = split_rows(checked_rows(X[ORDER], Y[ORDER], SITES[ORDER]), by_label(SITES[ORDER]),
                        test=0.3, seed=1).of(agents)  # fmt: skip
    counting = HOW._replace(progress=read.append)
    found = picked(source, counting, sites, by_label=True)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        for x, y in zip(a, b, strict=True):
            assert_array_equal(x, y)
    own = sum(map(len, (*sites.y, *sites.y_test)))
    assert own <= read[-1] <= own + 20
    streams = open_streams(source, HOW, test=0.3, seed=1).of(agents)
    assert own <= (streams.source.rows or 0) <= own + 20
    assert [told.T for told in streams.columns] == [len(y) for y in wanted.y]


def test_of_a_folder_only_the_sites_files_are_read(files: Path) -> None:
    """The others may be gone by then."""
    source = open_rows(config(files, "folder", stream=False))
    rows = numbered(source, HOW)
    assert rows.sites is not None
    split = split_rows(rows, by_label(rows.sites), test=0.3, seed=0)
    for name in ("Aachen.parquet", "Bonn.csv", "Köln.parquet"):
        (files / "sites" / name).unlink()
    equal(picked(source, HOW, split.of([3]), by_label=True), whole(0.3, 0).of([3]))
    with pytest.raises(CokeError, match="Bonn"):
        picked(source, HOW, split.of([1, 3]), by_label=True)


def test_missing_inputs_are_found_where_they_are_read() -> None:
    """By whoever reads that site's rows; to drop them everybody must know of them."""
    holes = X.copy()
    holes[np.flatnonzero(SITES == "Ulm")[5], 1] = np.nan
    source = open_arrays(holes, Y, SITES, chunk=10)
    rows = numbered(source, HOW)
    assert rows.sites is not None
    split = split_rows(rows, by_label(rows.sites), test=0.0, seed=0)
    with pytest.raises(DataError, match=r"of those near these sites.*: .*x1 \(1\)"):
        picked(source, HOW, split.of([3]), by_label=True)
    assert len(numbered(source, HOW._replace(missing="drop")).y) == T - 1


def test_a_file_that_changes_between_passes_is_refused() -> None:
    rows = numbered(open_arrays(X, Y, SITES), HOW)
    assert rows.sites is not None
    split = split_rows(rows, by_label(rows.sites), test=0.0, seed=0)
    more = np.where(SITES == "Bonn", "Köln", SITES)
    for other in (open_arrays(X[:-20], Y[:-20], SITES[:-20]), open_arrays(X, Y, more)):
        with pytest.raises(DataError, match="did a file change"):
            picked(other, HOW, split.of([0, 2]), by_label=True)
