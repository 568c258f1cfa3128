"""COKE: consensus ADMM on random features, speaking only when there is news. DKLA is h = 0.

    θ_iᵏ ← argmin_θ R_i(θ) + ρ d_i ‖θ‖² + θᵀ[γ_iᵏ⁻¹ − ρ Σ_n (θ̂_iᵏ⁻¹ + θ̂_nᵏ⁻¹)]
    θ̂_iᵏ ← θ_iᵏ where ‖θ_iᵏ − θ̂_iᵏ⁻¹‖ ≥ h(k), and tell the neighbours; else θ̂_iᵏ⁻¹, in silence
    γ_iᵏ ← γ_iᵏ⁻¹ + ρ Σ_n (θ̂_iᵏ − θ̂_nᵏ)

Axis 0 of every array runs over agents: a simulation passes N rows, a networked agent its
single row. The graph stays outside: the caller brings `heard`, the sum of the parameters
last received from the neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from coke.errors import InputError
from coke.maths.arrays import Array, Mask
from coke.maths.graph import Graph, adjacency
from coke.maths.risks import Argmin, Risk
from coke.maths.thresholds import NEVER_SILENT, Threshold


class Local(NamedTuple):
    """What stays fixed in a run."""

    argmin: Argmin  # p, start ↦ argmin_θ R_i(θ) + ρ d_i ‖θ‖² − pᵀθ, prepared once
    d: Array  # (A, 1)  d_i, number of neighbours
    rho: float  # ρ


class State(NamedTuple):
    """What a round changes."""

    theta: Array  # (A, D)  θ_i       own estimate, private
    hat: Array  # (A, D)    θ̂_i       what the neighbours last received from i
    heard: Array  # (A, D)  Σ_n θ̂_n   over the neighbours n of i
    gamma: Array  # (A, D)  γ_i       dual variable, zero at the start
    loss: Array  # (A,)     mean loss of θ_i on the rows of agent i


def primal(own: Local, s: State) -> tuple[Array, Array]:
    """θ_i ← argmin_θ R_i(θ) + ρ d_i ‖θ‖² + θᵀ[γ_i − ρ Σ_n (θ̂_i + θ̂_n)], and its loss."""
    return own.argmin(own.rho * (own.d * s.hat + s.heard) - s.gamma, s.theta)


def censor(theta: Array, hat: Array, h: float) -> tuple[Array, Mask]:
    """θ̂_i ← θ_i where ‖θ_i − θ̂_i‖ ≥ h, else unchanged; and who has news."""
    innovation = theta - hat
    news = np.sqrt(np.vecdot(innovation, innovation))[:, None] >= h
    return np.where(news, theta, hat), news


def dual(own: Local, s: State) -> Array:
    """γ_i ← γ_i + ρ Σ_n (θ̂_i − θ̂_n)."""
    return s.gamma + own.rho * (own.d * s.hat - s.heard)


@dataclass(frozen=True)
class COKE:
    """The paper's Algorithm 2; with the default threshold zero, its Algorithm 1."""

    rho: float = 1e-2
    threshold: Threshold = NEVER_SILENT

    def __post_init__(self) -> None:
        if not 0 < self.rho < math.inf:
            raise InputError(f"rho={self.rho}: expected a step size ρ > 0; the paper uses 0.01")

    def weights(self, graph: Graph) -> sparse.csr_array:
        """Every neighbour is heard with weight one."""
        return adjacency(graph)

    def local(self, risk: Risk, d: Array) -> Local:
        """Prepares the agents of these risks, with d_i neighbours each (A, 1)."""
        return Local(risk.argmin(self.rho * d), d, self.rho)

    def start(self, risk: Risk) -> State:
        """Everything zero."""
        zero = np.zeros((len(risk.T), risk.size))
        return State(zero, zero, zero, zero, risk.losses(zero))

    def speak(self, own: Local, s: State, k: int) -> tuple[State, Mask]:
        """What agents do in round k before they transmit; and who transmits (A, 1)."""
        theta, loss = primal(own, s)
        hat, news = censor(theta, s.hat, self.threshold(k))
        return s._replace(theta=theta, hat=hat, loss=loss), news

    def listen(self, own: Local, s: State, heard: Array) -> State:
        """What they do once their neighbours have spoken."""
        s = s._replace(heard=heard)
        return s._replace(gamma=dual(own, s))


def dkla(rho: float = 1e-2) -> COKE:
    """The paper's Algorithm 1: COKE that is never silent."""
    return COKE(rho, NEVER_SILENT)
