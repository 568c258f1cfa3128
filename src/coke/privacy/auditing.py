"""An audit of the noise: how well can two worlds be told apart that differ in one row?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv

from coke.maths.arrays import Array
from coke.privacy.noise import Noise, Statistics, draws, noised


def _least_epsilon(hits: tuple[int, int], n: int, delta: float, error: float = 0.05) -> float:
    """A lower bound of ε that holds with probability 1 − error, from one fixed test of two worlds.

    `hits` of n draws in each world passed the test; (ε, δ) means P(pass | with) ≤ e^ε P(pass |
    without) + δ. Clopper and Pearson bound both chances.
    """
    without, with_ = hits
    high = betaincinv(without + 1, n - without, 1 - error / 2) if without < n else 1.0
    low = betaincinv(with_, n - with_ + 1, error / 2) if with_ else 0.0
    return float(np.log((low - delta) / high)) if low > delta else 0.0


def worst_pair(y: Array, other: Array) -> tuple[Statistics, Statistics]:
    """One row, and the one that moves (A, b) most, for ‖φ‖ = 1 and those targets (K,).

    φᵀφ' = −yᵀy'/2, the most for given targets: ½ of numbers 1 and −1.
    """
    c = -0.5 * float(y @ other)
    rows = (np.array([1.0, 0.0]), y), (np.array([c, np.sqrt(1.0 - c * c)]), other)
    one, two = (Statistics(np.outer(p, p), np.outer(z, p).ravel()) for p, z in rows)
    return one, two


WORST = worst_pair(np.ones(1), -np.ones(1))


def audited(
    noise: Noise,
    delta: float,
    normals: Callable[[int], Array],
    n: int,
    worlds: tuple[Statistics, Statistics] = WORST,
) -> float:
    """A lower bound of the noise's true ε, from n draws in each of two worlds, one row apart.

    The worst for B = Y = 1, unless others are given. The test is along the line between them; its
    threshold is chosen on other draws.
    """
    A, b = worlds[1].A - worlds[0].A, worlds[1].b - worlds[0].b

    def scores(exact: Statistics, n: int) -> Array:
        found = noised(exact, 1, noise, normals(n * draws(2, len(b) // 2)).reshape(n, -1))
        return np.asarray((found.A * A).sum(axis=(1, 2)) + found.b @ b)

    def bound(at: float, pair: list[Array]) -> float:
        without, with_ = (int((one > at).sum()) for one in pair)
        return _least_epsilon((without, with_), len(pair[0]), delta)

    pilot = [scores(world, n // 4) for world in worlds]
    at = max(np.quantile(pilot[0], 1 - np.geomspace(1e-3, 0.5, 12)), key=lambda t: bound(t, pilot))
    return bound(float(at), [scores(world, n) for world in worlds])
