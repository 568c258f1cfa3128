"""Sites, features and releases for tests of privacy."""

from __future__ import annotations

import numpy as np

from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.losses.problem import statistics
from coke.privacy.noise import Budget, Statistics, calibrated, noised, projected
from coke.privacy.release import Release
from kit.problems import Array

DELTA, N, D = 1e-5, 10, 50
NOTED = {1.0: 7.914, 3.0: 2.950, 10.0: 1.060}


def features_of(mapping: str = "cos-sin", seed: int = 0, sigma: float = 1.5) -> DrawnFeatures:
    L = 25 if mapping == "cos-sin" else 50
    return draw_features(FeatureSettings(L, sigma=sigma, mapping=mapping, seed=seed), 5)


def released(X: Array, y: Array, features: DrawnFeatures, budget: Budget, z: Array) -> Release:
    """One site's release with noise from z instead of entropy."""
    A, b, _ = statistics(features, X, np.clip(y, -1, 1))
    noise = calibrated(budget, 1.0, 1.0, features.size)
    found = noised(Statistics(A, b), len(y), noise, z)
    return Release(Statistics(projected(found.A), found.b), len(y), noise.s, (budget,))
