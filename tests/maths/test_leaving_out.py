"""Errors on rows left out, without a fit for each."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from coke.errors import MessageError
from coke.maths.choice.errors import NOISES, coefficients, heights, left_out
from coke.maths.choice.evidence import lines
from coke.maths.features.features import gram as kernel

RNG = np.random.default_rng(2)


@pytest.mark.parametrize(("n", "d", "K"), [(9, 2, 1), (25, 3, 4), (12, 30, 2)])
@pytest.mark.parametrize("of", [lambda Z: kernel("matern32", Z, Z, 1.0), lines])
def test_they_are_the_errors_of_a_fit_without_each_row(n: int, d: int, K: int, of: object) -> None:
    """Exactly, for every noise."""
    assert callable(of)
    Z, Y = RNG.normal(size=(n, d)), RNG.normal(size=(n, K))
    gram, found = of(Z), []
    for noise in NOISES:
        squares = []
        for t in range(n):
            rest = np.arange(n) != t
            a = np.linalg.solve(gram[np.ix_(rest, rest)] + noise * np.eye(n - 1), Y[rest])
            squares.append((Y[t] - gram[t, rest] @ a) ** 2)
        found.append(np.mean(squares))
    assert_allclose(left_out(gram, Y), found, rtol=1e-6)


def test_a_kernel_of_rank_one_or_none_gives_the_targets_own_spread() -> None:
    Y = RNG.normal(size=(30, 1))
    assert_allclose(left_out(np.zeros((30, 30)), Y), np.mean(Y**2))
    flat = left_out(np.ones((30, 30)), Y)
    rest = (Y.sum() - Y) / 29
    assert_allclose(flat[0], np.mean((Y - rest) ** 2), rtol=1e-3)


def test_coefficients_solve_the_ridge_regression_of_the_features() -> None:
    """(ΦᵀΦ + αI)w = ΦᵀY."""
    Phi, Y = RNG.normal(size=(15, 40)), RNG.normal(size=(15, 3))
    w = coefficients(Phi, Y, 0.3)
    assert_allclose(Phi.T @ Phi @ w + 0.3 * w, Phi.T @ Y, atol=1e-10)


def test_with_all_rows_at_one_site_errors_over_1_minus_h_are_those_of_fits_without_the_row() -> (
    None
):
    """A ridge is kept as it is: that of so many rows, one of them without weight."""
    n, D = 30, 6
    Phi, y, R = RNG.normal(size=(n, D)), RNG.normal(size=n), 0.05 * np.eye(D)
    whole = np.linalg.solve(Phi.T @ Phi / n + R, Phi.T @ y / n)
    found = (y - Phi @ whole) / (1 - heights(Phi, R, 1.0, n)[0])
    for t in range(n):
        rest = np.arange(n) != t
        u = np.linalg.solve(Phi[rest].T @ Phi[rest] / n + R, Phi[rest].T @ y[rest] / n)
        assert_allclose(found[t], y[t] - Phi[t] @ u, rtol=1e-6)


@pytest.mark.parametrize("rows", [20, 60, 600])
def test_heights_of_one_site_of_many_are_near_those_with_all_rows(rows: int) -> None:
    """In the mean, where the basis is right; rows fewer than features have their way."""
    n, D = 10, 40
    R = 0.02 * np.eye(D)
    Phi = np.sqrt(1 - 0.02) * RNG.normal(size=(rows, D))
    S = Phi.T @ Phi / rows + R
    exact = np.einsum("td,td->t", Phi, np.linalg.solve(S, Phi.T).T) / rows
    (found,) = heights(Phi[:n], R, n / rows, rows)
    assert ((found > 0) & (found < 1)).all()
    assert_allclose(found.mean(), exact.mean(), rtol=0.15)


@pytest.mark.parametrize("ridge", [1.5, -2.0, 1e300])
def test_numbers_that_leave_no_basis_to_judge_in_are_refused(ridge: float) -> None:
    """A liar's rows or inputs can come to such a ridge; it was a crash."""
    Phi = RNG.normal(size=(10, 4))
    with pytest.raises(MessageError, match="no basis"):
        heights(Phi, ridge * np.eye(4), 0.1, 100.0, (1.0, 3.0))
