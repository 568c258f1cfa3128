"""Several columns to predict: each as if it had a fit of its own, in its own units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import r2_score

from coke import DKLA, DP, Agents, COKEClassifier, COKERegressor, Diffusion, Features, Until
from coke.errors import ConfigError, DataError

T = 900
rng = np.random.default_rng(0)
X = rng.normal(size=(2 * T, 4))
SIGNAL = np.column_stack(
    [np.sin(X[:, 0]) * X[:, 1], 1000 + 50 * np.cos(X[:, 2]), 1e-3 * (X[:, 3] + X[:, 0] ** 2)]
)
Y = SIGNAL + np.array([0.1, 5.0, 1e-4]) * rng.normal(size=SIGNAL.shape)
NEW = slice(T, None)
NEAR = Until(accuracy=1e-3)
PLAIN: dict[str, Any] = {"model": "plain", "n_agents": 5}


def errors(f: Any, columns: Any = slice(None)) -> Any:
    """Mean squared errors on new rows."""
    return np.mean((f - Y[NEW][:, columns]) ** 2, axis=0)


@pytest.mark.parametrize(
    "how",
    [{"limits": NEAR}, {"algorithm": DKLA(rho=0.1), "limits": Until(600)},
     {"algorithm": Diffusion(), "limits": Until(600)}, {"scale": "minmax", "limits": NEAR}],
    ids=["tree-newton", "dkla", "cta", "minmax"],
)  # fmt: skip
def test_every_column_is_learnt_as_well_as_alone(how: Any) -> None:
    """Within 1 % of the error on new rows of a fit of its own, on the same features."""
    together = COKERegressor(**PLAIN, **how).fit(X[:T], Y[:T])
    alone = [COKERegressor(**PLAIN, **how).fit(X[:T], y[:T]).predict(X[NEW]) for y in Y.T]
    own = errors(np.column_stack(alone))
    assert_allclose(errors(together.predict(X[NEW])), own, rtol=0.01)


def test_a_chosen_model_is_nearly_as_good_for_every_column() -> None:
    """All columns share one kernel: each is at most half as bad again as with one of its own."""
    together = COKERegressor().fit(X[:T], Y[:T]).predict(X[NEW])
    alone = np.column_stack([COKERegressor().fit(X[:T], y[:T]).predict(X[NEW]) for y in Y.T])
    plain = COKERegressor(**PLAIN).fit(X[:T], Y[:T]).predict(X[NEW])
    assert (errors(together) <= 1.5 * errors(alone)).all()
    assert (errors(together) <= 0.95 * errors(plain)).all()


def test_columns_of_many_are_all_looked_at_by_the_choice() -> None:
    """Eight columns, each of another input: no column is worse off than with the plain model."""
    rows = np.random.default_rng(8).normal(size=(4000, 4))
    Z = np.sin(2 * rows[:, [0, 1, 2, 3] * 2]) * np.array([1, 1, 1, 1, -1, -1, -1, -1])
    chosen, plain = (
        COKERegressor(model=model).fit(rows[:3000], Z[:3000]) for model in ("auto", "plain")
    )
    left, usual = (
        np.mean((one.predict(rows[3000:]) - Z[3000:]) ** 2, axis=0) for one in (chosen, plain)
    )
    assert (left <= 1.05 * usual).all()


def test_units_of_a_column_are_its_own() -> None:
    """f of aY + c is a f of Y + c, column by column; and columns can be put in another order."""
    model, other = COKERegressor(**PLAIN), COKERegressor(**PLAIN)
    a, c, order = np.array([8.0, 0.25, 1024.0]), np.array([0.0, -3.0, 1.0]), [2, 0, 1]
    f = model.fit(X[:T], Y[:T]).predict(X[NEW])
    g = other.fit(X[:T], (a * Y + c)[:T][:, order]).predict(X[NEW])
    assert_allclose(g, (a * f + c)[:, order], atol=2e-3 * (a * Y.std(axis=0)).max())
    assert_allclose(errors((g - c[order]) / a[order], order), errors(f)[order], rtol=0.01)


def test_intervals_hold_their_share_of_every_column() -> None:
    model = COKERegressor().fit(X[:T], Y[:T])
    f, low, high = model.predict(X[NEW], interval=0.9)
    assert_array_equal(f, model.predict(X[NEW]))
    assert low.shape == high.shape == Y[NEW].shape
    share = np.mean((low <= Y[NEW]) & (Y[NEW] <= high), axis=0)
    assert ((share > 0.86) & (share < 0.96)).all()


def test_shapes_and_names_are_those_of_y() -> None:
    """(T, K) ↦ (T, K), (T, 1) ↦ (T, 1), (T,) ↦ (T,); a data frame's columns name the targets."""
    small: dict[str, Any] = PLAIN | {"features": Features(n_features=5), "limits": Until(5)}
    frame = pd.DataFrame(Y[:T], columns=["yield", "heat", "waste"])
    model = COKERegressor(**small).fit(X[:T], frame)
    assert model.model_.targets == ("yield", "heat", "waste")
    assert model.predict(X[:7]).shape == (7, 3)
    assert_allclose(model.score(X[:T], frame), r2_score(Y[:T], model.predict(X[:T])))
    assert model.model_.theta.shape == (3, 10)
    nameless = COKERegressor(**small).fit(X[:T], Y[:T])
    assert nameless.model_.targets == ("y0", "y1", "y2")
    assert_array_equal(nameless.predict(X[:7]), model.predict(X[:7]))
    one, flat = (COKERegressor(**small).fit(X[:T], y) for y in (Y[:T, :1], Y[:T, 0]))
    assert one.predict(X[:7]).shape == (7, 1)
    assert_array_equal(one.predict(X[:7])[:, 0], flat.predict(X[:7]))
    assert one.model_.targets == flat.model_.targets == ("y",)


@pytest.mark.parametrize("model", ["auto", "plain"])
def test_agents_learn_several_columns_as_simulations_do(model: str) -> None:
    """Every bit of every θ, and every byte."""
    how: dict[str, Any] = {"model": model, "limits": Until(12)}
    rows = X[:300], Y[:300], np.repeat(["a", "b", "c"], 100)
    here = COKERegressor(**how).fit(*rows)
    there = COKERegressor(**how, engine=Agents(carrier="memory")).fit(*rows)
    assert_array_equal(there.thetas_, here.thetas_)
    assert (there.bytes_, there.wire_bytes_) == (here.bytes_, here.wire_bytes_)
    assert there.model_.targets == here.model_.targets
    if model == "auto":
        for a, b in zip(*(e.predict(X[:9], interval=0.8) for e in (here, there)), strict=True):
            assert_array_equal(a, b)


def test_what_only_one_column_can_have_is_refused_before_any_work() -> None:
    public = {"x0": (-5.0, 5.0), "x1": (-5.0, 5.0), "x2": (-5.0, 5.0), "x3": (-5.0, 5.0)}
    private = COKERegressor(
        scale="public", ranges=public, privacy=DP(1.0), features=Features(sigma=2.0),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r'3 targets with loss = "huber".*Gram matrix'):
        COKERegressor(loss="huber").fit(X, Y)
    with pytest.raises(ConfigError, match=r'3 targets with privacy = "dp"'):
        private.fit(X, Y)
    with pytest.raises(DataError):
        COKEClassifier().fit(X, (Y > 0).astype(int))
    with pytest.raises(DataError, match="NaN"):
        COKERegressor().fit(X, np.where(np.arange(3) == 1, np.nan, Y))
