"""Several targets and classes whose rows go by: what is told and summed of them in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.formats import open_table
from coke.data.npy import open_arrays
from coke.data.out_of_core import Passed, pass_over
from coke.data.site import Kept
from coke.data.sources import Passing
from coke.data.split import by_label, deal
from coke.data.tables import checked_rows, read_rows
from coke.data.units import LABELS, Making, Scaling
from coke.errors import CokeError, DataError
from coke.learning.open import open_ready
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.losses.codes import corners
from coke.settings.reading import checked_settings
from kit.parted import HOW, SITES, X, Y, any_way
from kit.ready import held

TWO = np.column_stack([Y, 1e3 * X[:, 1] ** 2 - X[:, 2]])
KINDS = np.array(["hot", "cold", "mild"])[np.digitize(Y, [6.5, 7.2])]
KINDS[SITES == "Ulm"] = "mild"  # a site with one class
PHI = draw_features(FeatureSettings(5, sigma=2.0, seed=1), 3)
CLASSES = np.unique(KINDS)


def both(y: Any, chunk: int, test: float, seed: int) -> tuple[Passed, Kept]:
    """The same sites, passed over and kept."""
    numbers = y.dtype.kind == "f"
    source = open_arrays(X, y, SITES, classes=not numbers, chunk=chunk)
    kept = held(checked_rows(X, y, SITES), by_label(SITES), test=test, seed=seed)
    return pass_over(source, HOW, test=test, seed=seed), replace(kept, numbers=numbers)


def making(y: Any) -> Making:
    if y.dtype.kind == "f":
        units = Scaling(X.mean(axis=0), X.std(axis=0), y.mean(axis=0), y.std(axis=0))
        return Making(PHI, units, "quadratic", np.empty(0), 0.1)
    units = Scaling(X.mean(axis=0), X.std(axis=0), 0.2 * corners(3)[0], np.ones(2))
    return Making(PHI, units, "least-squares", CLASSES, 0.1)


@pytest.mark.parametrize("y", [TWO, KINDS], ids=["two", "classes"])
@any_way
@settings(max_examples=25, deadline=None)
def test_passes_tell_and_sum_what_rows_in_memory_do(
    y: Any, chunk: int, agents: set[int], seed: int, test: float
) -> None:
    """Moments, labels, shares, spreads, samples, and the statistics of training and test rows."""
    here, how = sorted(agents), making(y)
    passed, kept = (sites.of(here) for sites in both(y, chunk, test, seed))
    for i in range(len(here)):
        for a, b in zip(*map(list[Any], (passed.columns(i), kept.columns(i))), strict=True):
            assert_allclose(a, b, rtol=1e-9)
        assert passed.labels(i) == kept.labels(i)
        if y is KINDS:
            assert_array_equal(passed.shares(i, CLASSES), kept.shares(i, CLASSES))
        one, other = passed.targets(i, how), kept.targets(i, how)
        assert_allclose([*one.mean, *one.sd], [*other.mean, *other.sd], atol=1e-9)
        for a, b in zip(passed.sample(i, seed), kept.sample(i, seed), strict=True):
            assert_array_equal(a, b)
    ours, theirs = passed.problem(how), kept.problem(how)
    for pair in ((ours.train, theirs.train), (ours.test, theirs.test)):
        assert (pair[0] is None) == (pair[1] is None)
        if pair[0] is not None and pair[1] is not None:
            for name in ("A", "b", "yy", "squares", "T"):
                a, b = (getattr(risk.sums, name) for risk in pair if risk is not None)
                assert_allclose(a, b, atol=1e-10 * max(1.0, float(np.abs(b).max())))


def test_statistics_of_codes_are_those_of_their_numbers() -> None:
    """b_k = (1/T) Σ φ (v_y − E v)_k, written out."""
    how = making(KINDS)
    risk: Any = both(KINDS, 50, 0.0, 0)[0].problem(how).train.sums
    Z, V = how.units.inputs(X), corners(3)[np.searchsorted(CLASSES, KINDS)] - how.units.y_shift
    for i, name in enumerate(sorted(set(SITES))):
        ours = name == SITES
        b = PHI(Z[ours]).T @ V[ours] / ours.sum()
        assert_allclose(risk.b[i], b.T.ravel(), atol=1e-12)
        assert_allclose(risk.squares[i], np.mean(V[ours] ** 2, axis=0), atol=1e-12)


@given(bad=st.sets(st.tuples(st.integers(0, 299), st.integers(0, 1)), min_size=1, max_size=9))
@settings(max_examples=20, deadline=None)
def test_a_row_lacks_a_target_where_any_is_missing(bad: set[tuple[int, int]]) -> None:
    """It is refused, or left out whole."""
    holes = TWO.copy()
    for t, k in bad:
        holes[t, k] = np.nan
    source = open_arrays(X, holes, SITES, chunk=64)
    with pytest.raises(DataError, match="missing"):
        pass_over(source, HOW, test=0.0, seed=0).columns(0)
    left = pass_over(source, HOW._replace(missing="drop"), test=0.0, seed=0)
    good = np.isfinite(holes).all(axis=1)
    kept = held(
        checked_rows(X[good], TWO[good], SITES[good]), by_label(SITES[good]), test=0.0, seed=0
    )
    how = making(TWO)
    ours, theirs = (sites.problem(how).train.sums for sites in (left, kept))
    assert ours is not None
    assert theirs is not None
    assert_allclose(ours.b, theirs.b, atol=1e-10)


def saved(folder: Path) -> Path:
    columns = {f"x{j}": X[:, j] for j in range(3)}
    table = pa.table({**columns, "a": TWO[:, 0], "b": TWO[:, 1], "kind": KINDS, "where": SITES})
    pa.parquet.write_table(table, folder / "rows.parquet", row_group_size=70)
    return folder / "rows.parquet"


def test_files_name_several_targets(tmp_path: Path) -> None:
    """In the order in which they are named, at once or a chunk at a time."""
    path = saved(tmp_path)
    rows = read_rows(path, ["b", "a"], site="where", drop=["kind"])
    assert rows.targets == ("b", "a")
    assert rows.columns == ("x0", "x1", "x2")
    assert_array_equal(rows.y, TWO[:, ::-1])
    source = open_table(path, ["b", "a"], site="where", drop=["kind"], chunk=64)
    assert_array_equal(np.concatenate([chunk.y for chunk in source.chunks()]), TWO[:, ::-1])
    for name, array in (("X", X), ("a", TWO[:, 0]), ("b", TWO[:, 1]), ("odd", TWO[:9, 0])):
        np.save(tmp_path / f"{name}.npy", array)
    X_, a, b, odd = (tmp_path / f"{name}.npy" for name in ("X", "a", "b", "odd"))
    arrays = open_arrays(X_, [b, a], chunk=64)
    assert_array_equal(np.concatenate([chunk.y for chunk in arrays.chunks()]), TWO[:, ::-1])
    with pytest.raises(DataError, match="all of one length"):
        open_arrays(X_, [a, odd])
    for open_ in (read_rows, open_table):
        with pytest.raises(DataError, match="'kind' holds string"):
            open_(path, ["a", "kind"], site="where")
        with pytest.raises(DataError, match="have two parts"):
            open_(path, ["a", "where"], site="where")


def test_several_targets_are_sorted_by_the_first() -> None:
    parts = deal(TWO, 3, split="sorted", seed=0)
    ends = [(TWO[part, 0].min(), TWO[part, 0].max()) for part in parts.values()]
    assert all(high <= low for (_, high), (low, _) in pairwise(ends))


def test_numbers_taken_for_classes_are_refused_before_they_fill_memory() -> None:
    y = np.arange(2.0 * LABELS)
    source = open_arrays(np.zeros((len(y), 1)), y, np.zeros(len(y), int), classes=True, chunk=512)
    with pytest.raises(DataError, match="at most 4096"):
        pass_over(source, HOW, test=0.0, seed=0)


def test_classes_that_are_passed_over_take_the_memory_of_a_chunk(tmp_path: Path) -> None:
    """Twice the rows take a byte a row more, in training or testing, and no chunk beside."""
    most = []
    for T in (60_000, 120_000):
        rng = np.random.default_rng(0)
        inputs = {f"x{j}": rng.normal(size=T) for j in range(10)}
        y, where = (np.array(["no", "so so", "yes"])[rng.integers(0, 3, T)] for _ in range(2))
        table = pa.table({**inputs, "y": y, "where": where})
        pa.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=5000)
        del table, inputs, y, where
        how = checked_settings(
            {
                "model": "plain", "loss": "least-squares", "whitening": "gram",
                "features": {"n_features": 20},
                "data": {"file": str(tmp_path / "rows.parquet"), "target": "y", "site": "where",
                         "out_of_core": True},
            }
        )  # fmt: skip
        tracemalloc.start()
        task = open_ready(how)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert float(task.problem.train.T.sum()) == pytest.approx(0.7 * T, rel=1e-3)
    assert most[1] - most[0] <= 12 * 60_000  # one site's rows are drawn for testing at a time


@pytest.mark.parametrize("what", [{"loss": "hinge"}, {"whitening": "mixture"}])
def test_what_needs_rows_again_is_refused_out_of_core(tmp_path: Path, what: Any) -> None:
    data = {"file": str(saved(tmp_path)), "target": "kind", "site": "where", "out_of_core": True}
    given = {"loss": "least-squares", "whitening": "gram", "data": data, **what}
    with pytest.raises(CokeError, match="that needs rows in memory"):
        checked_settings(given)
    assert Passing().checked()
