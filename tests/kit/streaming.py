"""Streams for tests: sites that have agreed, and rows that come to them tick by tick."""

from __future__ import annotations

from typing import Any

import numpy as np

from coke.data.split import split
from coke.data.tables import Rows
from coke.learning.near import Arrived
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.maths.graph import build_graph
from coke.settings.reading import checked_settings
from kit.problems import Array


def sites_of(X: Array, y: Any, *, L: int = 10, sigma: float = 2.0, **settings: Any) -> Ready:
    """N sites with rows X (T, N, d), y (T, N), which have agreed on the plain features."""
    T, N, d = X.shape
    classes = np.asarray(y).dtype.kind != "f"
    chosen = checked_settings({
        "loss": "least-squares" if classes else "quadratic", "model": "plain", "lambda": 1e-3,
        "data": {"scale": "none", "agents": N, "test": 0.0, "target": ["y"]},
        "features": {"n_features": L, "sigma": sigma}, **settings,
    })  # fmt: skip
    columns = tuple(f"x{j}" for j in range(d))
    rows = Rows(X.reshape(T * N, d), np.asarray(y).reshape(T * N), None, columns)
    parts = {f"s{n}": np.arange(n, T * N, N) for n in range(N)}
    kept = split(parts, test=0.0, seed=0).kept(rows, numbers=not classes)
    return agree(kept, build_graph("random", N, seed=1), Terms(chosen, columns, streams=True))


def wavy(T: int, N: int = 4, d: int = 2, seed: int = 0) -> tuple[Array, Array]:
    """Rows (T, N, d) whose inputs differ by site, and their targets (T, N)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, N, d)) + 0.3 * np.arange(N)[:, None]
    return X, np.sin(X.sum(axis=-1)) + 0.1 * rng.normal(size=(T, N))


def arrived(X: Array, y: Array) -> list[Arrived]:
    """A tick with one row a site, X (N, d) and y (N,)."""
    rows = zip(X[:, None, :], y[:, None, None], strict=True)
    return [Arrived(x, target, np.zeros(1)) for x, target in rows]
