"""Pictures of a run, and one self-contained HTML page around them."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.figure import Figure

from coke.maths.graph import Graph
from coke.run.history import History

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # safe for colour-blind
UNITS = {"mse": "mean squared error", "logistic": "mean logistic loss", "hinge": "mean hinge loss"}
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
         "grid.alpha": 0.25, "legend.frameon": False, "savefig.dpi": 130}  # fmt: skip

CSS = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } figure { margin: 1rem 0; } img { max-width: 100%; }
figcaption, p.note { color: #555; font-size: .9rem; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .85rem; }
"""


def loss_plot(histories: Sequence[History], best: float, x: str) -> Figure:
    """Global training loss against `x`, "round" or "transmissions", on log axes, beside the optimum."""
    metric = histories[0].labels.metric
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.subplots()
        for colour, history in zip(COLOURS, histories, strict=False):
            sent = history[x] > 0
            name = history.labels.algorithm
            axes.plot(history[x][sent], history[f"global_train_{metric}"][sent], color=colour,
                      label=f"{name}, training rows")  # fmt: skip
            test = history[f"global_test_{metric}"][sent]
            if np.isfinite(test).any():
                axes.plot(history[x][sent], test, color=colour, linestyle=":", linewidth=1.2,
                          label=f"{name}, test rows")  # fmt: skip
        axes.axhline(best, color="black", linewidth=1, linestyle="--", label="centralised optimum, training rows")
        axes.set(xscale="log", yscale="log", ylabel=f"{UNITS[metric]}, all sites' rows",
                 xlabel="round" if x == "round" else "transmissions (broadcasts of θ)")  # fmt: skip
        axes.legend(fontsize=8)
    return figure


def raster_plot(history: History) -> Figure:
    """Who spoke when: a mark per transmission, and the share of agents that spoke."""
    spoke, sites = history.spoke, history.labels.sites
    rounds = history["round"]
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(7, 4.6), layout="constrained")
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        extent = (rounds[0] - 0.5, rounds[-1] + 0.5, len(sites) - 0.5, -0.5)
        top.imshow(spoke.T, aspect="auto", interpolation="nearest", cmap="Blues", extent=extent, vmin=0, vmax=1.2)
        step = -(-len(sites) // 25)
        top.set_yticks(range(0, len(sites), step), sites[::step], fontsize=8)
        top.set(ylabel="agent", title=f"{history.labels.algorithm}: who spoke when (blue)")
        window = max(1, len(rounds) // 100)
        share = np.convolve(spoke.mean(axis=1), np.ones(window) / window, mode="same")
        edge = np.convolve(np.ones(len(rounds)), np.ones(window) / window, mode="same")
        below.plot(rounds, share / edge, color=COLOURS[0], linewidth=1)
        below.set(ylim=(0, 1.05), xlabel="round", ylabel="share speaking")
    return figure


def graph_plot(graph: Graph, history: History) -> Figure:
    """The network; darker agents spoke more."""
    sent = history.spoke.sum(axis=0)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 4.6), layout="constrained")
        axes = figure.subplots()
        places = nx.circular_layout(graph) if len(graph) <= 60 else nx.spring_layout(graph, seed=0)
        nx.draw_networkx_edges(graph, places, ax=axes, edge_color="#bbbbbb", width=0.8)
        drawn = nx.draw_networkx_nodes(graph, places, ax=axes, node_color=sent, cmap="Blues", vmin=0,
                                       node_size=320 if len(graph) <= 60 else 20, edgecolors="#333333", linewidths=0.6)  # fmt: skip
        if len(graph) <= 60:
            dark = 0.6 * max(1, sent.max())
            for i, (a, b) in places.items():
                colour = "white" if sent[i] > dark else "black"
                axes.text(a, b, history.labels.sites[i][:6], ha="center", va="center", fontsize=7, color=colour)
        figure.colorbar(drawn, ax=axes, label="transmissions", shrink=0.8)
        axes.set_axis_off()
        axes.set_title(f"{len(graph)} agents, {graph.number_of_edges()} edges")
    return figure


def figures(histories: Sequence[History], graph: Graph, best: float) -> dict[str, tuple[Figure, str]]:
    """All pictures of a run by file name, with captions; the first history is the run's own."""
    own = histories[0]
    return {
        "loss-rounds": (loss_plot(histories, best, "round"), "Loss of the agents' models on everybody's rows, averaged over agents, against rounds."),
        "loss-transmissions": (loss_plot(histories, best, "transmissions"), "The same against what was sent: a broadcast to all neighbours counts once."),
        "speakers": (raster_plot(own), "Who spoke when. An agent is silent while its θ has moved less than the threshold since it last spoke."),
        "network": (graph_plot(graph, own), "The network, and how often each agent spoke."),
    }  # fmt: skip


def png(figure: Figure) -> bytes:
    """The picture as bytes, without the date and version that would make two runs differ."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def html_report(
    rows: Sequence[dict[str, Any]], pictures: dict[str, tuple[bytes, str]], config: str
) -> str:
    """One page that needs no other file: table, pictures, settings."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{html.escape(key.replace('_', ' '))}</th>" for key in keys)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(shown(row.get(key)))}</td>" for key in keys) + "</tr>"
        for row in rows
    )
    images = "\n".join(
        f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,'
        f'{base64.b64encode(data).decode()}"><figcaption>{html.escape(caption)}</figcaption></figure>'
        for data, caption in pictures.values()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>coke run</title><style>{CSS}</style></head><body>
<h1>coke: {html.escape(shown(rows[0]["algorithm"]))} on {html.escape(shown(rows[0]["agents"]))} sites</h1>
<h2>What came out, and what it cost</h2>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table></div>
<p class="note">train and test: every agent's model on its own rows, as the paper scores. global: every
agent's model on everybody's rows. local-only never communicates; one-shot-average averages the local
models once; optimum has all rows in one place. bytes: the paper's account, a broadcast once, silence
free. wire bytes: a copy per neighbour, headers, and silent words.</p>
<h2>Pictures</h2>
{images}
<h2>Settings</h2>
<pre>{html.escape(config)}</pre>
</body></html>
"""


def shown(value: Any) -> str:
    """A number as people read it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)
