"""Tables that nobody would choose: sites choose well or plainly, never nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from coke import COKEClassifier, COKERegressor, Features, Until
from coke.learning.model import Model
from coke.maths.arrays import Array


class Case(NamedTuple):
    """Rows at sites, new rows, and how large an error on them may be, the mean's being one."""

    X: Array
    y: Array
    sites: Any
    X_new: Array
    y_new: Array
    most: float


RNG = np.random.default_rng(0)
N, NEW = 300, 500


def f(X: Array) -> Array:
    return np.asarray(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=len(X)))


def split(X: Array, y: Array, most: float, n: int = N, sites: Any = None) -> Case:
    where = np.arange(n) % 4 if sites is None else sites
    return Case(X[:n], y[:n], where, X[n:], y[n:], most)


def rows(d: int = 3, n: int = N) -> Array:
    return RNG.normal(size=(n + NEW, d))


def constant_and_duplicate() -> Case:
    X = rows()
    return split(np.column_stack([X, np.full(len(X), 7.0), X, X[:, 0], 0 * X[:, 0]]), f(X), 0.3)


def constant_within_every_site() -> Case:
    """Two columns that say no more than whose a row is."""
    X, where = rows(), np.arange(N + NEW) % 4
    return split(np.column_stack([X, where, where**2]), f(X), 0.4)


def nothing_but_that() -> Case:
    X, where = rows(), np.arange(N + NEW) % 4
    return split(np.column_stack([where, -(where**2.0)]), f(X), 1.1)


def noise() -> Case:
    """200 columns of it."""
    return split(rows(200), RNG.normal(size=N + NEW), 1.1)


def outliers() -> Case:
    """Of 1e6, in one column of rows to train with and of new ones."""
    X = rows()
    y = f(X)
    X[::97, 0] = 1e6
    return split(X, y, 1.05)


def outlying_target() -> Case:
    """One of 1e6 to train with: by nobody's measure is anything left to learn."""
    X = rows()
    y = f(X)
    y[7] = 1e6
    return split(X, y, 1.5)


def codes() -> Case:
    """Whole numbers that mean something else."""
    X = RNG.integers(0, 5, size=(N + NEW, 3)).astype(float)
    values = np.array([3.0, -1.0, 0.0, 2.0, 5.0])
    return split(X, values[X[:, 0].astype(int)] + X[:, 1], 0.05)


def twenty_rows() -> Case:
    X = rows(3, 20)
    return split(X, f(X), 1.0, 20)


def one_has_all() -> Case:
    """The others have one row each, which counts as much as all of the first's."""
    X = rows()
    return split(X, f(X), 0.8, sites=np.r_[np.zeros(N - 3, int), 1, 2, 3])


def alone() -> Case:
    X = rows()
    return split(X, f(X), 0.2, sites=np.zeros(N, int))


def one_has_one() -> Case:
    X = rows()
    return split(X, f(X), 0.3, sites=np.r_[9, np.arange(1, N) % 4])


def one_each() -> Case:
    X = rows(3, 12)
    return split(X, f(X), 1.2, 12, np.arange(12))


def wide() -> Case:
    """More columns than rows, one of which matters."""
    X = rows(150, 120)
    return split(X, X[:, 0] + 0.1 * RNG.normal(size=len(X)), 0.9, 120)


def flat() -> Case:
    return split(rows(), np.full(N + NEW, 3.0), 0.0)


def apart() -> Case:
    """Sites without an input in common."""
    X, where = rows(), np.arange(N + NEW) % 4
    return split(np.column_stack([X[:, 0] + 9 * where, X[:, 1:]]), f(X), 1.0)


def tiny() -> Case:
    X = rows()
    return split(1e-60 * X, 1e-60 * f(X), 0.2)


def huge() -> Case:
    X = rows()
    return split(1e60 * X, 1e60 * f(X), 0.2)


CASES = [
    constant_and_duplicate, constant_within_every_site, nothing_but_that, noise, outliers,
    outlying_target, codes, twenty_rows, one_has_all, alone, one_has_one, one_each, wide, flat,
    apart, tiny, huge,
]  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_it_predicts_no_worse_than_the_mean(make: Callable[[], Case]) -> None:
    """Finite numbers, a model that a file can keep, and bytes that columns and rounds bound."""
    case = make()
    features = Features(n_features=40)
    est: Any = COKERegressor(graph="ring", features=features, limits=Until(200))
    est.fit(case.X, case.y, case.sites)
    found = est.predict(case.X_new)
    assert np.isfinite(found).all()
    scale = max(float(np.abs(case.y_new).max()), 1e-300)
    missed = np.mean(((found - case.y_new) / scale) ** 2)
    mean = np.mean(((case.y.mean() - case.y_new) / scale) ** 2)
    if case.y.std() > 1e3 * case.y_new.std():  # a mean that one row made
        mean = max(mean, (case.y.std() / scale) ** 2)
    assert missed <= case.most * mean + 1e-12
    assert np.isfinite([est.choice_.best.ridge, est.choice_.noise, est.choice_.lead]).all()
    assert np.isfinite(est.choice_.bandwidths).all()
    assert all(np.isfinite(list(part.values())).all() for part in est.choice_[2:4])
    assert all(isinstance(line, str) for line in est.choice_.words(est.model_.columns))
    again = Model.from_bytes(est.model_.to_bytes())
    assert np.array_equal(again.predict(case.X_new), found)
    sites, d = len(est.sites_), case.X.shape[1]
    assert est.agreement_bytes_ < sites * (4000 + 150 * d + 60 * sites)


def one_class_at_a_site() -> tuple[Array, Any, Any]:
    X = rows()[:N]
    y = X[:, 0] * X[:, 1] > 0
    return X, y, np.where(y, 0, 1 + np.arange(N) % 3)


def rare_class() -> tuple[Array, Any, Any]:
    """One row of it, at one site."""
    return rows()[:N], np.arange(N) == 5, np.arange(N) % 4


def same_inputs() -> tuple[Array, Any, Any]:
    return np.zeros((N, 2)), np.arange(N) % 3 == 0, np.arange(N) % 4


def few_rows() -> tuple[Array, Any, Any]:
    X = rows()[:20]
    return X, X[:, 0] > 0, np.arange(20) % 4


def more_classes_than_bits() -> tuple[Array, Any, Any]:
    """Twenty, of which three bits of their numbers are looked at."""
    X = rows()[:N]
    return X, np.floor(20 * np.argsort(np.argsort(X[:, 0])) / N), np.arange(N) % 4


@pytest.mark.parametrize(
    "make",
    [one_class_at_a_site, rare_class, same_inputs, few_rows, more_classes_than_bits],
    ids=lambda make: make.__name__,
)
def test_classes_are_told_no_worse_than_by_the_commonest(
    make: Callable[[], tuple[Array, Any, Any]],
) -> None:
    X, y, sites = make()
    features, limits = Features(n_features=20), Until(60, tol=1e-2)
    est = COKEClassifier(graph="ring", features=features, limits=limits).fit(X, y, sites)
    p = est.predict_proba(X)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    _, counts = np.unique(y, return_counts=True)
    assert est.score(X, y) >= counts.max() / len(y)
