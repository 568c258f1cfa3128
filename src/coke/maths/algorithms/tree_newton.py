"""Newton's method on a tree: what its root makes of the gradients that it is told.

F(u) = (1/N) Σ_i R_i(u) in the common basis. Of its Hessian the root has two guesses: c I, for which
the basis was made, and its own. M is their geometric mean. As F is nearly quadratic, the gradients
g_j at the places u_j seen so far tell which combination of these has the least gradient:

    β = argmin ‖Σ_j β_j g_j‖² + Σ_j β_j² ν_j in the norm of M⁻¹,   Σ_j β_j = 1,
    next u = Σ_j β_j (u_j − t M⁻¹g_j),

ν_j what rounding adds to g_j and t ≤ 1. So numbers may be coarse: a step of u is rounded so that
this costs a small part of what the step gains, and gradients so that the next step loses as little.
What a proof (`coke.maths.losses.excess`) would come to is foreseen with the root's own Hessian; the
sites are asked for it once that is enough. Where nothing is gained for a while, numbers are finer,
and at last the Gram matrices are asked for: H follows from them if sums say all, else what it is at
most.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coke.errors import ConvergenceError
from coke.maths.algorithms.integers import pack_integers, refuse, unpack_integers
from coke.maths.arrays import Array
from coke.maths.losses.excess import Certificate

BEGIN, STEP, SHIFT, HESSIAN, COMMON, END = range(6)  # what the root orders
_FIRST, _OWN = 0.6, 0.75  # steps of a code, in root mean squares of what is coded
_DOWN, _UP = 0.05, 0.03  # parts of a step's gain that rounding it, or the next gradient, may cost
_FAR, _BITS = 100, 47  # exponents of steps at most, and bits of a multiple
_ENOUGH = 0.8  # of what may be left: a proof is then likely
_ROUNDED, _SHIFTED = 0.25, 0.05  # of it, for the rounding of gradients, and of their mean
_NEAR = 4.0  # times what may be left: the next place may do
_SURE = 1.2  # times as far below, at least, after a proof was refused
_MOST = 1e6  # times more than was foreseen that a proof may come to
_STALE, _RETREATS = 8, 3  # sweeps without gain, and how often numbers are finer then
_FINER = 0.25  # of their steps
_EXPLODED = 100.0  # times the least objective: steps are far too long
_DAMPED, _LONGER = 1.5, 2.0  # M for the mean of the guesses; t for what the last step would allow
_LEAST, _TINY = 1e-12, 1e-13  # of the largest eigenvalue, and of products that are dependent


class Aim(NamedTuple):
    """When to end."""

    accuracy: float
    sweeps: int  # at most
    sums: bool  # whether sums over the rows say all: Hessians stay as they are
    bend: float  # the loss's second derivative at most
    further: bool = True  # whether to go on where a proof of what others have found is refused
    slack: float = 1e-6


class Order(NamedTuple):
    """What the root tells all sites."""

    kind: int
    x: Array | None = None  # a step of u, or a shift of the gradients
    step: float = 0.0  # to round it to
    up: float = 0.0  # and the gradients that are told next


class Guess:
    """A positive-definite matrix (D, D), the same for every output, by its eigenvectors."""

    def __init__(self, values: Array, vectors: Array):
        self.values, self._V = np.maximum(values, _LEAST * float(values.max())), vectors

    @classmethod
    def of(cls, H: Array) -> Guess:
        """H (D, D)."""
        return cls(*np.linalg.eigh(H))

    def like(self, values: Array) -> Guess:
        """Another with its eigenvectors."""
        return Guess(values, self._V)

    def solved(self, X: Array) -> Array:
        """Its inverse times each row (n, K·D)."""
        return np.asarray((self._along(X) / self.values) @ self._V.T).reshape(X.shape)

    def square(self, X: Array) -> float:
        """Σ xᵀHx over the rows."""
        return float(np.sum(self._along(X) ** 2 * self.values))

    @property
    def inverse(self) -> float:
        """The trace of the inverse."""
        return float((1.0 / self.values).sum())

    def _along(self, X: Array) -> Array:
        return np.asarray(X.reshape(-1, len(self._V)) @ self._V)


class Trail:
    """Where the root has been, what the gradients were, and where that points to."""

    def __init__(self, M: Guess, most: Guess | None = None, *, shared: bool):
        """`most` limits the first step; `shared`: each output shows what H is, to the last."""
        self.M, self._most, self._shared = M, most, shared
        self._seen: list[tuple[Array, Array, float]] = []

    def step(self, u: Array, g: Array, noise: float) -> Array:
        """To the next place (K·D,), where the gradient's square is off by so much noise."""
        seen, width = self._seen, len(self.M.values) if self._shared else len(g)
        self._seen, G = [*seen, (u, g, noise)], g.reshape(-1, width)
        if not seen:
            return -self._down(G).ravel()
        S, Y = (np.stack([one[j] for one in seen]) - now for j, now in ((0, u), (1, g)))
        S, Y = S.reshape(-1, width), Y.reshape(-1, width)
        each = self.M.inverse / (len(self.M.values) * len(G))  # of the noise, by M⁻¹
        off = np.repeat([each * (one[2] + noise) for one in seen], len(G))
        beta = _least(Y, self.M.solved(Y), off, G)
        p = -(beta @ S + self._down(G - beta @ Y)).ravel()
        return p if np.isfinite(p).all() else -self._down(G).ravel()

    def damped(self) -> None:
        """Forgets what was seen, and takes half the steps."""
        self.M, self._seen = self.M.like(2.0 * self.M.values), []

    def _down(self, G: Array) -> Array:
        """t M⁻¹ of each row."""
        Z = self.M.solved(G)
        return min(1.0, self._length(G, Z)) * Z

    def _length(self, G: Array, Z: Array) -> float:
        """How far Z, M⁻¹G, would best be followed: by the other guess, then by the last step."""
        gain, cost = 0.0, 0.0
        if len(self._seen) > 1:
            (u, g, _), (v, h, _) = self._seen[-2:]
            gain = _LONGER * float((g - h) @ (u - v))
            cost = float((g - h) @ self.M.solved(g - h))
        elif self._most is not None:
            gain, cost = float(np.vdot(G, Z)), self._most.square(Z)
        return gain / cost if gain > 0 and cost > 0 else 1.0


class Root:
    """Where the root has come to, and what it wants next."""

    def __init__(self, own: Array, c: float, goal: Aim, sites: int):
        """`own` is the root's Hessian in units of c (D, D)."""
        found = Guess.of(own)
        M, most = _DAMPED * c * np.sqrt(found.values), 0.5 * c * (1.0 + found.values)
        self._own, self._goal, self._N, self.k = found.like(c * found.values), goal, sites, 0
        self._trail = Trail(found.like(M), found.like(most), shared=goal.sums)
        self._best, self._place, self._least = math.inf, np.empty(0), math.inf
        self._stale, self._tries, self._exploded, self._told = 0, 0, False, False
        self._finer, self._short = 1.0, 1.0  # steps of numbers; proofs, over what was foreseen
        self.away = math.inf  # what a proof would come to, in parts of what may be left
        self._foreseen = self._may = self._gain = 0.0
        self._p = np.empty(0)

    def began(self, from_here: Array | None) -> Order:
        """From the root's own minimum, or from where all are already."""
        if from_here is None:
            return Order(BEGIN)
        alone = 2.0**-_BITS if self._N == 1 else 1.0  # nobody is told
        return Order(BEGIN, from_here, _FIRST * rms(from_here) * alone)

    def knows(self, H: Array, u: Array) -> Order:
        """Once the mean Hessian is told, or what it is at most; back to the best place."""
        self._trail, self._told = Trail(Guess.of(H), shared=self._goal.sums), True
        return self._on(self._place - u)

    def after(self, u: Array, g: Array, loss: float, zero: float, noise: float) -> Order:
        """What is wanted after the mean gradient and objective at u."""
        goal, own, self.k = self._goal, self._own, self.k + 1
        self._p = self._trail.step(u, g, noise)
        self._gain, self._may = abs(float(g @ self._p)), goal.accuracy * loss + goal.slack * zero
        rounding = self._N * noise * own.inverse / len(own.values)
        self._foreseen = 0.5 * float(g @ own.solved(g)) + rounding
        likely = self._short * self._foreseen
        self.away = likely / self._may if self._may > 0 else math.inf if likely > 0 else 0.0
        self._count(u, loss)
        if self._over or self.away <= _ENOUGH:
            return Order(SHIFT, -g, self._fine(2.0 * _SHIFTED / self._N))
        if self._exploded or self._stale > max(_STALE, len(u) // 4):
            return self._stuck(u)
        return self._on(self._p)

    def judged(self, found: Certificate) -> Order:
        """After a proof; where it is refused, too little was foreseen."""
        if found.holds or self._over:
            return Order(END)
        seen = found.gap / (self._N * self._foreseen) if self._foreseen > 0 else 1.0
        self._short = min(max(seen, _SURE * self._short), _MOST)
        return self._on(self._p)

    def _on(self, p: Array) -> Order:
        """By p; and how finely that and the next gradients are told."""
        M, gain = self._trail.M, 12.0 * self._gain * self._finer**2 / self._outputs
        down = math.sqrt(_DOWN * gain / float(M.values.sum()))
        up = math.sqrt(_UP * gain * self._N / M.inverse)
        if self.away <= _NEAR:
            up = min(up, self._fine(_ROUNDED / self._short))
        return Order(STEP, p, down, up)

    @property
    def _outputs(self) -> float:
        return len(self._p) / len(self._own.values)

    def _fine(self, part: float) -> float:
        """A step of numbers whose rounding costs a proof that part of what may be left."""
        return math.sqrt(12.0 * part * self._may / (self._own.inverse * self._outputs))

    @property
    def _over(self) -> bool:
        """Whether enough was tried."""
        return self.k >= self._goal.sweeps or self._tries > 2 * _RETREATS

    def _count(self, u: Array, loss: float) -> None:
        """Sweeps since what is left was clearly less than ever."""
        if loss < self._least:
            self._least, self._place = loss, u
        self._exploded, self._stale = loss > _EXPLODED * self._least, self._stale + 1
        if self._gain < 0.5 * self._best:
            self._best, self._stale = self._gain, 0

    def _stuck(self, u: Array) -> Order:
        """Finer numbers, back to the best place, and smaller steps; at last the Hessians."""
        self._stale, self._tries, self._finer = 0, self._tries + 1, _FINER * self._finer
        if self._tries > _RETREATS and not self._told:
            return Order(HESSIAN)
        if self._exploded or not self._goal.sums:
            self._trail.damped()
        return self._on(self._place - u)


def _least(Y: Array, MY: Array, off: Array, G: Array) -> Array:
    """β (K, n) that makes G − βY least by M⁻¹, each β² costing `off` (n,) beside."""
    inner = Y @ MY.T + np.diag(off)
    unit = 1.0 / np.sqrt(np.maximum(np.diag(inner), np.finfo(np.float64).tiny))
    inner = inner * np.outer(unit, unit) + _TINY * np.eye(len(inner))
    return np.asarray(np.linalg.solve(inner, unit[:, None] * (MY @ G.T)).T * unit)


def stepped(x: Array, step: float) -> tuple[Array, bytes]:
    """The nearest multiples of the power of two that is nearest to the step, and their bytes.

    Of a larger power where there would be too many.
    """
    far = float(np.abs(x).max())
    if not far < 2.0**_FAR:
        raise ConvergenceError(f"{far} in a sum over the tree: scale the inputs and targets")
    if not step > 0:
        return np.zeros_like(x), b""
    e = max(round(math.log2(step)), -_FAR, math.frexp(far)[1] - _BITS)
    n = np.rint(np.ldexp(x, -e)).astype(np.int64)
    packed = pack_integers(n)
    return np.ldexp(n.astype(np.float64), e), bytes([e % 256]) + packed if packed else b""


def decoded(data: bytes, size: int) -> tuple[Array, float]:
    """What such bytes say, and in which steps."""
    if not data:
        return np.zeros(size), 0.0
    step = exponent(data[0])
    return np.ldexp(unpack_integers(data[1:], size).astype(np.float64), step), 2.0**step


def exponent(byte: int) -> int:
    """Of a step, as a byte tells it."""
    e = (byte + 128) % 256 - 128
    refuse(abs(e) > _FAR, f"steps of 2 to the {e}")
    return e


def own_step(x: Array) -> float:
    """Of one site's first gradient, relative to what it has to tell."""
    return _OWN * rms(x)


def exponent_of(step: float) -> int:
    """The byte that tells a step."""
    e = round(math.log2(step)) if step > 0 else -_FAR
    return min(max(e, -_FAR), _FAR) % 256


def rms(x: Array) -> float:
    """√ mean x²."""
    return float(np.sqrt(np.mean(x * x)))


def curvature(secant: float, kappa: float) -> float:
    """c as a power of two, so that products with it are exact; κ where nothing better is known."""
    c = secant if secant > 1e-6 * kappa else kappa
    return 2.0 ** round(math.log2(c))
