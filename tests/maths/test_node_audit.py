"""What honest sites can carry where all know the graph, and who carries more."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.maths.audit import Dual, Flows, Stated, Vouched, believed, contradict
from kit.problems import GRAPHS

Array = np.ndarray


def _flows(W: nx.Graph, bend: Array, zero: Array) -> Flows:
    told = {str(i): Vouched(float(bend[i]), float(zero[i]), 1.0, tuple(map(str, W[i]))) for i in W}
    return Flows(told, most=float(zero.sum()))


def _honest(W: nx.Graph, seed: int, D: int = 5) -> tuple[Flows, Array, Array]:
    """Risks that differ, their gradients at the optimum, and their losses there."""
    rng, N = np.random.default_rng(seed), len(W)
    roots = rng.normal(size=(N, 2 * D, D))
    y = rng.normal(size=(N, 2 * D)) * rng.lognormal(size=(N, 1))
    A, b = np.einsum("nti,ntj->nij", roots, roots), np.einsum("nti,nt->ni", roots, y)
    best = np.linalg.solve(A.sum(axis=0), b.sum(axis=0))
    losses = ((roots @ best - y) ** 2).sum(axis=1)
    flows = _flows(W, np.linalg.eigvalsh(A).max(axis=1), (y**2).sum(axis=1))
    return flows, 2 * (A @ best - b), losses


def _stated(W: nx.Graph, c: Array, losses: Array) -> dict[str, Stated]:
    """γ_ij = φ_i − φ_j up to the sign, with Lφ = c."""
    phi = np.linalg.pinv(nx.laplacian_matrix(W, nodelist=range(len(W))).toarray().astype(float)) @ c
    return {
        str(i): Stated(float(losses[i]), {str(j): Dual(0, 9, phi[j] - phi[i]) for j in W[i]})
        for i in W
    }


@pytest.mark.parametrize("W", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_honest_duals_are_within_the_bounds_of_edges_and_nodes(W: nx.Graph, seed: int) -> None:
    """‖γ_ij‖ ≤ 2√(Λ F(0)) ‖L⁺(e_i − e_j)‖ and ‖Σ_i γ_ij‖ ≤ 2√(Λ F(θ*)), the largest Λ believed."""
    flows, c, losses = _honest(W, seed)
    stated = _stated(W, c, losses)
    for i, one in stated.items():
        for j, dual in one.duals.items():
            assert np.linalg.norm(dual.gamma) <= flows.edge(i, j) * (1 + 1e-9)
    parts = flows.parts(stated)
    assert parts.keys() == set(stated)
    assert max(parts.values()) <= 1
    for j in W:  # the neighbours' duals add up to the gradient
        sum_ = sum(stated[str(i)].duals[str(j)].gamma for i in W[j])
        assert np.allclose(sum_, c[j])


@pytest.mark.parametrize("W", GRAPHS.values(), ids=GRAPHS)
def test_of_all_nodes_the_one_where_a_pull_begins_carries_most(W: nx.Graph) -> None:
    """A pull is routed over all edges, and adds up at its source only."""
    flows, c, losses = _honest(W, 1)
    N, liar = len(W), 0
    pull = 50 * np.abs(c).max() * np.ones(c.shape[1])
    c = c + pull / (N - 1)
    c[liar] = -(c.sum(axis=0) - c[liar])
    parts = flows.parts(_stated(W, c, losses))
    assert max(parts, key=parts.__getitem__) == str(liar)
    assert parts[str(liar)] > 1


def test_a_false_statement_frames_nobody() -> None:
    """Where both ends of an edge differ what speaks for the node counts; and they contradict."""
    W = nx.cycle_graph(5)
    flows, c, losses = _honest(W, 2)
    stated, before = _stated(W, c, losses), flows.parts(_stated(W, c, losses))
    lie = Dual(0, 9, 1e3 * np.ones(c.shape[1]))
    stated["0"] = Stated(stated["0"].loss, {**stated["0"].duals, "1": lie})
    after = flows.parts(stated)
    assert after["1"] <= before["1"] * (1 + 1e-9)
    assert contradict(lie, stated["1"].duals["0"])
    assert not contradict(stated["2"].duals["1"], stated["1"].duals["2"])
    assert not contradict(lie._replace(step=8), stated["1"].duals["0"])  # of another moment


def test_what_one_site_says_of_itself_counts_for_so_much() -> None:
    W = nx.cycle_graph(6)
    flows, *_ = _honest(W, 3)
    boast = Vouched(1e12, 1e12, 1e12, ("1", "5"))
    loud = Flows({**flows.told, "0": boast}, flows.most)
    assert loud.node() <= flows.node() * np.sqrt(4 * 2) * 2
    assert loud.zero <= 2 * flows.most


def test_an_edge_is_what_both_ends_say_is_one() -> None:
    flows, *_ = _honest(nx.path_graph(4), 0)
    lie = flows.told["3"]._replace(neighbours=("0", "2"))
    assert Flows({**flows.told, "3": lie}, flows.most).near["3"] == ("2",)
    assert flows.without("1").near["0"] == ()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
def test_nothing_counts_for_more_than_four_medians(values: list[float]) -> None:
    assert (believed(values) <= 4 * np.median(values)).all()
    assert (believed(values) <= values).all()


def test_most_sites_are_worse_off_than_without_a_model_by_the_middle_one() -> None:
    """R_i(θ_i)/max(R_i(0), v): one site that says so does not make it so."""
    flows = _flows(nx.cycle_graph(5), np.ones(5), np.array([1.0, 1.0, 1.0, 1.0, 6.0]))
    stated = {str(i): Stated(1.0, {}) for i in range(5)}
    assert flows.worse({**stated, "0": Stated(1e9, {})}) == pytest.approx(0.5)
    assert flows.worse({n: Stated(8.0, {}) for n in stated}) == pytest.approx(4.0)
    assert flows.worse({}) == 0.0
