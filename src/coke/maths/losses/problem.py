"""A learning problem: the agents' risks, held-out rows, and the answers to compare with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.losses.risk import Risk

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening


class Score(NamedTuple):
    """Mean losses of the agents' models; NaN where there are no held-out rows."""

    train: float  # the paper's: every agent's model on its own rows
    test: float
    global_train: float  # every agent's model on everybody's rows, averaged over agents
    global_test: float


@dataclass(frozen=True)
class Problem:
    """Local risks on training rows and, with no say in the training, on test rows."""

    train: Risk
    test: Risk | None = None

    @cached_property
    def optimum(self) -> Array:
        """θ* (D,)."""
        return self.train.optimum()

    def score(self, theta: Array, losses: Array | None = None) -> Score:
        """Losses of θ_i (N, D); `losses` (N,) are those on own training rows, where known."""
        own = self.train.losses(theta) if losses is None else losses
        train, test, global_test = pooled(own, self.train.T), np.nan, np.nan
        if self.test is not None:
            test = pooled(self.test.losses(theta), self.test.T)
            global_test = float(self.test.global_losses(theta).mean())
        global_train = float(self.train.global_losses(theta).mean())
        return Score(train, test, global_train, global_test)

    def gaps(self, theta: Array) -> tuple[float, float]:
        """max_i ‖θ_i − mean θ‖ and max_i ‖θ_i − θ*‖ of θ_i (N, D)."""
        away = theta - theta.mean(axis=0)
        consensus = np.vecdot(away, away).max()
        np.subtract(theta, self.optimum, out=away)
        return math.sqrt(consensus), math.sqrt(np.vecdot(away, away).max())

    def whitened(self, basis: Whitening) -> Problem:
        """The same problem as one of u = Cᵀθ."""
        test = None if self.test is None else self.test.whitened(basis)
        return Problem(self.train.whitened(basis), test)

    def everywhere(self, theta: Array) -> Array:
        """One model (D,) handed to every agent (N, D)."""
        return np.tile(theta, (len(self.train.T), 1))


def pooled(losses: Array, T: Array) -> float:
    """Σ_i T_i loss_i / Σ_i T_i: the mean over all rows of every agent's loss on its own."""
    return float(losses @ T / T.sum())


def local_only(risk: Risk) -> Array:
    """Each agent alone: argmin R_i(θ) (N, D), without a message."""
    nobody = np.zeros((len(risk.T), 1))
    zero = np.zeros((len(risk.T), risk.size))
    return risk.argmin(nobody)(zero, zero)[0]


def one_shot_average(risk: Risk) -> Array:
    """The mean of the agents' own models (D,): 2(N − 1) messages up and down a tree, once."""
    return np.asarray(local_only(risk).mean(axis=0))
