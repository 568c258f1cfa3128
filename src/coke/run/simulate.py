"""Rounds in one process: all N agents as the rows of one array."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from coke.errors import ConvergenceError, InputError
from coke.maths.algorithm import Algorithm, State
from coke.maths.arrays import Array
from coke.maths.graph import Graph, checked_graph, degrees
from coke.maths.problem import Problem, Score
from coke.run.exchange import Together
from coke.run.ledger import Ledger


class Record(NamedTuple):
    """What is known after round k."""

    k: int
    spoke: NDArray[np.bool_]  # (N,) who transmitted in this round
    ledger: Ledger  # what has been sent since the start
    score: Score  # mean losses
    consensus_gap: float  # max_i ‖θ_i − mean θ‖
    optimality_gap: float  # max_i ‖θ_i − θ*‖
    state: State  # to go on from here, or to read θ_i

    def checkpoint(self) -> Checkpoint:
        """What `simulate` needs to go on after this round."""
        return Checkpoint(self.k, self.ledger, self.state._asdict())


class Checkpoint(NamedTuple):
    """Enough of a record to go on exactly."""

    k: int
    ledger: Ledger
    state: dict[str, Array]


def simulate(
    problem: Problem,
    graph: Graph,
    algorithm: Algorithm,
    *,
    rounds: int,
    tol: float | None = None,
    resume: Checkpoint | None = None,
) -> Iterator[Record]:
    """Runs the algorithm and yields one record a round, up to `rounds` or until settled to `tol`.

    The caller may stop earlier by not asking for more. `resume` goes on after a checkpoint, with
    the same bits as if nothing had happened. Arguments are checked here, before the first round.
    """
    if rounds < 1:
        raise InputError(f"rounds={rounds}: expected at least 1")
    if tol is not None and not tol > 0:
        raise InputError(f"tol={tol}: expected a positive tolerance, or None to run all rounds")
    graph = checked_graph(graph, range(len(problem.train.T)))
    own = algorithm.local(problem.train, degrees(graph))
    state, ledger, k = algorithm.start(problem.train), Ledger(), 0
    if resume is not None:
        state, ledger, k = _resumed(state, resume), resume.ledger, resume.k
    run = _Run(problem, algorithm, own, Together(algorithm.weights(graph)), degrees(graph))
    return run.rounds(state, ledger, range(k + 1, rounds + 1), tol)


class _Run(NamedTuple):
    """What stays the same from round to round."""

    problem: Problem
    algorithm: Algorithm
    own: Any
    exchange: Together
    d: Array

    def rounds(
        self, state: State, ledger: Ledger, ks: range, tol: float | None
    ) -> Iterator[Record]:
        alone = OneThread()
        for k in ks:
            with alone.limit(), np.errstate(over="ignore", invalid="ignore"):
                record = self.round(state, ledger, k)
            yield record
            if tol is not None and settled(state, record.state, tol):
                return
            state, ledger = record.state, record.ledger

    def round(self, before: State, ledger: Ledger, k: int) -> Record:
        """speak, exchange, listen; then look."""
        s, news = self.algorithm.speak(self.own, before, k)
        s = self.algorithm.listen(self.own, s, self.exchange(s.hat, news))
        if not np.isfinite(s.loss).all():
            raise ConvergenceError(
                f"round {k}: the parameters of {np.count_nonzero(~np.isfinite(s.loss))} agents are "
                f"no longer finite: {self.algorithm} diverges here; use a smaller step size"
            )
        return Record(
            k,
            news[:, 0],
            ledger.after(news, self.d, s.theta.shape[-1]),
            self.problem.score(s.theta, s.loss),
            _farthest(s.theta, s.theta.mean(axis=0)),
            _farthest(s.theta, self.problem.optimum),
            s,
        )


def settled(before: State, after: State, tol: float) -> bool:
    """Nobody moved, disagrees or holds back news by more than tol times the largest ‖θ_i‖.

    Holding back counts: under a high threshold a silent network stands still far from agreement.
    """
    theta = after.theta
    away = max(_farthest(theta, x) for x in (before.theta, after.hat, theta.mean(axis=0)))
    return away <= tol * float(_norms(theta).max())


class OneThread:
    """One BLAS thread for the small products of a round: two are slower."""

    def __init__(self) -> None:
        self._pools = ThreadpoolController()
        info = self._pools.select(user_api="blas").info()
        self._already = all(pool["num_threads"] == 1 for pool in info)

    def limit(self) -> AbstractContextManager[Any]:
        """In force inside the `with` only: a caller's own work between rounds keeps its threads."""
        return nullcontext() if self._already else self._pools.limit(limits=1, user_api="blas")


def _norms(x: Array) -> Array:
    return np.asarray(np.sqrt(np.vecdot(x, x)))


def _farthest(theta: Array, centre: Array) -> float:
    return float(_norms(theta - centre).max())


def _resumed(fresh: State, checkpoint: Checkpoint) -> State:
    shapes = {name: array.shape for name, array in fresh._asdict().items()}
    found = {name: array.shape for name, array in checkpoint.state.items()}
    if shapes != found:
        raise InputError(
            f"the checkpoint's state is {found}, this run's is {shapes}: resume with the same "
            "algorithm, agents and features as before"
        )
    return type(fresh)(**checkpoint.state)
