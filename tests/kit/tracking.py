"""Quantised gradient tracking: an algorithm that is not of the house, with messages of (θ, y).

θ_i ← θ_i + γ (Σ_n w_in θ̂_n − θ̂_i) − η y_i
y_i ← y_i + γ (Σ_n w_in ŷ_n − ŷ_i) + ∇R_i(θ_iᵏ) − ∇R_i(θ_iᵏ⁻¹);  tell what is new of both
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from coke.maths.algorithms import Entry
from coke.maths.algorithms.algorithm import Algorithm, Spoken
from coke.maths.algorithms.codecs import Coarse, Codec
from coke.maths.algorithms.coke import say
from coke.maths.arrays import Array
from coke.maths.graph import Graph, metropolis
from coke.maths.losses.risk import Risk

FINE = Coarse(0.25)


class TrackingState(NamedTuple):
    """What a round changes."""

    theta: Array  # (A, D)   θ_i
    y: Array  # (A, D)       y_i: the mean gradient, as far as agent i knows
    gradient: Array  # (A, D)  ∇R_i(θ_i)
    hat: Array  # (A, 2D)    θ̂_i and ŷ_i
    heard: Array  # (A, 2D)  Σ_n w_in of both, itself included
    loss: Array  # (A,)


@dataclass(frozen=True)
class Tracking(Algorithm):
    """Gradient steps η along a mean gradient that the agents track; consensus with step γ."""

    eta: float = 0.1
    gamma: float = 0.5
    codec: Codec | None = FINE

    def weights(self, graph: Graph) -> sparse.csr_array:
        """Metropolis weights, with each agent's own on the diagonal."""
        return metropolis(graph)

    def width(self, risk: Risk) -> int:
        """θ and y."""
        return 2 * risk.size

    def told(self, hat: Array) -> Array:
        """Its first half."""
        return hat[:, : hat.shape[-1] // 2]

    def local(self, risk: Risk, d: Array) -> Risk:
        """The risk is all that a gradient step needs."""
        return risk

    def start(self, risk: Risk) -> TrackingState:
        """Everything zero, and y the own gradient there."""
        zero = np.zeros((len(risk.T), risk.size))
        both, g = np.zeros((len(zero), self.width(risk))), risk.gradient(zero)
        return TrackingState(zero, g, g, both, both, risk.losses(zero))

    def speak(self, own: Risk, s: TrackingState, k: int) -> tuple[TrackingState, Spoken]:
        """A step of both, and what is new of them."""
        moved, tracked = np.hsplit(self.gamma * (s.heard - s.hat), 2)
        theta = s.theta + moved - self.eta * s.y
        gradient = own.gradient(theta)
        y = s.y + tracked + gradient - s.gradient
        everyone = np.ones((len(theta), 1), np.bool_)
        hat, spoken = say(np.hstack([theta, y]), s.hat, everyone, self.codec)
        return TrackingState(theta, y, gradient, hat, s.heard, own.losses(theta)), spoken

    def listen(self, own: Risk, s: TrackingState, heard: Array) -> TrackingState:
        """Keep what was heard for the next round."""
        return s._replace(heard=heard)


def tracking(eta: float) -> Tracking:
    """By name, as an entry of the registry makes it."""
    return Tracking(eta)


ENTRY = Entry("gradient tracking", "kit.tracking:tracking", ("eta",))
