"""Rounds on many ranks: each holds a block of agents, and only θ̂ of those who speak travels.

A rank goes through its agents a few at a time and writes over its state, so that what a round
touches stays in the cache and one copy of the state is all there is. Row i of every step depends
on row i alone, and a row of the sparse product adds in the order of one process. Hence θ, θ̂, the
other rows of the state, who spoke and every byte are those of `simulate`, bit for bit, on any
number of ranks. Means over agents add rank by rank: their last digits differ, and those of θ*.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from coke.engines.process import Checkpoint, Looks, Record, Rows, diverged, records, resumed
from coke.engines.ranks.collectives import all_or_none, everyones
from coke.engines.ranks.overall import Overall
from coke.errors import InputError
from coke.maths.algorithms.algorithm import Algorithm, Spoken, State
from coke.maths.algorithms.stopping import Account, Here, Limits, Stopping, at_first
from coke.maths.arrays import Mask
from coke.maths.ledger import Spent
from coke.maths.losses.problem import Problem, Score
from coke.threads import OneThread

if TYPE_CHECKING:
    from mpi4py import MPI

    from coke.engines.ranks.engine import Block, Index

AGENTS = 256  # at a time: their rows of the state stay in the cache
ROWS = 4096  # to each rank at a time: buffers for all of them would be another copy of θ̂

_Judge = Callable[[State, bool], tuple[Score, float, float]]
"""The state of a rank's agents, whether to look closely ↦ losses and both gaps, of all agents."""


def simulate_block(
    comm: MPI.Comm,
    own: Block,
    A: sparse.csr_array,
    problem: Problem,
    algorithm: Algorithm,
    *,
    limits: Limits,
    spent: Spent | None = None,
    scored: Container[int] | None = None,
    resume: Checkpoint | None = None,
    judge: _Judge | None = None,
) -> Iterator[Record]:
    """`simulate` for one rank: `problem` holds the block's agents only, A (N, N) is of all agents.

    Every rank gets the same records, except that `state`, `spent` and `quiet` are those of its own
    agents; the state is written over in the next round. `Ranks.record` brings them together.
    `spent` and `resume` are the block's, too. `judge` is called by all ranks in every round;
    without one it is `Overall`.
    """
    if len(problem.train.T) != len(own.agents):
        raise InputError(
            f"rank {own.rank} holds {len(own.agents)} agents, but its problem has "
            f"{len(problem.train.T)}: build it from the rows of those agents, in that order"
        )
    exchange, n = _Between(comm, own), len(own.agents)
    here = Here(A, own.agents, own.columns(A), exchange.heard, partial(everyones, comm))
    stop = Stopping(limits.checked(), here)
    nothing = np.zeros((n, 3), np.int64) if spent is None else spent
    at = Checkpoint(0, nothing, at_first(n), {}) if resume is None else resume
    account, threads = stop.begin(at.k, at.spent, at.quiet), OneThread()
    with threads.limit():
        held = _Held(exchange, problem, algorithm, stop, judge or Overall(comm, problem))
        held.restore(at)
    return records(held, account, Looks(scored, limits.rounds), threads)


class _Between:
    """One rank's agents among those of all ranks, and what they say to each other.

    `hats` (n + m, W) are the block's own θ̂_i, which the caller writes, and then the last heard.
    """

    def __init__(self, comm: MPI.Comm, own: Block):
        self.comm, self.own, self._n = comm, own, len(own.agents)
        self.hats = np.zeros((self._n + len(own.ghosts), 0))  # as wide as the first state's θ̂

    def heard(self, rows: Rows) -> Rows:
        """A row (n, …) of every agent, followed by those of the others that they hear."""
        own = self.own
        heard = np.empty((len(own.ghosts), *rows.shape[1:]), rows.dtype)
        self._swap(
            {rank: rows[at] for rank, at in own.sends.items()},
            {rank: heard[at] for rank, at in own.receives.items()},
        )
        return np.concatenate([rows, heard])

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


class _Piece(NamedTuple):
    """A few agents of the block, and what stays fixed for them."""

    rows: slice
    own: Any
    W: sparse.csr_array  # (a, n + m)


class _Held:
    """The block's state, written over from round to round."""

    def __init__(
        self,
        exchange: _Between,
        problem: Problem,
        algorithm: Algorithm,
        stop: Stopping,
        judge: _Judge,
    ):
        self.exchange, self.algorithm, self.stop, self.judge = exchange, algorithm, stop, judge
        self.pieces: list[_Piece] = []
        self.state: State = None
        W, n = exchange.own.columns(algorithm.weights(stop.here.A)), len(stop.d)
        for first in range(0, n, AGENTS):
            rows = slice(first, min(first + AGENTS, n))
            risk = problem.train.rows(rows)
            self.pieces.append(_Piece(rows, algorithm.local(risk, stop.d[rows]), W[rows]))
            self._begin(rows, algorithm.start(risk))

    def _begin(self, rows: slice, first: State) -> None:
        if self.state is None:
            n = len(self.stop.d)
            whole = {name: np.empty((n, *x.shape[1:])) for name, x in first._asdict().items()}
            hats = np.zeros((len(self.exchange.hats), first.hat.shape[1]))
            self.exchange.hats, whole["hat"] = hats, hats[:n]
            self.state = type(first)(**whole)
        _write(_take(self.state, rows), first)

    def restore(self, at: Checkpoint) -> None:
        """Goes on from there; the other ranks hear every θ̂ of this one."""
        if at.state:
            _write(self.state, resumed(self.state, at.state))
        self.exchange(np.ones(len(self.stop.d), np.bool_))

    def round(self, at: Account) -> Account:
        """The round after that of the account; an error at one rank is an error at all."""
        hats = self.exchange.hats
        last = hats if self.stop.idle else hats.copy()  # what `speak` writes over
        said = all_or_none(self.exchange.comm, partial(self._speak, at.k + 1))
        now = self.stop.after(at, said, self.state, self.algorithm.told(last))
        if now.over is not None:
            hat = np.where(now.over, last[: len(now.over)], self.state.hat)
            _write(self.state, self.state._replace(hat=hat))
        self.exchange(now.spoke)
        for rows, own, W in self.pieces:
            before = _take(self.state, rows)
            _write(before, self.algorithm.listen(own, before, W @ hats))
        return now

    def _speak(self, k: int) -> Spoken:
        """Every piece's part of round k up to the transmission, and the bytes of its messages."""
        size = np.zeros((len(self.stop.d), 1), np.int64)
        for rows, own, _ in self.pieces:
            before = _take(self.state, rows)
            after, said = self.algorithm.speak(own, before, k)
            size[rows] = said.size
            _write(before, after)
        return Spoken(size)

    def judged(self, k: int, close: bool) -> tuple[Score, float, float]:
        """What the judge says of round k; an error at all ranks where numbers are none."""
        lost = np.count_nonzero(~np.isfinite(self.state.loss))
        if total := int(self.stop.here.sum(np.array([lost]))[0]):
            raise diverged(total, k, self.algorithm)
        return self.judge(self.state, close)

    def everybody(self, spoke: Mask) -> Mask:
        """Who spoke (N,), from each rank's own agents."""
        parts = self.exchange.own.parts
        most = -(-int(np.bincount(parts).max()) // 8)
        bits = np.zeros(most, np.uint8)
        mine = np.packbits(spoke)
        bits[: len(mine)] = mine
        said, all_spoke = everyones(self.exchange.comm, bits), np.zeros(len(parts), np.bool_)
        for rank, row in enumerate(said):
            there = np.flatnonzero(parts == rank)
            all_spoke[there] = np.unpackbits(row, count=len(there))
        return all_spoke


def _take(state: State, rows: slice) -> State:
    return type(state)(*(part[rows] for part in state))


def _write(old: State, new: State) -> None:
    """Writes the new rows over the old; views are copied first, for they may be of other rows."""
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a is not b]
    for a, b in [(a, b if b.base is None else b.copy()) for a, b in changed]:
        a[...] = b
