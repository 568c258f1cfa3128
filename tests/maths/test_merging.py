"""Mixtures that merge on their way through the tree: what is lost, at both ends of the spectrum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh

from coke.learning.ready import Ready
from coke.learning.train import train
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.features.merging import Detail, reduced
from coke.maths.features.mixtures import Gaussian, expected_gram
from kit.hard import HardCase
from kit.problems import GRAPHS

FEATURES = draw_features(FeatureSettings(40, sigma=1.0, seed=0), 2)


def spectrum(A: Array, P: Array, ridge: float) -> Array:
    """Of (P + ridge I)⁻¹(A + ridge I), rising."""
    one = ridge * np.eye(len(A))
    return np.asarray(eigh(A + one, P + one, eigvals_only=True))


def test_points_far_apart_are_not_filled_in() -> None:
    """One Gaussian would be within 8 at the upper end, and 10⁴ times too wide at the lower one."""
    ridge = 1e-5
    points = [Gaussian(1.0, np.array([x, 0.0]), np.zeros((2, 2))) for x in (-1.0, 0.2, 1.0)]
    A, P = (expected_gram(FEATURES, parts) for parts in (points, reduced(points, 1)))
    far = spectrum(A, P, ridge)
    assert far[-1] < 8
    assert far[0] < 1e-3
    told = Detail(1e-6, FEATURES, ridge).merged(points, 1)
    assert len(told) == 3
    near = spectrum(A, expected_gram(FEATURES, [part.gaussian() for part in told]), ridge)
    assert near[0] > 0.9
    assert near[-1] < 1.1


def test_sites_that_are_alike_become_one() -> None:
    rng = np.random.default_rng(0)
    parts = [Gaussian.of(rng.normal(size=(300, 2))) for _ in range(8)]
    (one,) = Detail(1e-6, FEATURES, 1e-5).merged(parts, 1)
    np.testing.assert_allclose(one.gaussian().cov, reduced(parts, 1)[0].cov, atol=1e-9)
    assert len(Detail(1e-6, FEATURES, 1e-5).merged(parts, 2)) == 2


def test_without_features_to_look_with_all_merge() -> None:
    points = [Gaussian(1.0, np.array([x, 0.0]), np.zeros((2, 2))) for x in (-9.0, 0.0, 9.0)]
    lines = DrawnFeatures(np.empty((0, 2)), np.empty(0), linear=1.0)
    for how in (Detail(1e-6), Detail(1e-6, lines, 1e-5)):
        assert len(how.merged(points, 1)) == 1


def one_hot(N: int, lam: float) -> HardCase:
    """Sites with a column each; they differ in nothing else."""
    rng = np.random.default_rng(0)
    X = [np.hstack([rng.normal(size=(40, 2)), np.tile(np.eye(N)[i], (40, 1))]) for i in range(N)]
    y = [np.sin(x[:, 0]) + i + 0.1 * rng.normal(size=40) for i, x in enumerate(X)]
    how = {"lambda": lam, "features": {"n_features": 40, "sigma": 2.0}, "loss": "quadratic"}
    return HardCase("one-hot", X, y, GRAPHS["path"], how)


def ends(ready: Ready) -> tuple[float, float]:
    """The least and the largest eigenvalue of the whitened mean Hessian, over κ."""
    risk = ready.whitened[0].train
    mean = risk.total(np.full(len(risk.T), 1.0 / len(risk.T)))
    assert mean is not None
    values = np.linalg.eigvalsh(mean.A[0] + mean.G)
    return float(values[0]), float(values[-1])


@pytest.mark.parametrize(("whitening", "fits"), [("mixture", True), ("moments", False)])
def test_a_column_for_each_site(whitening: str, fits: bool) -> None:
    """At λ = 1e-5 one Gaussian leaves eigenvalues below 10⁻³, and a run a quarter too high."""
    ready = one_hot(6, 1e-5).ready(whitening=whitening, rounds=300, sums=False)
    least, most = ends(ready)
    assert most < 64  # each merger stays within 32; one that is merged again may add to it
    assert (least > 1e-3) is fits
    theta = train(ready, "coke").theta
    assert theta is not None
    F = ready.problem.train.objectives(np.stack([theta.mean(axis=0), ready.optimum]))
    assert bool(F[0] < 1.01 * F[1]) is fits
