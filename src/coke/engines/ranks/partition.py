"""Which rank holds which agents, what they hear of others, and how Σ_n w_in θ̂_n comes about.

METIS cuts few edges: on our random graphs 22 % for two ranks where blocks in order cut 50 %, on
grids 0.4 %. Spectral halves and Kernighan–Lin cut more and take longer, KaHIP cuts the same in five
to forty times the time (`docs/mpi.md`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.engines.ranks.collectives import Rows, everyones
from coke.errors import GraphError, InputError
from coke.maths.algorithms.stopping import Here
from coke.maths.arrays import Mask

if TYPE_CHECKING:
    from mpi4py import MPI

Index = NDArray[np.int64]
ROWS = 4096  # to each rank at a time: buffers for all of them would be another copy of θ̂


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


class Between(Here):
    """One rank's agents among those of all ranks, and what they say to each other.

    `hats` (n + m, W) are the block's own θ̂_i, which the caller writes, and then the last heard.
    """

    def __init__(self, comm: MPI.Comm, own: Block, width: int):
        self.comm, self.own, self._n = comm, own, len(own.agents)
        self.hats = np.zeros((self._n + len(own.ghosts), width))

    def agents(self, N: int) -> Index:
        """The block's own."""
        return self.own.agents

    def columns(self, W: sparse.csr_array) -> sparse.csr_array:
        """The block's rows of W, for an array of its agents and then the others that they hear."""
        return self.own.columns(W)

    def heard(self, rows: Rows) -> Rows:
        """A row (n, …) of every agent, followed by those of the others that they hear."""
        own = self.own
        heard = np.empty((len(own.ghosts), *rows.shape[1:]), rows.dtype)
        self._swap(
            {rank: rows[at] for rank, at in own.sends.items()},
            {rank: heard[at] for rank, at in own.receives.items()},
        )
        return np.concatenate([rows, heard])

    def sum(self, row: Rows) -> Rows:
        """Of all ranks."""
        return np.asarray(everyones(self.comm, row).sum(axis=0))

    def max(self, row: Rows) -> Rows:
        """Of all ranks."""
        return np.asarray(everyones(self.comm, row).max(axis=0))

    def all(self, flags: Mask) -> Mask:
        """At all ranks."""
        return np.asarray(everyones(self.comm, flags).all(axis=0))

    def __call__(self, spoke: Mask) -> None:
        """Tells the other ranks θ̂_i of those agents (n,) that spoke, and hears theirs.

        A bit for each agent that is heard elsewhere, then the rows of those whose bit is set.
        """
        own = self.own
        said = {rank: spoke[at] for rank, at in own.sends.items()}
        bits = {rank: np.packbits(mask) for rank, mask in said.items()}
        lengths = {rank: part.stop - part.start for rank, part in own.receives.items()}
        masks = {rank: np.empty(-(-n // 8), np.uint8) for rank, n in lengths.items()}
        self._swap(bits, masks)
        speaking = {
            rank: np.flatnonzero(np.unpackbits(masks[rank], count=n)) for rank, n in lengths.items()
        }
        saying = {rank: at[said[rank]] for rank, at in own.sends.items()}
        places = {rank: self._n + own.receives[rank].start + at for rank, at in speaking.items()}
        longest = max(map(len, [*saying.values(), *places.values()]), default=0)
        for first in range(0, longest, ROWS):
            self._rows(_few(saying, first), _few(places, first))

    def _rows(self, saying: dict[int, Index], places: dict[int, Index]) -> None:
        """Some rows to every rank, and as many from it as it has to say at this turn."""
        heard = {rank: np.empty((len(at), self.hats.shape[1])) for rank, at in places.items()}
        self._swap({rank: self.hats[at] for rank, at in saying.items()}, heard)
        for rank, at in places.items():
            self.hats[at] = heard[rank]

    def _swap(self, out: dict[int, Rows], into: dict[int, Rows]) -> None:
        """Sends to and receives from every rank at once; empty parts do not travel."""
        waiting = [self.comm.Irecv(part, rank) for rank, part in into.items() if part.size]
        waiting += [self.comm.Isend(part, rank) for rank, part in out.items() if part.size]
        for request in waiting:
            request.Wait()


def _few(rows: dict[int, Index], first: int) -> dict[int, Index]:
    return {rank: at[first : first + ROWS] for rank, at in rows.items()}
