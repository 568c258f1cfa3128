"""Random features: φ(x)ᵀφ(y) ≈ κ(x − y) with ω_l drawn once, from a seed common to all sites.

cos-sin    φ(x) = √(1/L) [cos ω₁ᵀx … cos ω_Lᵀx, sin ω₁ᵀx … sin ω_Lᵀx]    2L entries, ‖φ‖ = 1
cos-phase  φ(x) = √(2/L) [cos(ω₁ᵀx + b₁) … cos(ω_Lᵀx + b_L)]             L entries
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coke.errors import InputError, unknown
from coke.maths.arrays import Array
from coke.maths.features.draws import Normals, ordered_sum, orthonormal
from coke.maths.features.kernels import kernel_named

MAPPINGS = ("cos-sin", "cos-phase")
SAMPLINGS = ("iid", "orthogonal")


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
        kernel_named(self.kernel)
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
class Features:
    """The map φ: frequencies and, for cos-phase, phases."""

    omega: Array  # (L, d)  ω_l
    phase: Array  # (L,)    b_l in [0, 2π); empty for cos-sin

    @property
    def size(self) -> int:
        """D, the number of entries of φ(x) and θ: 2L or L."""
        return len(self.omega) if len(self.phase) else 2 * len(self.omega)

    def __call__(self, X: Array) -> Array:
        """Φ (T, D): one row φ(x_t)ᵀ per row of X."""
        return feature_map(X, self.omega, self.phase)


def feature_map(X: Array, omega: Array, phase: Array) -> Array:
    """φ(x) of every row of X (T, d); see the head of this file."""
    L, angle = len(omega), X @ omega.T
    if len(phase):
        return np.asarray(np.sqrt(2.0 / L) * np.cos(angle + phase))
    phi = np.empty((len(X), 2 * L))
    np.cos(angle, out=phi[:, :L])
    np.sin(angle, out=phi[:, L:])
    phi *= np.sqrt(1.0 / L)
    return phi


def draw_features(settings: FeatureSettings, d: int) -> Features:
    """ω_1 … ω_L and the phases for inputs in R^d: the same bits at every site."""
    s = settings.checked()
    # Three streams, so that a longer z changes neither the scales nor the phases. Whole
    # numbers below 2⁶⁴ are spread by PCG64's own seeding, which NumPy guarantees too.
    z, scales, phases = (Normals(seed) for seed in _streams(s.seed))
    gaussian = z.take(s.n_features, d) if s.sampling == "iid" else _orthogonal(z, s.n_features, d)
    omega = gaussian * kernel_named(s.kernel).scale(scales, s.n_features, d) / s.sigma
    empty = np.empty(0)
    phase = 2.0 * np.pi * phases.uniforms(s.n_features) if s.mapping == "cos-phase" else empty
    return Features(omega, phase)


def _streams(seed: int) -> list[int]:
    words = np.random.SeedSequence(seed).generate_state(3, np.uint64)
    return [int(word) for word in words]


def _orthogonal(stream: Normals, L: int, d: int) -> Array:
    """Blocks of d orthogonal directions, each with the length of an independent normal vector."""
    directions = orthonormal(stream.take(-(-L // d), min(L, d), d)).reshape(-1, d)[:L]
    g = stream.take(L, d)
    return directions * np.sqrt(ordered_sum(g * g))[:, None]
