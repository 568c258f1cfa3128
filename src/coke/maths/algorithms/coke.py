"""COKE: consensus ADMM on random features, speaking only when there is news. DKLA is h = 0.

    θ_iᵏ ← argmin_θ R_i(θ) + ρ d_i ‖θ‖² + θᵀ[γ_iᵏ⁻¹ − ρ Σ_n (θ̂_iᵏ⁻¹ + θ̂_nᵏ⁻¹)]
    θ̂_iᵏ ← θ_iᵏ where ‖θ_iᵏ − θ̂_iᵏ⁻¹‖ ≥ h(k), and tell the neighbours; else θ̂_iᵏ⁻¹, in silence
    γ_iᵏ ← γ_iᵏ⁻¹ + ρ Σ_n (θ̂_iᵏ − θ̂_nᵏ)

Axis 0 of every array runs over agents: a simulation passes N rows. A networked agent moves its
single row, and tells and listens with a row for each of its edges, which need not be at the same
step. The graph stays outside: the caller brings `heard`, the sum of the parameters last received
from the neighbours. The state keeps g = γ/ρ: where messages are coded on a grid, sums of them are
exact and products with ρ are not, so Σ_i g_i = 0 to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from coke.errors import InputError
from coke.maths.algorithms.algorithm import Algorithm, Payloads, Spoken
from coke.maths.algorithms.codecs import Coarse, Codec
from coke.maths.arrays import Array, Mask
from coke.maths.graph import Shape
from coke.maths.losses.risk import Argmin, Risk

_FIRST = 10  # rounds' worth of steps before the first message
FLOAT = 8  # bytes of an entry of θ in the paper's messages


class Threshold(Protocol):
    """h_i(k), k = 1, 2, …: what an innovation must be at least to be told; it does not increase."""

    @property
    def start(self) -> float:
        """h_i before round 1."""
        ...

    def at(self, h: Array, k: int) -> Array:
        """h_i of round k (A, 1), from what the round before left."""
        ...

    def after(self, h: Array, news: Mask) -> Array:
        """What round k leaves of it, given who had news (A, 1)."""
        ...


class Schedule:
    """h(k), the same for all agents: any function that does not increase."""

    start = 0.0

    def __init__(self, h: Callable[[int], float]):
        self._h = h

    def __call__(self, k: int) -> float:
        """h(k)."""
        return self._h(k)

    def at(self, h: Array, k: int) -> Array:
        """h(k), whatever was before."""
        return np.full_like(h, self(k))

    def after(self, h: Array, news: Mask) -> Array:
        """The same."""
        return h


@dataclass(frozen=True)
class Geometric(Schedule):
    """h(k) = v μᵏ; v = 0 never censors, which is DKLA."""

    v: float = 1.0
    mu: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.mu < 1:
            raise InputError(f"mu={self.mu}: expected 0 < μ < 1; the paper uses 0.95 … 0.99")
        if not 0 <= self.v < math.inf:
            raise InputError(f"v={self.v}: expected v ≥ 0; v = 0 sends in every round (DKLA)")

    def __call__(self, k: int) -> float:
        """h(k)."""
        return self.v * self.mu**k


@dataclass(frozen=True)
class Sequential(Schedule):
    """h(k) = values[k − 1]; the last value holds for ever after."""

    values: tuple[float, ...]

    def __init__(self, values: Sequence[float]):
        h = tuple(float(value) for value in values)
        if not h or not math.isfinite(h[0]) or h[-1] < 0:
            raise InputError(f"thresholds {h[:5]}…: expected at least one finite number ≥ 0")
        for k, (a, b) in enumerate(pairwise(h), start=2):
            if not b <= a:
                raise InputError(
                    f"h({k}) = {b} after h({k - 1}) = {a}: thresholds must not increase; "
                    "sort them or use a geometric sequence"
                )
        object.__setattr__(self, "values", h)

    def __call__(self, k: int) -> float:
        """h(k)."""
        return self.values[min(k, len(self.values)) - 1]


@dataclass(frozen=True)
class Shrinking:
    """h_i is `start` at first, and `factor` times smaller after every silent round of agent i.

    It stays after a send. So censoring goes on for as long as the run does, where v μᵏ falls below
    every innovation at last. And it never exceeds `start` · ceilingᵏ, which puts the censored agent
    under the paper's Theorem 2 (for Lipschitz gradients); silence has long shrunk it below that.
    """

    start: float
    factor: float = 0.9
    ceiling: float = 0.99

    def __post_init__(self) -> None:
        if not (0 <= self.start < math.inf and 0 < self.factor < 1):
            raise InputError(
                f"start={self.start}, factor={self.factor}: expected start ≥ 0, 0 < factor < 1"
            )
        if not 0 < self.ceiling < 1:
            raise InputError(f"ceiling={self.ceiling}: expected 0 < ceiling < 1")

    def at(self, h: Array, k: int) -> Array:
        """At most the ceiling's."""
        return np.minimum(h, self.start * self.ceiling**k)

    def after(self, h: Array, news: Mask) -> Array:
        """Smaller where there was silence."""
        return np.where(news, h, self.factor * h)


NEVER_SILENT = Geometric(v=0.0)
_COARSE = Coarse()


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
    h: Array  # (A, 1)      h_i       what the threshold left of it
    loss: Array  # (A,)     mean loss of θ_i on the rows of agent i


def pull(d: Array | float, hat: Array, heard: Array, g: Array) -> Array:
    """Σ_n (θ̂_i + θ̂_n) − γ_i/ρ (A, D): where the neighbours and the dual draw θ_i, in units of ρ."""
    return d * hat + heard - g


def primal(own: Local, pulls: Array, theta: Array) -> tuple[Array, Array]:
    """θ_i ← argmin_θ R_i(θ) + ρ d_i ‖θ‖² − ρ θᵀ pull_i, from θ_i on; and its loss (A,)."""
    return own.argmin(own.rho * pulls, theta)


def dual(d: Array | float, hat: Array, heard: Array, g: Array) -> Array:
    """γ_i/ρ ← γ_i/ρ + Σ_n (θ̂_i − θ̂_n)."""
    return g + (d * hat - heard)


def _censor(theta: Array, hat: Array, h: float | Array) -> Mask:
    """Who has news (A, 1): ‖θ_i − θ̂_i‖ ≥ h_i."""
    innovation = theta - hat
    return np.asarray(np.sqrt(np.vecdot(innovation, innovation))[:, None] >= h)


def say(x: Array, hat: Array, news: Mask, codec: Codec | None) -> tuple[Array, Spoken]:
    """θ̂_i ← what the message of agent i says of x_i (A, W), where it has news; and the messages.

    Without a codec a message is x_i in float64, as in the paper. With one it is the coded
    innovation x_i − θ̂_i, and the sender goes on with what the others decode.
    """
    if codec is None:
        return np.where(news, x, hat), Spoken(news * np.int64(FLOAT * x.shape[-1]))
    rows, size = np.flatnonzero(news), np.zeros(news.shape, dtype=np.int64)
    if not len(rows):
        return hat, Spoken(size)
    said, hat = codec.coded(x[rows] - hat[rows]), hat.copy()
    hat[rows], size[rows] = hat[rows] + said.values, said.size
    return hat, Spoken(size, Payloads(rows.tolist(), said.message))


@dataclass(frozen=True)
class COKE(Algorithm):
    """The paper's Algorithm 2; with the default threshold zero, its Algorithm 1.

    `codec` codes the messages. `warm` makes round 1 the agents' own minima, which everybody sends.
    Not `exact`, a loss may move θ_i by a few steps towards the minimum instead, from one round to
    the next; rest points are the same.
    """

    rho: float = 1e-2
    threshold: Threshold = NEVER_SILENT
    codec: Codec | None = None
    warm: bool = False
    exact: bool = True
    elastic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.rho < math.inf:
            raise InputError(f"rho={self.rho}: expected a step size ρ > 0; the paper uses 0.01")

    def local(self, risk: Risk, d: Array) -> Local:
        """Prepares the agents of these risks, with d_i neighbours each (A, 1)."""
        solver = risk.argmin if self.exact else risk.approach
        return Local(solver(self.rho * d), d, self.rho)

    def start(self, risk: Risk) -> State:
        """Everything zero; or θ_i the agent's own minimum, not said to anybody yet."""
        theta = None
        if self.warm:
            theta = risk.alone() if self.exact else _nearly_alone(risk)
        zero = np.zeros((len(risk.T), risk.size))
        theta = zero if theta is None else theta
        h = np.full((len(zero), 1), self.threshold.start)
        return State(theta, zero, zero, zero, h, risk.losses(theta))

    def speak(self, own: Local, s: State, k: int) -> tuple[State, Spoken]:
        """What agents do in round k before they transmit; and what each transmits."""
        theta, loss = self.move(own, s, pull(own.d, s.hat, s.heard, s.g), k)
        hat, h, spoken = self.tell(theta, s.hat, s.h, k)
        return State(theta, hat, s.heard, s.g, h, loss), spoken

    def move(self, own: Local, s: State, pulls: Array, k: int) -> tuple[Array, Array]:
        """θ_i and its loss in round k; the first of a warm start is there already."""
        return (s.theta, s.loss) if self.warm and k == 1 else primal(own, pulls, s.theta)

    def tell(self, theta: Array, hat: Array, h: Array, k: int) -> tuple[Array, Array, Spoken]:
        """θ̂_i and h_i after round k, and what is said, where ‖θ_i − θ̂_i‖ ≥ h_i."""
        h = self.threshold.at(h, k)
        news = _censor(theta, hat, 0.0 * h if self.warm and k == 1 else h)
        h = self.threshold.after(h, news)
        hat, spoken = say(theta, hat, news, self.codec)
        return hat, h, spoken

    def listen(self, own: Local, s: State, heard: Array) -> State:
        """What they do once their neighbours have spoken."""
        return s._replace(heard=heard, g=dual(own.d, s.hat, heard, s.g))


def paper(rho: float, v: float, mu: float) -> COKE:
    """The paper's Algorithm 2, censored by h(k) = v μᵏ."""
    return COKE(rho, Geometric(v, mu))


def dkla(rho: float = 1e-2) -> COKE:
    """The paper's Algorithm 1: COKE that is never silent."""
    return COKE(rho, NEVER_SILENT)


def _nearly_alone(risk: Risk) -> Array:
    """Near argmin R_i(θ) (N, D): where a loss takes steps, as far as some come from zero."""
    if risk.sums is not None:
        return risk.alone()
    theta = zero = np.zeros((len(risk.T), risk.size))
    towards = risk.approach(np.zeros((len(risk.T), 1)))
    for _ in range(_FIRST):
        theta = towards(zero, theta)[0]
    return theta


def _step_size(kappa: float, shape: Shape) -> float:
    """ρ = κ ℓ / (4 d̄): ℓ the mean distance along the tree, d̄ the mean degree; κ/2 for one alone.

    In place of 0.7 κ / (2 √(λ₂ d̄)), with λ₂ of the Laplacian, which no sum tells: what differs over
    ℓ steps evens out at a rate near d̄/ℓ². Within a factor of two of it nothing changes.
    """
    if shape.sites < 2:
        return kappa / 2
    return kappa * shape.distance / (4.0 * shape.degree)


def automatic(kappa: float, shape: Shape, spread: float) -> COKE:
    """COKE with nothing to tune, for a whitened problem whose target has this spread.

    Where the basis fits, the mean Hessian is near κI, κ the loss's curvature: ρ is dimensionless,
    ‖u − û‖ nearly the root mean square change of predictions, and entries are alike in size.
    """
    return COKE(_step_size(kappa, shape), Shrinking(0.5 * spread), _COARSE, warm=True, exact=False)
