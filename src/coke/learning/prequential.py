"""A stream from rows as they come: predicted first, then learnt from; and how well that went."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coke.data.arrivals import LATE, Arrivals, Due, finite_rows
from coke.data.split import Index
from coke.data.tables import Labels
from coke.errors import DataError
from coke.learning.model import Model
from coke.learning.near import Arrived
from coke.learning.several import Several
from coke.learning.streaming import Stream
from coke.maths.arrays import Array

_GAP = 100  # ticks that a time without any row counts for at most


class Predicted(NamedTuple):
    """What a tick's rows were predicted as, before anybody saw their targets."""

    tick: int
    rows: int
    loss: float  # sum of squared errors, in the target's units; or how many classes are wrong
    last: float  # the same of each site's last target
    bytes: int  # sent so far, in the paper's account


class Prequential(tuple[Predicted, ...]):
    """Tick by tick."""

    __slots__ = ()

    def mean(self, key: str = "loss") -> float:
        """Of a row: squared error, or share of wrong classes; "last": of the last target."""
        rows = sum(one.rows for one in self)
        return sum(getattr(one, key) for one in self) / rows if rows else float("nan")

    def since(self, tick: int) -> Prequential:
        """From that tick on."""
        return Prequential(one for one in self if one.tick >= tick)

    def columns(self) -> dict[str, Array]:
        """Name ↦ values of all ticks, for a data frame."""
        return {name: np.array([getattr(one, name) for one in self]) for name in Predicted._fields}


class Feed:
    """Rows in their own units, whenever they come, into a stream."""

    def __init__(self, stream: Stream | Several, late: int = LATE):
        self.stream, self.arrivals = stream, Arrivals(stream.near.N, late)
        self.predicted: list[Predicted] = []
        self.alarms: list[int] = []  # in the rows' own ticks
        self._last: list[Any] = [None] * len(stream.theta)
        self._scores = stream.ready.model(np.zeros(stream.K * stream.D))

    def take(self, X: Array, y: Labels, site: Index, tick: Any = None) -> None:
        """Rows X (T, d), their targets, and of which site (T,) each is."""
        self._known(y[finite_rows(X, y)])
        for due in self.arrivals.due(X, y, site, tick):
            self._skip(due.tick)
            self._tick(due, X, y)

    def _known(self, y: Labels) -> None:
        """No class that was not there when the stream began."""
        classes = self._scores.classes
        strange = sorted(map(str, set(y.tolist()) - set(classes.tolist()))) if len(classes) else []
        if strange:
            raise DataError(
                f"classes {strange[:8]} were not among the stream's first rows: expected "
                f"{classes.tolist()[:8]}; begin a new stream with rows of all classes"
            )

    def _skip(self, tick: int) -> None:
        """Ticks that brought nothing to anybody."""
        before = self.predicted[-1].tick if self.predicted else tick - 1
        nothing = [Arrived(np.empty((0, self._d)), np.empty((0, self.stream.K)), np.empty(0))]
        for _ in range(min(tick - before - 1, _GAP)):
            self.stream.tick(nothing * len(self._last))

    @property
    def _d(self) -> int:
        return len(self._scores.columns)

    def _tick(self, due: Due, X: Array, y: Labels) -> None:
        """The rows of the sites here; on ranks every process counts what all of them paid."""
        agreed, known = self.stream.ready.agreement, len(self.stream.alarms)
        here, engine = self.stream.near.own.tolist(), self.stream.ready.engine
        mine = [due.rows[n] for n in here]
        rows = [
            Arrived(
                agreed.units.inputs(X[own]),
                np.asarray(agreed.making.targets(y[own])).reshape(len(own), self.stream.K),
                age,
            )
            for own, age in zip(mine, (due.age[n] for n in here), strict=True)
        ]
        found = self.stream.tick(rows)
        paid = np.zeros((len(here), 3))  # bytes so far, losses, and those of the last value
        paid[:, 0] = self.stream.spent[:, 1]
        for i, (own, f) in enumerate(zip(mine, found, strict=True)):
            for at, told in zip(own, f, strict=True):
                paid[i, 1] += self._paid(y[at], self._said(told[None]))
                paid[i, 2] += self._paid(y[at], self._last[i]) if self._last[i] is not None else 0.0
                self._last[i] = y[at]
        size, loss, last = engine.everyones(paid).sum(axis=0).tolist()
        n = sum(map(len, due.rows))
        self.predicted.append(Predicted(due.tick, n, loss, last, int(size)))
        self.alarms += [due.tick] * (len(self.stream.alarms) - known)

    def _said(self, f: Array) -> Any:
        """The target that a prediction (1, K) in the common units speaks for."""
        model = self._scores
        if len(model.classes):
            return model.labels(model.decided(f))[0]
        return model.scaling.predictions(f)[0]

    def _paid(self, y: Any, told: Any) -> float:
        if len(self._scores.classes):
            return float(y != told)
        return float(np.sum((np.ravel(y) - np.ravel(told)) ** 2))

    def model(self, site: int | None = None) -> Model:
        """The sites' mean; of a site its own, with its fast layer."""
        return self.stream.model(site)
