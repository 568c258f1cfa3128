"""How far predictions miss: counts that add up, and intervals that hold what they promise."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from coke.errors import InputError
from coke.maths.arrays import Array
from coke.maths.choice.misses import BINS, Misses, left_out

RNG = np.random.default_rng(4)
RATIO = 10 ** (6 / (BINS - 2))  # between the edges of a bin


def _of(errors: Array, rows: float, unit: float) -> Misses:
    """Of one target."""
    return Misses.of(errors.reshape(-1, 1), rows, np.array([unit]))


def test_counts_of_sites_add_up_to_those_of_all_rows() -> None:
    parts = [RNG.standard_t(3, size=n) for n in (1, 50, 333)]
    counts = sum(_of(part, len(part), 2.0).counts for part in parts)
    whole = _of(np.concatenate(parts), 384.0, 2.0)
    assert_allclose(counts, whole.counts)
    assert whole.counts.sum() == 384


def test_a_sample_stands_for_its_rows() -> None:
    found = _of(np.array([0.1, -0.1, 3.0, 40.0]), 1000.0, 1.0)
    assert_allclose(sorted(found.counts[0])[-3:], [250, 250, 500])


@pytest.mark.parametrize("unit", [1.0, 1e-3, 50.0])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
def test_the_reach_is_a_quantile_within_its_bin(share: float, unit: float) -> None:
    """Of the ⌈(n + 1)p⌉-th smallest, for p a tenth of the way to one above what was asked."""
    errors = unit * RNG.normal(size=400)
    p = share + 0.1 * (1 - share)
    exact = np.sort(np.abs(errors))[int(np.ceil(401 * p)) - 1]
    found = _of(errors, 400.0, unit).reach(share)
    assert exact / RATIO <= found <= exact * RATIO


@given(seed=st.integers(0, 99), a=st.floats(0.01, 0.97), b=st.floats(0.01, 0.97))
def test_a_larger_share_reaches_at_least_as_far(seed: int, a: float, b: float) -> None:
    rng = np.random.default_rng(seed)
    found = _of(rng.standard_t(2, size=200), 200.0, 1.0)
    assert (found.reach(a) <= found.reach(b)) == (a <= b) or found.reach(a) == found.reach(b)


@pytest.mark.parametrize("tails", [2.5, 30.0])
def test_split_conformal_intervals_cover(tails: float) -> None:
    """Rows that were kept apart: nine of ten new ones, over many draws."""
    covered = [
        float(np.mean(np.abs(RNG.standard_t(tails, size=500)) <= one.reach(0.9)))
        for one in (_of(RNG.standard_t(tails, size=150), 150.0, 1.0) for _ in range(60))
    ]
    assert 0.88 < np.mean(covered) < 0.96


def fit(X: Array, y: Array, ridge: float) -> tuple[Array, Array]:
    """θ of a ridge regression, and the Cholesky factor of the average Gram matrix and the ridge."""
    P = X.T @ X / len(X) + ridge * np.eye(X.shape[1])
    return np.asarray(np.linalg.solve(P, X.T @ y / len(X))), np.asarray(np.linalg.cholesky(P))


def test_errors_as_if_left_out_are_those_of_rows_left_out() -> None:
    """With P the average Gram matrix itself: each row's, within a few hundredths of its error."""
    X, ridge = RNG.normal(size=(120, 15)), 1e-2
    y = X[:, 0] + RNG.normal(size=120)
    theta, C = fit(X, y, ridge)
    whole = left_out((y - X @ theta)[:, None], np.asarray(np.linalg.solve(C, X.T)).T, 120.0, 0.0)
    for t in range(0, 120, 10):
        rest = np.arange(120) != t
        P = (X[rest].T @ X[rest]) / 120 + ridge * np.eye(15)
        alone = y[t] - X[t] @ np.linalg.solve(P, X[rest].T @ y[rest] / 120)
        assert_allclose(whole[t], alone, rtol=0.1)


def test_intervals_of_a_model_that_has_seen_the_rows_cover_new_ones() -> None:
    """A fifth as many unknowns as rows: the errors of training alone would cover too little."""
    inside, naive = [], []
    for _ in range(40):
        X, new = RNG.normal(size=(2, 200, 60))
        y, y_new = X[:, 0] + RNG.normal(size=200), new[:, 0] + RNG.normal(size=200)
        theta, C = fit(X, y, 1e-3)
        errors, missed = y - X @ theta, np.abs(y_new - new @ theta)
        whole = left_out(errors[:, None], np.asarray(np.linalg.solve(C, X.T)).T, 200.0, 60.0)
        inside.append(np.mean(missed <= _of(whole, 200.0, 1.0).reach(0.9)))
        naive.append(np.mean(missed <= _of(errors, 200.0, 1.0).reach(0.9)))
    assert 0.88 < np.mean(inside) < 0.96
    assert np.mean(naive) < 0.85


@pytest.mark.parametrize("n", [1, 3, 8, 10, 17, 50, 99, 1000])
def test_too_few_rows_are_told_and_the_advice_is_good(n: int) -> None:
    """What is said to be the most can be had."""
    found = _of(RNG.normal(size=n), float(n), 1.0)
    with pytest.raises(InputError, match=f"{n} rows cannot say") as refusal:
        found.reach(0.9999)
    said = re.search(r"expected at most ([\d.e-]+)", str(refusal.value))
    if said is None:
        assert "more rows" in str(refusal.value)
        return
    assert found.reach(float(said[1])) > 0
    with pytest.raises(InputError):
        found.reach(float(said[1]) + 1.3 / (n + 1))


def test_errors_that_no_bin_ends_are_told() -> None:
    found = _of(np.full(50, 1e9), 50.0, 1.0)
    with pytest.raises(InputError, match="beyond a hundred spreads"):
        found.reach(0.5)


def test_no_error_at_all_has_a_narrow_interval() -> None:
    found = _of(np.zeros(50), 50.0, 3.0)
    assert 0 < found.reach(0.9) <= 3e-4


@pytest.mark.parametrize(
    ("counts", "unit"),
    [
        (np.zeros(BINS), 1.0),
        (-np.ones(BINS), 1.0),
        (np.ones(BINS), 0.0),
        (np.full(BINS, np.nan), 1),
    ],
)
def test_counts_that_cannot_be_are_refused(counts: Array, unit: float) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        Misses(counts[None], 1.0, np.array([unit])).checked()
    assert Misses(np.ones((1, BINS)), 1.0, np.ones(1)).checked().counts.sum() == BINS


def test_rows_that_were_not_looked_at_say_nothing() -> None:
    """However many the sample stands for: a miss as rare as none of its rows cannot be known."""
    errors = np.random.default_rng(0).standard_t(3, size=500)
    misses = _of(errors, 1e6, 1.0)
    assert misses.reach(0.9) == pytest.approx(_of(errors, 500.0, 1.0).reach(0.9))
    with pytest.raises(InputError, match="500 rows cannot say"):
        misses.reach(0.999)
