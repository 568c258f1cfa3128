"""COKE: consensus ADMM on random features, speaking only when there is news. DKLA is h = 0.

    θ_iᵏ ← argmin_θ R_i(θ) + ρ d_i ‖θ‖² + θᵀ[γ_iᵏ⁻¹ − ρ Σ_n (θ̂_iᵏ⁻¹ + θ̂_nᵏ⁻¹)]
    θ̂_iᵏ ← θ_iᵏ where ‖θ_iᵏ − θ̂_iᵏ⁻¹‖ ≥ h(k), and tell the neighbours; else θ̂_iᵏ⁻¹, in silence
    γ_iᵏ ← γ_iᵏ⁻¹ + ρ Σ_n (θ̂_iᵏ − θ̂_nᵏ)

Axis 0 of every array runs over agents: a simulation passes N rows, a networked agent its
single row. The graph stays outside: the caller brings `heard`, the sum of the parameters
last received from the neighbours. The state keeps g = γ/ρ: where messages are coded on a grid,
sums of them are exact and products with ρ are not, so Σ_i g_i = 0 to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from coke.errors import InputError
from coke.maths.arrays import Array, Mask, Sizes
from coke.maths.graph import Graph, adjacency
from coke.maths.problem import local_only
from coke.maths.quantise import Codec
from coke.maths.risks import Argmin, Risk
from coke.maths.thresholds import NEVER_SILENT, Shrinking, Threshold

FLOAT = 8  # bytes of an entry of θ in the paper's messages


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
    g: Array  # (A, D)      γ_i/ρ     dual variable, zero at the start
    h: Array  # (A, 1)      h_i       threshold of a run whose thresholds shrink in silence
    loss: Array  # (A,)     mean loss of θ_i on the rows of agent i


def primal(own: Local, s: State) -> tuple[Array, Array]:
    """θ_i ← argmin_θ R_i(θ) + ρ d_i ‖θ‖² + θᵀ[γ_i − ρ Σ_n (θ̂_i + θ̂_n)], and its loss."""
    return own.argmin(own.rho * (own.d * s.hat + s.heard - s.g), s.theta)


def censor(theta: Array, hat: Array, h: float | Array) -> Mask:
    """Who has news (A, 1): ‖θ_i − θ̂_i‖ ≥ h_i."""
    return np.asarray(distance(theta - hat) >= h)


def distance(innovation: Array) -> Array:
    """‖θ_i − θ̂_i‖ (A, 1)."""
    return np.asarray(np.sqrt(np.vecdot(innovation, innovation))[:, None])


def say(theta: Array, hat: Array, news: Mask, codec: Codec | None) -> tuple[Array, Sizes]:
    """θ̂_i ← what the message of agent i says, where it has news; and the bytes of each message.

    Without a codec a message is θ_i in float64, as in the paper. With one it is the coded
    innovation θ_i − θ̂_i, and the sender goes on with what the others decode.
    """
    if codec is None:
        return np.where(news, theta, hat), news * np.int64(FLOAT * theta.shape[-1])
    hat, size = hat.copy(), np.zeros(news.shape, dtype=np.int64)
    for i in np.flatnonzero(news):
        message = codec.encode(theta[i] - hat[i])
        hat[i] += codec.decode(message, theta.shape[-1])
        size[i] = len(message)
    return hat, size


def dual(own: Local, s: State) -> Array:
    """γ_i/ρ ← γ_i/ρ + Σ_n (θ̂_i − θ̂_n)."""
    return s.g + (own.d * s.hat - s.heard)


@dataclass(frozen=True)
class COKE:
    """The paper's Algorithm 2; with the default threshold zero, its Algorithm 1.

    `codec` codes the messages. `warm` makes round 1 the agents' own minima, which everybody sends.
    """

    rho: float = 1e-2
    threshold: Threshold | Shrinking = NEVER_SILENT
    codec: Codec | None = None
    warm: bool = False

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
        """Everything zero; or θ_i the agent's own minimum, not said to anybody yet."""
        zero = np.zeros((len(risk.T), risk.size))
        theta = local_only(risk) if self.warm else zero
        first = self.threshold.start if isinstance(self.threshold, Shrinking) else 0.0
        h = np.full((len(zero), 1), first)
        return State(theta, zero, zero, zero, h, risk.losses(theta))

    def speak(self, own: Local, s: State, k: int) -> tuple[State, Sizes]:
        """What agents do in round k before they transmit; and the bytes each transmits (A, 1)."""
        first = self.warm and k == 1
        theta, loss = (s.theta, s.loss) if first else primal(own, s)
        if isinstance(self.threshold, Shrinking):
            h = np.minimum(s.h, self.threshold.bound(k))
        else:
            h = np.full_like(s.h, self.threshold(k))
        news = censor(theta, s.hat, 0.0 * h if first else h)
        hat, size = say(theta, s.hat, news, self.codec)
        if isinstance(self.threshold, Shrinking):
            h = np.where(news, h, self.threshold.factor * h)
        return State(theta, hat, s.heard, s.g, h, loss), size

    def listen(self, own: Local, s: State, heard: Array) -> State:
        """What they do once their neighbours have spoken."""
        s = s._replace(heard=heard)
        return s._replace(g=dual(own, s))


def dkla(rho: float = 1e-2) -> COKE:
    """The paper's Algorithm 1: COKE that is never silent."""
    return COKE(rho, NEVER_SILENT)
