"""Stopping without a coordinator: everyone learns in a bounded number of rounds that all are done.

A site is *ok* in a round if its θ is within tol of what it last said and that within tol of what
each neighbour last said. It counts ok rounds, but never beyond the least count it heard plus one:

    c_i ← 1 + min(c_i, c_n over the neighbours n) if ok, else 0.

So c_i = m + 1 says that m rounds ago everybody within m steps was ok. Let r_i be steps from i to
the farthest site, at most: its *reach*. At c_i > r_i there was a round in which all were ok: the
site declares the end and sets a countdown of r_i rounds, which spreads by the minimum. Hence all
sites stop after the same round, and the one in the middle declares it first. Each site has an equal
share of a budget; one whose next message would exceed it stays silent and declares the end, too.

Where there is something to prove at the end, a site is ok once it is near enough for that
(`coke.maths.algorithms.nearness`); or within tol, where a refused proof can be improved on.

Words carry one number: the count, or minus the countdown. Arrays run over the agents at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.errors import InputError
from coke.maths.algorithms.algorithm import Spoken, State
from coke.maths.algorithms.nearness import Nearness, parts
from coke.maths.arrays import Array, Mask, Sizes
from coke.maths.graph import Steps, degrees, steps
from coke.maths.ledger import COUNTS, HEADER, LONG, STEPS, Ledger, Spent

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
Rows = NDArray[Any]
NEVER = 2**15  # a countdown that has not begun; counts stay below it
_SENT = Ledger._fields.index("transmissions")  # its column
_EDGES = 4096  # whose ends are compared at a time
_SEARCHES = 64  # from so many agents at a time


class Limits(NamedTuple):
    """When to stop."""

    rounds: int
    tol: float | None = None  # once nobody moves by more, in the norm of θ
    max_bytes: int | None = None  # of all agents together
    max_transmissions: int | None = None
    reach: Steps | None = None  # (n,) of the agents at hand; None: found by search
    near: Nearness | None = None  # of the agents at hand, where there is something to prove

    def checked(self) -> Limits:
        """The same, or why not."""
        if self.rounds < 1:
            raise InputError(f"rounds={self.rounds}: expected at least 1")
        if self.tol is not None and not self.tol >= 0:
            raise InputError(f"tol={self.tol}: expected a tolerance, or None to run all rounds")
        for name, most in self.budget.items():
            if most is not None and not most > 0:
                raise InputError(f"{name}={most}: expected a positive number, or None for no limit")
        return self

    @property
    def budget(self) -> dict[str, int | None]:
        """What all agents together may send, by name."""
        return {"max_bytes": self.max_bytes, "max_transmissions": self.max_transmissions}

    @property
    def idle(self) -> bool:
        """Whether nothing but the number of rounds ends the run."""
        return all(one is None for one in (self.tol, self.near, *self.budget.values()))

    def away(self, moved: Array, apart: Array, hat: Array, g: Any, whole: bool = True) -> Array:
        """How far each agent is from ok (n,), in parts of what may be: at most 1 for that.

        From ‖θ_i − θ̂_i‖² and the largest ‖θ̂_i − θ̂_n‖² (n,), and θ̂_i and g_i (n, D), where there is
        something to prove, which only a `whole` network can. Infinite where nothing tells.
        """
        near, far = self.near if whole else None, np.full(len(apart), np.inf)
        if self.tol is not None and (near is None or near.goal.further):
            far = parts(np.sqrt(np.maximum(moved, apart)), self.tol)
        return far if near is None else np.minimum(far, near.of(hat, g, apart))

    def share(self, N: int) -> Array:
        """What each of N agents may have sent (3,): the three numbers of a ledger at most."""
        most = (self.max_transmissions, self.max_bytes, None)
        return np.array([np.inf if total is None else total / N for total in most])

    def too_small(self, taken: Ledger, need: Ledger) -> InputError:
        """For a budget below `need`, what the first messages make of what was `taken` before."""
        least = {"max_transmissions": need.transmissions, "max_bytes": need.bytes}
        enough = " and ".join(f"{key}={n}" for key, n in least.items() if self.budget[key])
        return InputError(
            f"a budget of {self.budget}: too small for the agreement, which took {taken.bytes} "
            f"bytes in {taken.transmissions} transmissions, and one message of every site; the "
            f"smallest that would do is {enough}"
        )


class Quiet(NamedTuple):
    """How long it has been quiet, and how long to go on."""

    count: Any  # (A,) which hides tuple's own count; or the number of a single agent
    countdown: Any  # (A,)  rounds left with this one, or NEVER
    short: Any = np.zeros(1, np.bool_)  # (A,)  the end was declared for want of budget or rounds

    def done(self) -> Any:
        """Who stops after this round, if this is the least of its own and its neighbours'."""
        return self.countdown <= 1

    def declared(self, who: Flags, reach: Any) -> Quiet:
        """With an end declared by some (A,) that can or may not go on."""
        ends = np.where(who, np.minimum(self.countdown, reach), self.countdown)
        return Quiet(self.count, ends, self.short | who)

    def each(self, change: Callable[[Any], Any]) -> Quiet:
        """With every array changed alike, such as to some agents' rows."""
        return Quiet(change(self.count), change(self.countdown), change(self.short))

    def words(self) -> Counts:
        """As rows (A, 3) of which neighbours take the least, number by number."""
        return np.stack([self.count, self.countdown, ~self.short], axis=1).astype(np.int64)


def at_first(agents: int) -> Quiet:
    """Before round 1."""
    return Quiet(np.zeros(agents, np.int64), np.full(agents, NEVER), np.zeros(agents, np.bool_))


def counted(least: Quiet, ok: Any, reach: Any) -> Quiet:
    """What a word of this round says, from the least of the last round's words and one's own.

    By operators that arrays and single numbers share: an agent counts for itself alone.
    """
    count = ok * (least.count + (least.count < NEVER - 1))
    running = least.countdown - (least.countdown < NEVER)
    late = (count > reach) & (running > reach)
    return Quiet(count, running - late * (running - reach), least.short)


class Here(NamedTuple):
    """Where the agents are, and what those here hear of others; `Here.all` is one process."""

    A: sparse.csr_array  # (N, N)  the adjacency of all agents
    agents: Counts  # (n,)         those here
    edges: sparse.csr_array  # (n, n + m)  their rows of A, for the rows that `heard` gives
    heard: Callable[[Rows], Rows] = lambda rows: rows  # (n, …) ↦ with the m others' (n + m, …)
    everyones: Callable[[Rows], Rows] | None = None  # (…) ↦ what all processes bring (R, …)

    @classmethod
    def all(cls, A: sparse.csr_array) -> Here:
        """All agents are in this process."""
        return cls(A, np.arange(A.shape[0]), A)

    def sum(self, row: Rows) -> Rows:
        """Number by number, of the rows that all processes bring."""
        return row if self.everyones is None else self.everyones(row).sum(axis=0)

    def max(self, row: Rows) -> Rows:
        """The largest, number by number."""
        return row if self.everyones is None else self.everyones(row).max(axis=0)


class Account(NamedTuple):
    """What has been said up to round k, and whether it was the last round."""

    k: int
    spent: Spent  # (n, 3)
    quiet: Quiet  # of the agents here, as their words say it
    least: Quiet  # of each agent's own word and its neighbours'
    spoke: Mask  # (n,) in round k
    ledger: Ledger  # of all agents
    ended: bool = False  # all agents stop after round k
    settled: bool = False  # and they do for having reached the tolerance
    over: Mask | None = None  # (n, 1) whose message of round k exceeds its budget, so is not sent
    away: float = np.inf  # the farthest agent's, of all


class Stopping:
    """Who may say what, what it costs, and when all agents stop, as each of them sees it."""

    def __init__(self, limits: Limits, here: Here):
        self.here, self._limits = here, limits
        self.idle, self._share = limits.idle, limits.share(here.A.shape[0])
        self.d, edges = degrees(here.edges), here.edges.tocoo()
        self._i, self._n = edges.row, edges.col  # both ends of every edge, both ways

    @cached_property
    def reach(self) -> Steps:
        """Steps from each agent here to the farthest (n,): as told, or by a search from each."""
        if self._limits.reach is not None:
            return self._limits.reach
        A, agents = self.here.A, self.here.agents
        far = [steps(A, agents[some]).max(axis=1) for some in _few(len(agents), _SEARCHES)]
        return np.concatenate(far)

    def begin(self, k: int, spent: Spent, quiet: Quiet) -> Account:
        """After round k, or before round 1."""
        least = quiet if self.idle or k == 0 else self.least(quiet)
        nobody = np.zeros(len(spent), np.bool_)
        return Account(
            k=k, spent=spent, quiet=quiet, least=least, spoke=nobody, ledger=self._ledger(spent)
        )

    def after(self, at: Account, said: Spoken, s: State, told: Array) -> Account:
        """After round k + 1, in which the agents here come to a state and would transmit `said`.

        `told` (n + m, D) is θ as these agents, then the others they hear, last told it.
        """
        later = at.spent + _cost(said.size, self.d)
        if self.idle:
            return self.booked(at, later + self._longer(at.k, at.quiet))
        over = np.asarray((later > self._share).any(axis=1, keepdims=True) & (said.size > 0))
        if at.k == 0:
            self._refuse(over, at.ledger, later)
        if over.any():
            later = at.spent + _cost(np.where(over, 0, said.size), self.d)
        away = self._away(told, s)
        quiet = counted(at.least, away <= 1.0, self.reach).declared(over[:, 0], self.reach)
        now = self.booked(at, later + self._longer(at.k, quiet), quiet, away)
        return now._replace(over=over) if over.any() else now

    def booked(
        self, at: Account, spent: Spent, quiet: Quiet | None = None, away: Array | None = None
    ) -> Account:
        """After one more round; without words where only the number of rounds ends the run."""
        ended, settled, far = False, False, np.inf
        quiet, least = (at.quiet, at.least) if quiet is None else (quiet, self.least(quiet))
        if away is not None:
            goes_on = [not least.done().all(), bool(least.short.any())]
            goes, short, far = self.here.max(np.array([*goes_on, away.max()])).tolist()
            ended, settled = not goes, not short
        return Account(
            k=at.k + 1, spent=spent, quiet=quiet, least=least,
            spoke=spent[:, _SENT] > at.spent[:, _SENT], ledger=self._ledger(spent),
            ended=ended, settled=ended and settled, away=far,
        )  # fmt: skip

    def least(self, quiet: Quiet) -> Quiet:
        """Over each agent's own word and its neighbours'; for want of budget, any of them."""
        words = self.here.heard(quiet.words())
        heard = words[: len(quiet.count)].T.copy()
        for own, said in zip(heard, words.T, strict=True):
            np.minimum.at(own, self._i, said[self._n])
        count, countdown, enough = heard
        return Quiet(count, countdown, enough == 0)

    def _away(self, said: Array, s: State) -> Array:
        """How far each agent here is from what ends its rounds (n,)."""
        n = len(s.theta)
        moved, apart = np.empty(n), np.zeros(n)
        for rows in _few(n, _EDGES):
            moved[rows] = _squared(s.theta[rows], said[rows])
        for edges in _few(len(self._i), _EDGES):
            i = self._i[edges]
            np.maximum.at(apart, i, _squared(said[i], said[self._n[edges]]))
        return self._limits.away(moved, apart, said[:n], getattr(s, "g", None))

    def _ledger(self, spent: Spent) -> Ledger:
        """Of the agents of all processes."""
        return Ledger(*self.here.sum(spent.sum(axis=0)).tolist())

    def _longer(self, step: int, quiet: Quiet) -> Spent:
        """What long headers take more (n, 3), of words that say this of stopping."""
        said = np.where(quiet.countdown < NEVER, quiet.countdown, quiet.count)
        far = (LONG - HEADER) * ((said >= COUNTS) | (step >= STEPS))
        return np.outer(far * self.d[:, 0], [0, 0, 1]).astype(np.int64)

    def _refuse(self, over: Mask, taken: Ledger, later: Spent) -> None:
        """Refuses, at all processes, a budget that does not even allow the first messages."""
        if self.here.max(np.array([over.any()]))[0]:
            most = self.here.max(later.max(axis=0))
            raise self._limits.too_small(taken, Ledger(*(self.here.A.shape[0] * most).tolist()))


def _few(n: int, most: int) -> Iterator[slice]:
    """0 … n − 1 in parts: what is made of each should stay in the cache."""
    yield from (slice(first, min(first + most, n)) for first in range(0, n, most))


def _squared(x: Array, y: Array) -> Array:
    """‖x_i − y_i‖² (A,)."""
    apart = x - y
    return np.asarray(np.vecdot(apart, apart))


def _cost(size: Sizes, d: Array) -> Spent:
    """What a round costs (A, 3) whose agents send so many bytes (A, 1) to d_i neighbours (A, 1)."""
    return np.hstack([size > 0, size, (d * (HEADER + size)).astype(np.int64)], dtype=np.int64)
