"""CTA, combine then adapt: diffusion with Metropolis weights, the paper's gradient baseline.

ψ_i ← Σ_n w_in θ_nᵏ⁻¹ (itself included);  θ_iᵏ ← ψ_i − η ∇R_i(ψ_i);  send θ_iᵏ
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from coke.errors import InputError
from coke.maths.algorithms.algorithm import Algorithm, Spoken
from coke.maths.algorithms.coke import FLOAT
from coke.maths.arrays import Array
from coke.maths.graph import metropolis
from coke.maths.losses.risk import Risk


class _CTAState(NamedTuple):
    """What a round changes."""

    theta: Array  # (A, D)  θ_i
    hat: Array  # (A, D)    θ̂_i = θ_i: every round is sent
    heard: Array  # (A, D)  ψ_i = Σ_n w_in θ_n
    loss: Array  # (A,)     mean loss of θ_i on the rows of agent i


@dataclass(frozen=True)
class CTA(Algorithm):
    """Diffusion with step η; diverges where η λ_max(∇²R_i) > 2 (on some data, already at 0.99)."""

    eta: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.eta < math.inf:
            raise InputError(f"eta={self.eta}: expected a step size η > 0; the paper uses 0.99")

    def weights(self, A: sparse.csr_array) -> sparse.csr_array:
        """Metropolis weights, with each agent's own on the diagonal."""
        return metropolis(A)

    def local(self, risk: Risk, d: Array) -> Risk:
        """The risk is all that a gradient step needs."""
        return risk

    def start(self, risk: Risk) -> _CTAState:
        """Everything zero."""
        zero = np.zeros((len(risk.T), risk.size))
        return _CTAState(zero, zero, zero, risk.losses(zero))

    def speak(self, own: Risk, s: _CTAState, k: int) -> tuple[_CTAState, Spoken]:
        """A gradient step from the combination; everyone transmits."""
        theta = s.heard - self.eta * own.gradient(s.heard)
        size = np.full((len(theta), 1), FLOAT * theta.shape[-1])
        return _CTAState(theta, theta, s.heard, own.losses(theta)), Spoken(size)

    def listen(self, own: Risk, s: _CTAState, heard: Array) -> _CTAState:
        """The combination of what was sent, for the next round."""
        return s._replace(heard=heard)
