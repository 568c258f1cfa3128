"""Importance, curves and the linear share of a model, in closed form and by Monte Carlo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from coke.data.units import Scaling
from coke.errors import InputError
from coke.learning.model import Model
from coke.maths.arrays import Array
from coke.maths.choice.importance import Surface
from coke.maths.choice.quantiles import Sketch
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.features.mixtures import Gaussian

D, ROWS = 3, 200_000
RNG = np.random.default_rng(0)
MIXTURE = tuple(
    Gaussian(weight, RNG.normal(size=D), (half := 0.6 * RNG.normal(size=(D, D))) @ half.T)
    for weight in (30.0, 70.0)
)


def drawn(mapping: str = "cos-sin", linear: float = 0.0, L: int = 12) -> DrawnFeatures:
    if L == 0:
        return DrawnFeatures(np.empty((0, D)), np.empty(0), linear)
    found = draw_features(FeatureSettings(L, sigma=1.5, mapping=mapping, seed=3), D)
    return DrawnFeatures(found.omega, found.phase, linear)


CASES = {
    "cos-sin": drawn(),
    "cos-phase": drawn("cos-phase"),
    "cos-sin and a line": drawn(linear=0.5),
    "cos-phase and a line": drawn("cos-phase", linear=0.5),
    "a line": drawn(linear=0.5, L=0),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def surface(request: Any) -> tuple[Array, DrawnFeatures]:
    """Two outputs θ (2, D) on some features."""
    features: DrawnFeatures = request.param
    return np.random.default_rng(5).normal(size=(2, features.size)), features


def rows() -> Array:
    """From the mixture."""
    rng, whole = np.random.default_rng(1), sum(part.weight for part in MIXTURE)
    parts = [
        rng.multivariate_normal(part.mean, part.cov, int(ROWS * part.weight / whole))
        for part in MIXTURE
    ]
    return np.concatenate(parts)


def test_importance_is_the_mean_square_of_finite_differences(
    surface: tuple[Array, DrawnFeatures],
) -> None:
    """s_i E[∂_i f ∂_j f] s_j, its diagonal's roots over their sum, its eigenvectors and values."""
    (theta, features), Z, h = surface, rows(), 1e-4
    steps = h * np.eye(D)
    slopes = np.stack(
        [(features(Z + e) - features(Z - e)) @ theta.T / (2 * h) for e in steps], axis=-1
    )
    spread = Z.std(axis=0)
    M = np.einsum("tki,tkj->ij", slopes, slopes) / len(Z) * np.outer(spread, spread)
    found = Surface.of(theta, features, MIXTURE).importance(("a", "b", "c"))
    roots = np.sqrt(np.diag(M))
    assert_allclose(found.shares, roots / roots.sum(), rtol=0.02)
    assert_allclose(found.weights, np.linalg.eigvalsh(M)[::-1] / np.trace(M), atol=0.01)
    again = found.directions.T @ (found.weights[:, None] * found.directions) * np.trace(M)
    assert_allclose(again, M, atol=0.02 * np.trace(M))
    assert list(found.ranked.values()) == sorted(found.shares, reverse=True)


def test_a_curve_is_the_mean_over_rows_with_one_column_fixed(
    surface: tuple[Array, DrawnFeatures],
) -> None:
    (theta, features), Z, at = surface, rows(), np.array([-1.0, 0.3, 2.0])
    found = Surface.of(theta, features, MIXTURE).curve(1, at)
    for v, f in zip(at, found, strict=True):
        Z[:, 1] = v
        assert_allclose(f, (features(Z) @ theta.T).mean(axis=0), atol=0.03)


def test_the_linear_share_is_a_ratio_of_variances(surface: tuple[Array, DrawnFeatures]) -> None:
    (theta, features), Z = surface, rows()
    Phi = features(Z)
    line = Phi[:, features.waves :] @ theta[:, features.waves :].T
    wanted = line.var(axis=0).sum() / (Phi @ theta.T).var(axis=0).sum()
    found = Surface.of(theta, features, MIXTURE).importance(("a", "b", "c")).linear
    assert found == pytest.approx(wanted, rel=0.02, abs=1e-12)
    assert (found == 0) == (features.linear == 0)


def model(theta: Array, features: DrawnFeatures, **others: Any) -> Model:
    scaling = Scaling(
        np.array([5.0, 0.0, -2.0]), np.array([2.0, 1.0, 10.0]), np.array([100.0]), np.array([7.0])
    )
    return Model(theta, features, scaling, "quadratic", np.empty(0), ("a", "b", "c"), **others)


def test_of_a_linear_model_importance_is_slope_times_spread() -> None:
    """|β_j| s_j up to scale, one direction, a straight curve, and the line is all there is."""
    beta, spread = np.array([3.0, -1.0, 0.5]), np.array([1.0, 2.0, 0.2])
    features = DrawnFeatures(np.empty((0, D)), np.empty(0), 2.0)
    told = (Gaussian(9.0, np.zeros(D), np.diag(spread**2)),)
    one = model(np.append(beta, 4.0)[None] / 2.0, features, inputs_like=told)
    found = one.importance()
    wanted = np.abs(beta) * spread / np.sum(np.abs(beta) * spread)
    assert_allclose(found.shares, wanted)
    assert_allclose(found.weights, [1.0, 0.0, 0.0], atol=1e-12)
    along = beta * spread / np.linalg.norm(beta * spread)
    assert_allclose(found.directions[0], along * np.sign(along[0]), atol=1e-12)
    assert found.linear == pytest.approx(1.0)
    x, f = one.partial_dependence("a")
    assert_allclose(x, 5.0 + 2.0 * np.linspace(-2, 2, 25))
    assert_allclose(f, 100.0 + 7.0 * (4.0 + 3.0 * np.linspace(-2, 2, 25)))
    assert_allclose(one.partial_dependence(0)[1], f)


def test_a_column_that_never_moves_has_no_importance() -> None:
    """However steep f is along it; and a constant f has none at all, and no NaN."""
    features, still = drawn(linear=0.5), np.diag([1.0, 0.0, 1.0])
    theta = np.random.default_rng(5).normal(size=(1, features.size))
    found = Surface.of(theta, features, (Gaussian(1.0, np.zeros(D), still),)).importance(("a",) * 3)
    assert found.shares[1] == 0
    assert found.shares.sum() == pytest.approx(1.0)
    none = Surface.of(0 * theta, features, MIXTURE).importance(("a", "b", "c"))
    assert not none.shares.any()
    assert not none.weights.any()
    assert none.linear == 0


def test_without_a_mixture_inputs_are_standard_normal() -> None:
    features = drawn(linear=0.5)
    theta = np.random.default_rng(5).normal(size=(1, features.size))
    told = model(theta, features, inputs_like=(Gaussian(3.0, np.zeros(D), np.eye(D)),))
    assert_allclose(model(theta, features).importance().shares, told.importance().shares)


def test_curves_of_quantiles_are_in_the_columns_own_units() -> None:
    """A column e^z: the curve's x are its quantiles, and f there is f of their scores."""
    rng = np.random.default_rng(2)
    X = np.exp(rng.normal(size=(4000, D)))
    shift, scale = X.mean(axis=0), X.std(axis=0)
    standard = (X - shift) / scale
    scaling = Scaling(shift, scale, np.zeros(1), np.ones(1), Sketch.of(standard, 4000.0).knots())
    features = DrawnFeatures(np.empty((0, D)), np.empty(0), 1.0)
    told = (Gaussian.of(scaling.inputs(X)),)
    theta = np.array([[1.0, 0.0, 0.0, 0.0]])
    one = model(theta, features, inputs_like=told)._replace(scaling=scaling)
    x, f = one.partial_dependence("a")
    assert (np.diff(x) > 0).all()
    assert_allclose(f, one.predict(np.column_stack([x, x, x])), atol=1e-9)
    assert x[12] == pytest.approx(1.0, abs=0.1)  # the median of e^z
    assert x[0] > 0


def test_an_unknown_column_is_refused_by_name() -> None:
    one = model(np.zeros((1, CASES["a line"].size)), CASES["a line"])
    for column in ("d", 3, -4):
        with pytest.raises(InputError, match="unknown column"):
            one.partial_dependence(column)


@pytest.mark.parametrize("n", [2, 3])
def test_curves_of_classes_that_are_codes_are_their_scores(n: int) -> None:
    """A line with the other columns at their mean, zero, is the decision there."""
    features = DrawnFeatures(np.empty((0, D)), np.empty(0), 1.0)
    scaling = Scaling(np.zeros(D), np.ones(D), 0.1 * np.arange(1.0, n), np.ones(n - 1))
    theta = np.random.default_rng(5).normal(size=(n - 1, features.size))
    one = model(theta, features)._replace(
        scaling=scaling, loss="least-squares", classes=np.arange(n)
    )
    x, f = one.partial_dependence("a")
    at = np.column_stack([x, 0 * x, 0 * x])
    assert_allclose(f, np.squeeze(one.decision(at)), atol=1e-6)
