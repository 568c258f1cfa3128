"""The hinge loss max(0, 1 − m) of the margin m = yf, y = ±1; z_t = y_t φ_t, so m = Zθ.

Alone, an augmented Lagrangian: the kink is smoothed to a width δ about multipliers α. Newton's
method on that lowers the stray part of the duality gap, then α ← a and a smaller δ lower its slack,
which is at most δ Σ_t c_t. All is piecewise quadratic: once the rows on the margin are known, the
end comes at once.

One round after the other only p and the start change. Rows on the margin, J, have 0 < α_t < c_t;
the others have α_t = c_t or 0, by their side of it. Where these sets are known, Z_J θ = 1 and
2Hθ = p + Zᵀα give α_J and θ; and from one round to the next few rows leave their set. So guess that
none has, and see. A row of J whose α_t leaves [0, c_t] leaves J; any other on the wrong side of the
margin joins J, or changes sides if it is off by more than δ, the most that a margin has moved.
Where nothing changes, that is the answer. A guess costs a pass over the rows; three are usual, and
after many the solver that needs no guess goes on. The answer depends on p and the start alone: an
agent that was stopped and started again finds the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from coke.maths.arrays import CHUNK, Array
from coke.maths.losses.newton import ROUNDING, STEPS, Again, OneRisk, Proof, unreached

GAP = 1e-6  # promised duality gap
SHARPER = 0.4  # δ from one α to the next: a smaller one costs more Newton steps than it saves
NARROW = 1e-7  # least δ: below it the Hessian is too ill-conditioned
GUESSES = 12  # before giving up
NEAR = 1e-7  # rows that were on the margin are as near to it at the start
ALIKE = 1e-11  # rows that differ by less pull as one


class Hinge:
    """max(0, 1 − yf)."""

    def value(self, f: Array, y: Array) -> Array:
        """Of each row."""
        return np.maximum(0.0, 1.0 - y * f)

    def slope(self, f: Array, y: Array) -> Array:
        """A subgradient: −y within the margin."""
        return -(y * f < 1.0).astype(np.float64) * y

    def minimum(self, own: OneRisk, p: Array, start: Array) -> Proof:
        """argmin_θ  Σ_t c_t max(0, 1 − z_tᵀθ) + θᵀHθ − pᵀθ  with a duality gap ≤ 1e-6."""
        theta = own.begin(p, start, self.value)
        m = _margins(own, theta)
        soft = _softened(own, p, theta, m)
        best, answer, stale = np.inf, (theta, soft.alpha), 0
        for _ in range(STEPS):
            a = soft.pull(m)
            g = own.gradient(theta, p, own.y * a)
            slack, stray = _slack(own, m, a), own.stray(g)
            stale = 0 if slack + stray <= 0.5 * best else stale + 1
            if slack + stray < best:
                best, answer = slack + stray, (theta, a)
            size = _size(own, theta)
            promise = max(GAP, ROUNDING * size)
            # A hundred steps at one δ that do not halve the gap have only rounding to work on.
            if best <= 0.1 * ROUNDING * size or (best <= promise and stale >= 100):
                return _proof(own, p, *answer)
            if stray <= slack:
                stale = 0 if soft.delta > NARROW else stale
                soft = soft._replace(alpha=a, delta=max(NARROW, SHARPER * soft.delta))
                continue
            k = np.where((a > 0.0) & (a < own.c), own.c / soft.delta, 0.0)
            d = -cho_solve(own.hessian(k), g)
            theta = theta + own.step(g, d, own.y * m, soft.signed_pull)
            m = _margins(own, theta)
        raise unreached("duality gap of the hinge loss", best, promise)

    def repeated(self, own: OneRisk) -> Again:
        """The same, fast from near."""
        return partial(_near, self, own)


class _Soft(NamedTuple):
    """The hinge smoothed to width δ about the multipliers α."""

    own: OneRisk
    alpha: Array  # (T,)
    delta: float  # in units of the margin

    def pull(self, m: Array) -> Array:
        """The pulls towards the margin, clip(α + (c/δ)(1 − m), 0, c) (T,)."""
        c = self.own.c
        return np.clip(self.alpha + (c / self.delta) * (1.0 - m), 0.0, c)

    def signed_pull(self, f: Array) -> Array:
        """a = −c ∂ℓ/∂f (T,)."""
        return self.own.y * self.pull(self.own.y * f)


def _margins(own: OneRisk, theta: Array) -> Array:
    """m = Zθ (T,)."""
    return own.y * own.predictions(theta)


def _softened(own: OneRisk, p: Array, theta: Array, m: Array) -> _Soft:
    """δ = what the margins may be off; the gap that tells it needs a δ, so three times over."""
    soft, nothing = _Soft(own, 0.5 * own.c, 1.0), np.zeros_like(own.c)
    # At a = 0 the slack is the loss itself: a bound that needs no good a.
    idle = own.stray(own.gradient(theta, p, nothing)) + _loss(own, m)
    for _ in range(3):
        gap = min(idle, _gap(own, p, theta, m, soft.pull(m)))
        soft = soft._replace(delta=max(NARROW, own.spread * float(np.sqrt(gap))))
    return soft


def _loss(own: OneRisk, m: Array) -> float:
    return float(own.c @ np.maximum(0.0, 1.0 - m))


def _slack(own: OneRisk, m: Array, a: Array) -> float:
    """Σ_t [c_t max(0, 1 − m_t) − a_t (1 − m_t)]."""
    return float(np.sum(own.c * np.maximum(0.0, 1.0 - m) - a * (1.0 - m)))


def _gap(own: OneRisk, p: Array, theta: Array, m: Array, a: Array) -> float:
    """primal(θ) − dual(a), for 0 ≤ a ≤ c."""
    return _slack(own, m, a) + own.stray(own.gradient(theta, p, own.y * a))


def _size(own: OneRisk, theta: Array) -> float:
    """Of what goes into the gap: margins are exact to a part of ‖z_t‖ ‖θ‖ only, c_t times."""
    return float(np.sum(own.c)) * (1.0 + own.radius * float(np.linalg.norm(theta)))


def _proof(own: OneRisk, p: Array, theta: Array, alpha: Array) -> Proof:
    m = _margins(own, theta)
    loss = _loss(own, m)
    primal = float(loss + theta @ own.H @ theta - p @ theta)
    # By the identity in `newton`, so that a small gap is not lost between two large numbers.
    return Proof(theta, alpha, loss, primal, primal - _gap(own, p, theta, m, alpha))


def _near(loss: Hinge, own: OneRisk, p: Array, start: Array) -> Proof:
    with np.errstate(over="ignore", invalid="ignore"):  # a terrible start is for the other solver
        found = _guessed(own, p, start)
    return loss.minimum(own, p, start) if found is None else found


def _guessed(own: OneRisk, p: Array, start: Array) -> Proof | None:
    """The answer, if a few guesses lead to it and its gap is all rounding."""
    m, delta = _margins(own, start), 0.0
    a = own.c * np.clip(0.5 + (1.0 - m) / NEAR, 0.0, 1.0)
    fixed, pulls = np.zeros_like(a), p
    for _ in range(GUESSES):
        free = (a > 0.0) & (a < own.c)
        rows = np.flatnonzero(free)
        if len(rows) > 2 * len(p):  # some may say the same, hardly so many
            return None
        pulls, fixed = _moved(own, p, pulls, fixed, np.where(free, 0.0, a))
        solved = _solved(own, pulls, rows)
        if solved is None:
            return None
        theta, a_J = solved
        before, m, alpha = m, _margins(own, theta), fixed.copy()
        alpha[rows] = a_J
        delta = delta or float(np.abs(m - before).max())
        # Rows at c_t or 0 may touch the margin, too.
        m[free | (np.abs(1.0 - m) <= 10.0 * ROUNDING * own.radius * np.linalg.norm(theta))] = 1.0
        a = np.clip(alpha + own.c * ((1.0 - m) / delta if delta else 0.0), 0.0, own.c)
        if np.array_equal(a, alpha):
            gap = _gap(own, p, theta, _margins(own, theta), a)
            return _proof(own, p, theta, a) if gap <= 0.1 * ROUNDING * _size(own, theta) else None
    return None


def _moved(own: OneRisk, p: Array, pulls: Array, fixed: Array, after: Array) -> tuple[Array, Array]:
    """p + Zᵀα over the rows whose α is fixed, from what it was before; and these α."""
    moved = np.flatnonzero(after != fixed)
    if len(moved) > min(CHUNK, len(fixed) // 4):  # a pass over all rows takes no copy of them
        return p + own.pulls(own.y * after), after
    return pulls + (own.y[moved] * (after - fixed)[moved]) @ own.Phi[moved], after


def _solved(own: OneRisk, pulls: Array, rows: NDArray[np.int64]) -> tuple[Array, Array] | None:
    """θ with these rows on the margin, and their α; None where numbers are beyond reason."""
    if not np.isfinite(pulls).all():
        return None
    Z = own.y[rows, None] * own.Phi[rows]  # (|J|, D)
    S = 0.5 * cho_solve(own.root, Z.T)  # (D, |J|)
    theta = 0.5 * cho_solve(own.root, pulls)
    try:
        a_J = np.linalg.lstsq(Z @ S, 1.0 - Z @ theta, rcond=ALIKE)[0]
    except np.linalg.LinAlgError:
        return None
    theta = theta + S @ a_J
    return (theta, a_J) if np.isfinite(theta).all() else None
