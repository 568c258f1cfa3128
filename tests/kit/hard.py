"""Hard tables: what a fit must survive, or say that it did not; drawn by a fixed generator.

Case i of a seed is the same however many are asked for, and for every loss of numbers the same
rows; classes are thirds or halves of these targets, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from coke.data.site import Kept
from coke.learning.ready import Ready
from coke.maths.graph import Graph, build_graph
from coke.maths.losses import LOSSES, NUMBERS
from kit.problems import Array
from kit.ready import ready

Rng = np.random.Generator
MOST_SITES, MOST_ROWS, MOST_COLUMNS = 15, 400, 8


@dataclass(frozen=True)
class HardCase:
    """Rows at sites, their network and the settings, as `checked_settings` reads them."""

    name: str
    X: list[Array]  # (T_i, d) each
    y: list[np.ndarray[Any, Any]]  # (T_i,) numbers or labels
    graph: Graph
    settings: dict[str, Any]

    @property
    def sites(self) -> np.ndarray[Any, Any]:
        """(T,) whose each row is, in their order."""
        return np.repeat([f"s{i:02d}" for i in range(len(self.y))], [len(y) for y in self.y])

    def ready(self, **more: Any) -> Ready:
        """All sites agree, and can begin to train; the model is plain."""
        settings = self.settings | more
        d, names = self.X[0].shape[1], tuple(dict.fromkeys(self.sites.tolist()))
        none = tuple(np.empty((0, d)) for _ in self.X), tuple(y[:0] for y in self.y)
        kept = Kept(names, tuple(self.X), tuple(self.y), *none)
        return ready(kept, self.graph, lam=settings["lambda"], **_without(settings, "lambda"))


def hard_cases(count: int, seed: int = 0, loss: str = "quadratic") -> Iterator[HardCase]:
    """So many of them, always the same."""
    for i in range(count):
        yield _case(np.random.default_rng([seed, i]), i, loss)


def _without(settings: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != key}


def _case(rng: Rng, i: int, loss: str) -> HardCase:
    N = int(rng.integers(2, MOST_SITES + 1))
    sized, sizes = _drawn(rng, SIZES, N)
    table, X = _drawn(rng, TABLES, int(sizes.sum()), int(rng.integers(1, MOST_COLUMNS + 1)))
    target, y = _drawn(rng, TARGETS, X)
    ordered, order = _drawn(rng, ORDERS, X, y)
    X, y, which = X[order], y[order], np.repeat(np.arange(N), sizes)
    extra, more = _drawn(rng, OF_SITES, which, N)
    X = np.hstack([X, more])
    linked, graph = _drawn(rng, LINKS, N)
    settings = {**_settings(rng), "loss": loss}
    if LOSSES[loss].kind != NUMBERS:
        y = _classes(y, int(rng.integers(2, 4)))
    elif settings["data"]["scale"] == "none":
        y = y / (y.std() or 1.0)  # whoever wants no units has scaled targets: more is refused
    ends = np.cumsum(sizes)[:-1]
    name = f"{i}: {N} sites, {sized}, {table}, {extra}, {target}, {ordered}, {linked}"
    return HardCase(name, np.split(X, ends), np.split(y, ends), graph, settings)


def _drawn(rng: Rng, kinds: dict[str, Callable[..., Any]], *args: Any) -> tuple[str, Any]:
    """One of these kinds, and what it makes."""
    name = list(kinds)[int(rng.integers(len(kinds)))]
    return name, kinds[name](rng, *args)


def _settings(rng: Rng) -> dict[str, Any]:
    """Tiny λ as often as a usual one; σ of the inputs' spread, or an odd one."""
    lam = 10.0 ** (rng.uniform(-8, -5) if rng.random() < 0.5 else rng.uniform(-5, -1))
    sigma = 10.0 ** rng.uniform(-3, 1)
    features = {
        "n_features": int(rng.integers(5, 61)),
        "sigma": "auto" if rng.random() < 0.4 else float(sigma),
        "mapping": "cos-sin" if rng.random() < 0.7 else "cos-phase",
    }
    scale = "standard" if rng.random() < 0.7 else ("minmax", "none")[int(rng.integers(2))]
    return {"lambda": float(lam), "seed": int(rng.integers(1000)), "features": features,
            "data": {"scale": scale}}  # fmt: skip


def _equal(rng: Rng, N: int) -> Any:
    return np.full(N, rng.integers(5, MOST_ROWS // N + 1))


def _unequal(rng: Rng, N: int) -> Any:
    """One site has nearly all rows."""
    sizes = rng.integers(1, 4, N)
    sizes[rng.integers(N)] = MOST_ROWS - 4 * N
    return sizes


def _growing(rng: Rng, N: int) -> Any:
    """From one row to a hundred, by a constant ratio."""
    return np.geomspace(1, MOST_ROWS // 4, N).astype(np.int64)


def _heavy(rng: Rng, T: int, d: int) -> Array:
    return rng.standard_t(rng.uniform(0.8, 3), size=(T, d))


def _lognormal(rng: Rng, T: int, d: int) -> Array:
    return np.exp(rng.normal(scale=rng.uniform(1, 3), size=(T, d)))


def _outliers(rng: Rng, T: int, d: int) -> Array:
    """A few entries are up to 10⁶."""
    X = rng.normal(size=(T, d))
    few = rng.integers(1, 4)
    far = 10.0 ** rng.uniform(2, 6, few) * rng.choice([-1, 1], few)
    X[rng.integers(T, size=few), rng.integers(d, size=few)] = far
    return X


def _collinear(rng: Rng, T: int, d: int) -> Array:
    """All columns are within 10⁻⁸ of multiples of one."""
    x = rng.normal(size=(T, 1))
    return x * rng.normal(size=d) + 1e-8 * rng.normal(size=(T, d))


def _constant(rng: Rng, T: int, d: int) -> Array:
    """Some columns say nothing."""
    X = rng.normal(size=(T, d))
    X[:, rng.random(d) < 0.6] = rng.normal()
    return X


def _clusters(rng: Rng, T: int, d: int) -> Array:
    centres = rng.normal(scale=10, size=(int(rng.integers(2, 9)), d))
    return centres[rng.integers(len(centres), size=T)] + 0.05 * rng.normal(size=(T, d))


def _usual(rng: Rng, X: Array) -> Array:
    """Waves of robust inputs, and noise that may be next to none."""
    Z = np.tanh((X - np.median(X, axis=0)) / (1e-12 + np.median(np.abs(X), axis=0)))
    w = rng.normal(size=(2, X.shape[1]))
    noise = 10.0 ** rng.uniform(-5, 0)
    return np.sin(2 * Z @ w[0]) + Z @ w[1] + noise * rng.normal(size=len(X))


def _far(rng: Rng, X: Array) -> Array:
    """A few targets are up to 10⁶."""
    y, few = _usual(rng, X), rng.integers(1, 4)
    y[rng.integers(len(y), size=few)] *= 10.0 ** rng.uniform(1, 6, few)
    return y


def _tailed(rng: Rng, X: Array) -> Array:
    return _usual(rng, X) + rng.standard_t(1.2, size=len(X))


def _by_target(rng: Rng, X: Array, y: Array) -> Any:
    return np.argsort(y, kind="stable")


def _by_input(rng: Rng, X: Array, y: Array) -> Any:
    return np.argsort(X[:, 0], kind="stable")


def _one_hot(rng: Rng, which: Any, N: int) -> Array:
    """A column for every site."""
    return np.eye(N)[which]


def _within(rng: Rng, which: Any, N: int) -> Array:
    """Columns that are constant at each site."""
    return rng.normal(size=(N, int(rng.integers(1, 4))))[which]


def _nothing(rng: Rng, which: Any, N: int) -> Array:
    return np.empty((len(which), 0))


def _random_graph(rng: Rng, N: int) -> Graph:
    edges = int(rng.integers(N - 1, N * (N - 1) // 2 + 1))
    return build_graph("random", N, edges=edges, seed=int(rng.integers(1000)))


def _classes(y: Array, K: int) -> np.ndarray[Any, Any]:
    """So many labels, by the targets' ranks; no fewer than are rows."""
    ranks = np.argsort(np.argsort(y, kind="stable"), kind="stable")
    return np.array(["low", "high", "middle"])[ranks * min(K, len(y)) // len(y)]


SIZES = {
    "one row a site": lambda rng, N: np.ones(N, np.int64),
    "few rows": lambda rng, N: rng.integers(1, 12, N),
    "equal": _equal,
    "unequal": _unequal,
    "growing": _growing,
}
TABLES = {
    "normal": lambda rng, T, d: rng.normal(size=(T, d)),
    "heavy tails": _heavy,
    "lognormal": _lognormal,
    "outliers": _outliers,
    "collinear": _collinear,
    "constant columns": _constant,
    "clusters": _clusters,
    "binary": lambda rng, T, d: rng.integers(0, 2, size=(T, d)).astype(np.float64),
}
TARGETS = {"usual": _usual, "far targets": _far, "tailed": _tailed}
ORDERS = {
    "dealt": lambda rng, X, y: rng.permutation(len(y)),
    "sorted": _by_target,
    "sorted by an input": _by_input,
}
OF_SITES = {
    "no column of sites": _nothing,
    "one-hot sites": _one_hot,
    "constant within sites": _within,
}
LINKS = {
    "path": lambda rng, N: nx.path_graph(N),
    "ring": lambda rng, N: build_graph("ring", N, seed=0),
    "star": lambda rng, N: nx.star_graph(N - 1),
    "complete": lambda rng, N: nx.complete_graph(N),
    "random": _random_graph,
}
