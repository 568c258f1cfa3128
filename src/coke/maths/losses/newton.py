"""What the exact local minimisers share:  argmin_θ  Σ_t c_t ℓ(f_t, y_t) + θᵀHθ − pᵀθ,  f_t = φ_tᵀθ.

A loss pulls its row with a_t = −c_t ∂ℓ/∂f. So all gradients read g = 2Hθ − p − Φᵀa, one Newton step
serves all losses, and every a is a dual point: for any θ, with ℓ* the conjugate of ℓ in f,

    primal(θ) − dual(a) = Σ_t [c_t ℓ(f_t) + c_t ℓ*(−a_t/c_t) + a_t f_t] + ¼ gᵀH⁻¹g ≥ ‖θ − θ*‖²_H.

The last term is called the `stray`, the sum over t the slack; neither is ever negative, and neither
is the difference of two large numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from coke.errors import ConvergenceError
from coke.maths.arrays import CHUNK, Array

GRADIENT = 1e-8  # promised ‖g‖ of the answer of a smooth loss
ROUNDING = 1e-14  # nothing is promised below this part of the terms that must cancel
STEPS = 1000  # before giving up; 5 to 30 are usual, 300 the worst of thousands of hard cases

Factor = tuple[Array, bool]  # of SciPy's cho_factor


class Minimum(NamedTuple):
    """θ where the gradient all but vanishes."""

    theta: Array  # (D,)
    loss: float  # Σ_t c_t ℓ(f_t, y_t)
    gradient: float  # ‖g‖


class Proof(NamedTuple):
    """θ, and the α that proves it: no point is better than `primal` by more than `gap`."""

    theta: Array  # (D,)
    alpha: Array  # (T,)  0 ≤ α_t ≤ c_t
    loss: float  # Σ_t c_t max(0, 1 − z_tᵀθ)
    primal: float  # loss + θᵀHθ − pᵀθ
    dual: float  # Σ_t α_t − ‖½H⁻¹(p + Zᵀα)‖²_H

    @property
    def gap(self) -> float:
        """0 ≤ primal − dual."""
        return self.primal - self.dual


Again = Callable[[Array, Array], Minimum | Proof]
"""(p, start) ↦ the minimum; for one round after the other."""


@dataclass(frozen=True)
class OneRisk:
    """θ ↦ Σ_t c_t ℓ(φ_tᵀθ, y_t) + θᵀHθ of one agent: all that stays the same round after round."""

    Phi: Array  # (T, D)  rows φ(x_t), which may be large: no second copy of them is made
    y: Array  # (T,)    numbers, or ±1
    c: Array  # (T,)    weights, positive
    H: Array  # (D, D)  symmetric, positive definite

    def predictions(self, theta: Array) -> Array:
        """f = Φθ (T,)."""
        return self.Phi @ theta

    def pulls(self, a: Array) -> Array:
        """Φᵀa (D,)."""
        return a @ self.Phi

    def bends(self, k: Array) -> Array:
        """Σ_t k_t φ_t φ_tᵀ (D, D); only the rows with k_t > 0 are touched, a chunk at a time."""
        total = np.zeros_like(self.H)
        for first in range(0, len(k), CHUNK):
            rows = first + np.flatnonzero(k[first : first + CHUNK])
            half = self.Phi[rows] * np.sqrt(k[rows])[:, None]  # (|J|, D)
            total += half.T @ half
        return total

    def hessian(self, k: Array) -> Factor:
        """2H + Σ_t k_t φ_t φ_tᵀ, factorised; k_t = c_t ∂²ℓ/∂f²."""
        factor: Factor = cho_factor(2.0 * self.H + self.bends(k))
        return factor

    @cached_property
    def root(self) -> Factor:
        """H, factorised."""
        factor: Factor = cho_factor(self.H)
        return factor

    @cached_property
    def _squares(self) -> Array:
        """‖φ_t‖² (T,)."""
        return np.asarray(np.einsum("td,td->t", self.Phi, self.Phi))

    @cached_property
    def radius(self) -> float:
        """max_t ‖φ_t‖."""
        return float(np.sqrt(np.max(self._squares)))

    @cached_property
    def spread(self) -> float:
        """√(mean_t ‖φ_t‖² / tr H): typical change of f when ‖θ‖_H changes by one."""
        return float(np.sqrt(np.mean(self._squares) / np.trace(self.H)))

    def gradient(self, theta: Array, p: Array, a: Array) -> Array:
        """g = 2Hθ − p − Φᵀa (D,)."""
        return 2.0 * (self.H @ theta) - p - self.pulls(a)

    def stray(self, g: Array) -> float:
        """¼ gᵀH⁻¹g = ‖θ − ½H⁻¹(p + Φᵀa)‖²_H."""
        return 0.25 * float(g @ cho_solve(self.root, g))

    def off(self, theta: Array, p: Array, a: Array, loss: float) -> float:
        """What predictions may typically be off, by the better of two bounds on the gap.

        `a` are the loss's own pulls, whose slack is zero; at a = 0 the slack is the loss itself.
        """
        stray = self.stray(self.gradient(theta, p, a))
        idle = self.stray(self.gradient(theta, p, np.zeros_like(a)))
        return self.spread * float(np.sqrt(min(stray, idle + loss)))

    def terms(self, theta: Array, p: Array, a: Array, k: Array) -> float:
        """Size of the terms of g; f, hence a, is exact to a part of ‖φ_t‖ ‖θ‖ only."""
        size = float(np.linalg.norm(theta))
        pulls = self.radius * float(np.sum(np.abs(a) + k * self.radius * size))
        return 2.0 * float(np.linalg.norm(self.H)) * size + float(np.linalg.norm(p)) + pulls

    def begin(self, p: Array, start: Array, loss: Callable[[Array, Array], Array]) -> Array:
        """The better of the start and zero, so that a terrible start costs nothing."""
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(self.c @ loss(self.predictions(start), self.y))
            at_start = total + start @ self.H @ start - p @ start
        better = at_start <= self.c @ loss(np.zeros_like(self.c), self.y)  # False for nan as well
        return start.copy() if better else np.zeros_like(start)

    def step(self, g: Array, d: Array, f: Array, pull: Callable[[Array], Array]) -> Array:
        """A step t d with |φ'(t)| ≤ ½ |φ'(0)| and φ(t) ≤ φ(0), φ the convex objective along d.

        From slopes alone, as differences of φ drown in rounding near the minimum: φ' increases, so
        φ(t) − φ(0) ≤ t/2 (φ'(t/2) + φ'(t)). Newton's t = 1 first, then doubling and bisection.
        `pull` gives a (T,) from f (T,).
        """
        df, a, curve, first = (
            self.predictions(d),
            pull(f),
            2.0 * float(d @ self.H @ d),
            float(g @ d),
        )

        def slope(t: float) -> float:
            return first + t * curve + float((a - pull(f + t * df)) @ df)

        low, high, t = 0.0, np.inf, 1.0
        for _ in range(100):
            last = slope(t)
            if abs(last) <= 0.5 * abs(first) and (last <= 0.0 or last + slope(0.5 * t) <= 0.0):
                break
            low, high = (t, high) if last < 0.0 else (low, t)
            t = 2.0 * t if high == np.inf else 0.5 * (low + high)
        return t * d


def unreached(what: str, reached: float, promise: float) -> ConvergenceError:
    """For a solver that gives up."""
    return ConvergenceError(
        f"{what} still {reached:.1e} after {STEPS} steps, expected at most {promise:.1e}: "
        "raise lambda or rho, or scale the features so that their norm is about one"
    )
