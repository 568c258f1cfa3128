"""What ranks only know together: losses on everybody's rows, θ*, and when to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from coke.engines.limits import Limits, after_sending
from coke.engines.ranks.collectives import Rows, everyones
from coke.engines.ranks.partition import Index, neighbours_of
from coke.maths.algorithms.stopping import Quiet, counted
from coke.maths.arrays import Array, Mask, Sizes
from coke.maths.ledger import Ledger, Spent
from coke.maths.losses.problem import Problem, Score
from coke.maths.losses.quadratic import Quadratic
from coke.maths.losses.risk import Risk

if TYPE_CHECKING:
    from mpi4py import MPI

SEARCHES = 64  # from so many agents at a time
EDGES = 4096  # whose ends are compared at a time
MODELS = 4096  # that are scored at a time


def diameter_of(comm: MPI.Comm, A: sparse.csr_array) -> int:
    """Of the graph: a search from every agent, the agents divided among the ranks."""
    mine, far = np.arange(comm.rank, A.shape[0], comm.size), 0.0
    for first in range(0, len(mine), SEARCHES):
        some = mine[first : first + SEARCHES]
        far = max(far, sparse.csgraph.dijkstra(A, unweighted=True, indices=some).max())
    return int(everyones(comm, np.array([far])).max())


class Stop:
    """`coke.engines.process.Watch` of one rank's agents: the same decisions in the same rounds."""

    def __init__(self, comm: MPI.Comm, A: sparse.csr_array, limits: Limits, diameter: int):
        self.comm, self.limits, self.diameter = comm, limits, diameter
        self.i, self.n = neighbours_of(A)  # of a block: ghosts come after the own agents
        self.n_own = A.shape[0]
        self.N = int(everyones(comm, np.array([self.n_own])).sum())

    def apart(self, hats: Array) -> Array:
        """max_n ‖θ̂_i − θ̂_n‖ (n,) over the neighbours; few edges at a time."""
        if self.limits.tol is None:
            return np.zeros(self.n_own)
        most = np.zeros(self.n_own)
        for first in range(0, len(self.i), EDGES):
            i, n = self.i[first : first + EDGES], self.n[first : first + EDGES]
            between = hats[i] - hats[n]
            np.maximum.at(most, i, np.sqrt(np.vecdot(between, between)))
        return most

    def refuse(self, broke: Mask, spent: Spent, size: Sizes) -> None:
        """Refuses, at all ranks, a budget that does not even allow the first messages."""
        if not everyones(self.comm, np.array([broke.any()])).any():
            return
        taken = Ledger(*map(int, everyones(self.comm, spent.sum(axis=0)).sum(axis=0)))
        need = everyones(self.comm, after_sending(spent, size).max(axis=0)).max(axis=0)
        raise self.limits.too_small(taken, self.N * need)

    def least(self, words: Rows) -> Quiet:
        """Over each agent's own word and its neighbours'; `words` (n + m, 3) are `packed`."""
        heard = words[: self.n_own].copy()
        np.minimum.at(heard, self.i, words[self.n])
        return Quiet(heard[:, 0], heard[:, 1], heard[:, 2] == 0)

    def count(self, words: Rows, news: Array, apart: Array, broke: Mask) -> Quiet:
        """What this round's words say, from the last round's and how far θ and θ̂ are apart."""
        tol = -1.0 if self.limits.tol is None else self.limits.tol
        ok = (news <= tol) & (apart <= tol)
        now = counted(self.least(words), ok, self.diameter)
        return now.declared(broke[:, 0], self.diameter)

    def ended(self, words: Rows) -> tuple[bool, bool]:
        """Whether all stop after this round, and whether for having settled."""
        least = self.least(words)
        said = everyones(self.comm, np.array([least.done().all(), not least.short.any()]))
        return bool(said[:, 0].all()), bool(said.all())


def packed(quiet: Quiet) -> Index:
    """As rows (A, 3) whose minimum is what neighbours take from each other."""
    return np.stack([quiet.count, quiet.countdown, ~quiet.short], axis=1).astype(np.int64)


class Whole(NamedTuple):
    """The risks of all ranks' agents as one; of each rank, only sums over its agents are told."""

    comm: MPI.Comm
    risk: Risk  # of the rank's own agents
    T: float  # rows of all agents
    pooled: Quadratic | None  # all rows together; None where the loss is not quadratic

    def own_loss(self, losses: Array) -> float:
        """Every agent's model on its own rows, the mean over all rows."""
        return float(everyones(self.comm, np.array([losses @ self.risk.T])).sum() / self.T)

    def mean_loss(self, theta: Array) -> float:
        """Every agent's model on everybody's rows, the mean over agents."""
        sizes = everyones(self.comm, np.array([len(theta)]))[:, 0]
        if self.pooled is not None:
            total = _summed(self.pooled, theta)
        else:
            total = sum(self._on_own_rows(rank, n, theta) for rank, n in enumerate(sizes.tolist()))
        return float(everyones(self.comm, np.array([total])).sum() / sizes.sum())

    def _on_own_rows(self, rank: int, n: int, theta: Array) -> float:
        """The sum of the losses of that rank's θ on the rows here, by their share of all rows."""
        theirs = theta.copy() if rank == self.comm.rank else np.empty((n, theta.shape[1]))
        self.comm.Bcast(theirs, root=rank)
        return float(self.risk.T.sum()) / self.T * _summed(self.risk, theirs)


def _summed(risk: Risk, theta: Array) -> float:
    """Σ over the rows of θ; few at a time, for memory."""
    parts = range(0, len(theta), MODELS)
    return sum(float(risk.global_losses(theta[i : i + MODELS]).sum()) for i in parts)


def whole(comm: MPI.Comm, risk: Risk) -> Whole:
    """The risks of all ranks as one, from each rank's own."""
    T = float(everyones(comm, np.array([risk.T.sum()])).sum())
    return Whole(comm, risk, T, _combined(comm, risk, risk.T / T))


def optimum_of(comm: MPI.Comm, risk: Risk) -> Array | None:
    """θ* of all agents (D,); None where the loss is not quadratic: it would take all rows."""
    N = everyones(comm, np.array([len(risk.T)])).sum()
    mean = _combined(comm, risk, np.full(len(risk.T), 1.0 / N))
    return None if mean is None else mean.optimum()


def _combined(comm: MPI.Comm, risk: Risk, weights: Array) -> Quadratic | None:
    """All agents as one with Σ_i w_i (A_i, b_i, y²_i)."""
    own = risk.total(weights)
    if own is None:
        return None
    A, b, yy = (everyones(comm, part).sum(axis=0) for part in (own.A, own.b, own.yy))
    return replace(own, A=A, b=b, yy=yy)


class Scores(NamedTuple):
    """What a round is judged by."""

    train: Whole
    test: Whole | None

    def __call__(self, theta: Array, losses: Array, close: bool) -> Score:
        """Of all agents; test and global losses only if `close`."""
        own, test, global_train, global_test = self.train.own_loss(losses), np.nan, np.nan, np.nan
        if close:
            global_train = self.train.mean_loss(theta)
        if close and self.test is not None:
            test = self.test.own_loss(self.test.risk.losses(theta))
            global_test = self.test.mean_loss(theta)
        return Score(own, test, global_train, global_test)


def scores(comm: MPI.Comm, problem: Problem) -> Scores:
    """Of all ranks' problems."""
    test = None if problem.test is None else whole(comm, problem.test)
    return Scores(whole(comm, problem.train), test)
