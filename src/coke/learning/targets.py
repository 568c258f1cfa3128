"""How far a model misses each of several targets."""

from __future__ import annotations

import numpy as np

from coke.learning.ready import Ready
from coke.maths.arrays import Array


def by_target(ready: Ready, theta: Array) -> dict[str, dict[str, float]] | None:
    """Errors of each of several targets by its name, of θ (K·D,) on all rows here; of one, None.

    Mean squared errors are in the common units, as all losses are, their roots in the target's own.
    """
    terms, found = ready.agreement.terms, dict[str, Array]()
    if len(terms.targets) == 1:
        return None
    for name, risk in (("train", ready.problem.train), ("test", ready.problem.test)):
        if risk is not None and risk.sums is not None:
            found[f"{name}_mse"] = mse = np.maximum(risk.sums.by_output(theta), 0.0)
            found[f"{name}_rmse"] = np.sqrt(mse) * ready.agreement.units.y_scale
    return {
        target: {key: float(values[k]) for key, values in found.items()}
        for k, target in enumerate(terms.targets)
    }
