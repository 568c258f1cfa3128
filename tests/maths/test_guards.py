"""What honest sites cannot do, whatever the graph."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.maths.guards import HonestBounds
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
    largest = max(float(np.linalg.norm(phi[i] - phi[j])) for i, j in W.edges)
    assert largest <= N * np.sqrt(top * v)


def test_an_edge_is_weighed_by_what_it_costs() -> None:
    """γᵀH⁻¹γ, class by class; and parts of the bounds."""
    H = np.diag([1.0, 4.0])
    bounds = HonestBounds(H, edge=2.0, loss=0.5)
    gamma = np.array([1.0, 2.0, 0.0, 4.0])
    assert bounds.harms(gamma) == pytest.approx(1 + 1 + 4)
    assert bounds.pulls(np.array([3.0, 4.0])) == 2.5
    assert bounds.suffers(1.0) == 2.0
    assert HonestBounds(H, edge=0.0, loss=0.0).suffers(1.0) == 0.0
