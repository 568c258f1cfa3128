"""Features with a linear part: their size, their kernel, and the Gram matrix of a mixture."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.features.mixtures import Gaussian, expected_gram
from coke.maths.features.whitening import Whitening

RNG = np.random.default_rng(5)
ROOT = RNG.normal(size=(3, 3))
MIXTURE = [
    Gaussian(2.0, np.array([0.3, -1.0, 0.5]), ROOT @ ROOT.T / 3),
    Gaussian(1.0, np.array([1.0, 0.0, -1.0]), np.diag([0.1, 1.0, 0.0])),
]
KINDS = ("cos-sin", "cos-phase", "none")


def features(kind: str, linear: float = 0.6) -> DrawnFeatures:
    """With frequencies of each mapping, or none at all."""
    if kind == "none":
        return DrawnFeatures(np.empty((0, 3)), np.empty(0), linear)
    drawn = draw_features(FeatureSettings(9, "matern32", 1.5, kind, seed=2), 3)
    return DrawnFeatures(drawn.omega, drawn.phase, linear)


@pytest.mark.parametrize("kind", KINDS)
def test_the_linear_part_stands_behind_the_waves(kind: str) -> None:
    f, X = features(kind), RNG.normal(size=(20, 3))
    Phi = f(X)
    assert Phi.shape == (20, f.size)
    assert f.size == f.waves + 4
    assert_array_equal(Phi[:, f.waves :], 0.6 * np.column_stack([X, np.ones(20)]))
    if kind != "none":
        bare = DrawnFeatures(f.omega, f.phase)
        assert bare.size == f.waves
        assert_array_equal(Phi[:, : f.waves], bare(X))
        assert np.abs(Phi[:, : f.waves]).max() <= f.height
    # The kernel is the waves' and l²(1 + xᵀy).
    waves = Phi[:, : f.waves] @ Phi[:, : f.waves].T
    assert_allclose(Phi @ Phi.T, waves + 0.36 * (1 + X @ X.T), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_closed_form_is_the_mean_over_many_draws(kind: str) -> None:
    """Within five standard errors; positive semidefinite, and it whitens."""
    f, n = features(kind), 200_000
    which = RNG.random(n) < 2 / 3
    draws = [RNG.multivariate_normal(part.mean, part.cov, size=n) for part in MIXTURE]
    Phi = f(np.where(which[:, None], *draws))
    exact, mean = expected_gram(f, MIXTURE), Phi.T @ Phi / n
    error = np.sqrt(np.maximum((Phi**2).T @ Phi**2 / n - exact**2, 0) / n)
    assert (np.abs(mean - exact) <= 5 * error + 1e-9).all()
    assert np.linalg.eigvalsh(exact)[0] > -1e-12
    inner, _ = Whitening.of(exact + 1e-3 * np.eye(f.size)).statistics(mean, np.zeros(f.size))
    assert np.linalg.eigvalsh(inner)[-1] < 1.2


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_is_a_gaussian_without_spread(kind: str) -> None:
    f, m = features(kind), np.array([0.4, -0.7, 2.0])
    phi = f(m[None])
    found = expected_gram(f, [Gaussian(3.0, m, np.zeros((3, 3)))])
    assert_allclose(found, phi.T @ phi, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_no_bit_of_a_row_depends_on_how_many_there_are(kind: str) -> None:
    f, X = features(kind), RNG.normal(size=(6, 3))
    whole = f(X)
    assert_array_equal(whole[:, f.waves :], np.concatenate([f(x[None]) for x in X])[:, f.waves :])
    assert f(X[:0]).shape == (0, f.size)
