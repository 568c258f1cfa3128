"""How far a model misses each of several targets."""

from __future__ import annotations

import numpy as np

from coke.learning.ready import Ready
from coke.maths.arrays import Array
from coke.maths.losses.problem import Quadratic


def by_target(ready: Ready, theta: Array) -> dict[str, dict[str, float]]:
    """Errors of each target by its name, of θ (K·D,) on all rows here.

    Mean squared errors are in the common units, as all losses are, their roots in the target's own.
    """
    found = dict[str, Array]()
    for name, risk in (("train", ready.problem.train), ("test", ready.problem.test)):
        if risk is not None and risk.sums is not None:
            found[f"{name}_mse"] = mse = np.maximum(_losses(risk.sums, theta), 0.0)
            found[f"{name}_rmse"] = np.sqrt(mse) * ready.agreement.units.y_scale
    return {
        target: {key: float(values[k]) for key, values in found.items()}
        for k, target in enumerate(ready.agreement.terms.targets)
    }


def _losses(sums: Quadratic, theta: Array) -> Array:
    """Mean loss (K,) of each output of one θ (K·D,) on the rows of all agents together."""
    assert sums.squares is not None  # whoever made these sums from rows has them
    weights, D = sums.T / sums.T.sum(), sums.A.shape[-1]
    pooled, each = sums.total(weights), theta.reshape(-1, D)
    curved = np.vecdot(each, each @ pooled.A[0])
    return curved - 2.0 * np.vecdot(each, pooled.b.reshape(-1, D)) + weights @ sums.squares
