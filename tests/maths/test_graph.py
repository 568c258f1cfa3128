"""Networks: exactly what was asked for, connected, or refused with the reason."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from coke.errors import GraphError
from coke.maths.graph import GRAPHS, adjacency, build_graph, checked_graph, degrees, metropolis


@given(n=st.integers(1, 30), share=st.floats(0, 1), seed=st.integers(0, 1000))
def test_random_graphs_are_connected_with_exactly_e_edges(n: int, share: float, seed: int) -> None:
    E = n - 1 + round(share * (n * (n - 1) // 2 - (n - 1)))
    G = build_graph("random", n, edges=E, seed=seed)
    assert sorted(G) == list(range(n))
    assert G.number_of_edges() == E
    assert nx.is_connected(G)
    assert nx.utils.graphs_equal(G, build_graph("random", n, edges=E, seed=seed))


def test_the_papers_graphs() -> None:
    assert build_graph("random", 20, seed=0).number_of_edges() == 95
    assert build_graph("random", 10, edges=28, seed=0).number_of_edges() == 28


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("kind", GRAPHS)
def test_every_named_graph_is_connected(kind: str, n: int) -> None:
    G = build_graph(kind, n, seed=2)
    assert len(G) == n
    assert nx.is_connected(G)


def test_shapes() -> None:
    assert dict(build_graph("star", 5, seed=0).degree) == {0: 4, 1: 1, 2: 1, 3: 1, 4: 1}
    assert all(d == 2 for _, d in build_graph("ring", 5, seed=0).degree)
    assert build_graph("grid", 12, seed=0).number_of_edges() == 17  # 3 × 4
    assert build_graph("complete", 6, seed=0).number_of_edges() == 15


@given(n=st.integers(2, 15), seed=st.integers(0, 100))
def test_metropolis_weights_average(n: int, seed: int) -> None:
    """Symmetric, rows sum to one, no negative entry, and only between neighbours."""
    G = build_graph("random", n, seed=seed)
    W = metropolis(adjacency(G)).toarray()
    assert_allclose(W, W.T, atol=1e-15)
    assert_allclose(W.sum(axis=1), 1.0, atol=1e-15)
    assert W.min() > -1e-15
    away = adjacency(G).toarray() + np.eye(n) == 0
    assert (W[away] == 0).all()
    assert (degrees(adjacency(G))[:, 0] == adjacency(G).sum(axis=1)).all()


def test_the_users_own_graph_by_site_labels_or_positions() -> None:
    sites = ["Bonn", "Köln", "Aachen"]
    named = nx.Graph([("Bonn", "Köln"), ("Köln", "Aachen")])
    assert sorted(checked_graph(named, sites).edges) == [(0, 1), (1, 2)]
    assert sorted(checked_graph(nx.path_graph(3), sites).edges) == [(0, 1), (1, 2)]
    loops = nx.Graph([(0, 1), (1, 1)])
    assert sorted(checked_graph(loops, range(2)).edges) == [(0, 1)]


def test_disconnected_graphs_are_refused_with_their_components() -> None:
    G = nx.Graph([("a", "b"), ("c", "d")])
    with pytest.raises(GraphError, match=r"2 components: a, b; c, d\..*add an edge"):
        checked_graph(G, ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: build_graph("rnig", 5, seed=0), "Did you mean 'ring'"),
        (lambda: build_graph("random", 5, edges=3, seed=0), "3 edges among 5.*4 .a tree. to 10"),
        (lambda: build_graph("random", 5, edges=11, seed=0), "11 edges among 5"),
        (lambda: build_graph("ring", 5, edges=7, seed=0), "fixed number of edges"),
        (lambda: build_graph("ring", 0, seed=0), "0 agents"),
        (lambda: build_graph("erdos-renyi", 40, edges=1, seed=0), "ask for more edges"),
        (lambda: checked_graph(nx.path_graph(4), ["a", "b", "c"]), "not in the graph: a, b, c"),
        (lambda: checked_graph(nx.DiGraph([(0, 1)]), range(2)), "undirected networkx.Graph"),
        (lambda: checked_graph([(0, 1)], range(2)), "graph is a list"),
    ],
)
def test_bad_graphs_are_refused(make: object, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        make()  # type: ignore[operator]
