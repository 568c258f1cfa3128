"""The Huber loss of a residual r = y − f: r² for |r| ≤ δ, 2δ|r| − δ² beyond.

A row pulls at most as one that is off by δ, however far off it is: outliers have bounded influence.
δ → ∞ is the quadratic loss.

All is piecewise quadratic: where the rows within δ are known, Newton's step leads to the minimum at
once. From one round to the next few rows leave or join them, and while none does, the Hessian is
not factorised again: a round then costs a few passes over the rows. The answer depends on p and the
start alone: an agent that was stopped and started again finds the same bits.

Far from θ* most rows may be beyond δ, and Newton is lost there. So δ is widened to τδ, the pulls of
rows beyond it staying as they are, and τ falls back to 1 on the way to θ*. This is rarely needed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from coke.maths.arrays import Array
from coke.maths.losses.newton import GRADIENT, ROUNDING, STEPS, Factor, Minimum, OneRisk, unreached

DELTA = 1.0  # δ, in units of the scaled target: one spread of it under scale = "standard"
LOST = 15  # steps after which Newton's method may use some help


class Huber:
    """q (2|r| − q) with q = min(|r|, δ)."""

    def value(self, f: Array, y: Array) -> Array:
        """Of each row."""
        off = np.abs(y - f)
        within = np.minimum(off, DELTA)
        return within * (2.0 * off - within)

    def slope(self, f: Array, y: Array) -> Array:
        """∂ℓ/∂f = −2 clip(y − f, −δ, δ)."""
        return -2.0 * np.clip(y - f, -DELTA, DELTA)

    def minimum(self, own: OneRisk, p: Array, start: Array) -> Minimum:
        """argmin_θ  Σ_t c_t ℓ(f_t, y_t) + θᵀHθ − pᵀθ  with ‖g‖ ≤ 1e-8, by Newton."""
        return _Newton(self, own)(p, start)

    def repeated(self, own: OneRisk) -> _Newton:
        """The same, fast where the rows within δ stay the same."""
        return _Newton(self, own)


class _Newton:
    """The minimum of one agent's risk; the last system that was solved is remembered."""

    def __init__(self, loss: Huber, own: OneRisk):
        self.loss, self.own = loss, own
        self._system = lru_cache(maxsize=1)(self._factorised)

    def __call__(self, p: Array, start: Array) -> Minimum:
        """θ with ‖g‖ ≤ 1e-8."""
        own, wide, before = self.own, _Wide(self.own, 1.0), np.inf
        theta = own.begin(p, start, self.loss.value)
        for step in range(STEPS):
            f = own.predictions(theta)
            wide = self._widened(p, theta, f) if step == LOST else wide
            a, k = wide.pull(f), wide.bend(f)
            g = own.gradient(theta, p, a)
            if wide.tau > 1.0 and own.stray(g) <= DELTA**2 * wide.tau * np.sum(own.c):
                wide = wide._replace(tau=max(1.0, 0.1 * wide.tau))
                continue
            norm = float(np.linalg.norm(g))
            promise = max(GRADIENT, ROUNDING * own.terms(theta, p, a, k))
            # Newton at least halves ‖g‖ near the minimum: where it does not, only rounding is left.
            if wide.tau == 1.0 and (norm <= 0.01 * promise or 0.5 * before < norm <= promise):
                return Minimum(theta, float(own.c @ self.loss.value(f, own.y)), norm)
            before = norm
            theta = theta + own.step(g, -cho_solve(self._system(k.tobytes()), g), f, wide.pull)
        raise unreached("gradient norm of the Huber loss", norm, promise)

    def _factorised(self, k: bytes) -> Factor:
        return self.own.hessian(np.frombuffer(k))

    def _widened(self, p: Array, theta: Array, f: Array) -> _Wide:
        """τδ is a third of what predictions may be off."""
        plain, loss = _Wide(self.own, 1.0), float(self.own.c @ self.loss.value(f, self.own.y))
        off = self.own.off(theta, p, plain.pull(f), loss)
        return plain._replace(tau=max(1.0, off / 3.0 / DELTA))


class _Wide(NamedTuple):
    """The loss with δ widened to τδ."""

    own: OneRisk
    tau: float  # 1 is the loss itself

    def pull(self, f: Array) -> Array:
        """a = 2c clip(r/τ, −δ, δ) (T,)."""
        return 2.0 * self.own.c * np.clip((self.own.y - f) / self.tau, -DELTA, DELTA)

    def bend(self, f: Array) -> Array:
        """k = 2c/τ within τδ, else 0 (T,)."""
        within = np.abs(self.own.y - f) <= self.tau * DELTA
        return np.where(within, 2.0 * self.own.c / self.tau, 0.0)
