"""Who talks to whom: connected undirected graphs on the agents 0 … N−1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.errors import GraphError, unknown
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger

Graph = Any  # nx.Graph: networkx ships no types
Steps = NDArray[np.integer[Any]]  # from one agent to another, in edges


def networks() -> Any:
    """networkx, which takes a while to load, and a site in the field has no graph."""
    return import_module("networkx")


def _random_connected(n: int, edges: int | None, rng: np.random.Generator) -> Graph:
    """Connected with exactly E edges: a random tree, then random further pairs."""
    full = n * (n - 1) // 2
    E = _default_edges(n) if edges is None else edges
    if not n - 1 <= E <= full:
        raise GraphError(
            f"{E} edges among {n} agents: expected {n - 1} (a tree) to {full} (complete)"
        )
    order = rng.permutation(n)
    G = networks().empty_graph(n)
    G.add_edges_from((order[i], order[rng.integers(i)]) for i in range(1, n))
    # E distinct pairs, of which at most N−1 are in the tree: enough are left to add.
    pairs = _pairs(rng.choice(full, size=E, replace=False), n) if n <= E else []
    G.add_edges_from([pair for pair in pairs if not G.has_edge(*pair)][: E - n + 1])
    return G


def _pairs(index: NDArray[np.int64], n: int) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, at those places of the list (0, 1), (0, 2) … (n−2, n−1)."""
    ends = np.cumsum(np.arange(n - 1, 0, -1))
    i = np.searchsorted(ends, index, side="right")
    j = n - (ends[i] - index)
    return list(zip(i.tolist(), j.tolist(), strict=True))


def _default_edges(n: int) -> int:
    """Half of all pairs up to the paper's 20 agents (95 edges), then a mean degree of about 6."""
    return max(n - 1, min(-(-n * (n - 1) // 4), max(95, 3 * n)))


def _erdos_renyi(n: int, edges: int | None, rng: np.random.Generator) -> Graph:
    """Every pair with probability p = E / (N(N−1)/2), drawn again until connected."""
    nx, p = networks(), (_default_edges(n) if edges is None else edges) / max(1, n * (n - 1) // 2)
    for _ in range(1000):
        G = nx.gnp_random_graph(n, min(p, 1.0), seed=int(rng.integers(2**31)))
        if nx.is_connected(G):
            return G
    raise GraphError(
        f"no connected Erdős–Rényi graph among 1000 draws with {n} agents and p = {p:.3g}: "
        'ask for more edges, or use graph = "random", which is connected by construction'
    )


def _grid(n: int) -> Graph:
    """The most square r × c grid with r · c = n."""
    nx, rows = networks(), max(r for r in range(1, int(n**0.5) + 1) if n % r == 0)
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows), ordering="sorted")


def _small_world(n: int, rng: np.random.Generator) -> Graph:
    """Watts–Strogatz: a ring of four neighbours each, a fifth of the edges rewired, connected."""
    if n < 5:
        return networks().complete_graph(n)
    return networks().connected_watts_strogatz_graph(n, 4, 0.2, seed=int(rng.integers(2**31)))


GRAPHS: dict[str, Callable[[int, int | None, np.random.Generator], Graph]] = {
    "random": _random_connected,
    "erdos-renyi": _erdos_renyi,
    "ring": lambda n, edges, rng: networks().cycle_graph(n) if n > 2 else networks().path_graph(n),
    "star": lambda n, edges, rng: networks().star_graph(n - 1),
    "complete": lambda n, edges, rng: networks().complete_graph(n),
    "grid": lambda n, edges, rng: _grid(n),
    "small-world": lambda n, edges, rng: _small_world(n, rng),
}


def build_graph(kind: str, n: int, *, edges: int | None = None, seed: int) -> Graph:
    """The named graph on n agents; `edges` is for "random" (exactly) and "erdos-renyi" (mean)."""
    if kind not in GRAPHS:
        raise GraphError(unknown("graph", kind, GRAPHS))
    if n < 1:
        raise GraphError(f"{n} agents: expected at least one")
    if edges is not None and kind not in ("random", "erdos-renyi"):
        raise GraphError(
            f'graph = "{kind}" has a fixed number of edges, but edges = {edges} was asked for: '
            'leave edges out, or use graph = "random"'
        )
    return checked_graph(GRAPHS[kind](n, edges, np.random.default_rng(seed)), range(n))


def graph_on(sites: Sequence[Hashable], given: str | Graph, edges: int | None, seed: int) -> Graph:
    """The graph of that name on these sites, or the given one, on their positions."""
    if isinstance(given, str):
        return build_graph(given, len(sites), edges=edges, seed=seed)
    return checked_graph(given, sites)


def checked_graph(G: Graph, sites: Sequence[Hashable]) -> Graph:
    """G with nodes renamed to the positions 0 … N−1 of `sites`, or why it cannot be used.

    The nodes are the sites' labels, or already the positions.
    """
    nx = networks()
    if not isinstance(G, nx.Graph) or G.is_directed() or G.is_multigraph():
        raise GraphError(
            f"graph is a {type(G).__name__}: expected an undirected networkx.Graph "
            f"or one of the names {', '.join(sorted(GRAPHS))}"
        )
    nodes, places = set(G.nodes), range(len(sites))
    names = dict(zip(sites, places, strict=True)) if nodes == set(sites) else {i: i for i in places}
    if nodes != set(names):
        extra, lacking = _some(nodes - set(sites)), _some(set(sites) - nodes)
        raise GraphError(
            f"graph and sites do not match: not a site: {extra}; not in the graph: {lacking}. "
            f"Name the nodes by the site labels or by 0 … {len(sites) - 1}"
        )
    clean = nx.empty_graph(len(sites))
    clean.add_edges_from((names[a], names[b]) for a, b in G.edges if a != b)
    parts = sorted((sorted(c) for c in nx.connected_components(clean)), key=len, reverse=True)
    if len(parts) > 1:
        shown = "; ".join(_some([sites[i] for i in part]) for part in parts[:5])
        raise GraphError(
            f"the graph falls into {len(parts)} components: {shown}. "
            "Consensus needs a path between any two sites: add an edge between the components"
        )
    return clean


def _some(names: Any, most: int = 8) -> str:
    shown = sorted(map(str, names))
    return ", ".join(shown[:most]) + (f", … ({len(shown)} in all)" if len(shown) > most else "")


def adjacency(G: Graph) -> sparse.csr_array:
    """a_in = 1 for neighbours, in the order of G's nodes; each row sorted, for W @ x adds in it."""
    W = sparse.csr_array(networks().to_scipy_sparse_array(G, weight=None, dtype=np.float64))
    W.sort_indices()
    return W


def steps(A: sparse.csr_array, agents: NDArray[np.int64]) -> NDArray[np.int32]:
    """How many edges away everybody is from each of these agents (n, N), in a connected graph."""
    found = sparse.csgraph.dijkstra(A, unweighted=True, indices=agents)
    return np.asarray(found, dtype=np.int32)


class Shape(NamedTuple):
    """What sums over a spanning tree tell of a graph."""

    sites: int
    edges: int
    inner: int  # sites with children in the tree
    apart: int  # Σ over all pairs of sites of the steps between them along the tree

    @property
    def can_be(self) -> bool:
        """Whether some graph is like that."""
        N = self.sites
        pairs = N * (N - 1) // 2
        whole = N > 0 and N - 1 <= self.edges <= pairs and 0 <= self.inner <= N
        return whole and pairs <= self.apart <= N * pairs

    @property
    def degree(self) -> float:
        """d̄, the mean number of neighbours."""
        return 2 * self.edges / self.sites

    @property
    def distance(self) -> float:
        """Mean steps between two sites along the tree; 0 of a site alone."""
        return 2 * self.apart / max(1, self.sites * (self.sites - 1))

    @property
    def messages(self) -> int:
        """Of one sum: one from all but the root, and a broadcast of each site with children."""
        return self.sites - 1 + self.inner


class Tree(NamedTuple):
    """A spanning tree, for methods that are given one."""

    root: Any
    parent: dict[Any, Any]  # of all but the root
    order: list[Any]  # from the root outwards
    children: dict[Any, list[Any]]  # sorted, of those that have some

    @property
    def messages(self) -> int:
        """Of one sum: one from all but the root, and a broadcast of each site with children."""
        return len(self.parent) + len(set(self.parent.values()))

    def told_down(self, ledger: Ledger, size: int) -> Ledger:
        """With a total of so many bytes told to all."""
        for children in Counter(self.parent.values()).values():
            ledger = ledger.told(size, copies=children)
        return ledger

    def summed(self, ledger: Ledger, size: int) -> Ledger:
        """With one sum more of so many bytes, up and down."""
        return self.told_down(ledger.told(size, messages=len(self.parent)), size)


def spanning_tree(graph: Graph) -> Tree:
    """Breadth first from the centre of the graph; ties go to the smaller number or name."""
    farthest = steps(adjacency(graph), np.arange(len(graph))).max(axis=1)
    root = min(name for name, far in zip(graph, farthest, strict=True) if far == farthest.min())
    parent, children = {}, dict[Any, list[Any]]()
    for at, child in networks().bfs_edges(graph, root, sort_neighbors=sorted):
        parent[child] = at
        children.setdefault(at, []).append(child)
    return Tree(root, parent, [root, *parent], children)


def degrees(A: sparse.csr_array) -> Array:
    """d_i (N, 1), the number of neighbours, from the adjacency."""
    return np.diff(A.indptr).astype(np.float64)[:, None]


def metropolis(A: sparse.csr_array) -> sparse.csr_array:
    """w_in = 1 / (1 + max(d_i, d_n)), w_ii = 1 − Σ_n w_in: symmetric, rows sum to one."""
    d = degrees(A)[:, 0]
    W = A.tocoo()
    off = 1.0 / (1.0 + np.maximum(d[W.row], d[W.col]))
    own = 1.0 - np.bincount(W.row, weights=off, minlength=len(d))
    rows, cols = np.r_[W.row, np.arange(len(d))], np.r_[W.col, np.arange(len(d))]
    full = sparse.csr_array((np.r_[off, own], (rows, cols)), shape=W.shape)
    full.sort_indices()
    return full
