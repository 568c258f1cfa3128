"""Estimators on streams: predict, then learn; late, twice, too early, with gaps; and an end."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coke
from coke.errors import DataError, InputError
from coke.maths.losses.problem import Quadratic
from kit.problems import Array

FEW = coke.Features(n_features=15)


def rows(T: int = 480, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, 2))
    return X, np.sin(X.sum(axis=1)) + 0.1 * rng.normal(size=T)


def regressor(**how: Any) -> coke.COKERegressor:
    usual: dict[str, Any] = {"n_agents": 4, "model": "plain", "features": FEW}
    return coke.COKERegressor(**usual | how)


def fed(model: Any, X: Array, y: Any, size: int = 60, **more: Any) -> Any:
    for k in range(0, len(y), size):
        model.partial_fit(X[k : k + size], y[k : k + size], **more)
    return model


def test_rows_are_predicted_before_they_are_learnt_from() -> None:
    X, y = rows()
    model = fed(regressor(), X, y)
    assert sum(one.rows for one in model.prequential_) == len(y)
    first, later = model.prequential_[0], model.prequential_.since(60)
    assert first.loss / first.rows > 5 * later.mean()
    assert later.mean() < 0.1 < later.mean("last")
    assert model.alarms_ == []
    assert model.score(X, y) > 0.9
    assert model.prequential_.columns()["bytes"][-1] == model.bytes_


def test_how_the_rows_are_cut_into_calls_does_not_matter() -> None:
    """To the bit: the first call decides on units and model, the others only bring rows."""
    X, y = rows()
    a, b = regressor().partial_fit(X[:60], y[:60]), regressor().partial_fit(X[:60], y[:60])
    fed(a, X[60:], y[60:], 4)
    fed(b, X[60:], y[60:], 420)
    np.testing.assert_array_equal(a.thetas_, b.thetas_)
    assert a.bytes_ == b.bytes_


def test_what_is_finished_is_what_fit_would_have_found() -> None:
    """With an infinite memory, and the same units: within the proven share of the optimum."""
    X, y = rows()
    how: dict[str, Any] = {
        "scale": "none",
        "features": coke.Features(n_features=15, sigma=2.0),
        "lam": 1e-3,
    }
    model = fed(regressor(algorithm=coke.Coke(memory=np.inf), **how), X, y).finish()
    risk = Quadratic.from_rows(
        model.model_.features, [X[n::4] for n in range(4)], [y[n::4] for n in range(4)], 1e-3 / 4
    )
    best, found = risk.objectives(np.stack([risk.optimum(), model.model_.theta[0]]))
    assert best <= found <= 1.01 * best
    assert model.certificate_ is not None
    assert model.converged_


def test_a_site_predicts_with_its_fast_layer() -> None:
    """A site whose targets are raised has them in its own predictions, and others have not."""
    X, y = rows(800)
    labels = np.array(["a", "b", "c", "d"])[np.arange(800) % 4]
    raised, model = y + (labels == "b"), regressor()
    for part in np.split(np.arange(800), 20):
        model.partial_fit(X[part], raised[part], sites=labels[part])

    def off(site: str | None) -> float:
        return float(np.mean((model.predict(X, site=site) - y - 1.0) ** 2))

    assert off("b") < off(None) < off("c") + 0.1
    with pytest.raises(DataError, match="'e'"):
        model.predict(X, site="e")


def test_rows_out_of_order_twice_late_from_the_future_and_with_gaps() -> None:
    """Counted; and the model is that of the rows in order, each once, to rounding."""
    X, y = rows(240)
    tick = np.arange(240) // 4
    site = np.arange(240) % 4
    clean, messy = regressor(), regressor()
    for model in (clean, messy):
        model.partial_fit(X[:80], y[:80], sites=site[:80], tick=tick[:80])
    clean.partial_fit(X[80:], y[80:], sites=site[80:], tick=tick[80:])
    order = np.r_[np.random.default_rng(0).permutation(160) + 80, np.arange(90, 100)]
    at, later = order[order != 120], np.array([120])
    wrong = X[200:203].copy()
    wrong[0, 0], wrong[1, 1] = np.nan, np.inf
    messy.partial_fit(
        np.vstack([X[at], wrong]), np.r_[y[at], y[200:203]],
        sites=np.r_[site[at], 0, 0, 0], tick=np.r_[tick[at], 61, 61, 10**7],
    )  # fmt: skip
    messy.partial_fit(X[later], y[later], sites=site[later], tick=tick[later])
    counts = messy.arrivals_
    assert (counts.twice, counts.ahead, counts.gaps, counts.late) == (10, 1, 2, 1)
    assert counts.taken == 240
    streams = [model._fed().stream.ending() for model in (clean, messy)]
    for stream in streams:
        stream.gathered()
    w = [stream.statistics.w for stream in streams]
    np.testing.assert_allclose(w[1] / w[0], (1 - 1 / 500) ** 1, rtol=1e-12)  # a tick more


def test_columns_that_appear_or_vanish_and_new_sites_are_refused_by_name() -> None:
    X, y = rows(80)
    frame = pd.DataFrame(X, columns=["warm", "wind"])
    model = regressor().partial_fit(frame, y, sites=np.arange(80) % 4)
    with pytest.raises(DataError, match="wind"):
        model.partial_fit(frame[["warm"]], y)
    with pytest.raises(DataError, match="rain"):
        model.partial_fit(frame.assign(rain=0.0), y)
    with pytest.raises(DataError, match="'9'"):
        model.partial_fit(frame, y, sites=np.full(80, 9))
    before = model.thetas_.copy()
    np.testing.assert_array_equal(model.thetas_, before)


def test_classes_are_learnt_by_least_squares() -> None:
    X, y = rows(600)
    labels = np.where(y > 0.5, "high", np.where(y < -0.5, "low", "mid"))
    model = coke.COKEClassifier(n_agents=4, model="plain", features=FEW)
    fed(model, X, labels, 100, classes=["high", "low", "mid"])
    assert model.classes_.tolist() == ["high", "low", "mid"]
    assert model.prequential_.since(75).mean() < 0.2 < model.prequential_.mean("last")
    assert model.predict_proba(X[:5]).shape == (5, 3)
    with pytest.raises(DataError, match="'new'"):
        model.partial_fit(X[:4], np.array(["mid", "new", "low", "high"]))
    again = coke.COKEClassifier(n_agents=4, model="plain")
    with pytest.raises(InputError, match="each class"):
        again.partial_fit(X[:100], labels[:100], classes=["high", "low", "mid", "none"])


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"privacy": coke.DP(1.0), "scale": "public"}, "new release"),
        ({"engine": "agents"}, "this process"),
    ],
    ids=["dp", "agents"],
)
def test_what_a_stream_cannot_be_learnt_with_is_refused(how: dict[str, Any], why: str) -> None:
    X, y = rows(40)
    usual: dict[str, Any] = {"n_agents": 4, "model": "plain"}
    if "privacy" in how:
        ranges = {"x0": (-9.0, 9.0), "x1": (-9.0, 9.0), "y": (-9.0, 9.0)}
        usual |= {"ranges": ranges, "features": coke.Features(n_features=15, sigma=1.0)}
        usual |= {"algorithm": coke.Coke(whitening="range")}
    model = coke.COKERegressor(**usual | how)
    with pytest.raises(InputError, match=why):
        model.partial_fit(X, y)


@pytest.mark.parametrize("how", [{"loss": "huber"}, {"algorithm": coke.DKLA()}])
def test_other_losses_and_algorithms_have_no_partial_fit(how: dict[str, Any]) -> None:
    assert hasattr(regressor(), "partial_fit")
    assert not hasattr(regressor(**how), "partial_fit")


def test_a_stream_goes_on_after_pickling_and_ends_with_a_fit() -> None:
    X, y = rows()
    a = fed(regressor(), X[:240], y[:240])
    b = pickle.loads(pickle.dumps(a))
    fed(a, X[240:], y[240:])
    fed(b, X[240:], y[240:])
    np.testing.assert_array_equal(a.thetas_, b.thetas_)
    a.fit(X, y)
    with pytest.raises(InputError, match="partial_fit"):
        _ = a.prequential_
