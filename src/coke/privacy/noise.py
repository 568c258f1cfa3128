"""Differential privacy for squared errors: noise the statistics once, before anything is said.

All that a site ever says is a function of A = (1/T) Σ φφᵀ and b = (1/T) Σ φy. So noise on these
two covers rounds, restarts, probing and collusion: what comes after is post-processing.

    two sites are neighbours if one row is replaced; T, the features and the bound Y are public
    Δ = √2 (B² + Y²/2)             the most (TA, Tb) can move, for ‖φ‖ ≤ B and ‖y‖ ≤ Y
    δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)       the analytic Gaussian mechanism; s = Δ/μ
    Ã = PSD(A + S/T),  S_ll ~ N(0, s²),  S_lm = S_ml ~ N(0, s²/2);    b̃ = b + N(0, s² I)/T

Off the diagonal the variance is halved because the Frobenius norm counts those entries twice.

A target of K numbers has K vectors b, end to end. Of n classes these are the n − 1 numbers of a
code (`coke.maths.losses.codes`), centred at 1/n of each class, which is public: ‖y‖ = √(1 − 1/n).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from coke.errors import InputError, unknown
from coke.maths.arrays import Array
from coke.maths.features.features import MAPPINGS

FINE = 2.0**-24  # step of the grid in units of s
LARGEST = 2.0**52  # steps: below it, sums of whole numbers are exact


class Budget(NamedTuple):
    """(ε, δ): what one release of a site's statistics may cost any of its rows."""

    epsilon: float
    delta: float

    def checked(self) -> Budget:
        """Itself, or why not."""
        if not 0 < self.epsilon <= 1000:
            raise InputError(f"epsilon={self.epsilon}: expected 0 < ε ≤ 1000; 1 is strict, 10 weak")
        if not 1e-12 <= self.delta < 1:
            raise InputError(f"delta={self.delta}: expected 1e-12 ≤ δ < 1, far below 1/T; try 1e-5")
        return self


class Noise(NamedTuple):
    """How much noise, and the grid on which sums and noise are added."""

    s: float  # standard deviation of the noise on T·A_ll and T·b_l
    grid: float  # a power of two


class Statistics(NamedTuple):
    """A and b of one site, or of many draws."""

    A: Array  # (…, D, D)
    b: Array  # (…, K·D)


def _profile(epsilon: float, mu: float) -> float:
    """δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ): what ε leaves to δ, for Gaussians μ apart."""
    far, near = -mu / 2 - epsilon / mu, mu / 2 - epsilon / mu
    return float(ndtr(near) - np.exp(epsilon + log_ndtr(far)))


def _separation(budget: Budget) -> float:
    """The largest μ = Δ/s within the budget: profile(ε, μ) = δ, which grows with μ."""
    from scipy.optimize import brentq  # here, for it takes a fifth of a second to load

    epsilon, delta = budget.checked()
    low, high = 1.0, 1.0
    while _profile(epsilon, low) > delta:
        low /= 2
    while _profile(epsilon, high) < delta:
        high *= 2
    mu = brentq(lambda x: _profile(epsilon, x) - delta, low, high, xtol=1e-300, rtol=1e-13)
    return float(mu) * (1 - 1e-9)  # on the safe side of the root finder's error


def ranking_bound(budget: Budget) -> float:
    """Φ(μ/2): how often an attack can rank a member above a stranger; ½ is guessing.

    Swapping the two rows is replacing one, so with p the chance, p ≤ Φ(Φ⁻¹(1 − p) + μ).
    """
    return float(ndtr(_separation(budget) / 2))


def norm_bound(mapping: str) -> float:
    """B: ‖φ(x)‖ = 1 for cos-sin, ≤ √2 for cos-phase, whatever x; so inputs need no clipping."""
    if mapping not in MAPPINGS:
        raise InputError(unknown("mapping", mapping, MAPPINGS))
    return 1.0 if mapping == "cos-sin" else math.sqrt(2.0)


def sensitivity(B: float, Y: float) -> float:
    """Δ = max √(‖φφᵀ − φ'φ'ᵀ‖² + ‖φy − φ'y'‖²) = √2 (B² + Y²/2), or 2BY if Y² > 2B².

    With c = φᵀφ' the square is ‖φ‖⁴ + ‖φ'‖⁴ − 2c² + ‖φ‖²‖y‖² + ‖φ'‖²‖y'‖² − 2c yᵀy'. It grows with
    every norm, and −c yᵀy' ≤ |c| Y²: at most 2B⁴ − 2c² + 2Y²(B² + |c|), largest at |c| = Y²/2, or
    at B² if that is less. Numbers reach it with y' = −y and c > 0; two rows of one class, whose
    codes are the same, with c < 0. Rows of two classes, with yᵀy' = −1/n, come near only.
    """
    if not (0 < B < math.inf and 0 < Y < math.inf):
        raise InputError(f"bounds B={B}, Y={Y}: expected positive numbers that hold for every row")
    return math.sqrt(2.0) * (B * B + Y * Y / 2) if Y * Y <= 2 * B * B else 2 * B * Y


def calibrated(budget: Budget, B: float, Y: float, D: int, K: int = 1) -> Noise:
    """The noise that makes one release of A (D, D) and K vectors b (ε, δ)-private.

    Sums are rounded to a grid before noise on the same grid is added, so the last bits of a float
    say nothing of the rows. Rounding, and sums in another order, move (TA, Tb) by 2 steps an entry
    at most; Δ grows by that, about one part in 10⁵.
    """
    mu, delta = _separation(budget), sensitivity(B, Y)
    grid = 2.0 ** math.floor(math.log2(FINE * delta / mu))
    return Noise((delta + 2 * grid * math.sqrt(D * D + K * D)) / mu, grid)


def draws(D: int, K: int = 1) -> int:
    """Normals that one release takes: D(D + 1)/2 for A and D for each of K vectors b."""
    return D * (D + 1) // 2 + K * D


def steps(exact: Statistics, T: float, noise: Noise, z: Array) -> Array:
    """T(A, b) + noise in steps of the grid, whole numbers (…, draws(D, K)): half of A, then b.

    Z are standard normals. round(TA) + round(S) = round(round(TA) + S): rounding the noise is
    post-processing.
    """
    D = exact.A.shape[-1]
    below, off = np.tril_indices(D), ~np.equal(*np.tril_indices(D))
    sums = T * np.concatenate([exact.A[..., *below], exact.b], axis=-1)
    if not (np.abs(sums) < LARGEST * noise.grid).all():
        raise InputError(
            f"sums over {T} rows beyond {LARGEST * noise.grid:.1e}: too large to noise"
        )
    scale = np.full(sums.shape[-1], noise.s)
    scale[: len(off)][off] *= math.sqrt(0.5)
    return np.asarray(np.rint(sums / noise.grid) + np.rint(scale * z / noise.grid))


def unpacked(flat: Array, D: int) -> Statistics:
    """A and b from half of A and b (…, draws(D, K))."""
    below, half = np.tril_indices(D), D * (D + 1) // 2
    A = np.empty((*flat.shape[:-1], D, D))
    A[..., *below] = A[..., *below[::-1]] = flat[..., :half]
    return Statistics(A, flat[..., half:])


def noised(exact: Statistics, T: int, noise: Noise, z: Array) -> Statistics:
    """A + S/T and b + N(0, s²I)/T from standard normals z (…, draws(D, K)); not yet projected."""
    return unpacked(steps(exact, T, noise, z) * noise.grid / T, exact.A.shape[-1])


def projected(A: Array) -> Array:
    """PSD(A) (…, D, D): the nearest matrix without negative eigenvalues; exactly symmetric."""
    values, vectors = np.linalg.eigh(A)
    nearest = (vectors * np.maximum(values, 0.0)[..., None, :]) @ vectors.swapaxes(-1, -2)
    return np.asarray(0.5 * (nearest + nearest.swapaxes(-1, -2)))


def least_lambda(s: float, D: int, T: Array) -> float:
    """λ ≥ ½ s √(2D Σ_i 1/T_i²): half the norm of the noise in Σ_i A_i; T (N,) is public.

    That is ½ s √(2DN)/T for equal sites. With less the model fits directions that are all noise.
    """
    return float(0.5 * s * math.sqrt(2.0 * D) * np.sqrt(np.sum(1.0 / np.asarray(T) ** 2)))


def shared(s: float, N: int, colluding: int) -> float:
    """s/√(N − t): one site's noise where only the sum over N sites is ever seen.

    Trust: t sites may leave their noise out or tell it each other, which is the same; the others
    add theirs, and nobody sees less than the whole sum. A site knows its own noise, so t ≥ 1.
    """
    if not 1 <= colluding < N:
        raise InputError(
            f"colluding={colluding} of {N} sites: expected at least 1, for a site knows its own "
            f"noise, and at most {N - 1}"
        )
    return s / math.sqrt(N - colluding)
