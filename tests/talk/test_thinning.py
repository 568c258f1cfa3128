"""Fewer links: the same at both ends, never without the tree, and about as many as are meant."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.maths.graph import Graph, build_graph
from coke.talk.conversation import nobody_else, together
from coke.talk.place import Place
from coke.talk.thinning import thinned
from coke.talk.wave import waves


def places_of(graph: Graph) -> dict[str, Place]:
    names = tuple(f"site-{i}" for i in range(len(graph)))
    found, _ = together(waves(names, graph, names), nobody_else)
    return found


def kept(places: dict[str, Place]) -> Graph:
    """The edges that neither end has in reserve."""
    found = nx.Graph()
    found.add_nodes_from(places)
    for name, place in places.items():
        found.add_edges_from((name, n) for n in place.degrees if n not in place.reserve)
    return found


@settings(max_examples=30, deadline=None)
@given(N=st.integers(2, 30), more=st.integers(0, 60), seed=st.integers(0, 99))
def test_what_is_left_hangs_together_and_both_ends_know_it(N: int, more: int, seed: int) -> None:
    edges = min(N - 1 + more, N * (N - 1) // 2)
    places = places_of(build_graph("random", N, edges=edges, seed=seed))
    for name, place in places.items():
        assert all(name in places[n].reserve for n in place.reserve)
        assert not place.reserve & {place.parent, *place.children}
    assert nx.is_connected(kept(places))


@pytest.mark.parametrize("N", [20, 100])
def test_about_two_edges_for_five_sites_are_left_beside_the_tree(N: int) -> None:
    """As the step size takes it: the mean over graphs; few edges are all used."""
    many = [places_of(build_graph("random", N, edges=4 * N, seed=seed)) for seed in range(12)]
    left = [kept(places).number_of_edges() for places in many]
    shape = next(iter(many[0].values())).shape
    assert thinned(shape).edges == N - 1 + round(0.4 * N)
    assert abs(np.mean(left) - thinned(shape).edges) <= 0.1 * N
    few = places_of(build_graph("random", N, edges=N + 2, seed=1))
    assert kept(few).number_of_edges() == N + 2
