"""Bandwidths of the columns, as a site's own rows speak for them.

A Gaussian process on at most 200 rows, its covariance

    C = s² k(‖(z − z') ∘ e^{p/2}‖) + l² (1 + zᵀz')/d + noise,    k(r) = (1 + √3 r) exp(−√3 r),

and p, s², l² and noise by its evidence, in few steps of L-BFGS from the plain rule. What a site
tells is p weighed by F, how sure it is of each: ½ tr (C⁻¹∂C)². A column that a site's rows say
nothing of has F near zero, however far its p strays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.features.features import squares
from coke.maths.symmetric import inverse_and_size

ROWS, STEPS = 200, 18
_PULL = 1e-3  # a row, towards the plain rule
_ROOT3 = np.sqrt(3.0)
_JITTER = 1e-8


class Evidence(NamedTuple):
    """What maximises it, and how sharply."""

    p: Array  # (d,)  log of the squared inverse bandwidths, beyond the plain rule's
    sure: Array  # (d,)  F
    parts: Array  # (3,)  log of s², l² and the noise


def fitted(Z: Array, Y: Array) -> Evidence:
    """Of rows Z (n, d) in standard units and targets Y (n, K), all with one covariance."""
    from scipy.optimize import minimize  # here: slow to load, and for few

    d = Z.shape[1]
    start = np.concatenate([np.full(d, plain(d)), np.log([1.0, 0.3, 0.1])])
    bounds = [(-9.0, 5.0)] * d + [(-6.0, 4.0), (-10.0, 4.0), (-9.0, 1.0)]
    how = {"maxfun": STEPS, "maxiter": STEPS}
    found = minimize(
        _surprise, start, (Z, Y, lines(Z)), jac=True, method="L-BFGS-B", bounds=bounds, options=how
    ).x
    return Evidence(found[:d] - plain(d), _sureness(Z, found), found[d:])


def plain(d: int) -> float:
    """log 1/σ² of the plain rule σ² = d/2 for d columns of spread one."""
    return float(np.log(2.0 / d))


def lines(Z: Array) -> Array:
    """(1 + zᵀz')/d of all pairs of rows (n, n): the kernel of linear functions."""
    return np.asarray((1.0 + Z @ Z.T) / Z.shape[1])


class _Covariance(NamedTuple):
    C: Array
    k: Array
    slope: Array  # s² ∂k/∂(r²)
    scaled: Array  # z ∘ e^{p/2}


def _covariance(Z: Array, x: Array, straight: Array) -> _Covariance:
    n, d = Z.shape
    s2, l2, noise = np.exp(x[d:])
    scaled = Z * np.exp(x[:d] / 2)
    r = squares(scaled)
    np.sqrt(r, out=r)
    r *= _ROOT3
    wane = np.exp(-r)
    r += 1.0
    r *= wane
    C = l2 * straight
    C += s2 * r
    C[np.diag_indices(n)] += noise + _JITTER
    wane *= -1.5 * s2
    return _Covariance(C, r, wane, scaled)


def _surprise(x: Array, Z: Array, Y: Array, straight: Array) -> tuple[float, Array]:
    """−log evidence with the pull towards the plain rule, and its gradient ½ tr(W ∂C)."""
    n, d = Z.shape
    off = x[:d] - plain(d)
    C, k, slope, scaled = _covariance(Z, x, straight)
    found = inverse_and_size(C)
    if found is None:  # a step too far: L-BFGS takes a shorter one
        return 1e10, np.zeros_like(x)
    (W, size), K = found, Y.shape[1]
    a = W @ Y
    W *= K
    W -= a @ a.T
    value = 0.5 * np.sum(Y * a) + K * size + 0.5 * _PULL * n * off @ off
    E = W * slope
    by_column = np.sum(scaled * (E.sum(axis=1)[:, None] * scaled - E @ scaled), axis=0)
    s2, l2, noise = np.exp(x[d:])
    by_part = [s2 * np.vdot(W, k), l2 * np.vdot(W, straight), noise * np.trace(W)]
    gradient = np.concatenate([by_column + _PULL * n * off, 0.5 * np.array(by_part)])
    return float(value), gradient


def _sureness(Z: Array, x: Array) -> Array:
    """F_j = ½ tr(C⁻¹∂_jC C⁻¹∂_jC), from half the rows at most: d products of (n, n) matrices."""
    some = Z[: ROWS // 2]
    C, _, slope, scaled = _covariance(some, x, lines(some))
    inverse = np.linalg.inv(C)
    found = np.empty(Z.shape[1])
    for j, z in enumerate(scaled.T):
        change = inverse @ (slope * (z[:, None] - z[None, :]) ** 2)
        found[j] = 0.5 * np.sum(change * change.T)
    return found * (len(Z) / len(some))
