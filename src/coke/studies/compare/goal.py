"""What a method had spent when it reached a goal, and stayed there.

The goal is a factor over the centralised optimum: of the global training MSE (every agent's model
on everybody's rows) or, for class labels, of the objective. A method has *settled* from the round
on after which it never leaves the goal again within its horizon; the round that first meets it is
noted beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from coke.errors import ConvergenceError, InputError
from coke.learning.ready import Ready
from coke.learning.verdict import KEYS
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.maths.sizes import sized
from coke.studies.compare.held import Held

CLEAR = 0.01  # of R² or accuracy, for which it is worth to take another model


class Trace(NamedTuple):
    """After a round: what the goal is about, the ledger, and θ (N, D) in the plain features."""

    k: int
    value: float
    ledger: Ledger
    theta: Callable[[], Array]


class Row(NamedTuple):
    """What a method had spent when it settled, at its horizon if it did not, or when it failed.

    One with another kind of model has nothing of the goal, only what it spent and its score.
    """

    method: str
    reached: bool | None  # None: another kind of model, whose loss the optimum says nothing of
    rounds: int
    first_hit: int | None
    transmissions: int
    bytes: int
    wire_bytes: int
    agreement_bytes: int
    train: float  # global losses, by the metric
    test: float | None
    value: float  # what the goal is about
    curve: tuple[tuple[int, float], ...]  # wire bytes and value, round by round
    failed: str | None = None  # why it diverged or could not run
    score: float | None = None  # R² or accuracy on the rows held out; None where there are none

    @classmethod
    def of_failure(cls, method: str, why: str) -> Row:
        """Of a method that did not come as far as a round."""
        return cls(method, False, 0, None, 0, 0, 0, 0, nan, None, nan, (), why)

    @classmethod
    def of_another(cls, method: str, spent: Ledger, score: float | None) -> Row:
        """Of a method with another kind of model, made at once."""
        return cls(method, None, 1, None, *spent, 0, nan, None, nan, (), None, score)

    def document(self, goal: Goal) -> dict[str, Any]:
        """The documented keys."""
        plain = self._asdict()
        losses = {"train": plain.pop("train"), "test": plain.pop("test")}
        value, _ = plain.pop("value"), plain.pop("curve")
        named = {f"global_{key}_{goal.metric}": loss for key, loss in losses.items()}
        return plain | named | ({} if goal.by_loss else {"objective": value})


class Goal:
    """A wanted accuracy on one problem."""

    def __init__(self, ready: Ready, factor: float):
        if not factor > 1:
            raise InputError(f"goal={factor}: expected a factor above 1, such as 1.01")
        problem, self.factor = ready.problem, factor
        self.problem, self.metric, self.held = problem, problem.train.metric, Held(ready)
        self.measure = KEYS[ready.agreement.terms.numbers][0]
        # Where sums over the rows say all, the loss on everybody's rows is free in every round.
        self.by_loss = problem.train.sums is not None
        self.optimum = self.value(ready.optimum[None])
        self.wanted = factor * self.optimum

    def value(self, theta: Array) -> float:
        """The mean over agents' models (N, D) of what is to come near its optimum."""
        risk = self.problem.train
        values = risk.global_losses if self.by_loss else risk.objectives
        with np.errstate(over="ignore", invalid="ignore"):  # of a method that diverges
            return float(values(theta).mean())

    def settle(self, method: str, traces: Iterable[Trace], agreed: int = 0) -> Row:
        """The row of a method; one that diverges cost what it had spent by then."""
        first: int | None = None
        settled: Trace | None = None
        last: Trace | None = None
        curve, failed = [], None
        try:
            for last in traces:
                curve.append((last.ledger.wire_bytes, last.value))
                if last.value <= self.wanted:
                    first = last.k if first is None else first
                    settled = last if settled is None else settled
                else:
                    settled = None
        except ConvergenceError as error:
            settled, failed = None, str(error)
        if last is None:
            return Row.of_failure(method, failed or "it made no round")
        if failed is None and not isfinite(last.value):
            failed = f"round {last.k}: its numbers are no longer finite"
        end = settled or last
        return self._row(method, end, first, agreed)._replace(
            reached=settled is not None, curve=tuple(curve), failed=failed
        )

    def _row(self, method: str, end: Trace, first: int | None, agreed: int) -> Row:
        with np.errstate(over="ignore", invalid="ignore"):
            score, held = self.problem.score(end.theta()), self.held.theta(end.theta())
        test = None if np.isnan(score.global_test) else score.global_test
        sent, by_bytes, by_wire = end.ledger
        return Row(
            method, False, end.k, first, sent, by_bytes, by_wire, agreed,
            score.global_train, test, end.value, (), None, held,
        )  # fmt: skip


def advice(rows: Sequence[Row], measure: str, *, broadcast: bool = False) -> str:
    """Which method to take, by bytes on such links; and which other model predicts better."""
    better = _better(rows, measure)
    return _cheapest(rows, broadcast=broadcast) + (f" {better}" if better else "")


def _cheapest(rows: Sequence[Row], *, broadcast: bool) -> str:
    def spent(row: Row) -> int:
        return row.bytes if broadcast else row.wire_bytes

    useful = [row for row in rows if row.reached and row.method != "coke-tuned"]
    if not useful:
        return "No method reached the goal: ask for less, or use more features or a smaller λ."
    best = min(useful, key=spent)
    if best.method in ("local-only", "one-shot-average"):
        return f"Take {best.method}: on these data that is accurate enough, and nothing is cheaper."
    needs = best.method.startswith("tree") and best.method != "tree-newton"  # which hands over
    trees = ", if a spanning tree and a root are fine" if needs else ""
    where = "by broadcasts" if broadcast else "on the wire"
    said = f"Take {best.method}{trees}: {sized(spent(best))} {where}"
    ours = [row for row in useful if row.method == "coke" and row is not best]
    return said + (f", coke {sized(spent(ours[0]))}." if ours else ".")


def _better(rows: Sequence[Row], measure: str) -> str:
    """The other models that predict the rows held out clearly better than ours, and their price."""
    ours = next((row.score for row in rows if row.method == "coke"), None)
    if ours is None:
        return ""
    others = [row for row in rows if row.reached is None and row.score is not None]
    said = [
        f"{row.method} {row.score:.3f} for {sized(row.wire_bytes)}"
        for row in others
        if row.score is not None and row.score > ours + CLEAR
    ]
    name = {"r2": "R²"}.get(measure, measure)
    start = f"On rows held out another model predicts better than coke ({name} {ours:.3f})"
    return f"{start}: {', '.join(said)}." if said else ""
