"""The log loss of softmax over K classes: ℓ = log Σ_k exp(v_kᵀf) − v_yᵀf, f of K − 1 numbers.

v_k are the corners of a simplex (`codes`), so that no direction of f is without effect. With the
probabilities π of a row, ∂ℓ/∂f = Vᵀ(π − e_y), and ∂²ℓ/∂f² = Vᵀ(diag π − ππᵀ)V ≤ ½I (Böhning).

The minimum by Newton's method, whose steps come from conjugate gradients: with B = 2H + ½ΦᵀCΦ, the
bound of every Hessian, as preconditioner, a few products with the rows are enough, and no Hessian
(K·D)² is ever made. f is V f in K numbers where that is simpler: votes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax, softmax

from coke.maths.arrays import Array
from coke.maths.losses.codes import corners, votes
from coke.maths.losses.newton import GRADIENT, ROUNDING, STEPS, Again, Factor, Minimum, OneRisk
from coke.maths.losses.newton import unreached as gave_up

BEND = 0.5  # the most that the loss bends
PRODUCTS = 100  # of one Newton step


class Softmax:
    """Log Σ_k exp(v_kᵀf) − v_yᵀf, of f (T, K − 1) and class numbers y (T,)."""

    def value(self, f: Array, y: Array) -> Array:
        """Of each row; f of two classes may be (T,)."""
        f = f.reshape(len(y), -1)
        return -log_softmax(votes(f), axis=1)[np.arange(len(y)), y.astype(np.int64)]

    def slope(self, f: Array, y: Array) -> Array:
        """∂ℓ/∂f, of the shape of f."""
        p = softmax(votes(f.reshape(len(y), -1)), axis=1)
        p[np.arange(len(y)), y.astype(np.int64)] -= 1.0
        return np.asarray(p @ corners(p.shape[1])).reshape(f.shape)

    def minimum(self, own: OneRisk, p: Array, start: Array) -> Minimum:
        """argmin_θ  Σ_t c_t ℓ(f_t, y_t) + Σ_k θ_kᵀHθ_k − pᵀθ  with ‖g‖ ≤ 1e-8, by Newton."""
        return _NewtonCG(self, own)(p, start)

    def repeated(self, own: OneRisk) -> Again:
        """The same, its bound factorised once."""
        return _NewtonCG(self, own)


class _NewtonCG:
    """The minimum of one agent's risk."""

    def __init__(self, loss: Softmax, own: OneRisk):
        self.loss, self.own = loss, own
        self.bound: Factor = cho_factor(2.0 * own.H + own.bends(BEND * own.c))

    def __call__(self, p: Array, start: Array) -> Minimum:
        """θ with ‖g‖ ≤ 1e-8."""
        D = len(self.own.H)
        P, theta = p.reshape(-1, D), start.reshape(-1, D)
        for _ in range(STEPS):
            at = _At.of(self.loss, self.own, P, theta)
            promise = max(GRADIENT, ROUNDING * self._size(P, theta))
            if at.norm <= promise:
                return Minimum(theta.ravel(), at.loss, at.norm)
            theta = self._lower(at, self._direction(at), P)
        raise gave_up("gradient norm of the softmax loss", at.norm, promise)

    def _direction(self, at: _At) -> Array:
        """Near −(∂²)⁻¹g: conjugate gradients until a tenth is left, or a hundredth near the end."""
        enough = min(0.1, float(np.sqrt(at.norm)))
        return conjugate(partial(at.bent, self.own), self._whitened, -at.g, enough)

    def _whitened(self, g: Array) -> Array:
        return np.asarray(cho_solve(self.bound, g.T)).T

    def _lower(self, at: _At, d: Array, P: Array) -> Array:
        """A step along d that does not climb; halved while it would."""
        step, slope = 1.0, float(np.sum(at.g * d))
        blur = ROUNDING * (1.0 + abs(at.value))  # of a value, below which no climb is seen
        for _ in range(40):
            theta = at.theta + step * d
            after = _At.of(self.loss, self.own, P, theta)
            if after.value <= at.value + 1e-4 * step * slope + blur:
                return theta
            step *= 0.5
        return at.theta - self._whitened(at.g)  # by the bound, which never climbs

    def _size(self, P: Array, theta: Array) -> float:
        """Of the terms of g."""
        own, size = self.own, float(np.linalg.norm(theta))
        pulls = own.radius * float(np.sum(own.c)) * (1.0 + own.radius * size)
        return 2.0 * float(np.linalg.norm(own.H)) * size + float(np.linalg.norm(P)) + pulls


class _At(NamedTuple):
    """The objective at θ (K − 1, D)."""

    theta: Array
    p: Array  # (T, K)  probabilities
    loss: float
    value: float
    g: Array  # (K − 1, D)

    @classmethod
    def of(cls, loss: Softmax, own: OneRisk, P: Array, theta: Array) -> _At:
        """With one product for predictions, one for the gradient."""
        f, pulled = own.Phi @ theta.T, theta @ own.H
        found = float(own.c @ loss.value(f, own.y))
        g = 2.0 * pulled - P + (own.c[:, None] * loss.slope(f, own.y)).T @ own.Phi
        value = found + float(np.sum(theta * (pulled - P)))
        return cls(theta, softmax(votes(f), axis=1), found, value, g)

    @property
    def norm(self) -> float:
        """‖g‖."""
        return float(np.linalg.norm(self.g))

    def bent(self, own: OneRisk, d: Array) -> Array:
        """∂² d (K − 1, D)."""
        along = votes(own.Phi @ d.T)
        away = self.p * (along - np.sum(self.p * along, axis=1, keepdims=True))
        rows = own.c[:, None] * (away @ corners(self.p.shape[1]))
        return 2.0 * d @ own.H + rows.T @ own.Phi


def conjugate(
    product: Callable[[Array], Array], inverse: Callable[[Array], Array], b: Array, enough: float
) -> Array:
    """x near A⁻¹b by conjugate gradients, until ‖b − Ax‖ is at most `enough` ‖b‖."""
    x, r = np.zeros_like(b), b
    z = inverse(r)
    d, before = z, float(np.sum(r * z))
    goal = enough * float(np.linalg.norm(b))
    for _ in range(PRODUCTS):
        q = product(d)
        length = before / float(np.sum(d * q))
        x, r = x + length * d, r - length * q
        if float(np.linalg.norm(r)) <= goal:
            break
        z = inverse(r)
        after = float(np.sum(r * z))
        d, before = z + after / before * d, after
    return x
