"""Where the agents are: all in this process, or in blocks on the ranks of an MPI job.

The first rank also gathers what all agents' risks are made of. So the losses on everybody's rows,
θ* and all means are computed by one process's code on one process's numbers: the same bits.
"""

# ruff: noqa: D102  what Engine's methods promise, those of Ranks keep

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.engines.checkpoint import digest_of, fingerprint, marks
from coke.engines.process import Checkpoint, Record, simulate
from coke.engines.ranks.collectives import Rows, all_or_none, everyones, posted
from coke.engines.ranks.partition import block, partition
from coke.engines.ranks.rounds import simulate_block
from coke.maths.algorithms.algorithm import Algorithm, State
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.graph import Graph
from coke.maths.ledger import Ledger, Spent
from coke.maths.losses.problem import Problem, Score
from coke.maths.losses.risk import Risk
from coke.talk.conversation import Talk, together

if TYPE_CHECKING:
    from mpi4py import MPI

R = TypeVar("R")


class Engine:
    """All agents in this process."""

    first = True  # of the processes: the one that writes and speaks

    def agents(self, N: int) -> Sequence[int]:
        """Those of N that are here."""
        return range(N)

    def names(self, here: tuple[str, ...]) -> tuple[str, ...]:
        """Of all sites, given those here."""
        return here

    def guarded(self, work: Callable[[], R]) -> R:
        """What the work gives; an error at one process is an error at all."""
        return work()

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Which flags are up at any process."""
        return flags

    def together(self, talks: Mapping[str, Talk[R]]) -> tuple[dict[str, R], dict[str, Ledger]]:
        """The conversations of the sites here with all others."""
        return together(talks)

    def gather(self, rows: Rows) -> Rows | None:
        """The rows of all agents (N, …) at the first process, None elsewhere."""
        return rows

    def everyones(self, rows: Rows) -> Rows:
        """The rows of all agents (N, …) at every process."""
        return rows

    def record(self, record: Record) -> Record | None:
        """The record with all agents' state at the first process, None elsewhere."""
        return record

    def whole(self, problem: Problem) -> Problem | None:
        """The problem of all agents at the first process, None elsewhere."""
        return problem

    def fingerprint(self, problem: Problem, graph: Graph, algorithm: Algorithm) -> str:
        """Of the problem of all agents, see `coke.engines.checkpoint`."""
        return fingerprint(problem, graph, algorithm)

    def rounds(
        self, problem: Problem, graph: Graph, algorithm: Algorithm, limits: Limits,
        spent: Spent, resume: Checkpoint | None,
    ) -> Iterator[Record]:  # fmt: skip
        """The rounds; `problem` and `spent` are of the agents here, `resume` is of all."""
        most = limits._asdict()
        return simulate(problem, graph, algorithm, **most, spent=spent, resume=resume)


ALONE = Engine()


class Ranks(Engine):
    """One of several ranks, each with a block of the agents of this network."""

    def __init__(self, comm: MPI.Comm, A: sparse.csr_array, names: tuple[str, ...] = ()):
        self.comm, self.first, self.A, self._names = comm, not comm.rank, A, names
        self.own = block(A, partition(A, comm.size), comm.rank)
        self._order = self.own.order()

    def agents(self, N: int) -> Sequence[int]:
        return self.own.agents.tolist()

    def names(self, here: tuple[str, ...]) -> tuple[str, ...]:
        return self._names

    def guarded(self, work: Callable[[], R]) -> R:
        return all_or_none(self.comm, work)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        up: list[bool] = np.any(everyones(self.comm, np.array(flags)), axis=0).tolist()
        return tuple(up)

    def together(self, talks: Mapping[str, Talk[R]]) -> tuple[dict[str, R], dict[str, Ledger]]:
        rank_of = dict(zip(self._names, self.own.parts.tolist(), strict=True))
        return self.guarded(lambda: together(talks, partial(posted, self.comm, rank_of)))

    def gather(self, rows: Rows) -> Rows | None:
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
            found = digest_of(problem, self.A, algorithm, wholes)
            digest = np.frombuffer(found, np.uint8).copy()
        self.comm.Bcast(digest)
        return digest.tobytes().hex()

    def rounds(
        self, problem: Problem, graph: Graph, algorithm: Algorithm, limits: Limits,
        spent: Spent, resume: Checkpoint | None,
    ) -> Iterator[Record]:  # fmt: skip
        return simulate_block(
            self.comm, self.own, self.A, problem, algorithm, limits=limits, spent=spent,
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
