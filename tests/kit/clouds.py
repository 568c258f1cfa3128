"""Classes as clouds in a box: rows for what privacy costs a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from kit.problems import Array

K, d, SITES, ROWS = 10, 16, 10, 1000
RANGES = {f"x{j}": (0.0, 100.0) for j in range(d)}
"""Known before any row: inputs are cut off there."""


def clouds(rng: np.random.Generator, T: int, ways: int = 1) -> tuple[Array, Any]:
    """X (T, d) and labels 0 … K − 1; a class has so many clouds, always the same ones.

    A cloud is N(c, Σ), c in the middle of the box; Σ has four long directions of its own.
    """
    fixed = np.random.default_rng(0)
    c = fixed.uniform(20.0, 80.0, size=(K, ways, d))
    long = fixed.normal(size=(K, ways, d, 4)) / 2.0
    y, way = rng.integers(K, size=T), rng.integers(ways, size=T)
    along = np.einsum("tij,tj->ti", long[y, way], rng.normal(size=(T, 4)))
    X = c[y, way] + 16.0 * along + 9.0 * rng.normal(size=(T, d))
    return np.clip(X, 0.0, 100.0), y
