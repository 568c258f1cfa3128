"""Small cases with known answers, shared by the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.graph import Graph, Shape
from coke.maths.losses.problem import Problem, Quadratic
from coke.talk.conversation import together
from coke.talk.place import Place
from coke.talk.wave import waves

Array = NDArray[np.float64]
ROUNDING = 1e-10

GRAPHS: dict[str, Graph] = {
    "ring": nx.cycle_graph(6),
    "star": nx.star_graph(5),
    "path": nx.path_graph(6),
    "complete": nx.complete_graph(6),
    "random": nx.gnm_random_graph(6, 9, seed=4),
}


class Case(NamedTuple):
    """Rows at N sites, their features and the problem they make."""

    X: list[Array]
    y: list[Array]
    features: DrawnFeatures
    problem: Problem
    lam: float

    @property
    def Phi(self) -> list[Array]:
        """Φ_i (T_i, D)."""
        return [self.features(X) for X in self.X]


def case(N: int = 6, L: int = 8, mapping: str = "cos-sin", lam: float = 0.5, seed: int = 0) -> Case:
    """Sites of different sizes whose inputs and targets differ: consensus is needed."""
    rng = np.random.default_rng(seed)
    T = rng.integers(20, 40, N)
    X = [rng.normal(loc=0.3 * i, size=(t, 3)) for i, t in enumerate(T)]
    y = [np.sin(x.sum(axis=1)) + 0.2 * i + 0.1 * rng.normal(size=len(x)) for i, x in enumerate(X)]
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping=mapping, seed=seed), 3)
    return Case(X, y, features, Problem(Quadratic.from_rows(features, X, y, lam / N)), lam)


def neighbours(graph: Graph) -> list[list[int]]:
    """The graph as lists, for the literal yardstick."""
    return [sorted(graph[i]) for i in range(len(graph))]


def placed(graph: Graph, names: Sequence[str] = ()) -> dict[str, Place]:
    """Everybody's place in the network, by name; without names, of sites 0 to N − 1."""
    names = names or [str(i) for i in range(len(graph))]
    return together(waves(names, graph, names))[0]


def shape_of(graph: Graph) -> Shape:
    """What sites know of that network."""
    return placed(graph)["0"].shape


def row_norms(x: Array) -> Array:
    """‖x_i‖ of every row."""
    return np.asarray(np.linalg.norm(x, axis=-1))
