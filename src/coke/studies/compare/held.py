"""How well any model predicts the rows that no model was trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coke.data.tables import Labels
from coke.learning.ready import Ready
from coke.learning.tally import HeldOut
from coke.maths.arrays import Array

FEW = 10  # sites whose models are scored, of those that differ

Predict = Callable[[Any], Labels]


class Held:
    """The rows that the sites hold out."""

    def __init__(self, ready: Ready):
        self._ready, self._numbers = ready, ready.agreement.terms.numbers

    def theta(self, theta: Array) -> float | None:
        """The mean of the sites' models (N, D) in the plain features, or of some of many."""
        if not np.isfinite(theta).all():
            return None
        some = theta[np.unique(np.linspace(0, len(theta) - 1, FEW).astype(np.int64))]
        differ = some[:1] if (some == some[0]).all() else some
        found = [self.score(self._ready.model(one).predicted) for one in differ]
        known = [one for one in found if one is not None]
        return float(np.mean(known)) if known else None

    def score(self, predict: Predict) -> float | None:
        """R², of several targets the mean, or the share of right labels; of none None."""
        from sklearn.metrics import accuracy_score, r2_score  # here: it takes a while to load

        rows = [(y, predict(X)) for _, X, y, _ in HeldOut(self._ready).rows()]
        if sum(len(y) for y, _ in rows) < 2:
            return None
        y, f = (np.concatenate(part) for part in zip(*rows, strict=True))
        return float(r2_score(y, f) if self._numbers else accuracy_score(y, f))
