"""The paper's synthetic problem: y = Σ_m b_m κ(c_m, x) + e, 50 Gaussian bumps of bandwidth 5."""

from __future__ import annotations

import numpy as np

from coke.data.tables import Rows
from coke.errors import DataError
from coke.maths.arrays import Array
from coke.maths.features.features import gram

CENTRES, SIGMA, NOISE, DIMENSION = 50, 5.0, 0.1, 5  # NOISE is a variance: e ~ N(0, 0.1)


def synthetic_rows(n_agents: int, size_range: tuple[int, int], *, seed: int) -> Rows:
    """b_m ~ U[0, 1], c_m and x ~ N(0, I₅), e ~ N(0, 0.1); T_i is drawn from the range."""
    low, high = size_range
    if n_agents < 1 or not 1 <= low <= high:
        raise DataError(f"{n_agents} agents with {low} to {high} rows: expected at least one each")
    rng = np.random.default_rng(seed)
    T = rng.integers(low, high + 1, n_agents)
    b, c = rng.uniform(size=CENTRES), rng.normal(size=(CENTRES, DIMENSION))
    X = rng.normal(size=(T.sum(), DIMENSION))
    y = _bumps(X, c, b) + rng.normal(scale=np.sqrt(NOISE), size=T.sum())
    columns = tuple(f"x{j}" for j in range(DIMENSION))
    return Rows(X, y, np.repeat(np.arange(n_agents), T), columns)


def _bumps(X: Array, c: Array, b: Array) -> Array:
    """Σ_m b_m κ(c_m, x) for every row x."""
    return np.concatenate([gram("gaussian", part, c, SIGMA) @ b for part in _chunks(X)])


def _chunks(X: Array, size: int = 8192) -> list[Array]:
    return [X[i : i + size] for i in range(0, len(X), size)]
