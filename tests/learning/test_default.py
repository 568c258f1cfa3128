"""The default method on data nobody would choose: it works, or says clearly why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coke import Coke, COKEClassifier, COKERegressor, Features, Until
from coke.errors import DataError, InputError
from coke.maths.arrays import Array

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
SITES = np.repeat(np.arange(6), 40)


def constant() -> tuple[Array, Array, Any]:
    Z = X.copy()
    Z[:, 1:3] = (0.1, -7.0)
    return Z, Y, SITES


def constant_at_each_site() -> tuple[Array, Array, Any]:
    Z = X.copy()
    Z[:, 3] = SITES
    return Z, Y, SITES


def collinear() -> tuple[Array, Array, Any]:
    return np.column_stack([X, X @ RNG.normal(size=(4, 4)), X[:, :1]]), Y, SITES


def wide() -> tuple[Array, Array, Any]:
    """More inputs than rows at any site."""
    return RNG.normal(size=(60, 50)), RNG.normal(size=60), np.repeat(np.arange(6), 10)


def one_has_all() -> tuple[Array, Array, Any]:
    return X, Y, np.r_[np.zeros(235, int), np.arange(1, 6)]


def few_rows() -> tuple[Array, Array, Any]:
    """L = 100 features, 12 rows in all."""
    return X[:12], Y[:12], np.repeat(np.arange(6), 2)


def flat_target() -> tuple[Array, Array, Any]:
    return X, np.full(240, 3.0), SITES


def apart() -> tuple[Array, Array, Any]:
    """Sites that have no inputs in common."""
    return X + 10.0 * SITES[:, None], Y, SITES


def clumps() -> tuple[Array, Array, Any]:
    """Three points, again and again: no Gaussian comes near."""
    Z = np.array([[0.0, 0, 0, 0], [5, 5, 5, 5], [5, -5, 5, -5]])[RNG.integers(3, size=240)]
    return Z, Z[:, 1] + Y, SITES


CASES = [constant, constant_at_each_site, collinear, wide, one_has_all, few_rows, apart, clumps]


@pytest.mark.parametrize("model", ["auto", "plain"])
@pytest.mark.parametrize("scale", ["standard", "none"])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_it_reaches_the_optimum_whatever_the_inputs(
    make: Callable[[], Any], scale: str, model: str
) -> None:
    Z, y, sites = make()
    limits = Until(2000, tol=1e-4)
    est = COKERegressor(model=model, scale=scale, limits=limits, graph="ring").fit(Z, y, sites)
    best = est.model_._replace(theta=est.optimum_[None])
    far = np.sqrt(np.mean((est.predict(Z) - best.predict(Z)) ** 2))
    assert far < 0.02 * max(float(y.std()), 1e-9)
    assert est.bytes_ < est.wire_bytes_


def test_a_flat_target_needs_no_words() -> None:
    est = COKERegressor(algorithm="coke", limits=Until(300)).fit(*flat_target())
    assert_allclose(est.predict(X), 3.0, atol=1e-9)
    assert est.converged_
    assert est.history_.spoke.sum() == 0


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_classes_too(loss: str) -> None:
    label = np.where(Y > 0, "up", "down")
    est = COKEClassifier(loss=loss, limits=Until(60), graph="star").fit(X, label, SITES)
    best = est.model_._replace(theta=est.optimum_[None])
    assert np.mean(est.predict(X) == best.predict(X)) > 0.97
    assert est.transmissions_ < 6 * 60


@pytest.mark.parametrize("graph", ["ring", "star", "complete", "grid", "random"])
def test_nothing_is_tuned_to_a_graph(graph: str) -> None:
    est = COKERegressor(graph=graph).fit(X, Y, SITES)
    assert est.converged_
    for theta in est.thetas_:
        far = est.model_._replace(theta=theta[None]).predict(X)
        far = far - est.model_._replace(theta=est.optimum_[None]).predict(X)
        assert np.sqrt(np.mean(far**2)) < 0.02 * Y.std()


@pytest.mark.parametrize("graph", ["ring", "star", "complete", "grid", "random"])
def test_nor_is_the_plain_model(graph: str) -> None:
    exactly = Until(accuracy=1e-4)
    est = COKERegressor(model="plain", graph=graph, limits=exactly).fit(X, Y, SITES)
    assert est.converged_
    assert_allclose(est.thetas_, np.tile(est.optimum_, (6, 1)), atol=0.05)


@pytest.mark.parametrize("whitening", ["moments", "gram", "sample"])
def test_other_bases_lead_to_the_same_model(whitening: str) -> None:
    public = RNG.normal(size=(300, 4)) if whitening == "sample" else None
    est = COKERegressor(algorithm=Coke(whitening, public)).fit(X, Y, SITES)
    usual = COKERegressor().fit(X, Y, SITES)
    assert np.sqrt(np.mean((est.predict(X) - usual.predict(X)) ** 2)) < 0.02 * Y.std()


def test_a_budget_is_kept_and_a_hopeless_one_refused() -> None:
    free = COKERegressor(model="plain").fit(X, Y, SITES)
    limits = Until(max_bytes=free.bytes_ // 3)
    some = COKERegressor(model="plain", limits=limits).fit(X, Y, SITES)
    assert some.bytes_ <= free.bytes_ // 3
    assert not some.converged_
    with pytest.raises(InputError, match=r"the smallest that would do is max_bytes=\d+"):
        COKERegressor(limits=Until(max_bytes=100)).fit(X, Y, SITES)


def test_wrong_samples_and_names_are_refused() -> None:
    with pytest.raises(DataError, match=r"sample: .* 4 features"):
        COKERegressor(algorithm=Coke("sample", np.ones((3, 2)))).fit(X, Y, SITES)
    with pytest.raises(InputError, match="name a file of public inputs"):
        COKERegressor(algorithm=Coke(sample=X)).fit(X, Y, SITES)
    with pytest.raises(InputError, match='"auto"'):
        COKERegressor(features=Features(sigma="large")).fit(X, Y, SITES)


def test_sigma_auto_does_not_mind_units() -> None:
    """√(Σ var_j / 2) of the inputs as they are learnt from."""
    for model in ("plain", "auto"):  # units are told to 1/256, bandwidths to 1/16
        a = COKERegressor(model=model, scale="none").fit(X, Y, SITES).predict(X)
        b = COKERegressor(model=model, scale="none").fit(1000 * X, Y, SITES).predict(1000 * X)
        assert np.sqrt(np.mean((a - b) ** 2)) < 0.02 * Y.std()


def test_graphs_by_name_and_by_label_agree() -> None:
    ring = COKERegressor(graph="ring").fit(X, Y, SITES)
    own = COKERegressor(graph=nx.cycle_graph(6)).fit(X, Y, SITES)
    assert (ring.thetas_ == own.thetas_).all()


def test_adult_is_learnt_in_few_rounds(data_file: Callable[[str], Path]) -> None:
    """A tenth of Adult at ten sites, one class per site in part: 1 % of the optimal objective."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(data_file("adult_a9a.parquet")).slice(0, 3000)
    names = [name for name in table.column_names if name.startswith("x")]
    Z = np.column_stack([table[name].to_numpy() for name in names]).astype(float)
    y = table["y"].to_numpy()
    sites = np.argsort(np.argsort(y, kind="stable"), kind="stable") // 300
    est = COKEClassifier(features=Features(50, sigma=3.0), scale="none", limits=Until(100)).fit(
        Z, y, sites
    )
    best = est.model_._replace(theta=est.optimum_[None])
    assert np.mean(est.predict(Z) == best.predict(Z)) > 0.99
