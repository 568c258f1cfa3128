"""Which rank holds which agents, and what one rank needs to know of the others.

METIS cuts few edges: on our random graphs 22 % for two ranks where blocks in order cut 50 %, on
grids 0.4 %. Spectral halves and Kernighan–Lin cut more and take longer, KaHIP cuts the same in five
to forty times the time (`docs/mpi.md`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.errors import GraphError, InputError

Index = NDArray[np.int64]


def partition(A: sparse.csr_array, ranks: int) -> Index:
    """The rank of every agent (N,): near equal numbers, few edges between ranks.

    A (N, N) is the adjacency, each row sorted; agents that nobody can reach are refused.
    """
    parts, _ = sparse.csgraph.connected_components(A, directed=False)
    if parts > 1:
        raise GraphError(
            f"the graph falls into {parts} components: expected a path between any two agents; "
            "add an edge between the components"
        )
    if not 1 <= ranks <= A.shape[0]:
        raise InputError(
            f"{ranks} ranks for {A.shape[0]} agents: expected at least one agent a rank; "
            "start fewer ranks"
        )
    if ranks == 1:
        return np.zeros(A.shape[0], np.int64)
    found = _metis(A, ranks)
    if len(np.unique(found)) < ranks:  # METIS may leave a rank of a tiny graph without agents
        return np.arange(A.shape[0]) * ranks // A.shape[0]
    return found


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


def block(A: sparse.csr_array, parts: Index, rank: int) -> Block:
    """What that rank holds and hears."""
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
        rank=rank,
        parts=parts,
        agents=agents,
        ghosts=ghosts,
        sends={other: speaking[speaking[:, 0] == other, 1] for other in others},
        receives={other: slice(*pair) for other, pair in zip(others, pairwise(ends), strict=True)},
    )
