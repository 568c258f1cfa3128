"""weigh = "rows": a row weighs the same whoever holds it, and the optimum is the pooled one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke import DP, Agents, Coke, COKEClassifier, COKERegressor, Features, Until
from coke.data.site import Kept
from coke.data.units import Making, Scaling
from coke.errors import InputError
from coke.learning.fifths import fifths
from coke.learning.open import open_ready
from coke.learning.ready import Ready
from coke.learning.rivals import rivals
from coke.learning.tally import LeftOut
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.graph import build_graph
from coke.maths.losses import LOSSES, NUMBERS, OF_CLASSES
from coke.maths.losses.problem import Problem
from coke.settings.reading import checked_settings
from kit.ready import ready as agreed

SIZES, d = (4, 30, 86), 2
ALL = sum(SIZES)
LIMITED = [name for name in LOSSES if name not in ("auto", OF_CLASSES)]


def rows(kind: str = NUMBERS, times: int = 1) -> tuple[Any, Any, Any]:
    """Inputs, targets and sites, which differ."""
    rng, sizes = np.random.default_rng(3), [times * size for size in SIZES]
    sites = np.repeat([0, 1, 2], sizes)
    X = rng.normal(size=(sum(sizes), d)) + 0.7 * sites[:, None]
    y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=len(X))
    return X, y if kind == NUMBERS else np.digitize(y, [0.6, 2.0]), sites


def kept(X: Any, y: Any, sites: Any) -> Kept:
    names = tuple("abc"[: int(sites.max()) + 1])
    X, y = ([part[sites == i] for i in range(len(names))] for part in (X, y))
    none = tuple(x[:0] for x in X), tuple(v[:0] for v in y)
    return Kept(names, tuple(X), tuple(y), *none, numbers=y[0].dtype.kind == "f")


@pytest.mark.parametrize("times", [1, 8], ids=["few rows", "many rows"])
@pytest.mark.parametrize("loss", LIMITED)
def test_the_optimum_is_that_of_one_site_with_all_rows(loss: str, times: int) -> None:
    """And so are the mean loss and the objective everywhere; agents' means are of all rows."""
    kind = LOSSES[loss].kind
    X, y, sites = rows(kind, times)
    features = draw_features(FeatureSettings(8, sigma=1.0, seed=1), d)
    classes, K = (np.empty(0), 1) if kind == NUMBERS else (np.arange(3), 2)
    how = Making(features, Scaling.none(d, K), loss, classes, 0.01, "double")
    one = kept(X, y, np.zeros_like(sites)).problem(how)
    three = kept(X, y, sites).problem(how._replace(rows=len(y) / 3))
    assert_allclose(three.optimum, one.optimum, rtol=1e-4, atol=1e-5)
    theta = 0.3 * np.random.default_rng(5).normal(size=(3, one.train.size))
    for what in ("global_losses", "objectives"):
        assert_allclose(getattr(three.train, what)(theta), getattr(one.train, what)(theta))
    same = np.tile(theta[:1], (3, 1))
    assert three.score(same).train == pytest.approx(one.score(theta[:1]).train)
    slope, whole = three.train.gradient(same).mean(axis=0), one.train.gradient(theta[:1])[0]
    assert_allclose(slope, whole, atol=1e-12)
    apart = kept(X, y, sites).problem(how)
    assert not np.allclose(apart.optimum, one.optimum, rtol=1e-3)


@pytest.mark.parametrize("loss", LIMITED)
def test_each_agents_minimum_is_of_its_risk(loss: str) -> None:
    """∇R_i(θ_i) + 2ρd θ_i = p_i, and its loss is R_i's: what a round needs of it."""
    X, y, sites = rows(LOSSES[loss].kind)
    how = Making(
        draw_features(FeatureSettings(8, sigma=1.0, seed=1), d),
        Scaling.none(d, 1 if LOSSES[loss].kind == NUMBERS else 2), loss,
        np.empty(0) if LOSSES[loss].kind == NUMBERS else np.arange(3), 0.01, "double", rows=ALL / 3,
    )  # fmt: skip
    risk = kept(X, y, sites).problem(how).train
    pull, p = np.full((3, 1), 0.2), np.random.default_rng(1).normal(size=(3, risk.size))
    theta, loss_there = risk.argmin(pull)(0.1 * p, np.zeros_like(p))
    assert_allclose(loss_there, risk.losses(theta), rtol=1e-6, atol=1e-9)
    if LOSSES[loss].smooth:
        assert_allclose(risk.gradient(theta) + 0.4 * theta, 0.1 * p, atol=1e-6)


def test_by_default_rows_weigh_the_same_where_the_model_is_chosen() -> None:
    X, y, sites = rows()

    def found(**how: Any) -> Any:
        return COKERegressor(**how, lam=1e-2).fit(X, y, sites).optimum_

    assert_array_equal(found(), found(features=Features(weigh="rows")))
    plain = {"model": "plain"}
    assert_array_equal(found(**plain), found(**plain, features=Features(weigh="sites")))
    assert not np.allclose(found(**plain), found(**plain, features=Features(weigh="rows")))


@pytest.mark.parametrize("algorithm", ["coke", "tree-newton"])
def test_agents_weigh_rows_as_the_simulation_does(algorithm: str) -> None:
    """Bit for bit; and a site tells its owner the mean over its own rows."""
    X, y, sites = rows()
    how = {"algorithm": algorithm, "limits": Until(rounds=12)}
    here = COKERegressor(**how).fit(X, y, sites)  # type: ignore[arg-type]
    there = COKERegressor(**how, engine=Agents(carrier="memory")).fit(X, y, sites)  # type: ignore[arg-type]
    assert_array_equal(here.thetas_, there.thetas_)
    assert here.bytes_ == there.bytes_
    assert_allclose(there.history_["train_mse"], here.history_["train_mse"], rtol=1e-9)


def given(**settings: Any) -> Ready:
    X, y, sites = rows()
    how: dict[str, Any] = {"loss": "quadratic", "lam": 0.1}
    how["features"] = {"n_features": 12, "weigh": "rows"}
    return agreed(kept(X, y, sites), build_graph("complete", 3, seed=0), **how | settings)


def without(ready: Ready, out: Any) -> Any:
    """θ* (D,) of all rows but some, by hand; the others keep their weights."""
    X, y, _ = rows()
    how, D = ready.agreement.making, ready.agreement.features.size
    Phi, z = how.features(how.units.inputs(X)), how.units.targets(y)
    A, b = Phi[~out].T @ Phi[~out] / ALL, Phi[~out].T @ z[~out] / ALL
    return np.linalg.solve(A + how.G * np.eye(D), b)


def test_a_row_that_is_left_out_is_predicted_by_a_fit_without_it() -> None:
    ready = given()
    model = ready.model(ready.optimum)
    rival = rivals(ready, model)
    assert rival.line is not None
    seat = LeftOut(ready, rival.line)
    (i, X, y, w), *_ = seat.rows()
    assert w.sum() == pytest.approx(SIZES[0])
    Phi = ready.agreement.features(ready.agreement.units.inputs(X))
    f = np.repeat((Phi @ ready.optimum)[:, None, None], 4, axis=1)
    seen = seat.seen(i, X, y, f)[:, 1, 0]
    whole, _, _ = rows()
    for t in range(len(y)):
        out = (whole == X[t]).all(axis=1)
        assert seen[t] == pytest.approx(Phi[t] @ without(ready, out), abs=1e-5)


def test_a_fifth_that_is_left_out_counts_no_more() -> None:
    """The rest's optimum is that of its rows, each of which weighs the same."""
    ready = given(loss="huber")
    for seat in fifths(ready, ready.model(ready.optimum)):
        rest = seat.ready.sites
        assert isinstance(rest, Kept)
        X, y = (np.concatenate(part) for part in (rest.X, rest.y))
        all_X, all_y, _ = rows()
        gone = np.array([(row == np.concatenate(rest.X_test)).all(axis=1).any() for row in all_X])
        X, y = all_X[~gone], all_y[~gone]
        one = kept(X, y, np.zeros(len(y), int)).problem(ready.agreement.making._replace(rows=None))
        assert_allclose(seat.rivals.pooled, one.optimum, atol=1e-4)


def test_balanced_classes_are_those_of_all_rows() -> None:
    X, y, sites = rows("classes")
    ready = agreed(
        kept(X, y, sites), build_graph("complete", 3, seed=0), loss="least-squares",
        class_weight="balanced", features={"n_features": 12, "weigh": "rows"},
    )  # fmt: skip
    assert ready.agreement.balance is not None
    counts = np.bincount(y)
    assert_allclose(ready.agreement.balance, len(y) / (3 * counts), rtol=1e-5)
    total = sum(ready.agreement.making.weights(part, None).sum() for part in (y,))  # type: ignore[union-attr]
    assert total == pytest.approx(len(y), rel=1e-5)


def test_out_of_core_rows_weigh_the_same(tmp_path: Path) -> None:
    X, y, sites = rows(times=8)
    table = {"x0": X[:, 0], "x1": X[:, 1], "y": y, "site": np.array(list("abc"))[sites]}
    pa.parquet.write_table(pa.table(table), tmp_path / "rows.parquet")
    data = {"file": str(tmp_path / "rows.parquet"), "target": "y", "site": "site", "test": 0.0}
    how: dict[str, Any] = {"whitening": "gram", "model": "plain", "lambda": 1e-2}
    how["features"] = {"n_features": 12, "weigh": "rows"}
    one, two = (
        open_ready(checked_settings({"data": {**data, "out_of_core": out}, **how}))
        for out in (False, True)
    )
    assert_allclose(one.optimum, two.optimum, atol=1e-5)
    assert_allclose(one.problem.train.T, two.problem.train.T)


@pytest.mark.parametrize("secure", [False, True])
def test_private_sites_weigh_rows_too(tmp_path: Path, secure: bool) -> None:
    """With hardly any noise the optimum is that of all rows; a release stays the site's own."""
    X, y, sites = rows(times=20)
    ranges = {"x0": (-6.0, 8.0), "x1": (-6.0, 8.0), "y": (-3.0, 60.0)}

    def found(where: Any, folder: str, weigh: str) -> Any:
        dp = DP(epsilon=1000.0, secure_sum=secure, releases=tmp_path / folder)
        how = COKERegressor(
            privacy=dp, scale="public", ranges=ranges, model="plain", lam=0.5,
            features=Features(n_features=6, sigma=0.5, weigh=weigh), limits=Until(rounds=3),
            algorithm=Coke(whitening="range"),
        )  # fmt: skip
        return how.fit(X, y, where).optimum_

    by_rows = found(sites, "rows", "rows")
    even = found(np.arange(len(y)) % 3, "even", "sites")  # as many rows at each site: the same mean
    uneven = found(sites, "sites", "sites")
    near, far = (np.linalg.norm(one - even) for one in (by_rows, uneven))
    assert near < 0.2 * far


def test_a_stream_whose_rows_nobody_can_count_is_refused() -> None:
    X, y, sites = rows()
    stream = COKERegressor(model="plain", features=Features(weigh="rows"))
    with pytest.raises(InputError, match="how many will come"):
        stream.partial_fit(X, y, sites=sites)


def test_classifiers_with_a_chosen_model_take_unequal_sites_by_rows() -> None:
    """A site of few rows that contradicts the others does not own a third of the model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(606, 2))
    y, sites = (X[:, 0] > 0).astype(int), np.repeat([0, 1, 2], [300, 300, 6])
    y[sites == 2] = 1 - y[sites == 2]
    scores = [
        COKEClassifier(features=Features(weigh=weigh)).fit(X, y, sites).score(X, y)
        for weigh in ("rows", "sites")
    ]
    assert scores[0] > 0.95
    assert scores[0] >= scores[1]


def test_counting_takes_nothing_where_all_have_as_many() -> None:
    X, y, _ = rows()
    even = np.arange(ALL) % 3
    how = Making(
        draw_features(FeatureSettings(8, sigma=1.0, seed=1), d), Scaling.none(d), "quadratic",
        np.empty(0), 0.01, "double",
    )  # fmt: skip
    one, two = (kept(X, y, even).problem(h) for h in (how, how._replace(rows=ALL / 3)))
    assert_array_equal(one.optimum, two.optimum)
    assert isinstance(replace(one), Problem)
