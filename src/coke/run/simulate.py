"""Rounds in one process: all N agents as the rows of one array."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.errors import ConvergenceError, InputError
from coke.maths.algorithm import Algorithm, State
from coke.maths.arrays import Array, Sizes
from coke.maths.graph import Graph, checked_graph, degrees
from coke.maths.problem import Problem, Score
from coke.maths.risks import pooled
from coke.run.exchange import Together
from coke.run.ledger import Ledger
from coke.threads import OneThread


class Record(NamedTuple):
    """What is known after round k."""

    k: int
    spoke: NDArray[np.bool_]  # (N,) who transmitted in this round
    ledger: Ledger  # what has been sent since the start
    score: Score  # mean losses
    consensus_gap: float  # max_i ‖θ_i − mean θ‖
    optimality_gap: float  # max_i ‖θ_i − θ*‖
    settled: bool  # to the tolerance asked for
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
    scored: Container[int] | None = None,
    resume: Checkpoint | None = None,
) -> Iterator[Record]:
    """Runs the algorithm and yields one record a round, up to `rounds` or until settled to `tol`.

    Training losses are free in every round. Test and global losses are computed in the rounds in
    `scored` (such as `range(0, 1001, 10)`; None: all) and the last one, and are NaN elsewhere. The
    caller may stop earlier by not asking for more. `resume` goes on after a checkpoint, with the
    same bits as if nothing had happened. Arguments are checked here, before the first round.
    """
    if rounds < 1:
        raise InputError(f"rounds={rounds}: expected at least 1")
    if tol is not None and not tol > 0:
        raise InputError(f"tol={tol}: expected a positive tolerance, or None to run all rounds")
    graph = checked_graph(graph, range(len(problem.train.T)))
    d, alone = degrees(graph), OneThread()
    with alone.limit():
        own, state = algorithm.local(problem.train, d), algorithm.start(problem.train)
        run = _Run(problem, algorithm, own, Together(algorithm.weights(graph)), d, problem.optimum)
    at = Checkpoint(0, Ledger(), state._asdict()) if resume is None else resume
    return _rounds(run, _resumed(state, at), at, rounds, _Looks(tol, scored, rounds), alone)


class _Looks(NamedTuple):
    """When to look closely."""

    tol: float | None
    scored: Container[int] | None
    last: int

    def at(self, k: int) -> bool:
        return self.scored is None or k == self.last or k in self.scored


class _Run(NamedTuple):
    """What stays the same from round to round."""

    problem: Problem
    algorithm: Algorithm
    own: Any
    exchange: Together
    d: Array
    optimum: Array

    def step(self, s: State, k: int) -> tuple[State, Sizes]:
        """speak, exchange, listen; and the bytes each sent (N, 1)."""
        s, size = self.algorithm.speak(self.own, s, k)
        s = self.algorithm.listen(self.own, s, self.exchange(s.hat))
        if not np.isfinite(s.loss).all():
            raise ConvergenceError(
                f"round {k}: the parameters of {np.count_nonzero(~np.isfinite(s.loss))} agents are "
                f"no longer finite: {self.algorithm} diverges here; use a smaller step size"
            )
        return s, size

    def look(self, s: State, close: bool) -> tuple[Score, float, float]:
        """Losses and gaps of the agents' models; test and global losses only if `close`."""
        if close:
            score = self.problem.score(s.theta, s.loss)
        else:
            score = Score(pooled(s.loss, self.problem.train.T), np.nan, np.nan, np.nan)
        return score, _farthest(s.theta, s.theta.mean(axis=0)), _farthest(s.theta, self.optimum)


def _rounds(
    run: _Run, state: State, at: Checkpoint, rounds: int, looks: _Looks, alone: OneThread
) -> Iterator[Record]:
    ledger = at.ledger
    for k in range(at.k + 1, rounds + 1):
        with alone.limit(), np.errstate(over="ignore", invalid="ignore"):
            after, size = run.step(state, k)
            settled = looks.tol is not None and _settled(state, after, looks.tol)
            score, consensus, optimality = run.look(after, settled or looks.at(k))
        ledger = ledger.after(size, run.d)
        yield Record(k, size[:, 0] > 0, ledger, score, consensus, optimality, settled, after)
        if settled:
            return
        state = after


def _settled(before: State, after: State, tol: float) -> bool:
    """Nobody moved, disagrees or holds back news by more than tol times the largest ‖θ_i‖.

    Holding back counts: under a high threshold a silent network stands still far from agreement.
    """
    theta = after.theta
    away = max(_farthest(theta, x) for x in (before.theta, after.hat, theta.mean(axis=0)))
    return away <= tol * float(_norms(theta).max())


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
