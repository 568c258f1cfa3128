"""The logistic loss log(1 + exp(−m)) of the margin m = yf, y = ±1.

Alone, by Newton's method. Far from θ* the loss can be all kink, and Newton is lost there; so the
kink is smoothed over as many units of margin as the margins may still be off, by a temperature τ,
τ log(1 + exp(−m/τ)), which falls back to 1 on the way to θ*. This is rarely needed.

One round after the other only p and the start change. The loss bends at most by ¼, so
B = 2H + ¼ Σ_t c_t φ_t φ_tᵀ bounds every Hessian, and

    θ ← θ − B⁻¹g

never climbs, from anywhere, without a line search. B is inverted once for a run. A step costs two
passes over the rows where Newton's costs D/2 more, and near the last answer a few are enough. Where
they do not even halve ‖g‖, Newton's method goes on. The answer depends on p and the start alone: an
agent that was stopped and started again finds the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import expit

from coke.maths.arrays import Array
from coke.maths.losses.newton import GRADIENT, ROUNDING, STEPS, Minimum, OneRisk, unreached

LOST = 30  # steps after which Newton's method may use some help
WELL = 0.1 * GRADIENT  # where to stop: what is left must not add up over the rounds
SLOW = 0.5  # a step that leaves more of ‖g‖ than this: ten of them cost as much as Newton's one
HUGE = 1e300  # more than any ‖g‖ that is a number


class Logistic:
    """log(1 + exp(−yf))."""

    def value(self, f: Array, y: Array) -> Array:
        """Of each row."""
        return np.logaddexp(0.0, -(y * f))

    def slope(self, f: Array, y: Array) -> Array:
        """∂ℓ/∂f = −y/(1 + exp(yf))."""
        return -expit(-(y * f)) * y

    def minimum(self, own: OneRisk, p: Array, start: Array) -> Minimum:
        """argmin_θ  Σ_t c_t log(1 + exp(−y_t f_t)) + θᵀHθ − pᵀθ  with ‖g‖ ≤ 1e-8, by Newton."""
        theta = own.begin(p, start, self.value)
        warm, before = _Tempered(own, 1.0), 0.0
        for step in range(STEPS):
            warm = self._tempered(own, p, theta) if step == LOST else warm
            f = own.predictions(theta)
            a = warm.pull(f)
            g = own.gradient(theta, p, a)
            if warm.tau > 1.0 and own.stray(g) <= warm.tau * np.sum(own.c):
                warm = warm._replace(tau=max(1.0, 0.1 * warm.tau))
                continue
            k, norm = warm.bend(f), float(np.linalg.norm(g))
            promise = max(GRADIENT, ROUNDING * own.terms(theta, p, a, k))
            # Newton at least halves ‖g‖ near the minimum: where it does not, only rounding is left.
            if warm.tau == 1.0 and (norm <= 0.01 * promise or 0.5 * before < norm <= promise):
                return Minimum(theta, float(own.c @ self.value(f, own.y)), norm)
            # A new Hessian costs D passes over Φ, an old one none: keep it while it serves well.
            if norm > 0.1 * before:
                factor = own.hessian(k)
            before = norm
            theta = theta + own.step(g, -cho_solve(factor, g), f, warm.pull)
        raise unreached("gradient norm of the logistic loss", norm, promise)

    def repeated(self, own: OneRisk) -> _Bounded:
        """The same, fast from near."""
        B = 2.0 * own.H + own.bends(0.25 * own.c)
        return _Bounded(self, own, 2.0 * own.H, np.asarray(np.linalg.inv(B), np.float64))

    def _tempered(self, own: OneRisk, p: Array, theta: Array) -> _Tempered:
        """τ ≥ 1, a third of what the margins may be off."""
        f, plain = own.predictions(theta), _Tempered(own, 1.0)
        off = own.off(theta, p, plain.pull(f), float(own.c @ self.value(f, own.y)))
        return plain._replace(tau=max(1.0, off / 3.0))


class _Tempered(NamedTuple):
    """The loss at temperature τ."""

    own: OneRisk
    tau: float  # in units of the margin; 1 is the loss itself

    def pull(self, f: Array) -> Array:
        """a = c y / (1 + exp(m/τ)) (T,)."""
        return self.own.y * (self.own.c * expit(-(self.own.y * f) / self.tau))

    def bend(self, f: Array) -> Array:
        """k = c / (1 + exp(m/τ)) / (1 + exp(−m/τ)) / τ (T,)."""
        m = self.own.y * f
        return self.own.c * expit(-m / self.tau) * expit(m / self.tau) / self.tau


class _Bounded(NamedTuple):
    """A problem whose Hessians are bounded once and for all."""

    loss: Logistic
    own: OneRisk
    double: Array  # (D, D)  2H
    inverse: Array  # (D, D)  B⁻¹

    def __call__(self, p: Array, start: Array) -> Minimum:
        """The minimum with ‖g‖ ≤ 1e-8."""
        own, theta, before = self.own, start.copy(), HUGE
        with np.errstate(over="ignore", invalid="ignore"):  # a terrible start is Newton's to mend
            while True:
                f = own.predictions(theta)
                g = self.double @ theta - p + own.pulls(own.c * self.loss.slope(f, own.y))
                norm = float(np.sqrt(g @ g))
                if norm <= WELL:
                    return Minimum(theta, float(own.c @ self.loss.value(f, own.y)), norm)
                if not norm <= SLOW * before:  # true of infinity and NaN as well
                    break
                theta, before = theta - self.inverse @ g, norm
        return self.loss.minimum(own, p, theta)  # or from zero, if θ is not finite
