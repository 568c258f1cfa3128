"""Bandwidths by the evidence of a site's rows, and how sure it is of each."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from coke.maths.arrays import Array
from coke.maths.choice.evidence import Evidence, _covariance, _surprise, fitted, lines, plain
from coke.maths.features.features import gram

RNG = np.random.default_rng(1)


def point(d: int) -> Array:
    return np.concatenate([RNG.normal(plain(d), 0.5, d), RNG.normal([0, -1, -2], 0.3)])


@pytest.mark.parametrize(("n", "d", "K"), [(12, 1, 1), (15, 4, 1), (10, 3, 3), (8, 20, 2)])
def test_the_gradient_is_that_of_the_value(n: int, d: int, K: int) -> None:
    """Against central differences, in every direction, also for several outputs."""
    Z, Y, x = RNG.normal(size=(n, d)), RNG.normal(size=(n, K)), point(d)

    def value(x: Array) -> float:
        return _surprise(x, Z, Y, lines(Z))[0]

    _, gradient = _surprise(x, Z, Y, lines(Z))
    step = 1e-5
    around = [(value(x + step * e) - value(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    assert_allclose(gradient, around, rtol=1e-5, atol=1e-5)


def test_the_value_is_the_density_of_the_targets() -> None:
    """Differences of it are those of log N(Y; 0, C), but for the pull towards the plain rule."""
    Z, Y, d = RNG.normal(size=(14, 3)), RNG.normal(size=(14, 2)), 3
    a, b = point(3), point(3)
    b[:d] = 2 * plain(d) - a[:d]  # as far from the plain rule: the same pull

    def surprise(x: Array) -> float:
        C = _covariance(Z, x, lines(Z)).C
        return -sum(multivariate_normal(cov=C).logpdf(y) for y in Y.T)

    found = _surprise(a, Z, Y, lines(Z))[0] - _surprise(b, Z, Y, lines(Z))[0]
    assert_allclose(found, surprise(a) - surprise(b), rtol=1e-7)


def test_its_kernel_is_the_one_that_features_are_drawn_for() -> None:
    Z = RNG.normal(size=(20, 3))
    x = np.concatenate([np.zeros(3), np.log([1.0, 1e-12, 1e-12])])
    assert_allclose(_covariance(Z, x, lines(Z)).k, gram("matern32", Z, Z, 1.0), atol=1e-6)


def test_columns_that_matter_are_told_from_those_that_do_not() -> None:
    """Two of six: their bandwidths are the narrowest, and of them the rows say most."""
    Z = RNG.normal(size=(200, 6))
    y = np.sin(2 * Z[:, 1]) + Z[:, 4] ** 2 + 0.1 * RNG.normal(size=200)
    p, sure, _ = fitted(Z, ((y - y.mean()) / y.std())[:, None])
    others = [0, 2, 3, 5]
    assert p[[1, 4]].min() > p[others].max() + 1
    assert (p[others] < 0).all()
    assert sure[[1, 4]].min() > 3 * sure[others].max()


def test_of_a_constant_column_nothing_is_known() -> None:
    """Sureness zero, and the plain rule is kept: the column pulls nobody."""
    Z = RNG.normal(size=(100, 3))
    Z[:, 1] = 0.7
    p, sure, _ = fitted(Z, np.sin(Z[:, :1]))
    assert_allclose(sure[1], 0, atol=1e-9)
    assert_allclose(p[1], 0, atol=1e-6)
    assert sure[0] > 1


def test_two_columns_alike_share_alike() -> None:
    Z = RNG.normal(size=(100, 3))
    Z[:, 2] = Z[:, 0]
    p, sure, _ = fitted(Z, np.sin(Z[:, :1]))
    assert_allclose(p[0], p[2], atol=1e-6)
    assert_allclose(sure[0], sure[2], rtol=1e-4)


def constant(n: int) -> Array:
    return np.zeros((n, 3))


def outliers(n: int) -> Array:
    Z = RNG.normal(size=(n, 3))
    Z[0] = 1e6
    return Z


def wide(n: int) -> Array:
    return RNG.normal(size=(n, 60))


def alike(n: int) -> Array:
    return np.repeat(RNG.normal(size=(n, 1)), 5, axis=1)


def same_rows(n: int) -> Array:
    return np.repeat(RNG.normal(size=(1, 4)), n, axis=0)


@pytest.mark.parametrize("n", [8, 60])
@pytest.mark.parametrize("make", [constant, outliers, wide, alike, same_rows])
@pytest.mark.parametrize("flat", [False, True])
def test_whatever_the_rows_are_it_is_finite(make: object, n: int, flat: bool) -> None:
    assert callable(make)
    Z = make(n)
    Y = np.zeros((n, 2)) if flat else RNG.normal(size=(n, 2))
    found: Evidence = fitted(Z, Y)
    for part in found:
        assert np.isfinite(part).all()
    assert (found.sure >= -1e-9).all()
    assert (np.abs(found.p + plain(Z.shape[1])) <= 9 + 1e-9).all()
