"""Random features: φ(x)ᵀφ(y) ≈ κ(x − y) with ω_l drawn once, from a seed common to all sites.

cos-sin    φ(x) = √(1/L) [cos ω₁ᵀx … cos ω_Lᵀx, sin ω₁ᵀx … sin ω_Lᵀx]    2L entries, ‖φ‖ = 1
cos-phase  φ(x) = √(2/L) [cos(ω₁ᵀx + b₁) … cos(ω_Lᵀx + b_L)]             L entries
linear     l [x, 1] behind them, where a chosen model has a linear part   d + 1 entries

**Kernels** κ are shift-invariant, κ(0) = 1. By Bochner's theorem κ(δ) = E exp(j ωᵀδ). Each law of
ω is a Gaussian whose scale is itself random, ω = z ∘ s / σ with z ~ N(0, I) and s > 0 independent
of z. So one stream of normals serves all kernels, and orthogonal z serve all of them too: the law
of each ω stays exact.

**Draws** are the same bits on every machine, platform and library version, for every site must draw
the same ω. `numpy.random.Generator.normal` does not promise that: its streams may change between
NumPy versions, and its tails call libm. So only three things are used, each exact everywhere:

* the raw 64-bit stream of PCG64, which NumPy guarantees for a fixed seed;
* the IEEE 754 operations + − × ÷ √ and frexp, one NumPy call each, so that no compiler can
  fuse a multiplication and an addition into one rounding;
* sums in a fixed order (`cumsum` is sequential by definition; `sum` and BLAS are not).

`tests/maths/test_features.py` compares the draws with stored digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from coke.errors import InputError, unknown
from coke.maths.arrays import SQRT_HALF, Array

MAPPINGS = ("cos-sin", "cos-phase")
SAMPLINGS = ("iid", "orthogonal")
LN2 = 0.6931471805599453
PAIRS = 1 << 14  # of rows at once, which stay in cache
CHUNK = 1024  # candidates per refill; part of the stream's definition


class FeatureSettings(NamedTuple):
    """What every site must have in common to draw the same features."""

    n_features: int = 100  # L
    kernel: str = "gaussian"
    sigma: float = 1.0  # σ, bandwidth
    mapping: str = "cos-sin"
    sampling: str = "iid"
    seed: int = 0

    def checked(self) -> FeatureSettings:
        """Itself, or an error that names the setting at fault."""
        _kernel(self.kernel)
        if self.mapping not in MAPPINGS:
            raise InputError(unknown("mapping", self.mapping, MAPPINGS))
        if self.sampling not in SAMPLINGS:
            raise InputError(unknown("sampling", self.sampling, SAMPLINGS))
        if self.n_features < 1:
            raise InputError(
                f"n_features={self.n_features}: expected at least one random feature; try 100"
            )
        if not 0 < self.sigma < np.inf:
            raise InputError(
                f"sigma={self.sigma}: expected a positive bandwidth; "
                "start near the typical distance between two rows"
            )
        if self.seed < 0:
            raise InputError(f"seed={self.seed}: expected a whole number ≥ 0")
        return self


@dataclass(frozen=True)
class DrawnFeatures:
    """The map φ: frequencies, for cos-phase phases, and the weight of a linear part."""

    omega: Array  # (L, d)  ω_l
    phase: Array  # (L,)    b_l in [0, 2π); empty for cos-sin
    linear: float = 0.0  # l; 0: no such part
    waves: int = field(init=False)  # how many entries are waves: 2L, or L with phases
    size: int = field(init=False)  # D, the number of entries of φ(x) and θ
    height: float = field(init=False)  # of the waves: √(1/L), or √(2/L) with phases

    def __post_init__(self) -> None:
        (L, d), shifted = self.omega.shape, len(self.phase) > 0
        waves = L if shifted else 2 * L
        object.__setattr__(self, "waves", waves)
        object.__setattr__(self, "size", waves + (d + 1 if self.linear else 0))
        object.__setattr__(self, "height", float(np.sqrt((2.0 if shifted else 1.0) / max(L, 1))))

    def __call__(self, X: Array) -> Array:
        """Φ (T, D): one row φ(x_t)ᵀ per row of X."""
        L, angle = len(self.omega), X @ self.omega.T
        if len(self.phase) and not self.linear:
            return np.asarray(self.height * np.cos(angle + self.phase))
        phi = np.empty((len(X), self.size))
        if len(self.phase):
            np.cos(angle + self.phase, out=phi[:, :L])
        else:
            np.cos(angle, out=phi[:, :L])
            np.sin(angle, out=phi[:, L : 2 * L])
        phi[:, : self.waves] *= self.height
        if self.linear:
            np.multiply(X, self.linear, out=phi[:, self.waves : -1])
            phi[:, -1] = self.linear
        return phi


@lru_cache(maxsize=8)  # every site of a simulation draws the same
def draw_features(settings: FeatureSettings, d: int) -> DrawnFeatures:
    """ω_1 … ω_L and the phases for inputs in R^d: the same bits at every site."""
    s = settings.checked()
    # Three streams, so that a longer z changes neither the scales nor the phases. Whole
    # numbers below 2⁶⁴ are spread by PCG64's own seeding, which NumPy guarantees too.
    z, scales, phases = (Normals(seed) for seed in _streams(s.seed))
    gaussian = z.take(s.n_features, d) if s.sampling == "iid" else _orthogonal(z, s.n_features, d)
    omega = gaussian * _kernel(s.kernel).scale(scales, s.n_features, d) / s.sigma
    empty = np.empty(0)
    phase = 2.0 * np.pi * phases.uniforms(s.n_features) if s.mapping == "cos-phase" else empty
    return DrawnFeatures(omega, phase)


def _streams(seed: int) -> list[int]:
    words = np.random.SeedSequence(seed).generate_state(3, np.uint64)
    return [int(word) for word in words]


def _orthogonal(stream: Normals, L: int, d: int) -> Array:
    """Blocks of d orthogonal directions, each with the length of an independent normal vector."""
    directions = _orthonormal(stream.take(-(-L // d), min(L, d), d)).reshape(-1, d)[:L]
    g = stream.take(L, d)
    return directions * np.sqrt(_ordered_sum(g * g))[:, None]


class _Kernel(NamedTuple):
    """κ as a function of Σ_j t(δ_j), δ = (x − y)/σ, and the law of the scale s."""

    term: Callable[[Array], Array]  # t, one column of all pairs at a time
    of: Callable[[Array], Array]  # of their sum
    scale: Callable[[Normals, int, int], Array]  # stream, L, d → s, (L, d) or (L, 1)


def _matern(nu2: int) -> Callable[[Normals, int, int], Array]:
    """Multivariate t with 2ν degrees of freedom: s = √(2ν / χ²), one scale per frequency."""

    def scale(stream: Normals, L: int, d: int) -> Array:
        g = stream.take(L, nu2)
        return np.sqrt(nu2 / _ordered_sum(g * g))[:, None]

    return scale


def _matern32(square: Array) -> Array:
    r = np.sqrt(3.0) * np.sqrt(square)
    return np.asarray((1.0 + r) * np.exp(-r))


def _matern52(square: Array) -> Array:
    r = np.sqrt(5.0) * np.sqrt(square)
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


def _laplace(stream: Normals, L: int, d: int) -> Array:
    """z √(g₁² + g₂²) is Laplace, whose characteristic function is the Cauchy kernel."""
    g = stream.take(L, d, 2)
    return np.sqrt(_ordered_sum(g * g))


KERNELS: dict[str, _Kernel] = {
    # exp(−‖δ‖²/2): ω is Gaussian
    "gaussian": _Kernel(
        np.square,
        lambda square: np.asarray(np.exp(-0.5 * square)),
        lambda stream, L, d: np.ones((L, 1)),
    ),
    # exp(−‖δ‖₁): every entry of ω is Cauchy, a ratio of two normals
    "laplacian": _Kernel(
        np.abs,
        lambda total: np.asarray(np.exp(-total)),
        lambda stream, L, d: 1.0 / np.abs(stream.take(L, d)),
    ),
    # Π 1/(1 + δ_j²): every entry of ω is Laplace
    "cauchy": _Kernel(
        lambda delta: np.log1p(delta * delta),
        lambda total: np.asarray(np.exp(-total)),
        _laplace,
    ),
    "matern32": _Kernel(np.square, _matern32, _matern(3)),  # (1 + √3 r) exp(−√3 r)
    "matern52": _Kernel(np.square, _matern52, _matern(5)),  # (1 + √5 r + 5r²/3) exp(−√5 r)
}


def _kernel(name: str) -> _Kernel:
    """The kernel of that name."""
    if name not in KERNELS:
        raise InputError(unknown("kernel", name, KERNELS))
    return KERNELS[name]


def gram(name: str, X: Array, Y: Array, sigma: float) -> Array:
    """K_ts = κ(x_t, y_s), exactly; (T, S). All pairs of a few rows, column by column."""
    kernel, rows = _kernel(name), max(1, PAIRS // max(1, len(Y)))
    K = np.zeros((len(X), len(Y)))
    for first in range(0, len(X), rows):
        part = K[first : first + rows]
        for x, y in zip(X[first : first + rows].T, Y.T, strict=True):
            part += kernel.term((x[:, None] - y) / sigma)
        part[:] = kernel.of(part)
    return K


def own_gram(name: str, Z: Array) -> Array:
    """K_ts = κ(z_t, z_s) (n, n), σ = 1, to rounding: distances of radial kernels by one product."""
    kernel = _kernel(name)
    return kernel.of(squares(Z)) if kernel.term is np.square else gram(name, Z, Z, 1.0)


def squares(Z: Array) -> Array:
    """‖z − z'‖² of all pairs of rows (n, n)."""
    n, found = np.einsum("tj,tj->t", Z, Z), (-2.0 * Z) @ Z.T
    found += n[:, None]
    found += n
    return np.maximum(found, 0.0, out=found)


class Normals:
    """A stream of independent N(0, 1) numbers from one seed."""

    def __init__(self, seed: int):
        self._bits = np.random.PCG64(seed)
        self._stream = self._pairs()
        self._left = np.empty(0)

    def take(self, *shape: int) -> Array:
        """The next numbers of the stream, in C order."""
        size = int(np.prod(shape))
        parts, have = [self._left], len(self._left)
        while have < size:
            parts.append(next(self._stream))
            have += len(parts[-1])
        numbers = np.concatenate(parts)
        self._left = numbers[size:]
        return numbers[:size].reshape(shape)

    def uniforms(self, *shape: int) -> Array:
        """Uniform on (0, 1): 52 random bits and a half, so that 0 and 1 never occur."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        numbers: Array = ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return numbers.reshape(shape)

    def _pairs(self) -> Iterator[Array]:
        """Marsaglia's polar method: v √(−2 log s / s) for v uniform in the unit disc, s = ‖v‖²."""
        while True:
            v = 2.0 * self.uniforms(CHUNK, 2) - 1.0
            s = v[:, 0] * v[:, 0] + v[:, 1] * v[:, 1]
            v, s = v[s < 1.0], s[s < 1.0]
            yield (v * np.sqrt(-2.0 * _exact_log(s) / s)[:, None]).ravel()


def _exact_log(x: Array) -> Array:
    """Log x = e log 2 + 2 artanh((m − 1)/(m + 1)) for x = m 2ᵉ, √½ ≤ m < √2; error below 1e-15."""
    m, e = np.frexp(x)
    low = m < SQRT_HALF
    m, e = np.where(low, 2.0 * m, m), e - low
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, np.zeros_like(s)
    for k in range(23, 0, -2):  # |s| ≤ 0.172, so the first term left out is below 2e-20
        series = series * square + 1.0 / k
    return e * LN2 + 2.0 * (s * series)


def _ordered_sum(x: Array) -> Array:
    """Σ over the last axis, strictly from first to last."""
    return np.cumsum(x, axis=-1)[..., -1]


def _orthonormal(blocks: Array) -> Array:
    """Rows (B, n, n) of each block orthonormalised by modified Gram–Schmidt, in a fixed order."""
    q = blocks.copy()
    for j in range(q.shape[1]):
        q[:, j] /= np.sqrt(_ordered_sum(q[:, j] * q[:, j]))[:, None]
        overlap = _ordered_sum(q[:, j + 1 :] * q[:, j : j + 1])
        q[:, j + 1 :] -= overlap[..., None] * q[:, j : j + 1]
    return q
