"""The picture of a comparison: one colour a method, the same in every picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from coke.maths.sizes import sized
from coke.report.plots import COLOURS, STYLE, plain_ticks, plainly
from coke.studies.compare.compare import METHODS
from coke.studies.compare.goal import Goal, Row

OF = dict(zip(METHODS, COLOURS, strict=True))
MARKS = "os^Dv"  # beside colours, for those who see fewer
HOLLOW = "filled: settled at the goal; hollow: at its last round, or where it failed"
MEASURES = {"r2": "R²", "accuracy": "accuracy"}


def cost_plot(rows: Sequence[Row], goal: Goal) -> Figure:
    """What bytes on the wire buy: nearness to the optimum, and the score on rows held out.

    A method that failed before its first round has no mark; one with another kind of model has
    none on the left, where the optimum is not its own.
    """
    scored = [row for row in rows if row.score is not None]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11 if scored else 8, 4.8), layout="constrained")
        left, *right = figure.subplots(1, 2 if scored else 1, squeeze=False)[0]
        _above_optimum(left, rows, goal)
        if scored:
            _on_held_rows(right[0], scored, goal)
        shown = [row for row in rows if row.curve or row.score is not None]
        if shown:
            keys = [_key(row) for row in shown]
            figure.legend(handles=keys, fontsize=8, loc="outside right center")
    return figure


def _key(row: Row) -> Line2D:
    """A method's mark in the legend, where none is hollow."""
    look: dict[str, Any] = {"marker": _mark(row), "color": OF[row.method], "ls": "none"}
    return Line2D([], [], label=row.method, **look)


def _mark(row: Row) -> str:
    return MARKS[METHODS.index(row.method) % len(MARKS)]


def _above_optimum(axes: Any, rows: Sequence[Row], goal: Goal) -> None:
    ends, least = _ends(rows, goal), _least(rows)
    for row in rows:
        if not row.curve:
            continue
        spent, value = (np.array(column) for column in zip(*row.curve, strict=True))
        above = _above(np.append(value, row.value), goal, ends)
        worst = np.maximum.accumulate(above[-2::-1])[::-1]  # that was still to come
        upto = spent <= 3 * max(row.wire_bytes, 1)
        colour = OF[row.method]
        axes.plot(np.maximum(spent, least)[upto], worst[upto], color=colour, lw=1.2, alpha=0.7)
        axes.scatter(max(row.wire_bytes, least), above[-1], **_look(row, filled=bool(row.reached)))
    axes.axhline(_above(goal.wanted, goal, ends), color="#888888", lw=0.8, ls="--")
    axes.set(yscale="log")
    axes.set_ylabel(f"{'training MSE' if goal.by_loss else 'objective'} above optimum")
    axes.set_title(HOLLOW, fontsize=8)
    plain_ticks(axes.yaxis, plainly)
    _bytes(axes, least)


def _on_held_rows(axes: Any, rows: Sequence[Row], goal: Goal) -> None:
    least = _least(rows)
    for row in rows:
        look = _look(row, filled=row.failed is None)
        axes.scatter(max(row.wire_bytes, least), max(row.score or 0.0, 0.0), **look)
    axes.set_ylabel(f"{MEASURES[goal.measure]} on rows held out")
    axes.set_title("all models, other kinds too; hollow: it failed", fontsize=8)
    _bytes(axes, least)


def _bytes(axes: Any, least: float) -> None:
    """A log axis that has room for nothing at its left end."""
    axes.set(xscale="log", xlabel="bytes on the wire (far left: nothing)")
    axes.set_xlim(left=least / 2)
    plain_ticks(axes.xaxis, lambda n: sized(int(n)))
    axes.tick_params(labelsize=8)


def _least(rows: Sequence[Row]) -> float:
    """Where those are drawn who send nothing."""
    return min((row.wire_bytes for row in rows if row.wire_bytes), default=1000) / 5


def _look(row: Row, *, filled: bool) -> dict[str, Any]:
    colour = OF[row.method]
    return {
        "marker": _mark(row), "s": 45, "zorder": 3,
        "edgecolors": colour, "facecolors": colour if filled else "white"
    }  # fmt: skip


def _ends(rows: Sequence[Row], goal: Goal) -> tuple[float, float]:
    """Below the first there is little to see; above the second only what diverges."""
    unit = goal.optimum or 1.0
    begun = [row.curve[0][1] / unit for row in rows if row.curve and row.failed is None]
    return 1e-3 * ((goal.wanted - goal.optimum) / unit or 1.0), 10.0 * max(begun, default=100.0)


def _above(value: Any, goal: Goal, ends: tuple[float, float]) -> Any:
    """How far above the optimum, as a share of it, within those ends."""
    unit = goal.optimum or 1.0
    return np.clip(np.nan_to_num(value / unit, nan=np.inf) - goal.optimum / unit, *ends)
