"""Exact local minimisers of margin losses:  argmin_θ  Σ_t c_t l(z_tᵀθ) + θᵀHθ − pᵀθ.

The rows z_t = y_t φ(x_t) carry their labels. Each loss pulls its row with a_t = −c_t l'(m_t),
m_t = z_tᵀθ, 0 ≤ a_t ≤ c_t. So both gradients read g = 2Hθ − p − Zᵀa, one Newton step serves
both, and every such a is a dual point: for any θ, with l* the conjugate of l,

    primal(θ) − dual(a) = Σ_t [c_t l(m_t) + c_t l*(−a_t/c_t) + a_t m_t] + ¼ gᵀH⁻¹g ≥ ‖θ − θ*‖²_H.

Below, `slack` is the sum over t and `stray` the other term; neither is ever negative, and
neither is the difference of two large numbers. Far from θ* a loss can be all kink, and Newton
is lost there; so the kink is smoothed over as many units of margin as the margins may still
be off, and sharpened on the way to θ*: always for the hinge, rarely for the logistic loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from coke.errors import ConvergenceError
from coke.maths.arrays import CHUNK, Array

GRADIENT = 1e-8  # promised ‖g‖ of the logistic answer
GAP = 1e-6  # promised duality gap of the hinge answer
ROUNDING = 1e-14  # nothing is promised below this part of the terms that must cancel
SHARPER = 0.4  # δ from one α to the next: a smaller one costs more Newton steps than it saves
NARROW = 1e-7  # least δ: below it the Hessian is too ill-conditioned
LOST = 30  # steps after which Newton's method on the logistic loss may use some help
STEPS = 1000  # before giving up; 5 to 30 are usual, 300 the worst of thousands of hard cases

Factor = tuple[Array, bool]  # of SciPy's cho_factor


@dataclass(frozen=True)
class Margins:
    """θ ↦ Σ_t c_t l(z_tᵀθ) + θᵀHθ of one agent: all that stays the same from round to round."""

    Phi: Array  # (T, D)  rows φ(x_t), which may be large: z_t = y_t φ(x_t) is never written down
    y: Array  # (T,)    ±1
    c: Array  # (T,)    weights, positive
    H: Array  # (D, D)  symmetric, positive definite

    def margins(self, theta: Array) -> Array:
        """m = Zθ (T,)."""
        return self.y * (self.Phi @ theta)

    def pulls(self, a: Array) -> Array:
        """Zᵀa (D,)."""
        return (self.y * a) @ self.Phi

    def bends(self, k: Array) -> Array:
        """Σ_t k_t z_t z_tᵀ (D, D); only the rows with k_t > 0 are touched, a chunk at a time."""
        total = np.zeros_like(self.H)
        for first in range(0, len(k), CHUNK):
            rows = first + np.flatnonzero(k[first : first + CHUNK])
            half = self.Phi[rows] * np.sqrt(k[rows])[:, None]  # (|J|, D)
            total += half.T @ half
        return total

    @cached_property
    def root(self) -> Factor:
        """H, factorised."""
        factor: Factor = cho_factor(self.H)
        return factor

    @cached_property
    def squares(self) -> Array:
        """‖z_t‖² (T,)."""
        return np.asarray(np.einsum("td,td->t", self.Phi, self.Phi))


class Minimum(NamedTuple):
    """θ where the gradient all but vanishes."""

    theta: Array  # (D,)
    loss: float  # Σ_t c_t log(1 + exp(−z_tᵀθ))
    gradient: float  # ‖g‖


class Certificate(NamedTuple):
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


class _Task(NamedTuple):
    """One problem, and what its solvers ask again and again."""

    own: Margins
    c: Array  # (T,)
    H: Array  # (D, D)
    p: Array  # (D,)
    root: Factor  # of H
    radius: float  # max_t ‖z_t‖
    spread: float  # √(mean_t ‖z_t‖² / tr H): typical change of m when ‖θ‖_H changes by one


class _Tempered(NamedTuple):
    """The logistic loss at temperature τ: τ log(1 + exp(−m/τ))."""

    c: Array  # (T,)
    tau: float  # in units of the margin; 1 is the loss itself

    def pull(self, m: Array) -> Array:
        """The pulls a = c / (1 + exp(m/τ)); (T,)."""
        return self.c * expit(-m / self.tau)


class _Soft(NamedTuple):
    """The hinge smoothed to width δ about the multipliers α."""

    c: Array  # (T,)
    alpha: Array  # (T,)
    delta: float  # in units of the margin

    def pull(self, m: Array) -> Array:
        """The pulls a = clip(α + (c/δ)(1 − m), 0, c); (T,)."""
        return np.clip(self.alpha + (self.c / self.delta) * (1.0 - m), 0.0, self.c)


def logistic(own: Margins, p: Array, start: Array) -> Minimum:
    """argmin_θ  Σ_t c_t log(1 + exp(−z_tᵀθ)) + θᵀHθ − pᵀθ  with ‖g‖ ≤ 1e-8.

    Newton's method; where it does not settle, at a temperature τ that falls back to 1.
    """
    task = _task(own, p)
    theta = _begin(task, start, logistic_loss)
    loss, before = _Tempered(task.c, 1.0), 0.0
    for step in range(STEPS):
        loss = _temper(task, theta) if step == LOST else loss
        m = task.own.margins(theta)  # (T,)
        a = loss.pull(m)  # (T,)
        g, stray = _gradient(task, theta, a)
        if loss.tau > 1.0 and stray <= loss.tau * np.sum(task.c):
            loss = loss._replace(tau=max(1.0, 0.1 * loss.tau))
            continue
        k, norm = a * expit(m / loss.tau) / loss.tau, float(np.linalg.norm(g))  # (T,)
        promise = max(GRADIENT, ROUNDING * _terms(task, theta, a, k))
        # Newton at least halves ‖g‖ near the minimum: where it does not, only rounding is left.
        if loss.tau == 1.0 and (norm <= 0.01 * promise or 0.5 * before < norm <= promise):
            return Minimum(theta, logistic_loss(m, task.c), norm)
        # A new Hessian costs D passes over Z, an old one none: keep it while it serves well.
        if norm > 0.1 * before:
            factor = _hessian(task, k)
        before = norm
        theta = theta + _step(task, m, g, -cho_solve(factor, g), loss.pull)
    raise ConvergenceError(_advice("gradient norm of the logistic loss", norm, promise))


def hinge(own: Margins, p: Array, start: Array) -> Certificate:
    """argmin_θ  Σ_t c_t max(0, 1 − z_tᵀθ) + θᵀHθ − pᵀθ  with a duality gap ≤ 1e-6.

    An augmented Lagrangian: Newton's method on the smoothed hinge lowers the stray part of the
    gap, then α ← a and a smaller δ lower its slack, which is at most δ Σ_t c_t. All is piecewise
    quadratic: once the rows on the margin are known, the end comes at once.
    """
    task = _task(own, p)
    theta = _begin(task, start, _hinge_loss)
    m = task.own.margins(theta)  # (T,)
    loss = _soften(task, theta, m)
    best, answer, stale = np.inf, (theta, loss.alpha), 0
    for _ in range(STEPS):
        a = loss.pull(m)  # (T,)
        g, stray = _gradient(task, theta, a)
        slack = _slack(task, m, a)
        stale = 0 if slack + stray <= 0.5 * best else stale + 1
        if slack + stray < best:
            best, answer = slack + stray, (theta, a)
        size = _size(task, theta)
        promise = max(GAP, ROUNDING * size)
        # A hundred steps at one δ that do not halve the gap have only rounding to work on.
        if best <= 0.1 * ROUNDING * size or (best <= promise and stale >= 100):
            return _certify(task, *answer)
        if stray <= slack:
            stale = 0 if loss.delta > NARROW else stale
            loss = loss._replace(alpha=a, delta=max(NARROW, SHARPER * loss.delta))
            continue
        k = np.where((a > 0.0) & (a < task.c), task.c / loss.delta, 0.0)  # (T,)
        theta = theta + _step(task, m, g, -cho_solve(_hessian(task, k), g), loss.pull)
        m = task.own.margins(theta)
    raise ConvergenceError(_advice("duality gap of the hinge loss", best, promise))


def _task(own: Margins, p: Array) -> _Task:
    spread = float(np.sqrt(np.mean(own.squares) / np.trace(own.H)))
    return _Task(own, own.c, own.H, p, own.root, float(np.sqrt(np.max(own.squares))), spread)


def _begin(task: _Task, start: Array, loss: Callable[[Array, Array], float]) -> Array:
    """The better of the start and zero, so that a terrible start costs nothing."""
    with np.errstate(over="ignore", invalid="ignore"):
        at_start = loss(task.own.margins(start), task.c) + start @ task.H @ start - task.p @ start
    better = at_start <= loss(np.zeros_like(task.c), task.c)  # False for nan as well
    return start.copy() if better else np.zeros_like(start)


def _temper(task: _Task, theta: Array) -> _Tempered:
    """τ ≥ 1, a third of what the margins may be off by the better of two bounds on the gap."""
    m, loss = task.own.margins(theta), _Tempered(task.c, 1.0)
    _, stray = _gradient(task, theta, loss.pull(m))
    gap = min(stray, _idle(task, theta) + logistic_loss(m, task.c))
    return loss._replace(tau=max(1.0, task.spread * float(np.sqrt(gap)) / 3.0))


def _soften(task: _Task, theta: Array, m: Array) -> _Soft:
    """δ = what the margins may be off; the gap that tells it needs a δ, so three times over."""
    loss, idle = _Soft(task.c, 0.5 * task.c, 1.0), _idle(task, theta) + _hinge_loss(m, task.c)
    for _ in range(3):
        a = loss.pull(m)
        gap = min(idle, _slack(task, m, a) + _gradient(task, theta, a)[1])
        loss = loss._replace(delta=max(NARROW, task.spread * float(np.sqrt(gap))))
    return loss


def _gradient(task: _Task, theta: Array, a: Array) -> tuple[Array, float]:
    """2Hθ − p − Zᵀa, (D,), and its stray ¼ gᵀH⁻¹g = ‖θ − ½H⁻¹(p + Zᵀa)‖²_H."""
    g = 2.0 * (task.H @ theta) - task.p - task.own.pulls(a)
    return g, 0.25 * float(g @ cho_solve(task.root, g))


def _idle(task: _Task, theta: Array) -> float:
    """The stray at a = 0, where slack is the loss itself: a bound that needs no good a."""
    return _gradient(task, theta, np.zeros_like(task.c))[1]


def _slack(task: _Task, m: Array, a: Array) -> float:
    """Σ_t [c_t max(0, 1 − m_t) − a_t (1 − m_t)], of the hinge."""
    return float(np.sum(task.c * np.maximum(0.0, 1.0 - m) - a * (1.0 - m)))


def _size(task: _Task, theta: Array) -> float:
    """Of what goes into the gap: margins are exact to a part of ‖z_t‖ ‖θ‖ only, c_t times."""
    return float(np.sum(task.c)) * (1.0 + task.radius * float(np.linalg.norm(theta)))


def proved(own: Margins, p: Array, theta: Array, alpha: Array) -> Certificate | None:
    """The certificate of a hinge answer, if its gap is all rounding."""
    task, m = _task(own, p), own.margins(theta)
    gap = _slack(task, m, alpha) + _gradient(task, theta, alpha)[1]
    return _certify(task, theta, alpha) if gap <= 0.1 * ROUNDING * _size(task, theta) else None


def _certify(task: _Task, theta: Array, alpha: Array) -> Certificate:
    m = task.own.margins(theta)
    loss = _hinge_loss(m, task.c)
    primal = float(loss + theta @ task.H @ theta - task.p @ theta)
    # By the identity above, so that a small gap is not lost between two large numbers.
    dual = primal - (_slack(task, m, alpha) + _gradient(task, theta, alpha)[1])
    return Certificate(theta, alpha, loss, primal, dual)


def _terms(task: _Task, theta: Array, a: Array, k: Array) -> float:
    """Size of the terms of g; m, hence a, is exact to a part of ‖z_t‖ ‖θ‖ only."""
    size = float(np.linalg.norm(theta))
    pulls = task.radius * float(np.sum(a + k * task.radius * size))
    return 2.0 * float(np.linalg.norm(task.H)) * size + float(np.linalg.norm(task.p)) + pulls


def _hessian(task: _Task, k: Array) -> Factor:
    """2H + Σ_t k_t z_t z_tᵀ, factorised."""
    factor: Factor = cho_factor(2.0 * task.H + task.own.bends(k))
    return factor


def _step(task: _Task, m: Array, g: Array, d: Array, pull: Callable[[Array], Array]) -> Array:
    """A step t d with |φ'(t)| ≤ ½ |φ'(0)| and φ(t) ≤ φ(0), φ the convex objective along d.

    From slopes alone, as differences of φ drown in rounding near the minimum: φ' increases, so
    φ(t) − φ(0) ≤ t/2 (φ'(t/2) + φ'(t)). Newton's t = 1 first, then doubling and bisection.
    """
    dm, a, curve, first = task.own.margins(d), pull(m), 2.0 * float(d @ task.H @ d), float(g @ d)

    def slope(t: float) -> float:
        return first + t * curve + float((a - pull(m + t * dm)) @ dm)

    low, high, t = 0.0, np.inf, 1.0
    for _ in range(100):
        last = slope(t)
        if abs(last) <= 0.5 * abs(first) and (last <= 0.0 or last + slope(0.5 * t) <= 0.0):
            break
        low, high = (t, high) if last < 0.0 else (low, t)
        t = 2.0 * t if high == np.inf else 0.5 * (low + high)
    return t * d


def logistic_loss(m: Array, c: Array) -> float:
    """Σ_t c_t log(1 + exp(−m_t))."""
    return float(c @ np.logaddexp(0.0, -m))


def _hinge_loss(m: Array, c: Array) -> float:
    return float(c @ np.maximum(0.0, 1.0 - m))


def _advice(what: str, reached: float, promise: float) -> str:
    return (
        f"{what} still {reached:.1e} after {STEPS} steps, expected at most {promise:.1e}: "
        "raise lambda or rho, or scale the features so that their norm is about one"
    )
