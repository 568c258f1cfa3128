"""Which rank holds which agents, and what one rank needs to know of the others.

METIS cuts few edges: on our random graphs 22 % for two ranks where blocks in order cut 50 %, on
grids 0.4 %. Spectral halves and Kernighan–Lin cut more and take longer, KaHIP cuts the same in five
to forty times the time (`docs/mpi.md`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.errors import GraphError, InputError
from coke.maths.arrays import Array
from coke.maths.graph import Graph, adjacency

Index = NDArray[np.int64]


def edges_matrix(edges: Index, N: int) -> sparse.csr_array:
    """a_in = 1 for the edges (E, 2): `adjacency` of a graph too large for an object an edge.

    Loops and repeated edges count for nothing; agents that nobody can reach are refused.
    """
    if edges.size and (edges.min() < 0 or edges.max() >= N):
        raise GraphError(f"edges from {edges.min()} to {edges.max()}: expected 0 … {N - 1}")
    i, n = edges[edges[:, 0] != edges[:, 1]].T
    ends = (np.ones(2 * len(i)), (np.r_[i, n], np.r_[n, i]))
    A = sparse.csr_array(ends, shape=(N, N))
    A.sum_duplicates()  # sorts each row, too
    A.data[:] = 1.0
    return _connected(A)


def _connected(A: sparse.csr_array) -> sparse.csr_array:
    parts, _ = sparse.csgraph.connected_components(A, directed=False)
    if parts > 1:
        raise GraphError(
            f"the graph falls into {parts} components: consensus needs a path between any two "
            "agents; add an edge between the components"
        )
    return A


def as_matrix(graph: Graph | sparse.csr_array) -> sparse.csr_array:
    """a_in = 1 for neighbours, of a graph or already such a matrix."""
    return graph if isinstance(graph, sparse.csr_array) else adjacency(graph)


def partition(graph: Graph | sparse.csr_array, ranks: int) -> Index:
    """The rank of every agent (N,): near equal numbers, few edges between ranks."""
    A = as_matrix(graph)
    if not 1 <= ranks <= A.shape[0]:
        raise InputError(
            f"{ranks} ranks for {A.shape[0]} agents: expected at least one agent a rank; "
            "start fewer ranks"
        )
    if ranks == 1:
        return np.zeros(A.shape[0], np.int64)
    parts = _metis(A, ranks)
    if len(np.unique(parts)) < ranks:  # METIS may leave a rank of a tiny graph without agents
        return np.arange(A.shape[0]) * ranks // A.shape[0]
    return parts


def _metis(A: sparse.csr_array, ranks: int) -> Index:
    try:
        import pymetis
    except ImportError as error:
        raise InputError(
            "more than one rank without the package pymetis, which divides the agents among them: "
            "pip install 'coke[mpi]'"
        ) from error
    _, parts = pymetis.part_graph(ranks, pymetis.CSRAdjacency(A.indptr, A.indices))
    return np.asarray(parts, dtype=np.int64)


class Cut(NamedTuple):
    """What a partition costs."""

    edges: int  # between ranks
    rows: int  # θ̂_i that travel if everybody speaks: one for each other rank that hears i
    largest: int  # agents of the fullest rank


def cut(graph: Graph | sparse.csr_array, parts: Index) -> Cut:
    """Of a partition."""
    A = as_matrix(graph).tocoo()
    out = parts[A.row] != parts[A.col]
    pairs = np.unique(A.row[out].astype(np.int64) * (parts.max() + 1) + parts[A.col[out]])
    return Cut(int(out.sum()) // 2, len(pairs), int(np.bincount(parts).max()))


class Block(NamedTuple):
    """One rank's agents, and the others' agents that they hear."""

    rank: int
    parts: Index  # (N,)   the rank of every agent
    agents: Index  # (n,)  those of this rank, in order
    ghosts: Index  # (m,)  those heard from other ranks, by rank and then in order
    sends: dict[int, Index]  # to that rank: places among `agents`
    receives: dict[int, slice]  # from that rank: places among `ghosts`

    def places(self, n: Index) -> Index:
        """Where agents and ghosts stand in an array of the agents, then the ghosts."""
        where = np.full(len(self.parts), -1, dtype=np.int64)
        where[self.agents] = np.arange(len(self.agents))
        where[self.ghosts] = len(self.agents) + np.arange(len(self.ghosts))
        return np.asarray(where[n])

    def columns(self, W: sparse.csr_array) -> sparse.csr_array:
        """The agents' rows of W (N, N) for such an array (n, n + m), in the order of W's columns.

        A product adds in the order in which the entries are stored: that of one process, hence the
        same bits.
        """
        own = W[self.agents]
        shape = (len(self.agents), len(self.agents) + len(self.ghosts))
        return sparse.csr_array((own.data, self.places(own.indices), own.indptr), shape=shape)

    def order(self) -> Index:
        """All agents (N,), rank after rank: the order in which gathered rows arrive."""
        return np.argsort(self.parts, kind="stable")


def block(graph: Graph | sparse.csr_array, parts: Index, rank: int) -> Block:
    """What that rank holds and hears."""
    A = as_matrix(graph)
    agents = np.flatnonzero(parts == rank)
    heard = A[agents].tocoo()
    out = parts[heard.col] != rank
    ghosts = np.unique(heard.col[out]).astype(np.int64)
    ghosts = ghosts[np.argsort(parts[ghosts], kind="stable")]
    # The graph is undirected: a rank is heard by those it hears.
    speaking = np.unique(np.c_[parts[heard.col[out]], heard.row[out]], axis=0)
    others = np.unique(parts[ghosts]).tolist()
    ends = np.searchsorted(parts[ghosts], [*others, len(parts)]).tolist()
    return Block(
        rank,
        parts,
        agents,
        ghosts,
        {other: speaking[speaking[:, 0] == other, 1] for other in others},
        {other: slice(ends[j], ends[j + 1]) for j, other in enumerate(others)},
    )


def neighbours_of(W: sparse.csr_array) -> tuple[Index, Index]:
    """Both ends (i, n) of every entry of W."""
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    return rows, W.indices.astype(np.int64)


def degrees_of(A: sparse.csr_array) -> Array:
    """d_i (N, 1)."""
    return np.diff(A.indptr).astype(np.float64)[:, None]
