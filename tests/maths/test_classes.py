"""Classes as corners of a simplex: what codes promise, and how sharp their votes are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from coke.errors import MessageError
from coke.maths.losses import LOSSES
from coke.maths.losses.codes import (
    SHARPNESSES,
    coded,
    corners,
    sharpest,
    surprises,
    votes,
    which,
)
from coke.maths.losses.newton import OneRisk
from coke.maths.losses.problem import Quadratic

RNG = np.random.default_rng(5)


@given(K=st.integers(2, 40))
def test_corners_are_those_of_a_regular_simplex(K: int) -> None:
    """VᵀV = I, Σ_k v_k = 0, VVᵀ = I − 11ᵀ/K: all pairs are √2 apart."""
    V = corners(K)
    assert_allclose(V.T @ V, np.eye(K - 1), atol=1e-14)
    assert_allclose(V.sum(axis=0), 0, atol=1e-14)
    assert_allclose(V @ V.T, np.eye(K) - 1 / K, atol=1e-14)


@pytest.mark.parametrize("kind", [int, str, bool, float])
@pytest.mark.parametrize("boxed", [False, True])
def test_a_code_speaks_for_its_class_alone(kind: Any, boxed: bool) -> None:
    """Whatever the labels are; its score is 1 − 1/K, that of all others −1/K."""
    y = np.array([kind(n) for n in RNG.integers(0, 5, 60)], dtype=object if boxed else None)
    classes = np.unique(y.astype(kind))
    K = len(classes)
    assert_array_equal(classes[which(y, classes)], y)
    said = votes(coded(y, classes))
    assert_allclose(said, (y[:, None] == classes) - 1 / K, atol=1e-14)


def test_least_squares_of_codes_is_that_of_the_classes_indicators() -> None:
    """Scores of the fitted codes are the fitted indicators, less 1/K: P(k | x) − 1/K."""
    Phi, y = RNG.normal(size=(200, 7)), RNG.integers(0, 4, 200)
    Phi[:, -1] = 1.0  # a constant, so that all indicators add up to one
    codes = Quadratic.from_rows(lambda x: x, [Phi], [coded(y, np.arange(4))], 0.0)
    theta = codes.optimum().reshape(3, 7)
    one_hot = np.linalg.lstsq(Phi, np.eye(4)[y], rcond=None)[0]
    assert_allclose(votes(Phi @ theta.T), Phi @ one_hot - 1 / 4, atol=1e-10)


@pytest.mark.parametrize("s", [0.8, 3.0, 21.5, 300.0])
@pytest.mark.parametrize("K", [2, 3, 10])
def test_the_sharpness_is_that_of_the_labels(s: float, K: int) -> None:
    """Labels drawn from softmax(s · votes): s is found, and none has less loss by a thousandth."""
    given_votes = votes(RNG.normal(size=(4000, K - 1))) / s
    p = softmax(s * given_votes, axis=1)
    y = (p.cumsum(axis=1) > RNG.uniform(size=(4000, 1))).argmax(axis=1)
    found = sharpest(surprises(given_votes, y))
    assert found == pytest.approx(s, rel=0.15)

    def loss(sharp: float) -> float:
        p = log_softmax(sharp * given_votes, axis=1)
        return float(-p[np.arange(len(y)), y].mean())

    assert loss(found) <= 1.001 * min(map(loss, SHARPNESSES))


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_losses_that_cannot_be_are_refused(bad: float) -> None:
    curve = np.linspace(1.0, 2.0, len(SHARPNESSES))
    curve[3] = bad
    with pytest.raises(MessageError, match="cannot be"):
        sharpest(curve)


def test_the_ends_of_the_range_are_sharpnesses_too() -> None:
    rising = np.linspace(0.1, 2.0, len(SHARPNESSES))
    assert sharpest(rising) == SHARPNESSES[0]
    assert sharpest(rising[::-1]) == SHARPNESSES[-1]


@given(seed=st.integers(0, 999), K=st.integers(2, 6), log_h=st.integers(-6, 0))
def test_softmax_is_minimised_from_anywhere(seed: int, K: int, log_h: int) -> None:
    """‖g‖ ≤ 1e-8 from any start, also of rows that can be told apart."""
    rng = np.random.default_rng(seed)
    T, D = int(rng.integers(1, 60)), int(rng.integers(1, 12))
    Phi, y = rng.normal(size=(T, D)), rng.integers(0, K, T).astype(np.float64).astype(np.float64)
    own = OneRisk(Phi, y, rng.uniform(0.1, 2, T) / T, 10.0**log_h * np.eye(D))
    start, p = 30 * rng.normal(size=(2, (K - 1) * D))
    found = LOSSES["softmax"].of_row.minimum(own, 1e-3 * p, start)
    again = LOSSES["softmax"].of_row.repeated(own)(1e-3 * p, found.theta)
    assert_allclose(again.theta, found.theta, atol=1e-6 / 10.0**log_h)


def test_softmax_is_scikit_learns() -> None:
    """The multinomial logistic regression with the same ridge."""
    Phi, lam = RNG.normal(size=(300, 6)), 1e-2
    y = RNG.integers(0, 4, 300).astype(np.float64)
    own = OneRisk(Phi, y, np.full(300, 1 / 300), lam * np.eye(6))
    zero = np.zeros(18)
    theta = LOSSES["softmax"].of_row.minimum(own, zero, zero).theta.reshape(3, 6)
    other = LogisticRegression(C=1 / (2 * lam * 300), fit_intercept=False, tol=1e-10, max_iter=999)
    assert_allclose(corners(4) @ theta, other.fit(Phi, y).coef_, atol=1e-5)
