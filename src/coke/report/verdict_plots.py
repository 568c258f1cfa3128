"""Pictures of a verdict: who gains by joining, and what predictions are beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import MaxNLocator

from coke.learning.tally import Shown
from coke.learning.verdict import AtSite, Verdict
from coke.maths.arrays import Array
from coke.report.plots import COLOURS, FEW, HALF, STYLE, shortened

_LEAST = 0.04  # of the scores that a picture spans
_CLASSES = 20  # whose numbers can be read in a picture


def gain_plot(verdict: Verdict) -> Picture:
    """Every site's own model and the common one on all sites' rows, and on its own."""
    names = [shortened(name, 22) for name in verdict.sites]
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        height = 1.5 + 0.22 * min(len(names), FEW)
        figure = Picture(figsize=(HALF, height), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        sites = list(verdict.sites.values())
        common = np.full(len(sites), _score(verdict.together.score))
        _arrows(left, [_score(at.alone and at.alone.score) for at in sites], common)
        _arrows(right, [_score(at.home.score) for at in sites], _together(sites))
        step = 1 if len(names) <= FEW else -(-len(names) // 25)
        left.set_yticks(range(0, len(names), step), names[::step], fontsize=8, parse_math=False)
        left.set(title="on all sites' rows", ylim=(len(names) - 0.5, -0.5))
        right.set(title="on its own rows")
        for axes in (left, right):
            axes.set_xlabel("R²" if verdict.numbers else "accuracy")
            axes.set_xlim(_wide(*axes.get_xlim()))
            axes.xaxis.set_major_locator(MaxNLocator(4))
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _wide(low: float, high: float) -> tuple[float, float]:
    """At least so wide that a gain nobody would notice looks like one."""
    more = max(_LEAST - (high - low), 0.0) / 2
    return low - more, high + more


def _score(score: float | None) -> float:
    return np.nan if score is None else max(score, -1.0)  # below it there is nothing to tell apart


def _together(sites: Sequence[AtSite]) -> Array:
    return np.array([_score(at.together.score) for at in sites])


def _arrows(axes: Any, own: Sequence[float], common: Array) -> None:
    at = np.arange(len(own))
    axes.hlines(at, own, common, color="#bbbbbb", lw=2, zorder=1)
    axes.scatter(own, at, color=COLOURS[1], s=26, zorder=3, label="a site's own model")
    axes.scatter(common, at, color=COLOURS[0], s=26, zorder=3, label="the common model")


def predictions_plot(verdict: Verdict, shown: Shown, classes: Sequence[Any]) -> Picture:
    """Predicted against true: of one site's own model, and of all together."""
    alone, worst = f"{shortened(shown.whose, 22)} alone", verdict.worst
    titles = [f"{alone}: {worst[1] if worst else '–'}", f"all together: {verdict.together}"]
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = Picture(figsize=(9, 4.4), layout="constrained")
        both = figure.subplots(1, 2, sharey=True)
        for axes, m, title in zip(both, (1, 0), titles, strict=True):
            if shown.confusion is not None:
                _confusion(axes, shown.confusion[m], classes)
            elif shown.points is not None:
                _points(axes, shown.points[:, 0], shown.points[:, 1 + m], shown.points)
            axes.set_title(title, parse_math=False)
        both[0].set_ylabel("predicted" if shown.confusion is None else "true class")
    return figure


def _confusion(axes: Any, counts: Array, classes: Sequence[Any]) -> None:
    """Shares of each true class; numbers of rows where they can be read."""
    shares, C = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0), len(counts)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.15)
    step = -(-C // _CLASSES)
    names = [shortened(str(label), 10) for label in classes][::step]
    turned = 45 if max(map(len, names)) > 3 else 0
    axes.set_xticks(range(0, C, step), names, fontsize=8, parse_math=False, rotation=turned)
    axes.set_yticks(range(0, C, step), names, fontsize=8, parse_math=False)
    axes.set_xlabel("taken for")
    for (i, j), n in np.ndenumerate(counts if step == 1 else np.empty((0, 0))):
        if round(n):
            ink = "white" if shares[i, j] > 0.6 else "black"
            axes.text(j, i, f"{n:.0f}", ha="center", va="center", fontsize=7, color=ink)


def _points(axes: Any, true: Array, predicted: Array, every: Array) -> None:
    """On the line a prediction is right."""
    low, high = (float(x) for x in np.percentile(every, [0.2, 99.8]))
    if not high > low:
        low, high = low - 1.0, high + 1.0  # one target, predicted exactly
    axes.scatter(true, predicted, s=8, color=COLOURS[0], alpha=0.35, linewidths=0)
    axes.plot([low, high], [low, high], color="black", linewidth=1, ls="--")
    axes.set(xlim=(low, high), ylim=(low, high), xlabel="true")
    axes.xaxis.set_major_locator(MaxNLocator(4))  # numbers may be long
