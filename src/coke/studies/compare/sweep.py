"""Many settings of COKE at once: axis 0 runs over agents, axis 1 over settings.

A single run reads every agent's inverse (D, D) once a round for one vector. Here it is read for all
S settings together, so that matrix–vector products become matrix–matrix products. Settings with
different ρ share one matrix: with A_i + G = Q_i diag(w_i) Q_iᵀ,

    θ_i = (2A_i + 2G + 2ρd_i I)⁻¹ r = Q_i diag(1/(2w_i + 2ρd_i)) Q_iᵀ r      for every ρ.

This adds in another order than `simulate`, so θ differs in the last digits (1e-10 at most). Who
speaks is the same unless ‖θ_i − θ̂_i‖ is that near to h(k): a tie, which rounding decides. A tie
has no right answer, and both runs are runs of COKE; they differ by at most h(k) from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.errors import InputError
from coke.maths.algorithms.coke import COKE, FLOAT
from coke.maths.arrays import Array, Mask
from coke.maths.graph import Graph, adjacency, checked_graph, degrees
from coke.maths.ledger import HEADER, Ledger
from coke.maths.losses.problem import Problem, Quadratic, matrix
from coke.maths.losses.risk import Risk, penalty
from coke.threads import OneThread

Counts = NDArray[np.int64]


class Swept(NamedTuple):
    """What is known of all S settings after round k; those that have stopped keep their last."""

    k: int
    on: NDArray[np.intp]  # (R,) the settings that ran in this round
    spoke: Mask  # (N, R) who transmitted in this round
    spent: Counts  # (S, 3) the three numbers of a ledger
    train: Array  # (S,) mean losses; test and global ones are NaN in rounds that are not scored
    test: Array  # (S,)
    global_train: Array  # (S,)
    global_test: Array  # (S,)
    theta: Array  # (N, R, K·D)

    def ledger(self, s: int) -> Ledger:
        """What setting s has sent since the start."""
        return Ledger(*map(int, self.spent[s]))


Going = Callable[[Swept], Mask]
"""A record ↦ which of all S settings go on (S,); one that has stopped never does again."""


def sweep(
    problem: Problem,
    graph: Graph,
    algorithms: Sequence[COKE],
    *,
    rounds: int,
    scored: Container[int] | None = None,
    going: Going | None = None,
) -> Iterator[Swept]:
    """As `simulate` of each algorithm, but all at once; one record a round, up to `rounds`.

    For the quadratic loss and the paper's messages (no codec, no warm start). `scored` is that of
    `simulate`. `going` ends settings early, and what they cost; the sweep ends with the last one.
    A setting whose numbers are no longer finite says so in its losses, and disturbs no other.
    """
    risk = _checked(problem.train, algorithms, rounds)
    graph, alone = checked_graph(graph, range(len(risk.T))), OneThread()
    with alone.limit():
        fixed = _fixed(risk, graph)
    return _rounds(_Sweep(problem, fixed, tuple(algorithms), scored, rounds), going, alone)


def _checked(risk: Risk, algorithms: Sequence[COKE], rounds: int) -> Quadratic:
    sums = risk.sums
    if sums is None:
        raise InputError(
            f"a sweep over the {risk.metric} loss: expected the quadratic one, whose local solver "
            "is one matrix for all settings; run `simulate` for each setting"
        )
    if not algorithms or rounds < 1:
        raise InputError(
            f"{len(algorithms)} settings for {rounds} rounds: expected at least one of each"
        )
    if any(a.codec is not None or a.warm for a in algorithms):
        raise InputError(
            "a sweep over coded messages or warm starts: expected the paper's float64 messages "
            "from zero (codec=None, warm=False); run `simulate` for each setting"
        )
    return sums


class _Fixed(NamedTuple):
    """What stays the same from round to round, whatever the setting."""

    Q: Array  # (N, D, D)  A_i + G = Q_i diag(w_i) Q_iᵀ
    w: Array  # (N, D)
    d: Array  # (N,)
    W: Array | sparse.csr_array  # (N, N)
    risk: Quadratic

    def gain(self, rho: Array) -> Array:
        """1/(2w_i + 2ρd_i) (N, S, D) for every ρ (S, 1)."""
        curve = 2.0 * (self.w[:, None] + rho * self.d[:, None, None])
        if not np.any(self.risk.G):  # no neighbour and λ = 0: the answer of least norm
            alone = curve[self.d == 0]
            alone[alone <= 1e-15 * alone.max(axis=2, keepdims=True, initial=0.0)] = np.inf
            curve[self.d == 0] = alone
        return np.asarray(1.0 / curve)


def _fixed(risk: Quadratic, graph: Graph) -> _Fixed:
    w, Q = np.linalg.eigh(risk.A + matrix(risk.G, risk.A.shape[-1]))
    W = adjacency(graph)
    # A dense product costs about a 40th of a sparse one per entry.
    return _Fixed(Q, w, degrees(W)[:, 0], W.toarray() if 40 * W.nnz > W.shape[0] ** 2 else W, risk)


class _Sweep(NamedTuple):
    """What is asked for."""

    problem: Problem
    fixed: _Fixed
    algorithms: tuple[COKE, ...]
    scored: Container[int] | None
    rounds: int

    def looks(self, k: int) -> bool:
        return self.scored is None or k == self.rounds or k in self.scored


class _State(NamedTuple):
    """What a round changes, of the R settings still running; written over in place."""

    on: NDArray[np.intp]  # (R,)
    rho: Array  # (R, 1)
    gain: Array  # (N, R, D)
    hat: Array  # (N, R, K·D)
    heard: Array  # (N, R, K·D)
    g: Array  # (N, R, K·D)   γ/ρ of the round before
    h: Array  # (N, R)

    def only(self, kept: Mask) -> _State:
        """Without the settings (R,) that have stopped."""
        rest = (x[:, kept] for x in self[2:])
        return self if kept.all() else _State(self.on[kept], self.rho[kept], *rest)


def _start(run: _Sweep) -> _State:
    N, S, D = len(run.fixed.d), len(run.algorithms), run.fixed.risk.size
    rho = np.array([[a.rho] for a in run.algorithms])
    hat, heard, g = (np.zeros((N, S, D)) for _ in range(3))
    h = np.empty((N, S))
    for s, a in enumerate(run.algorithms):
        h[:, s : s + 1] = a.threshold.at(np.full((N, 1), a.threshold.start), 1)
    return _State(np.arange(S), rho, run.fixed.gain(rho), hat, heard, g, h)


def _thresholds(run: _Sweep, h: Array, spoke: Mask, k: int) -> Array:
    """h(k + 1) of every setting (N, S), from the last ones and who spoke."""
    after = np.empty_like(h)
    for s, algorithm in enumerate(run.algorithms):
        t, column = algorithm.threshold, slice(s, s + 1)
        after[:, column] = t.at(t.after(h[:, column], spoke[:, column]), k + 1)
    return after


def _rounds(run: _Sweep, going: Going | None, alone: OneThread) -> Iterator[Swept]:
    S, state = len(run.algorithms), _start(run)
    spent, train = np.zeros((S, 3), np.int64), np.full(S, np.nan)
    others = np.full((3, S), np.nan)  # test, global train, global test
    for k in range(1, run.rounds + 1):
        with alone.limit(), np.errstate(over="ignore", invalid="ignore"):
            theta, loss, spoke = _round(run.fixed, state)
            spent, train, others = spent.copy(), train.copy(), others.copy()
            spent[state.on] += _cost(run.fixed, spoke)
            train[state.on] = run.fixed.risk.T @ loss / run.fixed.risk.T.sum()
            others[:, state.on] = _scores(run.problem, theta) if run.looks(k) else np.nan
        test, ours, theirs = others
        record = Swept(k, state.on, spoke, spent, train, test, ours, theirs, theta)
        yield record
        some = run._replace(algorithms=tuple(run.algorithms[s] for s in state.on))
        state = state._replace(h=_thresholds(some, state.h, spoke, k))
        if going is not None:
            state = state.only(np.asarray(going(record))[state.on])
        if not len(state.on):
            return


def _round(f: _Fixed, s: _State) -> tuple[Array, Array, Mask]:
    """θ (N, R, K·D), its losses (N, R) and who spoke (N, R); one agent at a time, to stay in cache.

    With g⁺ = g + d θ̂ − heard,  d θ̂ + heard − g⁺ = 2 heard − g.
    """
    theta, loss, D = np.empty_like(s.hat), np.empty_like(s.h), f.Q.shape[-1]
    spoke = np.empty(s.h.shape, np.bool_)
    for i, d in enumerate(f.d):
        r = 2.0 * s.heard[i]
        r -= s.g[i]
        r *= s.rho
        r += 2.0 * f.risk.b[i]
        s.g[i] += d * s.hat[i]
        s.g[i] -= s.heard[i]
        u = (r.reshape(-1, D) @ f.Q[i]).reshape(len(r), -1, D)
        u *= s.gain[i][:, None]
        theta[i] = (u.reshape(-1, D) @ f.Q[i].T).reshape(r.shape)
        loss[i] = _loss(f.risk, i, s.rho[:, 0] * d, r, theta[i])
        apart = np.subtract(theta[i], s.hat[i], out=u.reshape(r.shape))
        spoke[i] = np.sqrt(np.vecdot(apart, apart)) >= s.h[i]
        np.copyto(s.hat[i], theta[i], where=spoke[i][:, None])
    s.heard[...] = (f.W @ s.hat.reshape(len(f.d), -1)).reshape(s.hat.shape)
    return theta, loss, spoke


def _loss(risk: Quadratic, i: int, pull: Array, r: Array, theta: Array) -> Array:
    """As `Quadratic.argmin`: 2θᵀAθ = θᵀr − 2θᵀGθ − 2ρd‖θ‖², so A_i is not read."""
    square = np.vecdot(theta, theta)
    shrunk = risk.G * square if isinstance(risk.G, float) else penalty(risk.G, theta)
    quadratic = 0.5 * np.vecdot(theta, r) - shrunk - pull * square
    return np.asarray(risk.yy[i] - 2.0 * (theta @ risk.b[i]) + quadratic)


def _cost(f: _Fixed, spoke: Mask) -> Counts:
    """What a round costs each setting (R, 3), in the accounts of the ledger."""
    size = FLOAT * f.risk.size
    sent = spoke.sum(axis=0)
    wire = HEADER * f.d.sum() + size * (f.d @ spoke)
    return np.stack([sent, size * sent, wire.astype(np.int64)], axis=1)


def _scores(problem: Problem, theta: Array) -> tuple[Array, Array, Array]:
    """Test, global training and global test losses (R,) each."""
    nothing = np.full(theta.shape[1], np.nan)
    train, test = _global(problem.train, theta), problem.test
    if test is None:
        return nothing, train, nothing
    share = test.T / test.T.sum()
    own = [share @ test.losses(theta[:, s]) for s in range(theta.shape[1])]
    return np.array(own), train, _global(test, theta)


def _global(risk: Risk, theta: Array) -> Array:
    N, R, D = theta.shape
    return np.asarray(risk.global_losses(theta.reshape(-1, D)).reshape(N, R).mean(axis=0))
