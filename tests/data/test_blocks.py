"""Sums over rows in memory: those of the literal formula, in float32 where nobody can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import r2_score

from coke import COKERegressor
from coke.data import blocks
from coke.data.blocks import FEW, LEAST, Owned, precise, summed
from coke.data.site import Kept
from coke.data.units import Making, Scaling, columns_of, fit_scaling
from coke.maths.choice.quantiles import SCORES
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.losses.problem import Problem, Quadratic
from kit.streams import Array, many

NONE = np.empty(0)


def features(mapping: str = "cos-sin", linear: float = 0.0, L: int = 50) -> DrawnFeatures:
    drawn = draw_features(FeatureSettings(L, sigma=4.5, mapping=mapping, seed=1), 20)
    return DrawnFeatures(drawn.omega, drawn.phase, linear)


def rows() -> tuple[tuple[Array, ...], tuple[Array, ...], Scaling]:
    """Three sites, one of few rows, whose columns' offsets are large beside their spread."""
    X, y = many(6000)
    X = X * 0.1 + np.linspace(-300.0, 300.0, 20)
    scaling = fit_scaling("standard", 20, columns_of(np.column_stack([X, y])))
    cuts = [3000, 6000 - FEW // 2]
    return tuple(np.split(X, cuts)), tuple(np.split(y, cuts)), scaling


def knots(scaling: Scaling) -> Scaling:
    """With quantiles of normal columns, nearly straight."""
    return scaling._replace(knots=np.tile(np.stack([SCORES, SCORES])[:, None], (1, 20, 1)))


def literal(how: Making) -> Quadratic:
    X, y, units = *rows()[:2], how.units
    scaled = [units.inputs(part) for part in X], [units.targets(part) for part in y]
    return Quadratic.from_rows(how.features, *scaled, how.G)


def found(how: Making) -> Quadratic:
    X, y, _ = rows()
    return summed(Owned(X, y), how, lambda n: None)


@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
@pytest.mark.parametrize("linear", [0.0, 0.4])
@pytest.mark.parametrize("units", [lambda s: s, knots])
@pytest.mark.parametrize("ridge", [1e-3, 1e-9])
def test_sums_are_those_of_the_formula(
    mapping: str, linear: float, units: Any, ridge: float
) -> None:
    """To 1e-6 in float32; to rounding with a small ridge, a linear part or few rows."""
    phi = features(mapping, linear)
    how = Making(phi, units(rows()[2]), "quadratic", NONE, ridge)
    ours, wanted = found(how), literal(how)
    exact = ridge < LEAST or linear > 0
    far = 1e-11 if exact else 1e-6
    for name in ("A", "b", "yy"):
        a, b = getattr(ours, name), getattr(wanted, name)
        assert abs(a - b).max() <= far * abs(b).max(), name
        assert abs(a[2] - b[2]).max() <= 1e-11 * abs(b).max(), name  # of few rows
    assert (abs(ours.A - wanted.A).max() > 1e-12) == (not exact)
    assert_array_equal(ours.T, wanted.T)


@pytest.mark.parametrize("ridge", [LEAST, 1e-4, 1e-3])
@pytest.mark.parametrize("sigma", [4.5, 40.0])
def test_no_prediction_moves_by_more_than_a_little(ridge: float, sigma: float) -> None:
    """At the least ridge of float32, also of features that are nearly collinear, 1e-4 spreads."""
    drawn = draw_features(FeatureSettings(50, sigma=sigma, seed=1), 20)
    how = Making(drawn, rows()[2], "quadratic", NONE, ridge)
    assert not precise(how)
    assert precise(how._replace(G=0.9 * LEAST))
    assert precise(how._replace(precision="double"))
    apart = found(how).optimum() - literal(how).optimum()
    X = np.concatenate(rows()[0])
    off = drawn(how.units.inputs(X)) @ apart
    assert np.sqrt(np.mean(off**2)) <= 1e-9 / ridge
    assert abs(off).max() <= 3e-4


def test_several_outputs_have_a_row_each() -> None:
    X, y, units = rows()
    how = Making(features(), units, "quadratic", NONE, 1e-3)
    both = summed(
        Owned(X, [np.column_stack([part, -2.0 * part]) for part in y]), how, lambda n: None
    )
    plain = Scaling(units.x_shift, units.x_scale, units.y_shift, units.y_scale)
    one = summed(Owned(X, y), how, lambda n: None)
    two = summed(Owned(X, [-2.0 * part for part in y]), how._replace(units=plain), lambda n: None)
    assert_array_equal(both.A, one.A)
    assert_allclose(both.b, np.column_stack([one.b, two.b]), atol=1e-6)
    assert_allclose(both.yy, one.yy + two.yy)


def test_a_sites_bits_depend_on_its_own_rows_alone() -> None:
    """So a simulation of all, a rank with some and an agent with one have the same."""
    X, y, units = rows()
    sites = Kept(("a", "b", "c"), X, y, tuple(x[:0] for x in X), tuple(v[:0] for v in y))
    how = Making(features(), units, "quadratic", NONE, 1e-3)

    def risk(problem: Problem) -> Quadratic:
        assert problem.train.sums is not None
        return problem.train.sums

    together = risk(sites.problem(how))
    for agents in ([0], [2], [2, 0]):
        some = risk(sites.of(agents).problem(how))
        assert_array_equal(some.A, together.A[agents])
        assert_array_equal(some.b, together.b[agents])


def test_a_fit_in_float32_is_the_fit_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds to a few, R² to where rounds stop; that of the optimum to six digits."""
    X, y = many(8000, 5)

    def fit() -> tuple[int, float, float]:
        model = COKERegressor(n_agents=4, model="plain").fit(X, y)
        phi, scaling = model.model_.features, model.model_.scaling
        best = scaling.predictions(phi(scaling.inputs(X)) @ model.optimum_)
        return model.n_iter_, float(model.score(X, y)), float(r2_score(y, best))

    single = fit()
    monkeypatch.setattr(blocks, "LEAST", np.inf)
    double = fit()
    assert abs(single[0] - double[0]) <= 4
    assert single[1] == pytest.approx(double[1], abs=1e-5)
    assert single[2] == pytest.approx(double[2], abs=5e-7)
    assert single[2] != double[2]


@pytest.mark.parametrize("loss", ["quadratic", "least-squares"])
def test_a_site_that_holds_no_row_out_has_no_loss_beside_sites_of_few(loss: str) -> None:
    """Sites of one row keep it for training: their test sums are zeros for every output."""
    rng, numbers = np.random.default_rng(0), loss == "quadratic"
    X = tuple(rng.normal(size=(T, 20)) for T in (9, 0, 7))
    y = tuple(x[:, :3] if numbers else np.argmax(x[:, :3], axis=1) for x in X)
    classes, units = NONE if numbers else np.arange(3), Scaling.none(20, 3 if numbers else 2)
    how = Making(features(), units, loss, classes, 0.1, "double")
    kept = Kept(tuple("abc"), X[:1] * 3, y[:1] * 3, X, y, numbers=numbers)
    problem = kept.problem(how)
    train, test = problem.train, problem.test
    assert test is not None
    theta = rng.normal(size=(3, train.size))
    alone = replace(kept, X_test=X[:1] * 3, y_test=y[:1] * 3).problem(how).test
    assert alone is not None
    assert test.losses(theta)[1] == 0.0
    assert_allclose(test.losses(theta)[0], alone.losses(theta)[0])
