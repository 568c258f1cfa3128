"""How well a site on a stream predicts: every row before it is learnt from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coke.field.ticking import Foreseen
from coke.maths.arrays import Array


@dataclass
class Foresight:
    """Of all ticks so far, beside the last value."""

    cost: Callable[[Any, Array], float]  # target and prediction ↦ squared error, or wrong class
    missed: Callable[[Any, Any], float]  # the same of a target
    paid: tuple[int, float, float] = (0, 0.0, 0.0)  # rows, losses, those of the last value
    last: Any = None  # target

    def add(self, seen: Foreseen) -> None:
        """The rows of a tick."""
        rows, loss, last = self.paid
        for y, f in zip(seen.y, seen.found, strict=True):
            loss += self.cost(y, f)
            last += 0.0 if self.last is None else self.missed(y, self.last)
            rows, self.last = rows + 1, y
        self.paid = rows, loss, last

    @property
    def mean(self) -> float:
        """Of a row."""
        return self.paid[1] / max(self.paid[0], 1)

    def summary(self) -> dict[str, Any]:
        """For people and machines."""
        return dict(zip(("rows", "loss", "last"), self.paid, strict=True))
