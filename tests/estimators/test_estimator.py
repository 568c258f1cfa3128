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

import coke
from coke import (
    COKE,
    DKLA,
    COKEClassifier,
    CokePaper,
    COKERegressor,
    Diffusion,
    Features,
    Geometric,
    RandomFeatures,
    Until,
)
from coke.errors import CokeError, DataError, GraphError, InputError
from coke.maths.ledger import HEADER

SMALL: dict[str, Any] = {
    "n_agents": 3, "features": Features(n_features=30), "limits": Until(rounds=40),
}  # fmt: skip
DEALT = {
    "check_sample_weight_equivalence_on_dense_data": "rows without sites are dealt out to them, a "
    "repeated one to several; with sites it holds, see learning/test_weights.py"
}
TINY = SMALL | {"features": Features(n_features=20), "limits": Until(rounds=12)}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        RandomFeatures(n_features=10),
        RandomFeatures(n_features=10, mapping="cos-phase", kernel="laplacian"),
        COKERegressor(n_agents=4, features=Features(n_features=20)),
        COKERegressor(
            model="plain",
            algorithm="cta",
            features=Features(sigma=3.0),
            limits=Until(300),
            scale="minmax",
        ),
        COKEClassifier(**SMALL),
        COKEClassifier(**TINY, loss="hinge"),
    ],
    expected_failed_checks=lambda estimator: DEALT,
)
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    """All of scikit-learn's own checks but one."""
    check(estimator)


rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3))
y = 100.0 + 20.0 * np.sin(X[:, 0]) * X[:, 1]
SITES = np.repeat(["north", "south", "west"], 100)


def test_consensus_is_the_centralised_ridge_on_the_same_features() -> None:
    """θ* is ridge regression on φ, every site weighing the same; enough rounds reach it."""
    est = COKERegressor(
        model="plain", algorithm=CokePaper(rho=0.3, v=0.1),
        features=Features(20, sigma=2.0), lam=0.3, limits=Until(3000, tol=1e-13), random_state=1,
    ).fit(X, y, SITES)  # fmt: skip
    units = est.model_.scaling
    assert_allclose(units.x_shift, X.mean(axis=0), atol=2**-8 * X.std(axis=0).min())
    assert_allclose([*units.x_scale, *units.y_scale], [*X.std(axis=0), y.std()], rtol=2**-8)
    Phi = RandomFeatures(20, sigma=2.0, random_state=1).fit_transform(units.inputs(X))
    target = units.targets(y)
    # Σ_i (1/T_i)‖·‖² + λ‖θ‖² with T_i = 100 is Ridge with alpha = 100 λ
    central = Ridge(alpha=100 * 0.3, fit_intercept=False).fit(Phi, target)
    assert_allclose(est.optimum_, central.coef_, atol=1e-10)
    assert_allclose(est.thetas_, np.tile(central.coef_, (3, 1)), atol=1e-8)
    assert_allclose(est.predict(X), units.predictions(central.predict(Phi)), atol=1e-6)
    assert est.sites_.tolist() == ["north", "south", "west"]
    assert est.transmissions_ == est.history_.spoke.sum()
    assert est.n_iter_ == len(est.history_) < 3000
    assert est.converged_
    assert est.bytes_ == est.transmissions_ * 40 * 8


def test_it_learns_about_as_well_as_an_exact_kernel_machine() -> None:
    data, target = load_diabetes(return_X_y=True)
    ours = COKERegressor(n_agents=5, features=Features(sigma=5.0), lam=0.1)
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
    drawn = [RandomFeatures(200, mapping="cos-phase", random_state=s) for s in seeds]
    ours = [error(each.fit_transform(X)) for each in drawn]
    theirs = [
        error(RBFSampler(gamma=0.5, n_components=200, random_state=s).fit_transform(X))
        for s in seeds
    ]
    assert np.median(ours) < 1.1 * np.median(theirs)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_classes_binary_and_one_against_the_rest(loss: str) -> None:
    moons, label = make_moons(200, noise=0.1, random_state=0)
    names = np.where(label == 1, "up", "down")
    features, limits = Features(50, sigma=0.7), Until(60)
    est = COKEClassifier(n_agents=4, loss=loss, limits=limits, features=features)
    est.fit(moons, names)
    assert est.classes_.tolist() == ["down", "up"]
    assert est.score(moons, names) > 0.97
    flowers, kind = load_iris(return_X_y=True)
    features = Features(50, sigma=2.0)
    many = COKEClassifier(n_agents=3, loss=loss, limits=limits, features=features)
    many.fit(flowers, kind)
    assert many.score(flowers, kind) > 0.95
    assert many.decision_function(flowers).shape == (150, 3)
    assert many.thetas_.shape == (
        3,
        3 * many.model_.features.size,
    )  # one message carries all three classes
    if loss == "logistic":
        P = many.predict_proba(flowers)
        assert_allclose(P.sum(axis=1), 1)
    else:
        assert not hasattr(many, "predict_proba")


def test_one_class_at_one_site_is_fine() -> None:
    moons, label = make_moons(120, noise=0.1, random_state=0)
    sites = np.where(label == 0, 0, np.arange(120) % 2 + 1)  # site 0 only knows class 0
    est = COKEClassifier(limits=Until(80), features=Features(sigma=0.7)).fit(moons, label, sites)
    assert est.score(moons, label) > 0.95


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("features", [Features(30, sigma=0.5), Features(30, sigma=3.0)]),
        ("features__sigma", [0.5, 3.0]),
    ],
)
def test_grid_search_pipeline_clone_and_sites_travel_along(name: str, values: list[Any]) -> None:
    pipe = make_pipeline(StandardScaler(), COKERegressor(**SMALL))
    grid = GridSearchCV(pipe, {f"cokeregressor__{name}": values}, cv=2, n_jobs=2)
    grid.fit(X, y, cokeregressor__sites=SITES)
    assert grid.best_params_[f"cokeregressor__{name}"] == values[1]
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
    est = COKERegressor(
        model="plain", graph=graph, algorithm="coke-paper", features=Features(10), limits=Until(5)
    ).fit(X, y, SITES)
    # on a path the middle site's copies go to two neighbours
    assert est.history_["wire_bytes"][-1] == 5 * 4 * HEADER + 160 * sum(
        int(n) * d for n, d in zip(est.history_.spoke.sum(axis=0), (1, 2, 1), strict=True)
    )


def test_an_algorithm_of_ones_own_is_run_as_it_is() -> None:
    """The paper's COKE as an object and by its settings: the same bits; and tol holds for it."""
    few: dict[str, Any] = {
        "model": "plain", "features": Features(10), "limits": Until(200, tol=0.05),
    }  # fmt: skip
    named = COKERegressor(algorithm=CokePaper(rho=0.2, v=0.5, mu=0.9), **few).fit(X, y, SITES)
    own = COKERegressor(algorithm=COKE(0.2, Geometric(0.5, 0.9)), **few).fit(X, y, SITES)
    assert_array_equal(own.thetas_, named.thetas_)
    assert own.n_iter_ == named.n_iter_ < 200
    assert own.history_.labels.algorithm == "COKE"
    assert clone(own).fit(X, y, SITES).bytes_ == named.bytes_


TWO = nx.Graph([("north", "south")])
TWO.add_node("west")
regressor: Any = COKERegressor  # what follows gives them wrong kinds on purpose
classifier: Any = COKEClassifier
random_features: Any = RandomFeatures
groups: Any = coke
BAD_X = X.copy()
BAD_X[3, 1] = np.inf
BAD_Y = y.copy()
BAD_Y[0] = np.inf


@pytest.mark.parametrize(
    ("kind", "make", "said"),
    [
        (DataError, lambda: regressor().fit(BAD_X, y), "infinity"),
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
        (
            InputError,
            lambda: regressor(algorithm=CokePaper(rho=0.0)).fit(X, y),
            "rho=0.0: expected",
        ),
        (InputError, lambda: regressor(algorithm=DKLA(rho=-1)).fit(X, y), "rho=-1"),
        (InputError, lambda: regressor(lam=-1e-9).fit(X, y), "λ ≥ 0"),
        (InputError, lambda: regressor(algorithm=CokePaper(mu=1.0)).fit(X, y), "0 < μ < 1"),
        (InputError, lambda: regressor(algorithm=CokePaper(mu=0.0)).fit(X, y), "0 < μ < 1"),
        (InputError, lambda: regressor(algorithm=CokePaper(v=-1.0)).fit(X, y), "v ≥ 0"),
        (InputError, lambda: regressor(algorithm=Diffusion(eta=0)).fit(X, y), "eta=0"),
        (InputError, lambda: regressor(features=Features(0)).fit(X, y), "n_features=0"),
        (InputError, lambda: regressor(limits=Until(0)).fit(X, y), "rounds=0"),
        (InputError, lambda: regressor(limits=Until(tol=-1)).fit(X, y), "tol=-1"),
        (
            InputError,
            lambda: regressor(features=Features(kernel="rbf")).fit(X, y),
            "unknown kernel 'rbf'",
        ),
        (InputError, lambda: regressor(algorithm="cok").fit(X, y), "Did you mean 'coke'"),
        (InputError, lambda: regressor(loss="hinge").fit(X, y), "loss of COKERegressor"),
        (InputError, lambda: classifier(lam=0.0, loss="logistic").fit(X, SITES), "lambda > 0"),
        (InputError, lambda: regressor(limits=groups.Until(10.5)).fit(X, y), "Expected `int`"),
        (InputError, lambda: regressor(random_state=None).fit(X, y), "whole number ≥ 0"),
        (InputError, lambda: regressor(algorithm=groups.DKLA("a")).fit(X, y), "Expected `float`"),
        (
            InputError,
            lambda: regressor(features=groups.Features(9, [1])).fit(X, y),
            "Expected `str`",
        ),
        (
            InputError,
            lambda: regressor(features=Features(sigma=np.nan)).fit(X, y),
            "positive bandwidth",
        ),
        (InputError, lambda: random_features(n_features=2.5).fit(X), r"Expected `int \| str`"),
        (InputError, lambda: random_features(n_features="auto").fit(X), "a positive number"),
        (InputError, lambda: regressor(random_state=rng).fit(X, y), "whole number ≥ 0"),
        (InputError, lambda: random_features(random_state=-1).fit(X), "whole number ≥ 0"),
        (InputError, lambda: regressor(features=300).fit(X, y), r"expected coke\.Features\(…\)"),
        (InputError, lambda: regressor(limits=Features()).fit(X, y), r"expected coke\.Until\(…\)"),
        (InputError, lambda: regressor(privacy="dp").fit(X, y), r"expected coke\.DP\(…\)"),
        (InputError, lambda: regressor(algorithm=3).fit(X, y), r"coke\.Coke\(…\), coke\.CokeP"),
        (InputError, lambda: regressor().set_params(features__sgma=1), "has no such field"),
        (InputError, lambda: regressor().set_params(privacy__delta=1), "has no such field"),
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
    few = COKERegressor(n_agents=2, lam=0.0, features=Features(5)).fit(X, y)
    assert np.isfinite(few.thetas_).all()
    alone = COKERegressor(n_agents=1, features=Features(20), limits=Until(3)).fit(X, y)
    assert_allclose(alone.thetas_[0], alone.optimum_, atol=1e-9)
    assert alone.wire_bytes_ == 0
