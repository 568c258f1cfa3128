"""ρ from sums over a tree is as good as from λ₂ of the Laplacian, which no sum tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import networkx as nx
import numpy as np
import pytest

from coke.data.site import Kept
from coke.engines.process import simulate
from coke.learning.links import links_of
from coke.maths.algorithms.coke import COKE, automatic
from coke.maths.features.whitening import Whitening
from coke.maths.graph import Graph, adjacency, build_graph
from coke.maths.losses.problem import Problem, Quadratic
from coke.talk.thinning import thinned
from kit.problems import case, shape_of
from kit.ready import ready

KAPPA = 2.0


def tree_and_few(n: int) -> Graph:
    """A random tree and four edges more."""
    graph, rng = nx.random_labeled_tree(n, seed=n), np.random.default_rng(n)
    while graph.number_of_edges() < min(n + 3, n * (n - 1) // 2):
        a, b = rng.choice(n, 2, replace=False).tolist()
        graph.add_edge(a, b)
    return graph


FAMILIES: dict[str, Callable[[int], Graph]] = {
    "random": lambda n: build_graph("random", n, seed=n),
    "ring": nx.cycle_graph,
    "path": nx.path_graph,
    "star": lambda n: nx.star_graph(n - 1),
    "grid": lambda n: build_graph("grid", n, seed=0),
    "tree and few": tree_and_few,
    "complete": nx.complete_graph,
}


def by_laplacian(graph: Graph) -> float:
    """0.7 κ/(2 √(λ₂ d̄))."""
    A = adjacency(graph).toarray()
    d = A.sum(axis=1)
    return 0.7 * KAPPA / (2 * np.sqrt(np.linalg.eigvalsh(np.diag(d) - A)[1] * d.mean()))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [5, 10, 30, 100])
def test_the_step_is_within_a_factor_of_two_of_the_laplacians(family: str, n: int) -> None:
    graph = FAMILIES[family](n)
    algorithm = automatic(KAPPA, shape_of(graph), 1.0)
    assert 0.5 < algorithm.rho / by_laplacian(graph) < 2.0


def cost(problem: Problem, graph: Graph, algorithm: COKE) -> tuple[int, int]:
    """Rounds and bytes until the objective is within 1 % of the optimum's, for good."""
    best = problem.score(problem.everywhere(problem.optimum)).global_train
    found = [(0, 0)]
    for r in simulate(problem, graph, algorithm, rounds=400):
        if r.score.global_train > 1.01 * best:
            found.append((r.k + 1, r.ledger.bytes))
    assert found[-1][0] < 400
    return found[-1]


def test_it_takes_no_more_rounds_and_bytes_to_one_percent() -> None:
    """Geometric means over families at most 1.05 of those with λ₂; the worst at most 1.5."""
    ratios = []
    for (_, family), n in product(FAMILIES.items(), (5, 12)):
        graph, q = family(n), case(N=n, L=10, lam=0.01).problem.train
        assert isinstance(q, Quadratic)
        basis = Whitening.of(q.A.mean(axis=0) + 0.01 / n * np.eye(q.size))
        problem, ours = Problem(q.whitened(basis)), automatic(KAPPA, shape_of(graph), 1.0)
        theirs = cost(problem, graph, replace(ours, rho=by_laplacian(graph)))
        ratios.append(np.array(cost(problem, graph, ours)) / theirs)
    assert (np.exp(np.log(ratios).mean(axis=0)) <= 1.05).all()
    assert np.max(ratios) <= 1.5


def test_fewer_links_have_the_step_of_so_many() -> None:
    """Only `coke`'s rounds on unicast links are on fewer; what follows a descent has all."""
    rows = [np.random.default_rng(i).normal(size=(20, 3)) for i in range(12)]
    X, y = tuple(x[:, :2] for x in rows), tuple(x[:, 2] for x in rows)
    none = tuple(x[:0] for x in X), tuple(x[:0] for x in y)
    sites = Kept(tuple(f"s{i}" for i in range(12)), X, y, *none)
    graph = build_graph("random", 12, edges=40, seed=0)
    here = ready(sites, graph, loss="quadratic")
    thin, whole = here.case("coke"), here.case("tree-newton")
    shape = here.agreement.shape
    for one, links in ((thin, thinned(shape)), (whole, shape)):
        assert isinstance(one.algorithm, COKE)
        assert one.algorithm.rho == automatic(KAPPA, links, one.spread).rho
    assert links_of(here, thin).number_of_edges() < 25
    assert links_of(here, whole).number_of_edges() == 40
    assert links_of(here, here.case("dkla")).number_of_edges() == 40
    wide = ready(sites, graph, loss="quadratic", links="broadcast")
    assert links_of(wide, wide.case("coke")).number_of_edges() == 40
