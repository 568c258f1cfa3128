"""What honest sites cannot do, whatever the graph."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.maths.guards import HonestBounds, added, leaning, weighed
from kit.problems import GRAPHS


def _apart(graph: nx.Graph, i: int, j: int) -> float:
    """‖L⁺(e_i − e_j)‖."""
    L = nx.laplacian_matrix(graph).toarray().astype(float)
    b = np.zeros(len(L))
    b[[i, j]] = 1.0, -1.0
    return float(np.linalg.norm(np.linalg.pinv(L) @ b))


@given(st.integers(2, 12), st.integers(0, 30), st.integers(0, 10**6))
def test_no_edge_of_any_graph_is_further_apart_than_half_the_root_of_n(
    n: int, more: int, seed: int
) -> None:
    """‖L⁺(e_i − e_j)‖² ≤ N/4 for neighbours: potentials between those of the ends, of mean zero."""
    graph = nx.random_labeled_tree(n, seed=seed)
    rng = np.random.default_rng(seed)
    graph.add_edges_from((i, j) for i, j in rng.integers(0, n, size=(more, 2)).tolist() if i != j)
    assert all(_apart(graph, i, j) ** 2 <= n / 4 + 1e-9 for i, j in graph.edges)


def test_a_bridge_between_halves_is_as_far_apart_as_an_edge_can_be() -> None:
    assert _apart(nx.path_graph(8), 3, 4) ** 2 == pytest.approx(8 / 4)


@pytest.mark.parametrize(("graph", "i", "j"), [(nx.star_graph(9), 0, 4), (nx.path_graph(10), 8, 9)])
def test_a_leaf_is_as_far_apart_on_any_graph(graph: nx.Graph, i: int, j: int) -> None:
    """‖L⁺(e_i − e_j)‖² = (N − 1)/N: the edge parts one site from the rest."""
    assert _apart(graph, i, j) ** 2 == pytest.approx(9 / 10)


@pytest.mark.parametrize("W", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("seed", range(5))
def test_honest_duals_are_within_the_bound(W: nx.Graph, seed: int) -> None:
    """ρ‖g_ij‖ = ‖φ_i − φ_j‖ with Lφ = c, c_s = ∇R_s(θ*): at most N √(Λ v), Λ the largest."""
    rng, N, D = np.random.default_rng(seed), len(W), 5
    roots = rng.normal(size=(N, 2 * D, D)) * rng.lognormal(size=(N, 1, 1))
    y = rng.normal(size=(N, 2 * D)) * rng.lognormal(size=(N, 1))
    A, b = np.einsum("nti,ntj->nij", roots, roots), np.einsum("nti,nt->ni", roots, y)
    best = np.linalg.solve(A.sum(axis=0), b.sum(axis=0))
    c = 2 * (A @ best - b)
    phi = np.linalg.pinv(nx.laplacian_matrix(W).toarray().astype(float)) @ c
    top, v = np.linalg.eigvalsh(A).max(), float((y**2).sum() / N)
    found = {(i, j): float(np.linalg.norm(phi[i] - phi[j])) for i, j in W.edges}
    assert max(found.values()) <= N * np.sqrt(top * v)
    leaves = [size for (i, j), size in found.items() if 1 in (W.degree[i], W.degree[j])]
    assert max(leaves, default=0.0) <= 2 * np.sqrt((N - 1) * top * v)


def test_an_edge_is_weighed_by_what_it_costs() -> None:
    """γᵀH⁻¹γ, class by class; and parts of the bound on the loss."""
    H = np.diag([1.0, 4.0])
    bounds = HonestBounds(H, edge=2.0, leaf=1.0, loss=0.5)
    gamma = np.array([1.0, 2.0, 0.0, 4.0])
    assert bounds.harms(gamma) == pytest.approx(1 + 1 + 4)
    assert bounds.suffers(1.0) == 2.0
    assert HonestBounds(H, edge=0.0, leaf=0.0, loss=0.0).suffers(1.0) == 0.0


@given(st.integers(5, 12), st.integers(0, 10**6))
def test_sums_by_name_are_near_those_of_sites_that_are_alike_and_one_moves_them_little(
    n: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    told = rng.integers(900, 1100, size=(n, 4))
    told[:, 3] *= -1
    assert (np.abs(added(told) - told.sum(axis=0)) <= 200).all()
    assert_array_equal(weighed(np.abs(told)), np.abs(told).sum(axis=0))
    lied = told.copy()
    lied[0] = rng.choice([-1, 1], size=4) * 10 ** rng.integers(6, 12, size=4)
    assert (np.abs(added(lied) - told.sum(axis=0)) <= 3000).all()


@given(st.integers(6, 12), st.integers(0, 10**6))
def test_what_most_sites_find_is_between_what_two_of_them_find(n: int, seed: int) -> None:
    """Whatever the first of them says, and however sure it is."""
    rng = np.random.default_rng(seed)
    w, x = rng.integers(100, 200, size=(n, 1)), rng.integers(-50, 50, size=(n, 3))
    w[0], x[0] = 10 ** rng.integers(0, 12), 10 ** rng.integers(0, 6) * rng.choice([-1, 1], size=3)
    total, leans = leaning(w, w * x)
    assert total <= 200 * (n - 1) + 4 * 200
    rest = np.sort(x[1:], axis=0)
    found = leans / total
    assert (found >= rest[0] - 1).all()
    assert (found <= rest[-1] + 1).all()


def test_who_has_nothing_to_say_moves_no_sum() -> None:
    """And what few have counts, where it may: one class at one site."""
    told = np.array([[100], [110], [90], [0], [0]])
    assert added(told) == 300
    classes = 100 * np.eye(5, dtype=np.int64)
    assert_array_equal(weighed(classes), 100)
    classes[0, 0] = 10**9
    assert_array_equal(weighed(classes), [400, 100, 100, 100, 100])
