"""Several kernels and what each weighs: v_j ∝ exp(−η Σ_t ℓ_j), from losses that all sites agree on.

A batch compares them once, on rows that were left out, and learns the leader's model. A stream
learns with all of them at first (`coke.learning.bank`). Until then their predictions are mixed:
Σ_j v_j θ_jᵀφ_j(x) is one model on the frequencies of all kernels, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coke.errors import ConfigError
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.settings.declaration import AUTO, PLAIN, Settings
from coke.settings.kernels import Kernel


class Bank(NamedTuple):
    """Kernels, and what each weighs."""

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...]  # sum one

    @classmethod
    def one(cls, kernel: Kernel) -> Bank:
        """Nothing to weigh."""
        return cls((kernel,), (1.0,))

    @property
    def leader(self) -> Kernel:
        """The first of the heaviest."""
        return self.kernels[int(np.argmax(self.weights))]

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """Kernels by name, and their weights; nothing of one alone."""
        if len(self.kernels) == 1:
            return ()
        return tuple(zip(map(str, self.kernels), self.weights, strict=True))


def feature_settings(settings: Settings, kernel: Kernel | None = None) -> FeatureSettings:
    """The features of the plain model, or of a kernel's; σ = 1 where inputs or columns say it."""
    f = settings.features
    L = PLAIN["n_features"] if f.n_features == AUTO else f.n_features
    family = PLAIN["kernel"] if f.kernel == AUTO else f.kernel
    sigma = 1.0 if isinstance(f.sigma, str) else f.sigma
    if kernel is not None:
        family, sigma = kernel.family, kernel.widths[0] if len(kernel.widths) == 1 else 1.0
    return FeatureSettings(int(L), family, sigma, f.mapping, f.sampling, settings.seed)


def kernel_features(settings: Settings, kernel: Kernel, usual: float, d: int) -> DrawnFeatures:
    """φ_j of one of several kernels, for inputs in R^d; `usual` is σ where it has none."""
    if len(kernel.widths) > 1 and len(kernel.widths) != d:
        raise ConfigError(
            f"kernels: {kernel} has {len(kernel.widths)} bandwidths for {d} inputs: expected one, "
            "or one for each input, in the order of the columns"
        )
    how = feature_settings(settings, kernel)
    if len(kernel.widths) <= 1:
        return draw_features(how if kernel.widths else how._replace(sigma=usual), d)
    drawn = draw_features(how, d)
    return DrawnFeatures(drawn.omega / np.array(kernel.widths), drawn.phase)


def mixed(parts: Sequence[tuple[float, DrawnFeatures, Array]]) -> tuple[DrawnFeatures, Array]:
    """φ, and θ (K, J·D) with θᵀφ(x) = Σ_j v_j θ_jᵀφ_j(x), of weights, features and θ_j (K, D).

    All have as many frequencies L: those of φ have height √(1/(J L)), or √(2/(J L)).
    """
    together = DrawnFeatures(
        np.concatenate([phi.omega for _, phi, _ in parts]),
        np.concatenate([phi.phase for _, phi, _ in parts]),
    )
    halves = 1 if len(together.phase) else 2
    each = [v * (phi.height / together.height) * theta for v, phi, theta in parts]
    waves = [np.split(theta, halves, axis=-1) for theta in each]
    return together, np.concatenate([w[h] for h in range(halves) for w in waves], axis=-1)
