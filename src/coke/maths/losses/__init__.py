"""Losses and the local risks they make."""

from __future__ import annotations

from typing import Any, NamedTuple


class Loss(NamedTuple):
    """A loss."""

    kind: str
    metric: str
    kappa: float
    statistics: bool = False

    def risk(self, phi: Any, X: Any, y: Any, G: float, *, classes: Any, room: Any) -> Any:
        """Temporary."""
        import numpy as np

        from coke.maths.arrays import mapped
        from coke.maths.losses.margin import Margin, OneVsRest
        from coke.maths.losses.quadratic import Quadratic

        if self.statistics:
            return Quadratic.from_rows(phi, X, y, G)
        features = mapped(phi, X, phi(np.zeros((1, X[0].shape[1]))).shape[1], room)
        wanted = classes[1:] if len(classes) == 2 else classes
        signs = (tuple(np.where(yi == c, 1.0, -1.0) for yi in y) for c in wanted)
        parts = tuple(Margin(features, sign, G, self.metric, room) for sign in signs)
        return parts[0] if len(parts) == 1 else OneVsRest(parts)


LOSSES = {
    "quadratic": Loss("numbers", "mse", 2.0, True),
    "logistic": Loss("classes", "logistic", 0.25),
    "hinge": Loss("classes", "hinge", 0.25),
}
