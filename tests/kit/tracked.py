"""Quantised gradient tracking, for the tests: an algorithm whose message is twice as wide as θ.

θ_i ← θ_i + Σ_n w_in θ̂_n − θ̂_i − η y_i
y_i ← y_i + Σ_n w_in ŷ_n − ŷ_i + ∇R_i(θ_i) − ∇R_i(θ_i before)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from coke.maths.algorithms.algorithm import Algorithm, Spoken
from coke.maths.algorithms.codecs import Coarse, Codec
from coke.maths.algorithms.coke import say
from coke.maths.arrays import Array
from coke.maths.graph import metropolis
from coke.maths.losses.risk import Risk


class Tracked(NamedTuple):
    """What a round changes."""

    theta: Array  # (A, D)    θ_i
    y: Array  # (A, D)        the mean gradient, as agent i knows it
    slope: Array  # (A, D)    ∇R_i(θ_i)
    hat: Array  # (A, 2D)     (θ̂_i, ŷ_i)
    heard: Array  # (A, 2D)   Σ_n w_in (θ̂_n, ŷ_n), itself included
    loss: Array  # (A,)


CODEC = Coarse(0.25)


@dataclass(frozen=True)
class Tracking(Algorithm):
    """The y_i average to the mean gradient in every round, whatever is lost to rounding."""

    eta: float = 0.1
    codec: Codec = CODEC

    def weights(self, A: sparse.csr_array) -> sparse.csr_array:
        """Metropolis weights."""
        return metropolis(A)

    def width(self, risk: Risk) -> int:
        """θ and y in one message."""
        return 2 * risk.size

    def told(self, hat: Array) -> Array:
        """Of a message, θ."""
        return hat[:, : hat.shape[1] // 2]

    def local(self, risk: Risk, d: Array) -> Risk:
        """The risk."""
        return risk

    def start(self, risk: Risk) -> Tracked:
        """θ_i = 0, and y_i the agent's own gradient there."""
        zero, nothing = np.zeros((len(risk.T), risk.size)), np.zeros((len(risk.T), 2 * risk.size))
        slope = risk.gradient(zero)
        return Tracked(zero, slope, slope, nothing, nothing, risk.losses(zero))

    def speak(self, own: Risk, s: Tracked, k: int) -> tuple[Tracked, Spoken]:
        """A step, told to all neighbours."""
        D, news = own.size, s.heard - s.hat
        theta = s.theta + news[:, :D] - self.eta * s.y
        slope = own.gradient(theta)
        y = s.y + news[:, D:] + slope - s.slope
        everyone = np.ones((len(theta), 1), np.bool_)
        hat, spoken = say(np.hstack([theta, y]), s.hat, everyone, self.codec)
        return Tracked(theta, y, slope, hat, s.heard, own.losses(theta)), spoken

    def listen(self, own: Risk, s: Tracked, heard: Array) -> Tracked:
        """For the next round."""
        return s._replace(heard=heard)
