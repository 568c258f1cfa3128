"""What honest sites can carry where all know the graph, and who carries more."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.maths.audit import Dual, Flows, Stated, Vouched, contradict
from coke.maths.guards import believed
from kit.problems import GRAPHS

Array = np.ndarray


def _flows(W: nx.Graph, bend: Array, zero: Array) -> Flows:
    told = {str(i): Vouched(float(bend[i]), float(zero[i]), 1.0, tuple(map(str, W[i]))) for i in W}
    return Flows(told, float(zero.mean()))


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


def _parts(flows: Flows, stated: dict[str, Stated]) -> dict[str, float]:
    return {name: load.part for load in flows.loads(stated) for name in load.who}


@pytest.mark.parametrize("W", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_honest_duals_are_within_the_bounds_of_edges_and_nodes(W: nx.Graph, seed: int) -> None:
    """‖γ_ij‖ ≤ 2√(Λ F(0)) ‖L⁺(e_i − e_j)‖ and ‖Σ_i γ_ij‖ ≤ 2√(Λ F(θ*)), the largest Λ believed."""
    flows, c, losses = _honest(W, seed)
    stated = _stated(W, c, losses)
    for i, one in stated.items():
        for j, dual in one.duals.items():
            assert np.linalg.norm(dual.gamma) <= flows.edge(i, j) * (1 + 1e-9)
    parts = _parts(flows, stated)
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
    parts = _parts(flows, _stated(W, c, losses))
    assert max(parts, key=parts.__getitem__) == str(liar)
    assert parts[str(liar)] > 1


@given(st.sampled_from([*GRAPHS]), st.integers(0, 99), st.data())
def test_silent_sites_side_by_side_are_within_the_bound_on_all_of_them(
    graph: str, seed: int, data: st.DataObject
) -> None:
    """‖Σ over edges into S‖ ≤ √(n (N − n)/N) 2√(Λ F), n = |S|: no sum misses an edge."""
    W = GRAPHS[graph]
    flows, c, losses = _honest(W, seed)
    stated = _stated(W, c, 0 * losses + losses.mean())  # what is not heard is taken to be as much
    silent = data.draw(st.sets(st.sampled_from([*W]), max_size=len(W) - 1))
    loads = flows.loads({n: one for n, one in stated.items() if int(n) not in silent})
    assert sorted(n for load in loads for n in load.who) == sorted(stated)
    for who, part, room in loads:
        S, N = [int(n) for n in who], len(W)
        exact = np.sqrt(len(S) * (N - len(S)) / N)
        assert part <= exact * (1 + 1e-9)
        assert room == pytest.approx(max(exact * np.sqrt(N / (N - 1)), 1.0))
        assert len(S) == 1 or (silent.issuperset(S) and nx.is_connected(W.subgraph(S)))
        edges = [stated[str(i)].duals[str(j)].gamma for j in S for i in W[j] if i not in S]
        assert np.allclose(sum(edges), c[S].sum(axis=0))


@pytest.mark.parametrize(("n", "N"), [(1, 6), (3, 6), (4, 10), (9, 10)])
def test_no_bound_on_silent_sites_that_knows_their_number_alone_is_tighter(n: int, N: int) -> None:
    """Met where all of S pull alike, and all others against them."""
    D, size = 3, np.sqrt(1 / (n * (N - n) * N))  # Σ ‖c_s‖² = 1 = 4Λ F
    c = size * np.repeat([N - n, -n], [n, N - n])[:, None] * np.eye(D)[0]
    W = nx.complete_graph(N)
    flows = _flows(W, np.full(N, 0.25), np.full(N, 1 / N))
    stated = _stated(W, c, np.full(N, 1 / N))
    (load,) = (
        load
        for load in flows.loads({s: stated[s] for s in stated if int(s) >= n})
        if "0" in load.who
    )
    assert load.part == pytest.approx(np.sqrt(n * (N - n) / N))
    assert load.part <= load.room * (1 + 1e-9)


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 10**6))
def test_all_know_the_same_tree_of_every_part_of_few_steps(n: int, more: int, seed: int) -> None:
    """Both ends know of its edges, whoever was found out; nobody is farther than from its root."""
    rng = np.random.default_rng(seed)
    W = nx.empty_graph(n)
    W.add_edges_from((i, j) for i, j in rng.integers(0, n, size=(more, 2)).tolist() if i != j)
    flows = _flows(W, np.ones(n), np.ones(n)).without("0")
    tree, left = nx.Graph(), W.subgraph([*range(1, n)])
    tree.add_nodes_from(flows.tree)
    tree.add_edges_from((i, j) for i, near in flows.tree.items() for j in near)
    assert all(i in flows.tree[j] for i, near in flows.tree.items() for j in near)
    assert all(int(j) in W[int(i)] for i, j in tree.edges)
    assert n == 1 or nx.is_forest(tree)
    assert len(tree) == n - 1
    parts = {frozenset(map(int, part)) for part in nx.connected_components(tree)}
    assert parts == {*map(frozenset, nx.connected_components(left))}
    for part in nx.connected_components(left):
        far = nx.diameter(tree.subgraph(map(str, part)))
        assert far <= 2 * nx.diameter(left.subgraph(part))


def test_a_closed_edge_is_one_that_no_end_states() -> None:
    """Whom some have found out still counts in the sums of those who have not closed their edge."""
    W = nx.cycle_graph(5)
    flows, c, losses = _honest(W, 2)
    stated = _stated(W, c, losses)
    all_, less = _parts(flows, stated), _parts(flows.without("1"), stated)
    assert less["2"] / less["3"] == pytest.approx(all_["2"] / all_["3"])  # bounds differ, not sums
    own = {m: dual for m, dual in stated["2"].duals.items() if m != "1"}
    closed = {**stated, "2": Stated(stated["2"].loss, own)}
    del closed["1"]
    after = _parts(flows.without("1"), closed)
    assert after.keys() == set("0234")
    assert after["2"] / after["3"] == pytest.approx(
        np.linalg.norm(stated["3"].duals["2"].gamma) / np.linalg.norm(c[3])
    )


def test_a_false_statement_frames_nobody() -> None:
    """Where both ends of an edge differ what speaks for the node counts; and they contradict."""
    W = nx.cycle_graph(5)
    flows, c, losses = _honest(W, 2)
    stated, before = _stated(W, c, losses), _parts(flows, _stated(W, c, losses))
    lie = Dual(0, 9, 1e3 * np.ones(c.shape[1]))
    stated["0"] = Stated(stated["0"].loss, {**stated["0"].duals, "1": lie})
    after = _parts(flows, stated)
    assert after["1"] <= before["1"] * (1 + 1e-9)
    assert contradict(lie, stated["1"].duals["0"])
    assert not contradict(stated["2"].duals["1"], stated["1"].duals["2"])
    assert not contradict(lie._replace(step=8), stated["1"].duals["0"])  # of another moment


def test_what_one_site_says_of_itself_counts_for_so_much() -> None:
    W = nx.cycle_graph(6)
    flows, *_ = _honest(W, 3)
    boast = Vouched(1e12, 1e12, 1e12, ("1", "5"))
    loud = Flows({**flows.told, "0": boast}, flows.v)
    assert loud.node() <= flows.node() * np.sqrt(4 * 2) * 2
    assert loud.zero <= 2 * len(W) * flows.v * (1 + 1e-9)
    assert loud.model(0.1) <= np.sqrt(len(W) * flows.v / 0.1) * (1 + 1e-9)


@given(st.integers(3, 12), st.integers(0, 10**6))
def test_a_site_of_few_rows_may_have_nearly_all_of_the_loss(n: int, seed: int) -> None:
    """Σ T_s R_s(0) = v Σ T: no honest loss is cut short, and no boast is kept."""
    rng = np.random.default_rng(seed)
    T = rng.integers(10, 40, size=n).astype(float)
    zero = 10.0 ** rng.uniform(-6, 6, size=n)
    v = float(T @ zero / T.sum())
    told = {str(i): Vouched(1.0, zero[i], 1.0, (), rows=T[i]) for i in range(n)}
    assert Flows(told, v).zero == pytest.approx(zero.sum())
    boast = Flows({**told, "0": told["0"]._replace(zero=1e15, rows=1e-9)}, v)
    assert boast.zero <= zero.sum() + 16 * n * max(v, zero[1:].max()) * (1 + 1e-9)


def test_an_edge_is_what_both_ends_say_is_one() -> None:
    flows, *_ = _honest(nx.path_graph(4), 0)
    lie = flows.told["3"]._replace(neighbours=("0", "2"))
    assert Flows({**flows.told, "3": lie}, flows.v).near["3"] == ("2",)
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
