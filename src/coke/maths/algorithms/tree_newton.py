"""Newton's method on a tree: what its root makes of the gradients that it is told.

F(u) = (1/N) Σ_i R_i(u) in the common basis, where Hessians are near c I. The root keeps where it
has been and the gradients it found there; with S and Y the differences to the last of them,

    H = M + (Y − M S)(SᵀS + noise)⁻¹Sᵀ,   p = −H⁻¹g,   M between the root's own Hessian and c I.

½|gᵀp| estimates what is left to gain. Once that is small the sites are asked for a proof
(`coke.maths.losses.excess`); where it is refused, finer numbers are asked for, and where nothing is
gained for a while, the Gram matrices, of which H follows if sums say all, else what it is at most.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from coke.errors import ConvergenceError
from coke.maths.algorithms.integers import pack_integers, refuse, unpack_integers
from coke.maths.arrays import Array
from coke.maths.losses.excess import Certificate

BEGIN, STEP, SHIFT, HESSIAN, COMMON, END = range(6)  # what the root orders
FINEST = 30  # bits of a number beyond the size of its vector
_FIRST, _DOWN, _OWN = 0.6, 1.0, 0.75  # steps of a code, in root mean squares of what is coded
_UP = 0.45  # and of all sites alike, in those of a gradient's change
_FAR, _BITS = 100, 47  # exponents of steps at most, and bits of a multiple
_ENOUGH = 0.3  # of what may be left: a proof is then likely
_STALE, _RETREATS, _EXACT = 8, 3, 12  # sweeps without gain, and what is tried how often
_EXPLODED = 100.0  # times the least objective: steps are far too long
_DAMPED = 1.5
_PRECISE = 30  # bits, once the Hessians are known


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
    fine: int = 0  # bits beyond its own size that a gradient is wanted with; 0: as all sites


class Secants:
    """H from a first guess and the gradients seen since."""

    def __init__(self, M: Array, c: float, *, shared: bool):
        """From M (D, D); c is a typical eigenvalue of it. `shared`: by all outputs, to the last."""
        self._M, self._c, self._shared = M, c, shared
        self._root = cho_factor(self._M)
        self._seen: list[tuple[Array, Array, float]] = []

    @classmethod
    def near(cls, own: Array, c: float, *, shared: bool) -> Secants:
        """From the root's own Hessian in units of c (D, D)."""
        return cls(_DAMPED * c * 0.5 * (own + np.eye(len(own))), c, shared=shared)

    def step(self, u: Array, g: Array, noise: float) -> Array:
        """p = −H⁻¹g (K·D,), where the gradient's square is off by so much noise.

        Outputs that share H show it K times over.
        """
        seen, width = self._seen, len(self._M) if self._shared else len(g)
        self._seen, each = [*seen, (u, g, noise)], g.reshape(-1, width)
        P = -self._solved(each)
        if not seen:
            return P.ravel()
        S, Y = (np.stack([one[j] for one in seen]) - now for j, now in ((0, u), (1, g)))
        S, Y = S.reshape(-1, width), Y.reshape(-1, width)
        off = np.repeat([(one[2] + noise) / len(each) for one in seen], len(each))
        MU = self._solved(Y - self._times(S))  # M⁻¹ of each column of Y − M S
        inner = S @ S.T + np.diag(off) / (3.0 * self._c**2) + S @ MU.T
        better = (P - np.linalg.lstsq(inner, S @ P.T, rcond=None)[0].T @ MU).ravel()
        return better if np.isfinite(better).all() and g @ better < 0 else P.ravel()

    def damped(self) -> None:
        """Forgets what was seen, and takes half the steps."""
        self._M, self._seen = 2.0 * self._M, []
        self._root = cho_factor(self._M)

    def _solved(self, X: Array) -> Array:
        """M⁻¹ of each row (n, K·D)."""
        return np.asarray(cho_solve(self._root, X.reshape(-1, len(self._M)).T).T).reshape(X.shape)

    def _times(self, X: Array) -> Array:
        return (X.reshape(-1, len(self._M)) @ self._M).reshape(X.shape)


class Exact:
    """H itself, the same for every output."""

    def __init__(self, H: Array):
        self._H = H

    def step(self, u: Array, g: Array, noise: float) -> Array:
        """p = −H⁻¹g."""
        return -np.asarray(np.linalg.solve(self._H, g.reshape(-1, len(self._H)).T).T).ravel()


class Root:
    """Where the root has come to, and what it wants next."""

    def __init__(self, model: Secants, goal: Aim, sites: int):
        self._model: Secants | Exact = model
        self._goal, self._N, self.k = goal, sites, 0
        self._best, self._place, self._stale, self._tries = math.inf, np.empty(0), 0, 0
        self._least = math.inf  # objective seen
        self.away = self._need = self._left = (
            math.inf
        )  # what may be left to gain, and what is by estimate
        self._fine, self._p, self._told, self._last = 0, np.empty(0), False, 0

    def began(self, from_here: Array | None) -> Order:
        """From the root's own minimum, or from where all are already."""
        if from_here is None:
            return Order(BEGIN)
        alone = 2.0**-_BITS if self._N == 1 else 1.0  # nobody is told
        return Order(BEGIN, from_here, _FIRST * rms(from_here) * alone)

    def knows(self, H: Array, u: Array) -> Order:
        """Once the mean Hessian is told, or what it is at most; back to the best place."""
        c = float(np.trace(H)) / len(H)
        self._model = Exact(H) if self._goal.sums else Secants(H, c, shared=False)
        self._told, self._stale, self._tries = True, 0, 0
        self._fine, self._need, back = _PRECISE, math.inf, self._place - u
        return self._wanted(Order(STEP, back, self._down(back), self._fine))

    def after(self, u: Array, g: Array, loss: float, zero: float, noise: float) -> Order:
        """What is wanted after the mean gradient and objective at u."""
        goal, self.k = self._goal, self.k + 1
        p = self._p = self._model.step(u, g, noise)
        self._left = left = 0.5 * abs(float(g @ p))
        self._count(u, left, loss)
        wanted = _ENOUGH * (goal.accuracy * loss + goal.slack * zero)
        self.away, enough = left / wanted if wanted > 0 else 0.0, left <= min(self._need, wanted)
        if self._over or (enough and self._last >= self._fine):
            return Order(SHIFT, -g, rms(g) / (2.0 * self._N) * 2.0**-self._fine)
        if enough:
            return self._wanted(Order(STEP, fine=self._fine))
        if self._stale > max(_STALE, len(u) // 8) and not isinstance(self._model, Exact):
            return self._stuck(u)
        return self._on()

    def judged(self, found: Certificate) -> Order:
        """After a proof, or what it lacks: finer numbers of the same place, then a better one."""
        if found.holds or self._over:
            return Order(END)
        wanted = found.accuracy * max(found.objective, 0.0) + found.slack * found.at_zero
        short = found.gap / wanted if wanted > 0 else math.inf
        if not self._fine:
            self._fine = min(FINEST, _bits(short))
            return self._wanted(Order(STEP, fine=self._fine))
        self._fine, self._need = min(FINEST, self._fine + 1), 0.7 * self._left / max(short, 1.0)
        return self._on()

    def _on(self) -> Order:
        """To where the model of F has its minimum."""
        fine = self._fine if self._told else 0
        return self._wanted(Order(STEP, self._p, self._down(self._p), fine))

    def _wanted(self, order: Order) -> Order:
        self._last = order.fine
        return order

    @property
    def _over(self) -> bool:
        """Whether enough was tried."""
        most = _EXACT if isinstance(self._model, Exact) else _RETREATS
        return self.k >= self._goal.sweeps or self._tries > most

    def _down(self, p: Array) -> float:
        return _DOWN * rms(p) * (2.0**-_PRECISE if self._told else 1.0)

    def _count(self, u: Array, left: float, loss: float) -> None:
        """Sweeps since what is left was clearly less than ever; too many if F has exploded."""
        if loss < self._least:
            self._least, self._place = loss, u
        if left < 0.5 * self._best:
            self._best, self._stale = left, 0
        else:
            self._stale += 1 if loss <= _EXPLODED * self._least else len(u)
        self._tries += isinstance(self._model, Exact)

    def _stuck(self, u: Array) -> Order:
        """The Hessians, or back to the best place with smaller steps."""
        self._stale = 0
        if not self._told:
            return Order(HESSIAN)
        self._tries += 1
        if isinstance(self._model, Secants):
            self._model.damped()
        back = self._place - u
        return self._wanted(Order(STEP, back, self._down(back), self._fine))


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


def common_step(change: Array, c: float, sites: int) -> float:
    """Of all sites' gradients alike, once u has changed."""
    return _UP * math.sqrt(sites) * c * rms(change)


def own_step(x: Array, fine: int) -> float:
    """Of one site's, relative to what it has to tell."""
    return _OWN * rms(x) * 2.0**-fine


def rms(x: Array) -> float:
    """√ mean x²."""
    return float(np.sqrt(np.mean(x * x)))


def curvature(secant: float, kappa: float) -> float:
    """c as a power of two, so that products with it are exact; κ where nothing better is known."""
    c = secant if secant > 1e-6 * kappa else kappa
    return 2.0 ** round(math.log2(c))


def _bits(short: float) -> int:
    """By how many numbers must be finer for a gap to be so many times smaller."""
    return 1 + math.ceil(0.5 * math.log2(min(max(short, 1.0), 4.0**FINEST)))
