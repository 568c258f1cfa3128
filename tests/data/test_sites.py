"""Sites: every row dealt out once, test rows held out, common units, the synthetic problem."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.site import Kept
from coke.data.split import by_label, deal
from coke.data.synthetic import synthetic_rows
from coke.data.tables import Rows, checked_rows
from coke.data.units import Columns, columns_of, fit_scaling
from coke.errors import DataError
from kit.ready import held


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
    sites = held(rows, by_label(labels), test=test, seed=seed)
    for i, T in enumerate((1, 2, 50)):
        assert len(sites.y[i]) + len(sites.y_test[i]) == T
        assert len(sites.y[i]) >= 1
        assert abs(len(sites.y_test[i]) - test * T) <= 1
        assert sorted([*sites.y[i], *sites.y_test[i]]) == sorted(rows.y[labels == i])
        assert_array_equal(sites.X[i][:, 0], sites.y[i])  # rows stay whole


def told(sites: Kept) -> Columns:
    """What all sites tell of their inputs and target, merged one after the other."""
    rows = zip(sites.X, sites.y, strict=True)
    return reduce(Columns.merged, [columns_of(np.column_stack(both)) for both in rows])


@pytest.mark.parametrize("how", ["none", "standard", "minmax"])
def test_scaling_uses_training_rows_of_all_sites_and_can_be_undone(how: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(3, 5, size=(60, 4))
    X[:, 2] = 7.0  # a constant column
    rows = checked_rows(X, rng.normal(10, 2, 60), np.repeat(["a", "b", "c"], 20))
    sites = held(rows, by_label(rows.sites), test=0.3, seed=0)  # type: ignore[arg-type]
    scaling = fit_scaling(how, 4, told(sites))
    units = sites.units(scaling)
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


@pytest.mark.parametrize("unit", [1e-130, 1e-13, 1.0, 1e130])
def test_scaling_does_not_mind_units(unit: float) -> None:
    """Metres or nanometres: the scaled rows are the same."""
    X = np.random.default_rng(0).normal(3, 5, size=(40, 2))
    rows = checked_rows(X * unit, X[:, 0] * unit)
    sites = held(rows, {0: np.arange(40)}, test=0.0, seed=0)
    scaling = fit_scaling("standard", 2, told(sites))
    units = sites.units(scaling)
    assert_allclose(units.X[0], (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-12)
    assert_allclose(units.y[0], units.X[0][:, 0], atol=1e-12)


def test_numbers_too_large_to_scale_are_refused() -> None:
    rows = checked_rows(np.array([[1e300], [-1e300]]), np.zeros(2))
    sites = held(rows, {0: np.arange(2)}, test=0.0, seed=0)
    with pytest.raises(DataError, match="larger units"):
        told(sites)


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
