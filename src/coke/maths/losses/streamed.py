"""S_i ← βᵐS_i + Σ_t β^(age_t) φφᵀ: the statistics of rows that come one after the other.

A row counts β for every tick since its own, whenever it arrives: a site that was away adds its
backlog by time, not by arrival. With β = 1 nothing is forgotten, and a stream that has ended leaves
the statistics of its rows, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import Regulariser

_LEAST = 1e-3  # rows that a site without any counts as, so that S/w is a number


class Batch(NamedTuple):
    """Some rows of one agent."""

    Phi: Array  # (m, D)
    y: Array  # (m, K)
    age: Array  # (m,) ticks


def joined(waiting: Sequence[Batch], now: int) -> Batch | None:
    """All of a site's new rows, which have their ticks for ages, with their ages now."""
    if not waiting:
        return None
    Phi, y, ticks = (np.concatenate(part) for part in zip(*waiting, strict=True))
    return Batch(Phi, y, now - ticks)


class Streamed(NamedTuple):
    """Sums over the rows so far, weighted by their age."""

    S: Array  # (N, D, D)
    r: Array  # (N, K·D)
    yy: Array  # (N, K)
    w: Array  # (N,)  rows, each as much as is remembered of it

    @classmethod
    def empty(cls, N: int, D: int, K: int = 1) -> Streamed:
        """Before the first row."""
        return cls(np.zeros((N, D, D)), np.zeros((N, K * D)), np.zeros((N, K)), np.zeros(N))

    def scaled(self, by: float | Array) -> Streamed:
        """All rows so far counting `by` times as much, one number or one an agent (N,)."""
        by = np.broadcast_to(np.asarray(by, np.float64), self.w.shape)
        return Streamed(
            by[:, None, None] * self.S, by[:, None] * self.r, by[:, None] * self.yy, by * self.w
        )

    def after(self, ticks: int, beta: float, batches: Sequence[Batch | None]) -> Streamed:
        """So many ticks later, with the rows that have come to each agent."""
        s = self.scaled(beta**ticks)
        for i, batch in enumerate(batches):
            if batch is not None:
                _join(s, i, batch, beta)
        return s

    def risk(self, G: Regulariser, prior: float = 0.0) -> Quadratic:
        """R_i with A_i = (S_i + prior I)/w_i, b_i = r_i/w_i: the prior fades as rows come."""
        w = np.maximum(self.w, _LEAST)
        A, D = self.S / w[:, None, None], self.S.shape[-1]
        A[:, np.arange(D), np.arange(D)] += (prior / w)[:, None]
        squares = self.yy / w[:, None]
        return Quadratic(A, self.r / w[:, None], squares.sum(axis=1), w, G, squares=squares)


def _join(s: Streamed, i: int, batch: Batch, beta: float) -> None:
    """Adds the rows of agent i to sums that nobody else has yet."""
    weights = beta**batch.age
    weighed = batch.Phi * weights[:, None]
    s.S[i] += weighed.T @ batch.Phi
    s.r[i] += (batch.y.T @ weighed).ravel()
    s.yy[i] += weights @ batch.y**2
    s.w[i] += weights.sum()
