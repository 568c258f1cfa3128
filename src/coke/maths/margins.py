"""Exact local minimisers of margin losses:  argmin_θ  Σ_t c_t l(z_tᵀθ) + θᵀHθ − pᵀθ.

The rows z_t = y_t φ(x_t) carry their labels. Each loss pulls its row with a_t = −c_t l'(m_t),
m_t = z_tᵀθ, 0 ≤ a_t ≤ c_t. So both gradients read 2Hθ − p − Zᵀa, one Newton step serves both,
and every a is a dual point: for any such θ and a, with l* the conjugate of l,

    primal(θ) − dual(a) = Σ_t [c_t l(m_t) + c_t l*(−a_t/c_t) + a_t m_t] + ‖θ − ½H⁻¹(p + Zᵀa)‖²_H.

Both sums are ≥ 0, and free of cancellation. The second bounds ‖θ − θ*‖²_H too. Far from θ*
a loss looks like its kink, where Newton is lost; so both solvers first smooth the kink over
as many units of margin as the margins may still be off, and sharpen it as they come nearer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from coke.errors import ConvergenceError
from coke.maths.arrays import Array

GRADIENT = 1e-8  # promised ‖∇‖ of the logistic answer
GAP = 1e-6  # promised duality gap of the hinge answer
ROUNDING = 1e-14  # nothing is promised below this part of the terms that must cancel
NARROW = 1e-7  # least width δ of the smoothed hinge: below it the Hessian is too ill-conditioned
SHRINK = 0.4  # of δ from one α to the next: smaller needs more Newton steps for each
STEPS = 1000  # rounds before giving up: ten are usual, a few hundred the worst seen

Factor = tuple[Array, bool]  # of SciPy's cho_factor


class Margins(NamedTuple):
    """θ ↦ Σ_t c_t l(z_tᵀθ) + θᵀHθ of one agent: all that stays the same from round to round."""

    Z: Array  # (T, D)  rows y_t φ(x_t)
    c: Array  # (T,)    weights, positive
    H: Array  # (D, D)  symmetric, positive definite
    root: Factor  # of H
    radius: float  # max_t ‖z_t‖
    spread: float  # √(mean_t ‖z_t‖² / tr H): typical change of a margin when ‖θ‖_H changes by one


class Minimum(NamedTuple):
    """θ where the gradient 2Hθ − p − Zᵀa all but vanishes."""

    theta: Array  # (D,)
    loss: float  # Σ_t c_t log(1 + exp(−z_tᵀθ))
    gradient: float  # its Euclidean norm


class Certificate(NamedTuple):
    """θ, and the α that proves it: no point is better than `primal` by more than `gap`."""

    theta: Array  # (D,)
    alpha: Array  # (T,)  0 ≤ α_t ≤ c_t
    loss: float  # Σ_t c_t max(0, 1 − z_tᵀθ)
    primal: float  # loss + θᵀHθ − pᵀθ
    dual: float  # Σ_t α_t − ‖½H⁻¹(p + Zᵀα)‖²_H

    @property
    def gap(self) -> float:
        """Primal − dual ≥ 0, up to the rounding of the two."""
        return self.primal - self.dual


class _Soft(NamedTuple):
    """The hinge smoothed to width δ about the multipliers α."""

    c: Array  # (T,)
    alpha: Array  # (T,)
    delta: float  # in units of the margin

    def pull(self, m: Array) -> Array:
        """A = clip(α + (c/δ)(1 − m), 0, c); (T,)."""
        return np.clip(self.alpha + (self.c / self.delta) * (1.0 - m), 0.0, self.c)


def margins(Z: Array, c: Array, H: Array) -> Margins:
    """The agent's part of the problem, with H factorised once."""
    squares = np.einsum("td,td->t", Z, Z)
    spread = np.sqrt(squares.mean() / np.trace(H))
    return Margins(Z, c, H, cho_factor(H), float(np.sqrt(squares.max())), float(spread))


def logistic(own: Margins, p: Array, start: Array) -> Minimum:
    """argmin_θ  Σ_t c_t log(1 + exp(−z_tᵀθ)) + θᵀHθ − pᵀθ  with ‖∇‖ ≤ 1e-8.

    Newton's method on the loss τ log(1 + exp(−m/τ)), where τ falls to 1.
    """
    Z, c = own.Z, own.c
    theta = _begin(own, p, start, _logistic_loss)
    tau, before = _blur(own, p, theta), 0.0
    for _ in range(STEPS):
        m = Z @ theta  # (T,)
        a = c * expit(-m / tau)  # (T,)
        g, stray = _gradient(own, p, theta, a)
        norm = float(np.linalg.norm(g))
        k = a * expit(m / tau) / tau  # (T,)
        if tau > 1.0 and stray <= tau * np.sum(c):
            tau = max(1.0, tau / 10)
            continue
        promise = max(GRADIENT, ROUNDING * _terms(own, p, theta, a, k))
        # Newton at least halves ‖∇‖ near the minimum: where it does not, rounding is all there is.
        if tau == 1.0 and (norm <= promise / 100 or before / 2 < norm <= promise):
            return Minimum(theta, _logistic_loss(m, c), norm)
        # A new Hessian costs D passes over Z, an old one none: keep it while it serves well.
        if norm > before / 10:
            factor = _hessian(own, k)
        before = norm
        theta = theta + _step(own, m, g, -cho_solve(factor, g), lambda m: c * expit(-m / tau))
    raise ConvergenceError(_advice("gradient norm of the logistic loss", norm, promise))


def hinge(own: Margins, p: Array, start: Array) -> Certificate:
    """argmin_θ  Σ_t c_t max(0, 1 − z_tᵀθ) + θᵀHθ − pᵀθ  with a duality gap ≤ 1e-6.

    An augmented Lagrangian: Newton's method on the hinge smoothed to width δ about α brings θ
    near ½H⁻¹(p + Zᵀa); then α ← a, δ shrinks, and the rest of the gap falls with δ. All is
    piecewise quadratic, so once the rows on the margin are known the end comes at once.
    """
    Z, c = own.Z, own.c
    theta = _begin(own, p, start, _hinge_loss)
    m = Z @ theta  # (T,)
    soft = _soften(own, p, theta, m)
    best, answer, stale = np.inf, (theta, c), 0
    for _ in range(STEPS):
        a = soft.pull(m)  # (T,)
        g, stray = _gradient(own, p, theta, a)
        slack = _slack(m, a, c)
        size = np.sum(c) * (1.0 + own.radius * np.linalg.norm(theta))  # of Σ_t c_t |m_t|, summed
        promise = max(GAP, ROUNDING * size)
        stale = stale + 1 if slack + stray > best / 2 else 0
        if slack + stray < best:
            best, answer = slack + stray, (theta, a)
        # A hundred rounds that do not halve the gap have only rounding to work on.
        if best <= ROUNDING / 10 * size or (best <= promise and stale >= 100):
            return _certify(own, p, *answer)
        if stray <= slack:
            soft = soft._replace(alpha=a, delta=max(NARROW, SHRINK * soft.delta))
            continue
        k = np.where((a > 0.0) & (a < c), c / soft.delta, 0.0)  # (T,)
        theta = theta + _step(own, m, g, -cho_solve(_hessian(own, k), g), soft.pull)
        m = Z @ theta
    raise ConvergenceError(_advice("duality gap of the hinge loss", best, promise))


def _certify(own: Margins, p: Array, theta: Array, alpha: Array) -> Certificate:
    """The values at both ends of the gap."""
    m = own.Z @ theta
    loss = _hinge_loss(m, own.c)
    primal = float(loss + theta @ own.H @ theta - p @ theta)
    # Σα − ‖½H⁻¹(p + Zᵀα)‖²_H, without losing the gap in the rounding of two large numbers.
    dual = primal - _slack(m, alpha, own.c) - _gradient(own, p, theta, alpha)[1]
    return Certificate(theta, alpha, loss, primal, dual)


def _begin(own: Margins, p: Array, start: Array, loss: Callable[[Array, Array], float]) -> Array:
    """The better of the start and zero: a terrible start shall cost nothing."""
    with np.errstate(over="ignore", invalid="ignore"):
        at_start = loss(own.Z @ start, own.c) + start @ own.H @ start - p @ start
    better = at_start <= loss(np.zeros_like(own.c), own.c)  # False for nan as well
    return start if better else np.zeros_like(start)


def _blur(own: Margins, p: Array, theta: Array) -> float:
    """τ ≥ 1, a third of what the margins may be off: ‖θ − θ*‖²_H ≤ primal(θ) − dual(a)."""
    m = own.Z @ theta
    _, stray = _gradient(own, p, theta, own.c * expit(-m))
    _, far = _gradient(own, p, theta, np.zeros_like(own.c))
    gap = min(stray, far + _logistic_loss(m, own.c))
    return max(1.0, float(own.spread * np.sqrt(gap)) / 3)


def _soften(own: Margins, p: Array, theta: Array, m: Array) -> _Soft:
    """δ = what the margins may be off; the gap that tells it needs a δ, so a few times over."""
    _, far = _gradient(own, p, theta, np.zeros_like(own.c))
    soft, trivial = _Soft(own.c, own.c / 2, 1.0), far + _hinge_loss(m, own.c)
    for _ in range(3):
        a = soft.pull(m)
        gap = min(trivial, _slack(m, a, own.c) + _gradient(own, p, theta, a)[1])
        soft = soft._replace(delta=max(NARROW, float(own.spread * np.sqrt(gap))))
    return soft


def _gradient(own: Margins, p: Array, theta: Array, a: Array) -> tuple[Array, float]:
    """G = 2Hθ − p − Zᵀa, (D,), and ¼ gᵀH⁻¹g = ‖θ − ½H⁻¹(p + Zᵀa)‖²_H."""
    g = 2.0 * (own.H @ theta) - p - a @ own.Z
    return g, 0.25 * float(g @ cho_solve(own.root, g))


def _slack(m: Array, a: Array, c: Array) -> float:
    """Σ_t [c_t max(0, 1 − m_t) − a_t (1 − m_t)], every term ≥ 0."""
    return float(np.sum(c * np.maximum(0.0, 1.0 - m) - a * (1.0 - m)))


def _terms(own: Margins, p: Array, theta: Array, a: Array, k: Array) -> float:
    """Size of what cancels in 2Hθ − p − Zᵀa, where m rounds to a part of ‖z‖ ‖θ‖ and a with it."""
    reach = np.linalg.norm(theta)
    pulls = own.radius * np.sum(a + k * own.radius * reach)
    return float(2.0 * np.linalg.norm(own.H) * reach + np.linalg.norm(p) + pulls)


def _hessian(own: Margins, k: Array) -> Factor:
    """2H + Σ_t k_t z_t z_tᵀ, factorised; only the rows with k_t > 0 are touched."""
    rows = np.flatnonzero(k)
    half = own.Z[rows] * np.sqrt(k[rows])[:, None]  # (|J|, D)
    factor: Factor = cho_factor(2.0 * own.H + half.T @ half)
    return factor


def _step(own: Margins, m: Array, g: Array, d: Array, pull: Callable[[Array], Array]) -> Array:
    """T d with |φ'(t)| ≤ ½ |φ'(0)| and φ(t) < φ(0), φ the convex objective along d.

    Slopes only, as differences of φ drown in rounding near the minimum: φ' increases, so
    φ(t) − φ(0) ≤ t/2 (φ'(t/2) + φ'(t)). Newton's t = 1 first, then doubling and bisection.
    """
    dm, a, curve, start = own.Z @ d, pull(m), 2.0 * (d @ own.H @ d), float(g @ d)

    def slope(t: float) -> float:
        return float(start + t * curve + (a - pull(m + t * dm)) @ dm)

    low, high, t = 0.0, np.inf, 1.0
    for _ in range(100):
        end = slope(t)
        if abs(end) <= -0.5 * start and (end <= 0.0 or end + slope(0.5 * t) <= 0.0):
            break
        low, high = (t, high) if end < 0.0 else (low, t)
        t = 2.0 * t if high == np.inf else 0.5 * (low + high)
    return t * d


def _logistic_loss(m: Array, c: Array) -> float:
    return float(c @ np.logaddexp(0.0, -m))


def _hinge_loss(m: Array, c: Array) -> float:
    return float(c @ np.maximum(0.0, 1.0 - m))


def _advice(what: str, reached: float, promise: float) -> str:
    return (
        f"{what} still {reached:.1e} after {STEPS} steps: expected {promise:.1e} or less. "
        "Raise lambda or rho, or scale the features to rows of norm about one."
    )
