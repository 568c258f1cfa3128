"""Shift-invariant kernels κ(x − y) with κ(0) = 1, and the law of their frequencies ω.

By Bochner's theorem κ(δ) = E exp(j ωᵀδ). Each law below is a Gaussian whose scale is itself
random, ω = z ∘ s / σ with z ~ N(0, I) and s > 0 independent of z. So one stream of normals
serves all kernels, and orthogonal z serve all of them too: the law of each ω stays exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coke.errors import InputError, unknown
from coke.maths.arrays import Array
from coke.maths.features.draws import Normals, ordered_sum


class Kernel(NamedTuple):
    """κ as a function of δ = (x − y)/σ over the last axis, and the law of the scale s."""

    of: Callable[[Array], Array]  # (..., d) → (...)
    scale: Callable[[Normals, int, int], Array]  # stream, L, d → s, (L, d) or (L, 1)


def _radius(delta: Array) -> Array:
    return np.asarray(np.linalg.norm(delta, axis=-1))


def _matern(nu2: int) -> Callable[[Normals, int, int], Array]:
    """Multivariate t with 2ν degrees of freedom: s = √(2ν / χ²), one scale per frequency."""

    def scale(stream: Normals, L: int, d: int) -> Array:
        g = stream.take(L, nu2)
        return np.sqrt(nu2 / ordered_sum(g * g))[:, None]

    return scale


def _matern32(delta: Array) -> Array:
    r = np.sqrt(3.0) * _radius(delta)
    return np.asarray((1.0 + r) * np.exp(-r))


def _matern52(delta: Array) -> Array:
    r = np.sqrt(5.0) * _radius(delta)
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


def _laplace(stream: Normals, L: int, d: int) -> Array:
    """z √(g₁² + g₂²) is Laplace, whose characteristic function is the Cauchy kernel."""
    g = stream.take(L, d, 2)
    return np.sqrt(ordered_sum(g * g))


KERNELS: dict[str, Kernel] = {
    # exp(−‖δ‖²/2): ω is Gaussian
    "gaussian": Kernel(
        lambda delta: np.asarray(np.exp(-0.5 * np.sum(delta * delta, axis=-1))),
        lambda stream, L, d: np.ones((L, 1)),
    ),
    # exp(−‖δ‖₁): every entry of ω is Cauchy, a ratio of two normals
    "laplacian": Kernel(
        lambda delta: np.asarray(np.exp(-np.sum(np.abs(delta), axis=-1))),
        lambda stream, L, d: 1.0 / np.abs(stream.take(L, d)),
    ),
    # Π 1/(1 + δ_j²): every entry of ω is Laplace
    "cauchy": Kernel(
        lambda delta: np.asarray(np.prod(1.0 / (1.0 + delta * delta), axis=-1)),
        _laplace,
    ),
    "matern32": Kernel(_matern32, _matern(3)),  # (1 + √3 r) exp(−√3 r)
    "matern52": Kernel(_matern52, _matern(5)),  # (1 + √5 r + 5r²/3) exp(−√5 r)
}


def kernel_named(name: str) -> Kernel:
    """The kernel of that name."""
    if name not in KERNELS:
        raise InputError(unknown("kernel", name, KERNELS))
    return KERNELS[name]


def gram(name: str, X: Array, Y: Array, sigma: float) -> Array:
    """K_ts = κ(x_t, y_s), exactly; (T, S). For small T: it needs T·S·d numbers."""
    return kernel_named(name).of((X[:, None, :] - Y[None, :, :]) / sigma)
