"""Tables that nobody would choose: sites choose well or plainly, never nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


N, NEW = 300, 500
Rng = np.random.Generator


def f(X: Array) -> Array:
    """What is to be learnt; a tenth of it is noise, of a kind."""
    return np.asarray(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * np.sin(1e4 * X[:, 0]))


def split(X: Array, y: Array, most: float, n: int = N, sites: Any = None) -> Case:
    where = np.arange(n) % 4 if sites is None else sites
    return Case(X[:n], y[:n], where, X[n:], y[n:], most)


def rows(rng: Rng, d: int = 3, n: int = N) -> Array:
    return rng.normal(size=(n + NEW, d))


def constant_and_duplicate(rng: Rng) -> Case:
    X = rows(rng)
    return split(np.column_stack([X, np.full(len(X), 7.0), X, X[:, 0], 0 * X[:, 0]]), f(X), 0.3)


def constant_within_every_site(rng: Rng) -> Case:
    """Two columns that say no more than whose a row is."""
    X, where = rows(rng), np.arange(N + NEW) % 4
    return split(np.column_stack([X, where, where**2]), f(X), 0.4)


def nothing_but_that(rng: Rng) -> Case:
    X, where = rows(rng), np.arange(N + NEW) % 4
    return split(np.column_stack([where, -(where**2.0)]), f(X), 1.1)


def noise(rng: Rng) -> Case:
    """200 columns of it."""
    return split(rows(rng, 200), rng.normal(size=N + NEW), 1.1)


def outliers(rng: Rng) -> Case:
    """Of 1e6, in one column of rows to train with and of new ones."""
    X = rows(rng)
    y = f(X)
    X[::97, 0] = 1e6
    return split(X, y, 1.05)


def outlying_target(rng: Rng) -> Case:
    """One of 1e6 to train with: by nobody's measure is anything left to learn."""
    X = rows(rng)
    y = f(X)
    y[7] = 1e6
    return split(X, y, 1.5)


def codes(rng: Rng) -> Case:
    """Whole numbers that mean something else."""
    X = rng.integers(0, 5, size=(N + NEW, 3)).astype(float)
    values = np.array([3.0, -1.0, 0.0, 2.0, 5.0])
    return split(X, values[X[:, 0].astype(int)] + X[:, 1], 0.05)


def twenty_rows(rng: Rng) -> Case:
    X = rows(rng, 3, 20)
    return split(X, f(X), 1.1, 20)


def one_has_all(rng: Rng) -> Case:
    """The others have one row each, which counts as much as all of the first's."""
    X = rows(rng)
    return split(X, f(X), 0.8, sites=np.r_[np.zeros(N - 3, int), 1, 2, 3])


def alone(rng: Rng) -> Case:
    X = rows(rng)
    return split(X, f(X), 0.2, sites=np.zeros(N, int))


def one_has_one(rng: Rng) -> Case:
    X = rows(rng)
    return split(X, f(X), 0.3, sites=np.r_[9, np.arange(1, N) % 4])


def one_each(rng: Rng) -> Case:
    X = rows(rng, 3, 12)
    return split(X, X.sum(axis=1), 1.0, 12, np.arange(12))


def wide(rng: Rng) -> Case:
    """More columns than rows, one of which matters."""
    X = rows(rng, 150, 120)
    return split(X, X[:, 0] + 0.1 * rng.normal(size=len(X)), 0.9, 120)


def flat(rng: Rng) -> Case:
    return split(rows(rng), np.full(N + NEW, 3.0), 0.0)


def apart(rng: Rng) -> Case:
    """Sites without an input in common."""
    X, where = rows(rng), np.arange(N + NEW) % 4
    return split(np.column_stack([X[:, 0] + 9 * where, X[:, 1:]]), f(X), 1.0)


def tiny(rng: Rng) -> Case:
    X = rows(rng)
    return split(1e-60 * X, 1e-60 * f(X), 0.3)


def huge(rng: Rng) -> Case:
    X = rows(rng)
    return split(1e60 * X, 1e60 * f(X), 0.3)


CASES = [
    constant_and_duplicate, constant_within_every_site, nothing_but_that, noise, outliers,
    outlying_target, codes, twenty_rows, one_has_all, alone, one_has_one, one_each, wide, flat,
    apart, tiny, huge,
]  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_it_predicts_no_worse_than_the_mean(make: Callable[[Rng], Case]) -> None:
    """Finite numbers, a model that a file can keep, and bytes that columns and rounds bound."""
    case = make(np.random.default_rng(0))
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


def one_class_at_a_site(rng: Rng) -> tuple[Array, Any, Any]:
    X = rows(rng)[:N]
    y = X[:, 0] * X[:, 1] > 0
    return X, y, np.where(y, 0, 1 + np.arange(N) % 3)


def rare_class(rng: Rng) -> tuple[Array, Any, Any]:
    """One row of it, at one site."""
    return rows(rng)[:N], np.arange(N) == 5, np.arange(N) % 4


def same_inputs(_: Rng) -> tuple[Array, Any, Any]:
    return np.zeros((N, 2)), np.arange(N) % 3 == 0, np.arange(N) % 4


def few_rows(rng: Rng) -> tuple[Array, Any, Any]:
    X = rows(rng)[:20]
    return X, X[:, 0] > 0, np.arange(20) % 4


def more_classes_than_bits(rng: Rng) -> tuple[Array, Any, Any]:
    """Nine, of which three bits of their numbers are looked at."""
    X = rows(rng)[:N]
    return X, np.floor(9 * np.argsort(np.argsort(X[:, 0])) / N), np.arange(N) % 4


@pytest.mark.parametrize(
    "make",
    [one_class_at_a_site, rare_class, same_inputs, few_rows, more_classes_than_bits],
    ids=lambda make: make.__name__,
)
def test_classes_are_told_no_worse_than_by_the_commonest(
    make: Callable[[Rng], tuple[Array, Any, Any]],
) -> None:
    X, y, sites = make(np.random.default_rng(0))
    features, limits = Features(n_features=20), Until(30, tol=1e-2)
    est = COKEClassifier(graph="ring", features=features, limits=limits).fit(X, y, sites)
    p = est.predict_proba(X)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    _, counts = np.unique(y, return_counts=True)
    assert est.score(X, y) >= counts.max() / len(y)


def columns(rng: Rng, n: int, sites: Any) -> dict[str, Array]:
    """Of all kinds."""
    normal = rng.normal(size=n)
    return {
        "normal": normal,
        "constant": np.full(n, 0.1),
        "two": rng.integers(0, 2, n).astype(float),
        "codes": rng.integers(0, 9, n).astype(float),
        "site": np.asarray(sites, float),
        "tails": rng.standard_t(1, size=n),
        "sums of money": np.exp(5 * normal),
        "years": 2000.0 + rng.integers(0, 9, n) / 12,
        "far": 1e8 + normal,
        "rare": 1e6 * (rng.random(n) < 0.05),
        "one": np.where(np.arange(n) == 0, 1e12, normal),
        "count": np.arange(n, dtype=float),
    }


KINDS = list(columns(np.random.default_rng(0), 2, [0, 1]))


@settings(max_examples=20)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=5),
    target=st.sampled_from([*KINDS, "classes"]),
    n=st.integers(2, 90),
    sites=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_whatever_the_columns_are(
    kinds: list[str], target: str, n: int, sites: int, seed: int
) -> None:
    """Finite predictions, and a model that a file can keep."""
    rng, N = np.random.default_rng(seed), min(n, sites)
    where = np.r_[np.arange(N), rng.integers(0, N, n - N)]
    X = np.column_stack([columns(rng, n, where)[kind] for kind in kinds])
    classes = target == "classes"
    y = np.arange(n) % 3 if classes else columns(rng, n, where)[target]
    how: dict[str, Any] = {"features": Features(n_features=8), "limits": Until(4), "graph": "ring"}
    est: Any = (COKEClassifier if classes else COKERegressor)(**how).fit(X, y, where)
    assert np.isfinite(est.predict_proba(X) if classes else est.predict(X)).all()
    assert np.isfinite(est.choice_.bandwidths).all()
    assert Model.from_bytes(est.model_.to_bytes()).columns == est.model_.columns
