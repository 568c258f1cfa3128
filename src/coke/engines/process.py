"""All agents in this process: their engine, and its rounds, all N as the rows of one array."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from coke.engines.fingerprint import fingerprint
from coke.errors import ConvergenceError, InputError
from coke.maths.algorithms.algorithm import Algorithm, State
from coke.maths.algorithms.coke_compiled import fused
from coke.maths.algorithms.nearness import Nearness
from coke.maths.algorithms.stopping import Account, Here, Limits, Quiet, Stopping, at_first
from coke.maths.arrays import Array, Mask
from coke.maths.graph import Graph, Steps, adjacency, checked_graph
from coke.maths.ledger import STEPS, Ledger, Spent
from coke.maths.losses.problem import Problem, Score, pooled
from coke.talk.conversation import Post, Talk, nobody_else, together
from coke.threads import OneThread

R = TypeVar("R")
Rows = NDArray[Any]
Judge = Callable[[State], tuple[Score, float, float]]


class Record(NamedTuple):
    """What is known after round k."""

    k: int
    spoke: NDArray[np.bool_]  # (N,) who transmitted in this round
    ledger: Ledger  # what has been sent since the start
    score: Score  # mean losses
    consensus_gap: float  # max_i ‖θ_i − mean θ‖
    optimality_gap: float  # max_i ‖θ_i − θ*‖
    away: (
        float  # how far the farthest is from what ends the run, in parts of what may be left; or ∞
    )
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

    def rows(self, agents: NDArray[np.int64]) -> Checkpoint:
        """Those agents' part of it."""
        state = {name: np.asarray(rows[agents]) for name, rows in self.state.items()}
        return Checkpoint(self.k, self.spent[agents], self.quiet.each(lambda x: x[agents]), state)


def simulate(
    problem: Problem,
    graph: Graph,
    algorithm: Algorithm,
    *,
    rounds: int,
    tol: float | None = None,
    max_bytes: int | None = None,
    max_transmissions: int | None = None,
    reach: Steps | None = None,
    near: Nearness | None = None,
    spent: Spent | None = None,
    scored: Container[int] | None = None,
    resume: Checkpoint | None = None,
) -> Iterator[Record]:
    """Runs the algorithm and yields one record a round, up to `rounds`.

    Agents stop earlier, without a coordinator: all after the same round (see
    `coke.maths.algorithms.stopping`), once nobody moved, disagreed with a neighbour or held back
    news by more than `tol`, or all are `near` enough for a proof. Each has an equal share of a
    budget; the first whose next message would exceed it stays silent and ends the run. `reach` (N,)
    is how many steps the farthest agent is away from each, at most; without it they are searched
    for. `spent` (N, 3) is what the agents have sent before round 1.

    Training losses are free in every round. Test and global losses are computed in the rounds in
    `scored` (such as `range(0, 1001, 10)`; None: all) and the last one, and are NaN elsewhere. The
    caller may stop earlier by not asking for more. `resume` goes on after a checkpoint, with the
    same bits as if nothing had happened. Arguments are checked here, before the first round.
    """
    limits, N = Limits(rounds, tol, max_bytes, max_transmissions, reach, near), len(problem.train.T)
    A = adjacency(checked_graph(graph, range(N)))
    stop = Stopping(limits.checked(), Here.all(A))
    nothing = np.zeros((N, 3), np.int64) if spent is None else spent
    at = Checkpoint(0, nothing, at_first(N), {}) if resume is None else resume
    account, threads = stop.begin(at.k, at.spent, at.quiet), OneThread()
    with threads.limit():
        run = _Together(problem, algorithm, stop)
        run.state = run.state if resume is None else resumed(run.state, resume.state)
    return records(run, account, Looks(scored, rounds), threads)


class Engine:
    """All agents in this process."""

    first = True  # of the processes: the one that writes and speaks
    post: Post = staticmethod(nobody_else)  # between the sites here and those elsewhere

    def agents(self, N: int) -> Sequence[int]:
        """Those of N that are here."""
        return range(N)

    def guarded(self, work: Callable[[], R]) -> R:
        """What the work gives; an error at one process is an error at all."""
        return work()

    def converse(self, talks: Mapping[str, Talk[R]]) -> tuple[dict[str, R], Spent]:
        """What the sites here come to with those elsewhere, and what each of them spent (n, 3)."""
        found, ledgers = self.guarded(partial(together, talks, self.post))
        return found, np.array([*ledgers.values()], np.int64)

    def everyones(self, rows: Rows) -> Rows:
        """The rows of all agents (N, …) at every process."""
        return rows

    def record(self, record: Record) -> Record | None:
        """The record with all agents' state at the first process, None elsewhere."""
        return record

    def fingerprint(self, problem: Problem, graph: Graph, algorithm: Algorithm) -> str:
        """Of the problem of all agents, see `coke.engines.fingerprint`."""
        return fingerprint(problem, graph, algorithm)

    def judge(self, problem: Problem) -> Judge:
        """Who looks at the agents' state: their losses and both gaps, of all agents."""
        return lambda s: (problem.score(s.theta, s.loss), *problem.gaps(s.theta))

    def rounds(
        self, problem: Problem, graph: Graph, algorithm: Algorithm, limits: Limits,
        spent: Spent, resume: Checkpoint | None,
    ) -> Iterator[Record]:  # fmt: skip
        """The rounds; `problem` and `spent` are of the agents here, `resume` is of all."""
        most = limits._asdict()
        return simulate(problem, graph, algorithm, **most, spent=spent, resume=resume)


ALONE = Engine()


class _Runner(Protocol):
    """Agents at work: those of this process and, where there are others, with theirs."""

    state: State  # of the agents here

    def round(self, at: Account) -> Account:
        """The round after that of the account."""
        ...

    def judged(self, k: int, close: bool) -> tuple[Score, float, float]:
        """Losses, test and global ones only if `close`, and both gaps, of all agents.

        Refuses to go on after a round k whose numbers are none.
        """
        ...

    def everybody(self, spoke: Mask) -> Mask:
        """Who spoke of all agents (N,), given who did here."""
        ...


class Looks(NamedTuple):
    """When to look closely: in the rounds in `scored` (None: all) and the last one."""

    scored: Container[int] | None
    last: int


def records(run: _Runner, at: Account, looks: Looks, threads: OneThread) -> Iterator[Record]:
    """A record of every round after that of the account, up to the last."""
    while at.k < looks.last and not at.ended:
        with threads.limit(), np.errstate(over="ignore", invalid="ignore"):
            at = run.round(at)
            close = at.ended or looks.scored is None or at.k == looks.last or at.k in looks.scored
            spoke, (score, consensus, optimality) = run.everybody(at.spoke), run.judged(at.k, close)
        yield Record(
            k=at.k, spoke=spoke, ledger=at.ledger, score=score,
            consensus_gap=consensus, optimality_gap=optimality,
            away=at.away, settled=at.settled, state=run.state, spent=at.spent, quiet=at.quiet,
        )  # fmt: skip


class _Together:
    """All agents in this process."""

    def __init__(self, problem: Problem, algorithm: Algorithm, stop: Stopping):
        self._problem, self._algorithm, self._stop = problem, algorithm, stop
        self._own = algorithm.local(problem.train, stop.d)
        self.state = algorithm.start(problem.train)
        self._W = algorithm.weights(stop.here.A)
        self._gaps: tuple[float, float] | None = None  # where a compiled round found them
        # A compiled round shows nobody what is between speaking and listening.
        self._fused = fused(problem, self._W, algorithm, self._own) if stop.idle else None

    def round(self, at: Account) -> Account:
        brief = self._fused if at.k < STEPS else None  # it knows of one header only
        found = None if brief is None else brief(self.state, at.spent, at.k + 1)
        if found is not None:
            self.state, spent, self._gaps = found
            return self._stop.booked(at, spent)
        s, said = self._algorithm.speak(self._own, self.state, at.k + 1)
        last = self.state.hat
        now = self._stop.after(at, said, s, self._algorithm.told(last))
        if now.over is not None:
            s = s._replace(hat=np.where(now.over, last, s.hat))
        self.state = self._algorithm.listen(self._own, s, self._W @ s.hat)
        self._gaps = None
        return now

    def judged(self, k: int, close: bool) -> tuple[Score, float, float]:
        s = self.state
        gaps = self._gaps or self._problem.gaps(s.theta)
        if close:
            score = self._problem.score(s.theta, s.loss)
        else:
            score = Score(pooled(s.loss, self._problem.train.T), np.nan, np.nan, np.nan)
        if not (math.isfinite(score.train) or np.isfinite(s.loss).all()):
            raise diverged(int(np.count_nonzero(~np.isfinite(s.loss))), k, self._algorithm)
        return score, *gaps

    def everybody(self, spoke: Mask) -> Mask:
        return spoke


def diverged(lost: int, k: int, algorithm: Algorithm) -> ConvergenceError:
    """For a round after which the parameters of so many agents are no numbers."""
    return ConvergenceError(
        f"round {k}: the parameters of {lost} agents are no longer finite: {algorithm} diverges "
        "here; use a smaller step size"
    )


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
