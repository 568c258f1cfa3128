"""The estimators keep scikit-learn's contract, and do what they say beyond it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_moons
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from coke import COKEClassifier, COKERegressor, RandomFeatures
from coke.errors import CokeError, DataError, GraphError, InputError

SMALL: dict[str, Any] = {"n_agents": 3, "n_features": 30, "rounds": 40, "rho": 0.1}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        RandomFeatures(n_features=10),
        RandomFeatures(n_features=10, mapping="cos-phase", kernel="laplacian"),
        COKERegressor(n_agents=4, n_features=20),
        COKERegressor(algorithm="cta", sigma=3.0, scale="minmax"),
        COKEClassifier(**SMALL),
        COKEClassifier(**{**SMALL, "n_features": 8, "rounds": 12}, loss="hinge"),
    ]
)
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    """All of scikit-learn's own checks; no expected failures."""
    check(estimator)


rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3))
y = 100.0 + 20.0 * np.sin(X[:, 0]) * X[:, 1]
SITES = np.repeat(["north", "south", "west"], 100)


def test_consensus_is_the_centralised_ridge_on_the_same_features() -> None:
    """θ* is ridge regression on φ, every site weighing the same; enough rounds reach it."""
    est = COKERegressor(
        algorithm="coke-paper",
        n_features=20, sigma=2.0, lam=0.3, rho=0.3, rounds=3000, tol=1e-13, v=0.1, seed=1,
    ).fit(X, y, SITES)  # fmt: skip
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    Phi = RandomFeatures(20, sigma=2.0, seed=1).fit_transform(Z)
    target = (y - y.mean()) / y.std()
    # Σ_i (1/T_i)‖·‖² + λ‖θ‖² with T_i = 100 is Ridge with alpha = 100 λ
    central = Ridge(alpha=100 * 0.3, fit_intercept=False).fit(Phi, target)
    assert_allclose(est.optimum_, central.coef_, atol=1e-10)
    assert_allclose(est.thetas_, np.tile(central.coef_, (3, 1)), atol=1e-8)
    assert_allclose(est.predict(X), central.predict(Phi) * y.std() + y.mean(), atol=1e-6)
    assert est.sites_.tolist() == ["north", "south", "west"]
    assert est.transmissions_ == est.history_.spoke.sum()
    assert est.n_iter_ == len(est.history_) < 3000
    assert est.converged_
    assert est.bytes_ == est.transmissions_ * 40 * 8


def test_it_learns_about_as_well_as_an_exact_kernel_machine() -> None:
    data, target = load_diabetes(return_X_y=True)
    ours = COKERegressor(n_agents=5, sigma=5.0, lam=0.1, rho=0.05, rounds=200)
    exact = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", gamma=1 / 50, alpha=5))
    score = cross_val_score(ours, data, target, cv=3).mean()
    assert score > cross_val_score(exact, data, target - target.mean(), cv=3).mean() - 0.05
    assert score > 0.4


def test_random_features_approximate_as_well_as_scikit_learns_sampler() -> None:
    """Same kernel, same number of features: the median error is no larger."""
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2)

    def error(Phi: Any) -> float:
        return float(np.abs(Phi @ Phi.T - K).mean())

    seeds = range(10)
    ours = [error(RandomFeatures(200, mapping="cos-phase", seed=s).fit_transform(X)) for s in seeds]
    theirs = [
        error(RBFSampler(gamma=0.5, n_components=200, random_state=s).fit_transform(X))
        for s in seeds
    ]
    assert np.median(ours) < 1.1 * np.median(theirs)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_classes_binary_and_one_against_the_rest(loss: str) -> None:
    moons, label = make_moons(200, noise=0.1, random_state=0)
    names = np.where(label == 1, "up", "down")
    est = COKEClassifier(n_agents=4, loss=loss, rho=0.1, rounds=60, sigma=0.7, n_features=50)
    est.fit(moons, names)
    assert est.classes_.tolist() == ["down", "up"]
    assert est.score(moons, names) > 0.97
    flowers, kind = load_iris(return_X_y=True)
    many = COKEClassifier(n_agents=3, loss=loss, rho=0.1, rounds=60, sigma=2.0, n_features=50)
    many.fit(flowers, kind)
    assert many.score(flowers, kind) > 0.95
    assert many.decision_function(flowers).shape == (150, 3)
    assert many.thetas_.shape == (3, 3 * 100)  # one message carries all three classes
    if loss == "logistic":
        P = many.predict_proba(flowers)
        assert_allclose(P.sum(axis=1), 1)
    else:
        assert not hasattr(many, "predict_proba")


def test_one_class_at_one_site_is_fine() -> None:
    moons, label = make_moons(120, noise=0.1, random_state=0)
    sites = np.where(label == 0, 0, np.arange(120) % 2 + 1)  # site 0 only knows class 0
    est = COKEClassifier(rho=0.1, rounds=80, sigma=0.7).fit(moons, label, sites)
    assert est.score(moons, label) > 0.95


def test_grid_search_pipeline_clone_and_sites_travel_along() -> None:
    pipe = make_pipeline(StandardScaler(), COKERegressor(**SMALL))
    grid = GridSearchCV(pipe, {"cokeregressor__sigma": [0.5, 3.0]}, cv=2, n_jobs=2)
    grid.fit(X, y, cokeregressor__sites=SITES)
    assert grid.best_params_["cokeregressor__sigma"] == 3.0
    best = grid.best_estimator_[-1]
    assert best.sites_.tolist() == ["north", "south", "west"]
    again = clone(best).fit(StandardScaler().fit_transform(X), y, SITES)
    assert_array_equal(again.thetas_, best.thetas_)  # the same seed, the same bits


def test_data_frames_keep_their_column_names() -> None:
    frame = pd.DataFrame(X, columns=["age", "dose", "weight"])
    est = COKERegressor(**SMALL).fit(frame, y, SITES)
    assert est.model_.columns == ("age", "dose", "weight")
    assert_array_equal(est.model_.predict(frame[["weight", "age", "dose"]]), est.predict(frame))


def test_a_graph_of_ones_own_by_site_labels() -> None:
    graph = nx.Graph([("north", "south"), ("south", "west")])
    est = COKERegressor(graph=graph, algorithm="coke-paper", n_features=10, rounds=5)
    est.fit(X, y, SITES)
    # on a path the middle site's copies go to two neighbours
    assert est.history_["wire_bytes"][-1] == 5 * 4 * 13 + 160 * sum(
        int(n) * d for n, d in zip(est.history_.spoke.sum(axis=0), (1, 2, 1), strict=True)
    )


TWO = nx.Graph([("north", "south")])
TWO.add_node("west")
regressor: Any = COKERegressor  # what follows gives them wrong kinds on purpose
classifier: Any = COKEClassifier
features: Any = RandomFeatures
BAD_X = X.copy()
BAD_X[3, 1] = np.nan
BAD_Y = y.copy()
BAD_Y[0] = np.inf


@pytest.mark.parametrize(
    ("kind", "make", "said"),
    [
        (DataError, lambda: regressor().fit(BAD_X, y), "NaN"),
        (DataError, lambda: regressor().fit(X, BAD_Y), "infinity"),
        (DataError, lambda: regressor().fit(X[0], y), "2D array"),
        (DataError, lambda: regressor().fit(X, y[:-1]), "inconsistent numbers"),
        (DataError, lambda: regressor().fit([["a"]] * 9, np.ones(9)), "convert string"),
        (DataError, lambda: regressor().fit(X, list("abc") * 100), "target holds <U1"),
        (DataError, lambda: regressor().fit(X, y, SITES[:-1]), "one label a row"),
        (DataError, lambda: regressor(n_agents=301).fit(X, y), "every site needs a row"),
        (InputError, lambda: regressor(n_agents=0).fit(X, y), "agents=0: expected"),
        (DataError, lambda: classifier().fit(X, np.ones(300)), "one class"),
        (InputError, lambda: regressor(scale="min-max").fit(X, y), "Did you mean 'minmax'"),
        (InputError, lambda: regressor(rho=0.0).fit(X, y), "rho=0.0: expected"),
        (InputError, lambda: regressor(rho=-1).fit(X, y), "rho=-1"),
        (InputError, lambda: regressor(lam=-1e-9).fit(X, y), "λ ≥ 0"),
        (InputError, lambda: regressor(mu=1.0).fit(X, y), "0 < μ < 1"),
        (InputError, lambda: regressor(mu=0.0).fit(X, y), "0 < μ < 1"),
        (InputError, lambda: regressor(v=-1.0).fit(X, y), "v ≥ 0"),
        (InputError, lambda: regressor(eta=0).fit(X, y), "eta=0"),
        (InputError, lambda: regressor(n_features=0).fit(X, y), "n_features=0"),
        (InputError, lambda: regressor(rounds=0).fit(X, y), "rounds=0"),
        (InputError, lambda: regressor(tol=-1).fit(X, y), "tol=-1"),
        (InputError, lambda: regressor(kernel="rbf").fit(X, y), "unknown kernel 'rbf'"),
        (InputError, lambda: regressor(algorithm="cok").fit(X, y), "Did you mean 'coke'"),
        (InputError, lambda: regressor(loss="hinge").fit(X, y), "loss of COKERegressor"),
        (InputError, lambda: classifier(lam=0.0).fit(X, SITES), "lambda > 0"),
        (InputError, lambda: regressor(rounds=10.5).fit(X, y), "Expected `int`"),
        (InputError, lambda: regressor(seed=None).fit(X, y), "Expected `int`"),
        (InputError, lambda: regressor(rho="a").fit(X, y), "Expected `float`"),
        (InputError, lambda: regressor(kernel=[1]).fit(X, y), "Expected `str`"),
        (InputError, lambda: regressor(sigma=np.nan).fit(X, y), "positive bandwidth"),
        (InputError, lambda: features(n_features=2.5).fit(X), "Expected `int`"),
        (GraphError, lambda: regressor(graph=TWO).fit(X, y, SITES), "2 components"),
        (DataError, lambda: classifier().fit(X, y), "continuous"),
        (InputError, lambda: regressor(graph="rnig").fit(X, y), "Did you mean 'ring'"),
        (GraphError, lambda: regressor(edges=3).fit(X, y), "3 edges among 10"),
        (GraphError, lambda: regressor(graph=nx.path_graph(4)).fit(X, y, SITES), "match"),
    ],
)
def test_bad_input_is_refused_with_advice(kind: Any, make: Any, said: str) -> None:
    with pytest.raises(kind, match=said) as found:
        make()
    assert isinstance(found.value, CokeError)
    assert isinstance(found.value, ValueError)  # what scikit-learn's callers expect


def test_lambda_zero_and_a_single_site_are_fine() -> None:
    """λ = 0 gives the fit of least norm; one site alone is ridge regression."""
    few = COKERegressor(n_agents=2, lam=0.0, n_features=5, rho=0.5, rounds=500).fit(X, y)
    assert np.isfinite(few.thetas_).all()
    alone = COKERegressor(n_agents=1, n_features=20, rounds=3).fit(X, y)
    assert_allclose(alone.thetas_[0], alone.optimum_, atol=1e-9)
    assert alone.wire_bytes_ == 0
