"""Where the agents are: all in this process, or in blocks on the ranks of an MPI job.

The first rank also gathers what all agents' risks are made of. So the losses on everybody's rows,
θ* and all means are computed by one process's code on one process's numbers: the same bits.
"""

# ruff: noqa: D102  what Engine's methods promise, those of Ranks keep

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from coke.engines.checkpoint import fingerprint
from coke.engines.limits import Limits
from coke.engines.process import Checkpoint, Record, gaps, simulate
from coke.engines.ranks.collectives import (
    Rows,
    all_or_none,
    everyones,
    everyones_rows,
    gather,
    gather_parts,
    gather_record,
    own_rows,
    whole_fingerprint,
)
from coke.engines.ranks.conversation import together_on_ranks
from coke.engines.ranks.partition import block, partition
from coke.engines.ranks.rounds import simulate_block
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.graph import Graph
from coke.maths.ledger import Ledger, Spent
from coke.maths.losses.problem import Problem
from coke.maths.losses.risk import Risk
from coke.talk.conversation import Talk, together
from coke.threads import OneThread

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

    def simulate(
        self, problem: Problem, graph: Graph, algorithm: Algorithm, limits: Limits,
        spent: Spent, resume: Checkpoint | None,
    ) -> Iterator[Record]:  # fmt: skip
        """The rounds; `problem` and `spent` are of the agents here, `resume` is of all."""
        most = limits._asdict()
        return simulate(problem, graph, algorithm, **most, spent=spent, resume=resume)


ALONE = Engine()


class Ranks(Engine):
    """One of several ranks, each with a block of the agents."""

    def __init__(self, comm: MPI.Comm, graph: Graph, names: tuple[str, ...]):
        self.comm, self.first, self._names = comm, not comm.rank, names
        self.own = block(graph, partition(graph, comm.size), comm.rank)
        self._rank_of = dict(zip(names, self.own.parts.tolist(), strict=True))

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
        return together_on_ranks(self.comm, self._rank_of, talks)

    def gather(self, rows: Rows) -> Rows | None:
        return gather(self.comm, self.own, rows)

    def everyones(self, rows: Rows) -> Rows:
        return everyones_rows(self.comm, self.own, rows)

    def record(self, record: Record) -> Record | None:
        return gather_record(self.comm, self.own, record)

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
            return gather_parts(self.comm, self.own, own) or tuple(own)

        return risk.gathered(rows, parts)

    def fingerprint(self, problem: Problem, graph: Graph, algorithm: Algorithm) -> str:
        return whole_fingerprint(self.comm, self.own, graph, problem, algorithm)

    def simulate(
        self, problem: Problem, graph: Graph, algorithm: Algorithm, limits: Limits,
        spent: Spent, resume: Checkpoint | None,
    ) -> Iterator[Record]:  # fmt: skip
        at = None if resume is None else own_rows(self.own, resume)
        records = simulate_block(
            self.comm, self.own, graph, problem, algorithm,
            limits=limits, spent=spent, scored=(), resume=at,
        )  # fmt: skip
        return self._judged(records, self.whole(problem))

    def _judged(self, records: Iterator[Record], whole: Problem | None) -> Iterator[Record]:
        """At the first rank, with the losses and gaps of all agents that one process would see."""
        threads = OneThread()
        for record in records:
            theta, loss = self.gather(record.state.theta), self.gather(record.state.loss)
            if whole is None or theta is None:
                yield record
                continue
            with threads.limit(), np.errstate(over="ignore", invalid="ignore"):
                score, apart = whole.score(theta, loss), gaps(theta, whole.optimum)
            yield record._replace(score=score, consensus_gap=apart[0], optimality_gap=apart[1])
