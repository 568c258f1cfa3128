"""Agents in blocks on the ranks of an MPI job: who holds which, and what they know together.

METIS cuts few edges: on our random graphs 22 % for two ranks where blocks in order cut 50 %, on
grids 0.4 %. Spectral halves and Kernighan–Lin cut more and take longer, KaHIP cuts the same in five
to forty times the time (`docs/mpi.md`).

The first rank also gathers what all agents' risks are made of. So the losses on everybody's rows,
θ* and all means are computed by one process's code on one process's numbers: the same bits.
"""

# ruff: noqa: D102  what Engine's methods promise, those of Ranks keep

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.engines.fingerprint import digest_of, marks
from coke.engines.process import Checkpoint, Engine, Judge, Record, Rows
from coke.engines.ranks.collectives import all_or_none, everyones, posted
from coke.engines.ranks.rounds import simulate_block
from coke.errors import GraphError, InputError
from coke.maths.algorithms.algorithm import Algorithm, State
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.graph import Graph, adjacency
from coke.maths.ledger import Spent
from coke.maths.losses.problem import Problem, Score
from coke.maths.losses.risk import Risk

if TYPE_CHECKING:
    from mpi4py import MPI

R = TypeVar("R")
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
            "pip install 'coke-learn[mpi]'"
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


class Ranks(Engine):
    """One of several ranks, each with a block of the agents of this network."""

    def __init__(self, comm: MPI.Comm, A: sparse.csr_array, names: tuple[str, ...] = ()):
        self.comm, self.first, self.A = comm, not comm.rank, A
        self.own = block(A, partition(A, comm.size), comm.rank)
        self._order = self.own.order()
        rank_of = dict(zip(names, self.own.parts.tolist(), strict=False))  # where they have names
        self.post = partial(posted, comm, rank_of)

    def agents(self, N: int) -> Sequence[int]:
        return self.own.agents.tolist()

    def guarded(self, work: Callable[[], R]) -> R:
        return all_or_none(self.comm, work)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Which flags are up at any rank."""
        up: list[bool] = np.any(everyones(self.comm, np.array(flags)), axis=0).tolist()
        return tuple(up)

    def gather(self, rows: Rows) -> Rows | None:
        """The rows of all agents (N, …) at the first process, None elsewhere."""
        arrived = self._arrived(rows, np.bincount(self.own.parts, minlength=self.comm.size))
        if arrived is None:
            return None
        whole = np.empty_like(arrived)
        whole[self._order] = arrived
        return whole

    def gather_parts(self, parts: Sequence[Rows]) -> tuple[Rows, ...] | None:
        """The same of agents with T_i rows each, (T_i, …)."""
        T = self.everyones(np.array([len(part) for part in parts]))
        counts = np.bincount(self.own.parts, T).astype(np.int64)
        arrived = self._arrived(np.concatenate(parts), counts)
        if arrived is None:
            return None
        pieces = np.split(arrived, np.cumsum(T[self._order])[:-1])
        return tuple(pieces[place] for place in np.argsort(self._order))

    def _arrived(self, rows: Rows, counts: NDArray[np.int64]) -> Rows | None:
        """At the first rank so many rows of every rank, rank after rank; None elsewhere."""
        rows = np.ascontiguousarray(rows)
        if not self.first:
            self.comm.Gatherv(rows, None)
            return None
        arrived = np.empty((counts.sum(), *rows.shape[1:]), rows.dtype)
        wide = int(np.prod(rows.shape[1:], dtype=np.int64))
        self.comm.Gatherv(rows, (arrived, (counts * wide).tolist()))
        return arrived

    def everyones(self, rows: Rows) -> Rows:
        whole = self.gather(rows)
        if whole is None:
            whole = np.empty((len(self.own.parts), *rows.shape[1:]), rows.dtype)
        self.comm.Bcast(whole)
        return whole

    def record(self, record: Record) -> Record | None:
        """A barrier: it returns once every rank has given its rows of the same round."""
        state = [self.gather(part) for part in record.state]
        spent, quiet = self.gather(record.spent), record.quiet.each(self.gather)
        if spent is None:
            return None
        return record._replace(state=type(record.state)(*state), spent=spent, quiet=quiet)

    def whole(self, problem: Problem) -> Problem | None:
        """The problem of all agents at the first process, None elsewhere."""
        train = self._risk(problem.train)
        test = None if problem.test is None else self._risk(problem.test)
        return Problem(train, test) if self.first else None

    def _risk(self, risk: Risk) -> Risk:
        """All agents' risks at the first rank; elsewhere the rank's own."""

        def rows(own: Array) -> Array:
            whole = self.gather(own)
            return own if whole is None else whole

        def parts(own: Sequence[Array]) -> tuple[Array, ...]:
            return self.gather_parts(own) or tuple(own)

        return risk.gathered(rows, parts)

    def fingerprint(self, problem: Problem, graph: Graph, algorithm: Algorithm) -> str:
        wholes, digest = [self.gather(part) for part in marks(problem)], np.zeros(16, np.uint8)
        if self.first:
            found = digest_of(problem, adjacency(graph), algorithm, wholes)
            digest = np.frombuffer(found, np.uint8).copy()
        self.comm.Bcast(digest)
        return digest.tobytes().hex()

    def judge(self, problem: Problem) -> Judge:
        return partial(self._judged, self.whole(problem), close=True)

    def rounds(
        self, problem: Problem, graph: Graph, algorithm: Algorithm, limits: Limits,
        spent: Spent, resume: Checkpoint | None,
    ) -> Iterator[Record]:  # fmt: skip
        A = adjacency(graph)  # the same agents, whoever of them is heard
        own = block(A, self.own.parts, self.comm.rank)
        return simulate_block(
            self.comm, own, A, problem, algorithm, limits=limits, spent=spent,
            resume=None if resume is None else resume.rows(self.own.agents),
            judge=partial(self._judged, self.whole(problem)),
        )  # fmt: skip

    def _judged(self, whole: Problem | None, s: State, close: bool) -> tuple[Score, float, float]:
        """At the first rank the losses and gaps of all agents, as one process would see them."""
        theta, loss = self.gather(s.theta), self.gather(s.loss)
        if whole is None or theta is None:
            return Score(np.nan, np.nan, np.nan, np.nan), np.nan, np.nan
        consensus, optimality = whole.gaps(theta)
        return whole.score(theta, loss), consensus, optimality
