"""Rounds on many ranks: each holds a block of agents, and only θ̂ of those who speak travels.

A rank goes through its agents a few at a time and writes over its state, so that what a round
touches stays in the cache and one copy of the state is all there is. Row i of every step depends
on row i alone, and a row of the sparse product adds in the order of one process. Hence θ, θ̂, the
other rows of the state, who spoke and every byte are those of `simulate`, bit for bit, on any
number of ranks. Means over agents add rank by rank: their last digits differ, and those of θ*.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np
from scipy import sparse

from coke.engines.limits import Limits
from coke.engines.process import Checkpoint, Record, diverged, norms, resumed
from coke.engines.ranks.collectives import all_or_none, everyones
from coke.engines.ranks.exchange import Between
from coke.engines.ranks.overall import Scores, Stop, diameter_of, optimum_of, packed, scores
from coke.engines.ranks.partition import Block, as_matrix, degrees_of
from coke.errors import InputError
from coke.maths.algorithms.algorithm import Algorithm, State
from coke.maths.algorithms.coke import COKE
from coke.maths.algorithms.stopping import at_first
from coke.maths.arrays import Array, Mask, Sizes
from coke.maths.graph import Graph
from coke.maths.ledger import Ledger, Spent, round_cost
from coke.maths.losses.problem import Problem
from coke.threads import OneThread

if TYPE_CHECKING:
    from mpi4py import MPI

AGENTS = 256  # at a time: their rows of the state stay in the cache


def simulate_block(
    comm: MPI.Comm,
    own: Block,
    graph: Graph | sparse.csr_array,
    problem: Problem,
    algorithm: Algorithm,
    *,
    limits: Limits,
    spent: Spent | None = None,
    scored: Container[int] | None = None,
    resume: Checkpoint | None = None,
    optimum: Array | None = None,
) -> Iterator[Record]:
    """`simulate` for one rank: `problem` holds the block's agents only, `graph` is the whole one.

    Every rank gets the same records, except that `state`, `spent` and `quiet` are those of its own
    agents; the state is written over in the next round. `gather_record` brings them together.
    `spent` and `resume` (see `own_rows`) are the block's, too. Without `optimum` θ* is computed
    for the quadratic loss, and the optimality gap is NaN for others.
    """
    limits, A = limits.checked(), as_matrix(graph)
    if len(problem.train.T) != len(own.agents):
        raise InputError(
            f"rank {own.rank} holds {len(own.agents)} agents, but its problem has "
            f"{len(problem.train.T)}: build it from the rows of those agents, in that order"
        )
    alone = OneThread()
    with alone.limit():
        engine = _Engine(comm, own, A, problem, algorithm, _weights(algorithm, graph, A))
        best = optimum_of(comm, problem.train) if optimum is None else optimum
        judge = _Judge(comm, scores(comm, problem), best, scored, limits.rounds)
    none = np.zeros((len(own.agents), 3), np.int64) if spent is None else spent
    at = Checkpoint(0, none, at_first(len(none)), {}) if resume is None else resume
    engine.restore(at)
    stop = None
    if any(limit is not None for limit in limits[1:]):
        stop = Stop(comm, own.columns(A), limits, diameter_of(comm, A))
    return _rounds(engine, judge, stop, at, alone)


def _weights(algorithm: Algorithm, graph: Any, A: sparse.csr_array) -> sparse.csr_array:
    """w_in (N, N); COKE's are the matrix itself, of which no graph object need be made."""
    if isinstance(algorithm, COKE):
        return A
    return algorithm.weights(graph if graph is not A else nx.from_scipy_sparse_array(A))


class _Piece(NamedTuple):
    """A few agents of the block, and what stays fixed for them."""

    rows: slice
    own: Any
    W: sparse.csr_array  # (a, n + m)


class _Engine:
    """The block's state, written over from round to round."""

    def __init__(
        self,
        comm: MPI.Comm,
        own: Block,
        A: sparse.csr_array,
        problem: Problem,
        algorithm: Algorithm,
        W: sparse.csr_array,
    ):
        self.comm, self.block, self.algorithm = comm, own, algorithm
        self.d, self.T = degrees_of(A)[own.agents], problem.train.T
        self.exchange = Between(comm, own, problem.train.size)
        self.pieces: list[_Piece] = []
        self.state: State = None
        W, n = own.columns(W), len(self.d)
        for first in range(0, n, AGENTS):
            rows = slice(first, min(first + AGENTS, n))
            risk = problem.train.rows(rows)
            self.pieces.append(_Piece(rows, algorithm.local(risk, self.d[rows]), W[rows]))
            self._begin(rows, algorithm.start(risk))

    def _begin(self, rows: slice, first: State) -> None:
        if self.state is None:
            n = len(self.d)
            whole = {name: np.empty((n, *x.shape[1:])) for name, x in first._asdict().items()}
            whole["hat"] = self.exchange.hats[:n]
            self.state = type(first)(**whole)
        _write(_take(self.state, rows), first)

    def restore(self, at: Checkpoint) -> None:
        """Goes on from there; the other ranks hear every θ̂ of this one."""
        if at.state:
            _write(self.state, resumed(self.state, at.state))
        self.exchange(np.ones(len(self.d), np.bool_))

    def speak(self, k: int, stop: Stop | None, spent: Spent) -> tuple[Sizes, Mask, Array]:
        """Bytes of every message, whose would exceed its budget, and ‖θ_i − θ̂_i‖ before it."""
        n = len(self.d)
        size, broke, news = np.zeros((n, 1), np.int64), np.zeros((n, 1), np.bool_), np.zeros(n)
        for rows, own, _ in self.pieces:
            before = _take(self.state, rows)
            after, said = self.algorithm.speak(own, before, k)
            size[rows] = said.size
            if stop is not None:
                news[rows] = norms(after.theta - before.hat)
                broke[rows] = stop.limits.over(spent[rows], size[rows], stop.N)
                after = after._replace(hat=np.where(broke[rows], before.hat, after.hat))
            _write(before, after)
        return size, broke, news

    def listen(self) -> None:
        """The rest of the round, once the other ranks have told theirs."""
        for rows, own, W in self.pieces:
            before = _take(self.state, rows)
            _write(before, self.algorithm.listen(own, before, W @ self.exchange.hats))

    def farthest(self, centre: Array) -> float:
        """max_i ‖θ_i − centre‖ over the agents of all ranks."""
        far = [norms(self.state.theta[piece.rows] - centre).max() for piece in self.pieces]
        return float(everyones(self.comm, np.array([max(far)])).max())

    def mean(self) -> Array:
        """Of all agents' θ."""
        total = everyones(self.comm, self.state.theta.sum(axis=0)).sum(axis=0)
        return np.asarray(total / len(self.block.parts))

    def everybody(self, spoke: Mask) -> Mask:
        """Who spoke (N,), from each rank's own agents."""
        most = -(-int(np.bincount(self.block.parts).max()) // 8)
        bits = np.zeros(most, np.uint8)
        mine = np.packbits(spoke)
        bits[: len(mine)] = mine
        said, all_spoke = everyones(self.comm, bits), np.zeros(len(self.block.parts), np.bool_)
        for rank, row in enumerate(said):
            there = np.flatnonzero(self.block.parts == rank)
            all_spoke[there] = np.unpackbits(row, count=len(there))
        return all_spoke


class _Judge(NamedTuple):
    """What is said of a round."""

    comm: MPI.Comm
    scores: Scores
    optimum: Array | None
    scored: Container[int] | None
    last: int

    def record(self, engine: _Engine, k: int, size: Sizes, spent: Spent, ended: bool) -> Record:
        """Of round k; `quiet` and `settled` are for the caller to fill in."""
        close = ended or self.scored is None or k == self.last or k in self.scored
        score = self.scores(engine.state.theta, engine.state.loss, close)
        ledger = Ledger(*map(int, everyones(self.comm, spent.sum(axis=0)).sum(axis=0)))
        best = np.nan if self.optimum is None else engine.farthest(self.optimum)
        spoke = engine.everybody(size[:, 0] > 0)
        gap, quiet = engine.farthest(engine.mean()), at_first(0)
        return Record(k, spoke, ledger, score, gap, best, False, engine.state, spent, quiet)


def _rounds(
    engine: _Engine, judge: _Judge, stop: Stop | None, at: Checkpoint, alone: OneThread
) -> Iterator[Record]:
    spent, quiet, ended, settled = at.spent, at.quiet, False, False
    words = engine.exchange.words(packed(quiet))
    for k in range(at.k + 1, judge.last + 1):
        with alone.limit(), np.errstate(over="ignore", invalid="ignore"):
            apart = np.zeros(0) if stop is None else stop.apart(engine.exchange.hats)
            size, broke, news = all_or_none(engine.comm, partial(engine.speak, k, stop, spent))
            if stop is not None:
                if k == 1:
                    stop.refuse(broke, spent, size)
                size, quiet = np.where(broke, 0, size), stop.count(words, news, apart, broke)
                words = engine.exchange.words(packed(quiet))
                ended, settled = stop.ended(words)
            engine.exchange(size[:, 0] > 0)
            engine.listen()
            _finite(engine, k)
            spent = spent + round_cost(size, engine.d)
            record = judge.record(engine, k, size, spent, ended)
        yield record._replace(quiet=quiet, settled=settled)
        if ended:
            return


def _finite(engine: _Engine, k: int) -> None:
    """Refuses, at all ranks, to go on with numbers that are none."""
    lost = np.count_nonzero(~np.isfinite(engine.state.loss))
    if total := int(everyones(engine.comm, np.array([lost])).sum()):
        raise diverged(total, k, engine.algorithm)


def _take(state: State, rows: slice) -> State:
    return type(state)(*(part[rows] for part in state))


def _write(old: State, new: State) -> None:
    """Writes the new rows over the old; views are copied first, for they may be of other rows."""
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a is not b]
    for a, b in [(a, b if b.base is None else b.copy()) for a, b in changed]:
        a[...] = b
