"""Metadata routing: sites and weights reach `fit` through scikit-learn's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from coke import COKEClassifier, COKERegressor, Features, Until

RNG = np.random.default_rng(5)
X = RNG.normal(size=(120, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=120)
SITES = np.array(["a", "b", "c"])[(X[:, 1] > 0).astype(int) + (X[:, 1] > 0.5)]
WEIGHTS = RNG.uniform(0.1, 3.0, size=120)
FOLDS = KFold(3)
HOW: dict[str, Any] = {
    "model": "plain", "features": Features(n_features=10), "limits": Until(rounds=20),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("kind", [COKERegressor, COKEClassifier])
def test_scores_with_sites_and_weights_are_those_of_fits_by_hand(kind: Any) -> None:
    """scikit-learn's measure of the predictions of a fit with the fold's own sites and weights."""
    y, measure = (Y, r2_score) if kind is COKERegressor else (Y > 0, accuracy_score)
    est = kind(**HOW).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    found = cross_val_score(est, X, y, cv=FOLDS, params={"sites": SITES, "sample_weight": WEIGHTS})
    by_hand = []
    for train, test in FOLDS.split(X):
        one = clone(est).fit(X[train], y[train], SITES[train], WEIGHTS[train])
        assert list(one.sites_) == ["a", "b", "c"]
        by_hand.append(measure(y[test], one.predict(X[test])))
    assert_allclose(found, by_hand)
    apart = cross_val_score(clone(est), X, y, cv=FOLDS, params={"sites": SITES})
    assert np.abs(found - apart).max() > 0  # weights count


def test_sites_are_asked_for_unless_told_otherwise() -> None:
    est = COKERegressor(**HOW)
    assert est.get_metadata_routing().fit.requests["sites"] is True
    assert est.get_metadata_routing().fit.requests["sample_weight"] is None
    other = clone(est).set_fit_request(sites=False)
    assert clone(other).get_metadata_routing().fit.requests["sites"] is False


def test_sites_reach_the_last_step_of_a_pipeline_in_a_search() -> None:
    pipe = make_pipeline(StandardScaler(), COKERegressor(**HOW))
    grid = {"cokeregressor__lam": [1e-3, 1e-1]}
    search = GridSearchCV(pipe, grid, cv=FOLDS).fit(X, Y, sites=SITES)
    assert list(search.best_estimator_[-1].sites_) == ["a", "b", "c"]
