"""Pictures of a run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from coke.maths.graph import Graph
from coke.run.history import History

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # colour-blind safe
UNITS = {"mse": "mean squared error", "logistic": "mean logistic loss", "hinge": "mean hinge loss"}
FEW = 60  # agents that can be drawn with their names
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.dpi": 130,
}


def png(figure: Figure) -> bytes:
    """The picture as bytes, without the version that would make two runs differ."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def loss_plot(histories: Sequence[History], best: float, x: str) -> Figure:
    """Global losses against `x`, "round" or "transmissions", on log axes, beside the optimum."""
    metric = histories[0].labels.metric
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 4.4), layout="constrained")
        axes = figure.subplots()
        for colour, history in zip(COLOURS, histories, strict=False):
            name, sent = history.labels.algorithm, history[x] > 0  # log axes have no zero
            at, train = history[x][sent], history[f"global_train_{metric}"][sent]
            axes.plot(at, train, color=colour, label=f"{name}, training rows")
            test = history[f"global_test_{metric}"][sent]
            if np.isfinite(test).any():
                axes.plot(at, test, ":", color=colour, linewidth=1.2, label=f"{name}, test rows")
        axes.axhline(
            best, color="black", linewidth=1, linestyle="--", label="optimum, training rows"
        )
        axes.set(xscale="log", yscale="log", ylabel=f"{UNITS[metric]}, all sites' rows")
        axes.set_xlabel("round" if x == "round" else "transmissions (broadcasts of θ)")
        axes.legend(fontsize=8)
    return figure


def speakers_plot(history: History) -> Figure:
    """Who spoke when, agent by agent, and the share of agents that spoke."""
    sites, rounds = history.labels.sites, history["round"]
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(7, 4.6), layout="constrained")
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        extent = (rounds[0] - 0.5, rounds[-1] + 0.5, len(sites) - 0.5, -0.5)
        # Averages of neighbouring rounds, not a pick of them, where a pixel holds several.
        image = {"aspect": "auto", "interpolation": "antialiased", "cmap": "Blues"}
        top.imshow(history.spoke.T.astype(float), extent=extent, vmin=0, vmax=1.2, **image)
        step = -(-len(sites) // 25)
        top.set_yticks(range(0, len(sites), step), sites[::step], fontsize=8)
        top.set(ylabel="agent", title=f"{history.labels.algorithm}: who spoke when (blue)")
        below.plot(rounds, _smooth(history.spoke.mean(axis=1)), color=COLOURS[0], linewidth=1)
        below.set(ylim=(0, 1.05), xlabel="round", ylabel="share speaking")
    return figure


def _smooth(x: NDArray[Any]) -> NDArray[Any]:
    """A running mean over a hundredth of the length."""
    window = np.ones(max(1, len(x) // 100))
    total = np.convolve(np.ones_like(x), window, mode="same")
    return np.asarray(np.convolve(x, window, mode="same") / total)


def network_plot(graph: Graph, history: History) -> Figure:
    """The network; darker agents spoke more."""
    sent, few = history.spoke.sum(axis=0), len(graph) <= FEW
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 4.6), layout="constrained")
        axes = figure.subplots()
        at = nx.circular_layout(graph) if few else nx.spring_layout(graph, seed=0)
        nx.draw_networkx_edges(graph, at, ax=axes, edge_color="#bbbbbb", width=0.8)
        look = {"cmap": "Blues", "vmin": 0, "edgecolors": "#333333", "linewidths": 0.6}
        size = 380 if few else 20
        nodes = nx.draw_networkx_nodes(graph, at, ax=axes, node_color=sent, node_size=size, **look)
        for i, (a, b) in at.items() if few else ():
            colour = "white" if sent[i] > 0.6 * max(1, sent.max()) else "black"
            name = history.labels.sites[i][:6]
            axes.text(a, b, name, ha="center", va="center", fontsize=7, color=colour)
        figure.colorbar(nodes, ax=axes, label="transmissions", shrink=0.8)
        axes.set_axis_off()
        axes.set(title=f"{len(graph)} agents, {graph.number_of_edges()} edges", aspect="equal")
    return figure
