"""From a trained model to its verdict: on which rows, beside whom, in which figures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

import numpy as np

from coke.data.site import Kept
from coke.learning.fifths import fifths
from coke.learning.model import Model
from coke.learning.ready import Ready
from coke.learning.rivals import Rivals, rival, rivals
from coke.learning.tally import (
    HOME,
    LINEAR,
    POINTS,
    POOLED,
    TOGETHER,
    HeldOut,
    LeftOut,
    Seat,
    Shown,
    Tally,
    shown,
    tally,
)
from coke.learning.verdict import FIFTHS, HELD, LEFT, AtSite, Ended, Figure, Verdict
from coke.maths.arrays import Array
from coke.maths.losses import LOSSES

_CLEAR, _SURE = 0.01, 2.0  # a line wins by so much of the error, and so many standard errors


def assessed(ready: Ready, model: Model, ended: Ended, *, look: bool = False) -> Verdict | None:
    """Of a common model; None where there is no row to judge by. All processes ask together.

    With predictions to look at, which take one more walk over the rows.
    """
    how, seats = _seats(ready, model)
    if not seats:
        return None
    counted = reduce(Tally.plus, (tally(*seat) for seat in seats))
    verdict = _Counting(ready, seats[0].rivals, counted).verdict(how, ended)
    if not look or verdict.worst is None:
        return verdict
    whose = ready.names.index(verdict.worst[0])
    pictures = (shown(*seat, whose, POINTS // len(seats)) for seat in seats)
    return replace(verdict, shown=reduce(Shown.plus, pictures))


def _seats(ready: Ready, model: Model) -> tuple[str, list[Seat]]:
    """Held-out rows where there are some; else those of training, as far as they are at hand.

    How much a row of training leans on itself is known where sums say all and rows weigh the same.
    """
    test, loss = ready.problem.test, ready.agreement.terms.loss
    T = ready.engine.everyones(np.zeros(len(ready.sites.names)) if test is None else test.T)
    if T.any():
        return HELD, [Seat(ready, rivals(ready, model), HeldOut(ready))]
    if not isinstance(ready.sites, Kept) or ready.noised is not None:
        return LEFT, []
    alike = ready.sites.weights is None and ready.agreement.balance is None
    if not (loss.statistics and alike):
        return FIFTHS, list(fifths(ready, model))
    found = rivals(ready, model)
    assert found.line is not None  # without noise there is one
    return LEFT, [Seat(ready, found, LeftOut(ready, found.line))]


def assessed_here(ready: Ready, model: Model, ended: Ended) -> Verdict | None:
    """By a site in the field, which has its own held-out rows alone; None where it has none."""
    if ready.problem.test is None:
        return None
    found = rival(ready, model)
    whole = _Counting(ready, found, tally(ready, found, HeldOut(ready))).verdict(HELD, ended)
    return replace(whole, alone=None, worst=None, pooled=None, sites={})


class _Counting:
    """From sums to figures."""

    def __init__(self, ready: Ready, found: Rivals, counted: Tally):
        self._numbers, self._names = ready.agreement.terms.numbers, ready.names
        self._unit = ready.agreement.units.y_scale
        self._chances = LOSSES[found.model.loss].probabilities
        self._line, self._tally = found.line is not None, counted

    def verdict(self, how: str, ended: Ended) -> Verdict:
        """On such rows, of training that ended so."""
        t, rows = self._tally, self._tally.rows.sum(axis=0)
        errors, reached = t.errors.sum(axis=0), t.reached.sum(axis=0)
        alone = [self._figure(reached, one) for one in t.away.sum(axis=0)]
        everywhere = dict(zip(t.whose.tolist(), alone, strict=True))
        worst = min(everywhere, key=lambda i: _last(everywhere[i].score))
        together = self._figure(rows, errors[TOGETHER])
        return Verdict(
            numbers=self._numbers, rows=round(float(rows[0])), how=how, together=together,
            home=self._figure(rows, errors[HOME]), ended=ended,
            alone=Figure(*map(_mean, zip(*alone, strict=True))),
            worst=(self._names[worst], everywhere[worst]),
            pooled=self._figure(rows, errors[POOLED]),
            linear=self._figure(rows, errors[LINEAR]) if self._line else None,
            linear_wins=self._line and self._wins(rows, errors),
            sites=self._sites(everywhere, together),
        )  # fmt: skip

    def _sites(self, everywhere: dict[int, Figure], common: Figure) -> dict[str, AtSite]:
        found = {}
        for i, name in enumerate(self._names):
            rows, errors = self._tally.rows[i], self._tally.errors[i]
            home, together = (self._figure(rows, errors[m]) for m in (HOME, TOGETHER))
            alone = everywhere.get(i)
            gain = None if alone is None else _less(common.score, alone.score)
            found[name] = AtSite(alone, home, together, gain, _less(together.score, home.score))
        return found

    def _figure(self, rows: Array, errors: Array) -> Figure:
        """Of sums over the rows."""
        T = float(rows[0])
        if not T > 0:
            return Figure(None, None)
        if not self._numbers:
            surprise = float(errors[1]) / T if self._chances else None
            return Figure(1.0 - float(errors[0]) / T, surprise)
        mean, square = np.split(rows[1:] / T, 2)
        spread = square - mean**2
        told = T > 1 and bool((spread > 1e-12 * square).all())  # else all targets are the same
        score = float(np.mean(1.0 - errors / T / spread)) if told else None
        root = math.sqrt(float(errors[0]) / T) * float(self._unit[0])
        return Figure(score, root if len(errors) == 1 else None)

    def _wins(self, rows: Array, errors: Array) -> bool:
        """Whether the line's errors are less, by more than chance and enough to matter."""
        T, (ahead, squares) = float(rows[0]), self._tally.ahead.sum(axis=0)
        mean, ours = ahead / T, errors[TOGETHER] if self._numbers else errors[TOGETHER, :1]
        least = _SURE * math.sqrt(max(squares / T - mean**2, 0.0) / T)
        return bool(mean > max(least, _CLEAR * float(np.mean(ours)) / T))


def _last(score: float | None) -> float:
    return math.inf if score is None else score


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _mean(column: Iterable[float | None]) -> float | None:
    known = [x for x in column if x is not None]
    return float(np.mean(known)) if known else None
