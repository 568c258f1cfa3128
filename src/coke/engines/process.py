"""Rounds in one process: all N agents as the rows of one array."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.engines.limits import Limits as Limits
from coke.engines.limits import after_sending
from coke.errors import ConvergenceError, InputError
from coke.maths.algorithms.algorithm import Algorithm, State
from coke.maths.algorithms.coke_compiled import After, Fused, fused
from coke.maths.algorithms.stopping import Quiet, at_first, counted
from coke.maths.arrays import Array, Mask, Sizes
from coke.maths.graph import Graph, adjacency, checked_graph, degrees
from coke.maths.ledger import Ledger, Spent, round_cost
from coke.maths.losses.problem import Problem, Score
from coke.maths.losses.risk import pooled
from coke.threads import OneThread


class Record(NamedTuple):
    """What is known after round k."""

    k: int
    spoke: NDArray[np.bool_]  # (N,) who transmitted in this round
    ledger: Ledger  # what has been sent since the start
    score: Score  # mean losses
    consensus_gap: float  # max_i ‖θ_i − mean θ‖
    optimality_gap: float  # max_i ‖θ_i − θ*‖
    settled: bool  # to the tolerance asked for: all agents stop after this round
    state: State  # to go on from here, or to read θ_i
    spent: Spent  # (N, 3) the ledger agent by agent
    quiet: Quiet  # what the round's words say of stopping

    def checkpoint(self) -> Checkpoint:
        """What `simulate` needs to go on after this round."""
        return Checkpoint(self.k, self.spent, self.quiet, self.state._asdict())


class Checkpoint(NamedTuple):
    """Enough of a record to go on exactly."""

    k: int
    spent: Spent
    quiet: Quiet
    state: dict[str, Array]


def simulate(
    problem: Problem,
    graph: Graph,
    algorithm: Algorithm,
    *,
    rounds: int,
    tol: float | None = None,
    max_bytes: int | None = None,
    max_transmissions: int | None = None,
    spent: Spent | None = None,
    scored: Container[int] | None = None,
    resume: Checkpoint | None = None,
) -> Iterator[Record]:
    """Runs the algorithm and yields one record a round, up to `rounds`.

    Agents stop earlier, without a coordinator: all after the same round (see
    `coke.maths.algorithms.stopping`), once nobody moved, disagreed with a neighbour or held back news by more than `tol`. Each has an
    equal share of a budget; the first whose next message would exceed it stays silent and ends the
    run. `spent` (N, 3) is what the agents have sent before round 1.

    Training losses are free in every round. Test and global losses are computed in the rounds in
    `scored` (such as `range(0, 1001, 10)`; None: all) and the last one, and are NaN elsewhere. The
    caller may stop earlier by not asking for more. `resume` goes on after a checkpoint, with the
    same bits as if nothing had happened. Arguments are checked here, before the first round.
    """
    limits = Limits(rounds, tol, max_bytes, max_transmissions).checked()
    graph, N = checked_graph(graph, range(len(problem.train.T))), len(problem.train.T)
    d, alone = degrees(graph), OneThread()
    with alone.limit():
        own, state = algorithm.local(problem.train, d), algorithm.start(problem.train)
        exchange, at_once = (
            Together(algorithm.weights(graph)),
            fused(problem, graph, algorithm, own),
        )
        run = _Run(problem, algorithm, own, exchange, d, problem.optimum, at_once)
    nothing = np.zeros((N, 3), np.int64) if spent is None else spent
    at = resume or Checkpoint(0, nothing, at_first(N), state._asdict())
    watch = Watch(graph, limits)
    return _rounds(run, resumed(state, at.state), at, watch, _Looks(scored, rounds), alone)


class Together:
    """All N agents in one process: one sparse product."""

    def __init__(self, W: sparse.csr_array):
        self._W = W

    def __call__(self, hat: Array) -> Array:
        """Heard (N, D) from θ̂ (N, D)."""
        return self._W @ hat


class Watch:
    """Stopping, as every agent sees it: its own row, and what its neighbours' words say."""

    def __init__(self, graph: Graph, limits: Limits):
        self.limits, self.N = limits, len(graph)
        W = adjacency(graph).tocoo()
        self.i, self.n = W.row, W.col  # both ends of every edge, both ways
        self._diameter: int | None = None
        self._graph = graph

    @property
    def diameter(self) -> int:
        """Of the graph; only where it is needed, for it takes a search from every agent."""
        if self._diameter is None:
            self._diameter = nx.diameter(self._graph)
        return self._diameter

    @property
    def idle(self) -> bool:
        """There is nothing to watch but the number of rounds."""
        return all(limit is None for limit in self.limits[1:])

    def count(self, quiet: Quiet, theta: Array, hat: Array, broke: Mask) -> Quiet:
        """What this round's words say, from the last round's and θ against the last θ̂."""
        tol = self.limits.tol
        ok = np.zeros(self.N, np.bool_)
        if tol is not None:
            apart = np.zeros(self.N)
            np.maximum.at(apart, self.i, norms(hat[self.i] - hat[self.n]))
            ok = (norms(theta - hat) <= tol) & (apart <= tol)
        now = counted(self.least(quiet), ok, self.diameter)
        return now.declared(broke[:, 0], self.diameter)

    def least(self, quiet: Quiet) -> Quiet:
        """Over each agent's own word and its neighbours'."""
        heard = Quiet(quiet.count.copy(), quiet.countdown.copy(), quiet.short.copy())
        np.minimum.at(heard.count, self.i, quiet.count[self.n])
        np.minimum.at(heard.countdown, self.i, quiet.countdown[self.n])
        np.logical_or.at(heard.short, self.i, quiet.short[self.n])
        return heard


class _Looks(NamedTuple):
    """When to look closely."""

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
    fused: Fused | None = None

    def finite(self, s: State, score: Score, k: int) -> None:
        """Refuses to go on with numbers that are none."""
        if not math.isfinite(score.train) and not np.isfinite(s.loss).all():
            raise diverged(int(np.count_nonzero(~np.isfinite(s.loss))), k, self.algorithm)

    def look(self, s: State, close: bool) -> Score:
        """Losses of the agents' models; test and global losses only if `close`."""
        if close:
            return self.problem.score(s.theta, s.loss)
        return Score(pooled(s.loss, self.problem.train.T), np.nan, np.nan, np.nan)

    def round(self, s: State, spent: Spent, k: int) -> After:
        """Round k, where nobody watches what happens between speaking and listening."""
        found = None if self.fused is None else self.fused(s, spent, k)
        if found is not None:
            return found
        after, said = self.algorithm.speak(self.own, s, k)
        after = self.listen(after)
        return after, spent + round_cost(said.size, self.d), gaps(after.theta, self.optimum)

    def listen(self, s: State) -> State:
        return self.algorithm.listen(self.own, s, self.exchange(s.hat))


def _rounds(
    run: _Run, state: State, at: Checkpoint, watch: Watch, looks: _Looks, alone: OneThread
) -> Iterator[Record]:
    spent, quiet, ended, settled = at.spent, at.quiet, False, False
    idle = watch.idle
    for k in range(at.k + 1, looks.last + 1):
        with alone.limit(), np.errstate(over="ignore", invalid="ignore"):
            before = spent
            if idle:
                after, spent, apart = run.round(state, before, k)
            else:
                after, said = run.algorithm.speak(run.own, state, k)
                after, size, broke = _within(watch, state, after, said.size, before, k)
                told = run.algorithm.told(state.hat)
                quiet = watch.count(quiet, after.theta, told, broke)
                least = watch.least(quiet)
                ended = bool(least.done().all())
                settled = ended and not least.short.any()
                after, spent = run.listen(after), before + round_cost(size, run.d)
                apart = gaps(after.theta, run.optimum)
            score = run.look(after, ended or looks.at(k))
            run.finite(after, score, k)
        spoke = spent[:, 0] > before[:, 0]
        ledger = Ledger.of(spent)
        yield Record(k, spoke, ledger, score, *apart, settled, after, spent, quiet)
        if ended:
            return
        state = after


def _within(
    watch: Watch, before: State, after: State, size: Sizes, spent: Spent, k: int
) -> tuple[State, Sizes, Mask]:
    """The round without the messages that would exceed a share of the budget, and whose they are.

    A budget that does not even allow the first messages is refused.
    """
    broke = watch.limits.over(spent, size, watch.N)
    if k == 1 and broke.any():
        need = watch.N * after_sending(spent, size).max(axis=0)
        raise watch.limits.too_small(Ledger.of(spent), need)
    hat = np.where(broke, before.hat, after.hat)
    return after._replace(hat=hat), np.where(broke, 0, size), broke


def diverged(lost: int, k: int, algorithm: Algorithm) -> ConvergenceError:
    """For a round after which the parameters of so many agents are no numbers."""
    return ConvergenceError(
        f"round {k}: the parameters of {lost} agents are no longer finite: {algorithm} diverges "
        "here; use a smaller step size"
    )


def norms(x: Array) -> Array:
    """‖x_i‖ (A,) of every row."""
    return np.asarray(np.sqrt(np.vecdot(x, x)))


def gaps(theta: Array, optimum: Array) -> tuple[float, float]:
    """max_i ‖θ_i − mean θ‖ and max_i ‖θ_i − θ*‖."""
    away = theta - theta.mean(axis=0)
    apart = _longest(away)
    return apart, _longest(np.subtract(theta, optimum, out=away))


def _longest(x: Array) -> float:
    return math.sqrt(np.vecdot(x, x).max())


def resumed(fresh: State, saved: dict[str, Array]) -> State:
    """The saved state, if it has the shapes of a fresh one."""
    shapes = {name: array.shape for name, array in fresh._asdict().items()}
    found = {name: array.shape for name, array in saved.items()}
    if shapes != found:
        raise InputError(
            f"the checkpoint's state is {found}, this run's is {shapes}: resume with the same "
            "algorithm, agents and features as before"
        )
    return type(fresh)(**saved)
