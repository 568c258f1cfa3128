"""Pictures of a run."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from coke.engines.history import History
from coke.errors import InputError
from coke.learning.model import Model
from coke.maths.graph import Graph
from coke.maths.losses import LOSSES
from coke.maths.sizes import sized

COLOURS = (  # colour-blind safe, the first eight (Okabe and Ito, Tol); as many as there are methods
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255",
    "#999933", "#AA4499", "#44AA99", "#661100", "#888888", "#332288", "#117733",
)  # fmt: skip
UNITS = {loss.metric: loss.unit for loss in LOSSES.values()}
FEW = 60  # agents that can be drawn with their names
DPI = 150  # sharp on a fine screen, where pages show pictures smaller than they are
HALF = 5.6  # inches: two of these stand side by side on a page, and their text can be read
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def png(figure: Figure) -> bytes:
    """The picture as bytes, without the version that would make two runs differ."""
    buffer = io.BytesIO()
    figure.set_dpi(DPI)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(buffer, metadata={"Software": None})  # as `savefig` does, which draws twice
    return buffer.getvalue()


def plot(*histories: History, x: str = "bytes") -> Figure:
    """The losses of one run or several against "bytes" or "round"; `.savefig(path)` keeps it.

    Of every site's model on all sites' rows; of agents, who do not know that, on their own rows.
    """
    if x not in ("bytes", "round"):
        raise InputError(f'x={x!r}: expected "bytes" or "round"')
    if not 1 <= len(histories) <= len(COLOURS) or len({h.labels.metric for h in histories}) > 1:
        raise InputError(
            f"{len(histories)} histories: expected one to {len(COLOURS)} of the same loss"
        )
    return loss_plot(histories, None, x)


def loss_plot(histories: Sequence[History], best: float | None, x: str) -> Figure:
    """Losses against `x`, "round" or "bytes", on log axes, beside the optimum if it is known."""
    metric, of = histories[0].labels.metric, _everywhere(histories)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(HALF, 4.2), layout="constrained")
        axes = figure.subplots()
        drawn, beyond = [] if best is None else [best], _beyond(histories[0], metric)
        for colour, history in zip(COLOURS, histories, strict=False):
            name, at = history.labels.algorithm, history[x]
            dot = "o" if np.count_nonzero(at > 0) < 2 else None  # a line needs two points
            for rows, style in (("train", "-"), *(("test", ":"),) * _differ(history, metric)):
                loss = history[f"{of}{rows}_{metric}"]
                seen = (at > 0) & (loss <= beyond)  # log axes have no zero
                if seen.any():
                    label = name if rows == "train" else f"{name}, held-out rows"
                    axes.plot(at[seen], loss[seen], style, color=colour, marker=dot, label=label)
                    drawn += [float(loss[seen].min())]
        if best is not None:
            axes.axhline(best, color="black", linewidth=1, ls="--", label="optimum")
        if len(axes.lines) > (best is not None):
            axes.set(xscale="log", yscale="log" if min(drawn) > 0 else "linear")
            plain_ticks(axes.xaxis, "{:,.0f}".format if x == "round" else lambda n: sized(int(n)))
            if min(drawn) > 0:
                plain_ticks(axes.yaxis, plainly)
        else:
            axes.text(0.5, 0.5, "nobody spoke", ha="center", transform=axes.transAxes)
        axes.set_ylabel(f"{UNITS[metric]}, {'all' if of else 'own'} training rows")
        axes.set_xlabel("round" if x == "round" else "bytes sent (a broadcast counts once)")
        axes.legend(fontsize=8)
    return figure


def _everywhere(histories: Sequence[History]) -> str:
    """The beginning of the names of columns that all of them know."""
    columns = [history[f"global_train_{history.labels.metric}"] for history in histories]
    return "global_" if all(np.isfinite(one).any() for one in columns) else ""


def _differ(history: History, metric: str) -> bool:
    """Whether losses on held-out rows are another line, by more than a twentieth at the end."""
    train, test = (float(history[f"global_{rows}_{metric}"][-1]) for rows in ("train", "test"))
    return math.isfinite(train) and abs(test - train) > 0.05 * abs(train)


def plainly(x: float) -> str:
    """A number without an exponent."""
    return f"{x:,.10f}".rstrip("0").rstrip(".") if abs(x) < 1e15 else f"{x:g}"


def plain_ticks(axis: Any, text: Callable[[float], str]) -> None:
    """Numbers as people write them, at 1, 2 and 5 where a log axis is short."""
    low, high = axis.get_view_interval()
    short = high < 1e3 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, place: text(value)))
    axis.set_minor_formatter(NullFormatter())


def _beyond(history: History, metric: str) -> float:
    """Where the line of another algorithm ends: one that diverges would leave room for no other."""
    losses = np.concatenate([history[f"global_{rows}_{metric}"] for rows in ("train", "test")])
    return 1e3 * float(np.nanmax(np.minimum(losses, 1e100), initial=0.0)) or np.inf


def speakers_plot(history: History) -> Figure:
    """Who spoke when, agent by agent, and the share of agents that spoke."""
    sites, rounds = [shortened(name, 16) for name in history.labels.sites], history["round"]
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(HALF, 4.2), layout="constrained")
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        extent = (rounds[0] - 0.5, rounds[-1] + 0.5, len(sites) - 0.5, -0.5)
        image = {"aspect": "auto", "interpolation": "nearest", "cmap": "Blues"}
        top.imshow(_binned(history.spoke).T, extent=extent, vmin=0, vmax=1.2, **image)
        step = -(-len(sites) // 25)
        top.set_yticks(range(0, len(sites), step), sites[::step], fontsize=8, parse_math=False)
        top.set(ylabel="agent", title=f"{history.labels.algorithm}: who spoke when (blue)")
        dot = "o" if len(rounds) < 2 else None
        share = _smooth(history.spoke.mean(axis=1))
        below.plot(rounds, share, color=COLOURS[0], linewidth=1, marker=dot)
        below.set(ylim=(0, 1.05), xlabel="round", ylabel="share\nspeaking")
    return figure


def _binned(spoke: NDArray[Any], most: int = 500) -> NDArray[Any]:
    """Averages of neighbouring rounds, not a pick of them, where a pixel holds several."""
    starts = np.unique(np.linspace(0, len(spoke), min(most, len(spoke)), endpoint=False, dtype=int))
    widths = np.diff([*starts, len(spoke)])
    return np.asarray(np.add.reduceat(spoke.astype(float), starts) / widths[:, None])


def shortened(name: str, most: int) -> str:
    """The beginning and the end of a long name: names often differ at the end."""
    if len(name) <= most:
        return name
    return f"{name[: most // 2]}…{name[-(most - most // 2 - 1) :]}"


def _smooth(x: NDArray[Any]) -> NDArray[Any]:
    """A running mean over a hundredth of the length."""
    window = np.ones(max(1, len(x) // 100))
    total = np.convolve(np.ones_like(x), window, mode="same")
    return np.asarray(np.convolve(x, window, mode="same") / total)


def network_plot(graph: Graph, history: History, errors: Sequence[float], unit: str) -> Figure:
    """The network; the darker a site, the larger the error of the common model there."""
    few, told = len(graph) <= FEW, np.array(errors)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(HALF, 4.2), layout="constrained")
        axes = figure.subplots()
        steps = min(50, 1 + 50_000 // len(graph))  # each takes N² work
        at = nx.circular_layout(graph) if few else nx.spring_layout(graph, iterations=steps, seed=0)
        thin = 1.0 if few else max(FEW / len(graph), 0.2)  # of many, lines would cover all
        nx.draw_networkx_edges(graph, at, ax=axes, edge_color="#bbbbbb", width=0.8 * thin)
        look = {"cmap": "Blues", "edgecolors": "#333333", "linewidths": 0.6 * thin}
        look |= {"vmin": 0.0, "vmax": float(np.nanmax(told, initial=0.0)) or 1.0}
        size = 160 if few else max(20.0 * thin, 8.0)
        nodes = nx.draw_networkx_nodes(graph, at, ax=axes, node_color=told, node_size=size, **look)
        for i, (a, b) in at.items() if few else ():
            # Names outside the circle, where they have room.
            side = "center" if abs(a) < 0.25 else "left" if a > 0 else "right"
            name = shortened(history.labels.sites[i], 14)
            text = axes.text(1.1 * a, 1.12 * b, name, ha=side, va="center", fontsize=8)
            text.set_parse_math(False)  # a name may hold a dollar sign
        figure.colorbar(nodes, ax=axes, label=unit, shrink=0.8)
        axes.set_axis_off()
        axes.margins(0.15)
        axes.set(title=f"{len(graph)} agents, {graph.number_of_edges()} edges", aspect="equal")
    return figure


def importance_plot(ranked: dict[str, float], most: int = 12) -> Figure:
    """The columns that matter most, and how much the others do together."""
    names, shares = [shortened(name, 24) for name in ranked], [100 * x for x in ranked.values()]
    if len(names) > most:
        names = [*names[:most], f"{len(shares) - most} others"]
        shares = [*shares[:most], sum(shares[most:])]
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure = Figure(figsize=(HALF, 1.2 + 0.3 * len(names)), layout="constrained")
        axes = figure.subplots()
        at = np.arange(len(names))
        grey = ["#bbbbbb"] * (len(names) - most)
        axes.barh(at, shares, color=[COLOURS[0]] * (len(names) - len(grey)) + grey, zorder=2)
        for y, share in enumerate(shares):
            axes.text(share, y, f" {share:.1f} %", va="center", fontsize=8)
        axes.set_yticks(at, names, fontsize=8, parse_math=False)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set(xlabel="importance, %")
    return figure


def curves_plot(model: Model, columns: Sequence[str]) -> Figure:
    """Partial dependence on some columns, all on one scale so that they can be compared."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(HALF, 2.4 * -(-len(columns) // 2)), layout="constrained")
        grid = figure.subplots(-(-len(columns) // 2), 2, sharey=True, squeeze=False)
        for axes, column in zip(grid.flat, columns, strict=False):
            x, f = model.partial_dependence(column)
            for i, y in enumerate(np.atleast_2d(f.T)):
                again, at = divmod(i, len(COLOURS))  # where colours come again
                axes.plot(x, y, color=COLOURS[at], ls=("-", "--", ":")[again % 3])
            axes.set_xlabel(shortened(column, 32), parse_math=False)
            axes.xaxis.set_major_locator(MaxNLocator(4))
        for axes in grid.flat[len(columns) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set(ylabel="decision" if len(model.classes) else "prediction")
        several = model.classes if len(model.classes) > 2 else model.targets
        if len(several) > 1:
            names = [shortened(str(label), 14) for label in several]
            figure.legend(grid[0, 0].lines, names, fontsize=8, loc="outside upper center", ncols=6)
    return figure


def coverage_plot(coverage: dict[str, float | None]) -> Figure:
    """What the 90 % intervals hold at each site."""
    names, few = [shortened(name, 24) for name in coverage], len(coverage) <= FEW
    shares = 100 * np.array([np.nan if share is None else share for share in coverage.values()])
    with mpl.rc_context(STYLE):
        height = 1.2 + 0.2 * min(len(names), FEW)
        figure = Figure(figsize=(HALF, height), layout="constrained")
        axes = figure.subplots()
        axes.axvline(90, color="black", linewidth=1, ls="--")
        axes.scatter(shares, np.arange(len(names)), color=COLOURS[0], s=30 if few else 8, zorder=3)
        step = 1 if few else -(-len(names) // 25)
        axes.set_yticks(range(0, len(names), step), names[::step], fontsize=8, parse_math=False)
        axes.set(xlabel="test rows inside, %", ylim=(len(names) - 0.5, -0.5))
        axes.set_xlim(min(80.0, float(np.nanmin(shares)) - 2), 100.5)
    return figure
