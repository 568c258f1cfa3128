"""What estimators say of columns, of the choice and of intervals."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

import coke
from coke.errors import InputError
from coke.maths.arrays import Array


def planted(n: int = 1500, d: int = 32) -> tuple[Array, Array]:
    """Three of the columns matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 3]) + X[:, 11] * np.abs(X[:, 20]) + X[:, 20]
    return X, y + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(("how", "ahead"), [("dealt", 4.0), ("sorted", 2.0)])
def test_importance_finds_the_columns_that_matter_at_every_site(how: str, ahead: float) -> None:
    """3 of 32, in the mean model and in each site's own, clearly ahead of all others."""
    X, y = planted()
    sites = None if how == "dealt" else np.argsort(np.argsort(y)) * 5 // len(y)
    model = coke.COKERegressor(n_agents=5).fit(X, y, sites)
    assert model.importance_.shape == (32,)
    assert model.importance_.sum() == pytest.approx(1.0)
    for theta in (model.model_.theta[0], *model.thetas_):
        shares = model.model_._replace(theta=theta[None]).importance().shares
        *_, fourth, third, second, first = np.argsort(shares)
        assert {first, second, third} == {3, 11, 20}
        assert shares[third] > ahead * shares[fourth]
    assert next(iter(model.model_.importance().ranked)) == f"x{model.importance_.argmax()}"


def test_of_classes_too_and_of_the_plain_model() -> None:
    """Whatever the units, which only a mixture of the inputs can tell apart from importance."""
    X = np.random.default_rng(2).normal(size=(600, 6))
    X[:, 3] *= 50.0
    y = np.sin(0.04 * X[:, 3])
    labels = np.where(y > 0.5, "high", np.where(y > -0.5, "middle", "low"))
    limits = coke.Until(rounds=60)
    three = coke.COKEClassifier(n_agents=3, limits=limits).fit(X, labels)
    assert three.importance_.argmax() == 3
    _, f = three.model_.partial_dependence("x3")
    assert f.shape == (25, 3)
    for scale in ("standard", "none"):
        features = coke.Features(sigma=5.0 if scale == "none" else "auto")
        plain = coke.COKERegressor(3, model="plain", scale=scale, features=features, limits=limits)
        assert plain.fit(X, y).importance_.argmax() == 3


def test_a_curve_goes_through_what_was_planted() -> None:
    """y = x₁² and a line: the curves are these, but for constants."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(900, 2)) * [1.0, 10.0] + [0.0, 30.0]
    y = 5 * X[:, 0] ** 2 + 0.3 * X[:, 1]
    model = coke.COKERegressor(n_agents=3).fit(X, y).model_
    x, f = model.partial_dependence("x0")
    assert_allclose(f - f.mean(), 5 * (x**2 - np.mean(x**2)), atol=1.0)
    x, f = model.partial_dependence("x1")
    assert_allclose(f - f.mean(), 0.3 * (x - x.mean()), atol=0.6)
    assert x.min() < 15
    assert x.max() > 45


def test_before_the_fit_nothing_has_importance() -> None:
    with pytest.raises(NotFittedError):
        _ = coke.COKERegressor().importance_
    assert not hasattr(coke.COKERegressor(), "importance_")


def test_intervals_are_refused_where_nobody_added_up_errors() -> None:
    X = np.random.default_rng(3).normal(size=(200, 2))
    plain = coke.COKERegressor(n_agents=2, model="plain", limits=coke.Until(rounds=5))
    plain.fit(X, X[:, 0])
    with pytest.raises(InputError, match="nobody added up"):
        plain.predict(X, interval=0.9)
