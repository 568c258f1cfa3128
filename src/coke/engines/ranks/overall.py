"""What ranks only know together: losses on everybody's rows, θ*, and how far agents are from it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coke.engines.ranks.collectives import everyones
from coke.maths.algorithms.algorithm import State
from coke.maths.arrays import Array
from coke.maths.losses.problem import Problem, Quadratic, Score
from coke.maths.losses.risk import Risk

if TYPE_CHECKING:
    from mpi4py import MPI

_MODELS = 4096  # that are scored at a time


class Overall:
    """A round's losses and gaps of the agents of all ranks, from each rank's own state.

    Of each rank, only sums over its agents are told. θ* is known for the quadratic loss alone; for
    others it would take all rows, and the gap to it is NaN.
    """

    def __init__(self, comm: MPI.Comm, problem: Problem):
        self._comm, self._train = comm, _whole(comm, problem.train)
        self._test = None if problem.test is None else _whole(comm, problem.test)
        self._N = int(everyones(comm, np.array([len(problem.train.T)])).sum())
        share = np.full(len(problem.train.T), 1.0 / self._N)
        mean = _combined(comm, problem.train, share)
        self._optimum = None if mean is None else mean.optimum()

    def __call__(self, s: State, close: bool) -> tuple[Score, float, float]:
        """Losses, test and global ones only if `close`; max_i ‖θ_i − mean θ‖, max_i ‖θ_i − θ*‖."""
        own, test, global_train, global_test = self._train.own_loss(s.loss), np.nan, np.nan, np.nan
        if close:
            global_train = self._train.mean_loss(s.theta)
        if close and self._test is not None:
            test = self._test.own_loss(self._test.risk.losses(s.theta))
            global_test = self._test.mean_loss(s.theta)
        mean = everyones(self._comm, s.theta.sum(axis=0)).sum(axis=0) / self._N
        away = np.nan if self._optimum is None else self._farthest(s.theta, self._optimum)
        score = Score(own, test, global_train, global_test)
        return score, self._farthest(s.theta, mean), away

    def _farthest(self, theta: Array, centre: Array) -> float:
        """max_i ‖θ_i − centre‖; few at a time, for memory."""
        parts = (theta[i : i + _MODELS] - centre for i in range(0, len(theta), _MODELS))
        far = max(float(np.vecdot(away, away).max()) for away in parts)
        return math.sqrt(everyones(self._comm, np.array([far])).max())


class _Whole(NamedTuple):
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
    parts = range(0, len(theta), _MODELS)
    return sum(float(risk.global_losses(theta[i : i + _MODELS]).sum()) for i in parts)


def _whole(comm: MPI.Comm, risk: Risk) -> _Whole:
    """The risks of all ranks as one, from each rank's own."""
    T = float(everyones(comm, np.array([risk.T.sum()])).sum())
    return _Whole(comm, risk, T, _combined(comm, risk, risk.T / T))


def _combined(comm: MPI.Comm, risk: Risk, weights: Array) -> Quadratic | None:
    """All agents as one with Σ_i w_i (A_i, b_i, y²_i)."""
    own = risk.total(weights)
    if own is None:
        return None
    A, b, yy = (everyones(comm, part).sum(axis=0) for part in (own.A, own.b, own.yy))
    return replace(own, A=A, b=b, yy=yy)
