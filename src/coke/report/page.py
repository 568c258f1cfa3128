"""One self-contained HTML page about a run: table, pictures, settings."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from coke.engines.history import History
from coke.learning.model import Model
from coke.learning.train import Trained
from coke.learning.verdict import AtSite, Verdict
from coke.maths.graph import Graph
from coke.report.plots import (
    coverage_plot,
    curves_plot,
    importance_plot,
    loss_plot,
    network_plot,
    png,
    speakers_plot,
)
from coke.report.shell import figures, folded, image, note, page, section
from coke.report.tables import Row, html_table
from coke.report.verdict import sites_html, verdict_html
from coke.report.verdict_plots import gain_plot, predictions_plot

CAPTIONS = {
    "loss-bytes": "Loss of the agents' models on everybody's rows, averaged over agents, against "
    "bytes sent, agreement included; a broadcast counts once.",
    "loss-rounds": "The same against rounds.",
    "speakers": "Who spoke when. An agent is silent while its θ has moved less than the threshold "
    "since it last spoke.",
    "network": "The network; the darker a site, the larger the common model's error on its rows.",
    "gain": "What each site gains by joining: on all sites' rows, and on its own.",
    "predictions": "Predicted against true: the own model of one site, and the common model, on "
    "all sites' rows.",
    "importance": "How much predictions change along each column, for columns in their spreads: "
    "the model's slopes, averaged over inputs as the sites described them. No rows were pooled.",
    "curves": "The mean prediction with one column fixed and the others as they are spread. An "
    "important column with a flat curve matters in company with others.",
    "coverage": "Share of each site's test rows inside the 90 % intervals; with fewer than 20 test "
    "rows nothing is said. The line is what was asked for.",
}
WORDS = (
    "train, test: every agent's model on its own rows, as the paper scores. global: every agent's "
    "model on everybody's rows, averaged. local-only never communicates; one-shot-average averages "
    "the local models once, over a tree; optimum has all rows in one place. bytes: the paper's "
    "account (a broadcast counts once, silence is free). wire bytes: a copy per neighbour, "
    "headers, silent words."
)


def verdict_pictures(verdict: Verdict, graph: Graph, own: Trained) -> dict[str, bytes]:
    """PNG images by name, in the order in which people ask for them."""
    found = {}
    if verdict.shown is not None and own.model is not None:
        shown, classes = verdict.shown, own.model.classes.tolist()
        found["predictions"] = png(predictions_plot(verdict, shown, classes))
    unit = "RMSE" if verdict.numbers else "share of wrong labels"
    errors = [_error(verdict, at) for at in verdict.sites.values()]
    found["gain"] = png(gain_plot(verdict))
    found["network"] = png(network_plot(graph, own.history, errors, unit))
    return found


def _error(verdict: Verdict, at: AtSite) -> float:
    """Of the common model at a site; NaN where nothing is known."""
    error, score = at.together.error, at.together.score
    if not verdict.numbers:
        return np.nan if score is None else 1.0 - score
    return np.nan if error is None else error


def pictures(histories: Sequence[History], best: float) -> dict[str, bytes]:
    """PNG images by name; the first history is the run's own, `best` the optimum's loss."""
    return {
        "loss-bytes": png(loss_plot(histories, best, "bytes")),
        "speakers": png(speakers_plot(histories[0])),
        "loss-rounds": png(loss_plot(histories, best, "round")),
    }


def model_pictures(
    model: Model, importance: dict[str, float] | None, coverage: dict[str, float | None] | None
) -> dict[str, bytes]:
    """What matters to the model and how, and what its intervals hold, where that is known."""
    found = {}
    ranked = {name: share for name, share in (importance or {}).items() if share > 0}
    if ranked:
        found["importance"] = png(importance_plot(ranked))
    curved = [name for name in ranked if name in model.made][:4]  # text is no curve
    if curved:
        found["curves"] = png(curves_plot(model, curved))
    if coverage and any(share is not None for share in coverage.values()):
        found["coverage"] = png(coverage_plot(coverage))
    return found


def html_report(
    rows: Sequence[Row], images: dict[str, bytes], settings: str, words: Sequence[str] = (),
    verdict: Verdict | None = None,
) -> str:  # fmt: skip
    """A page that needs no other file; one row per algorithm or yardstick, the run's own first."""
    return page(
        f"{rows[0]['algorithm']} on {rows[0]['agents']} sites",
        "" if verdict is None else verdict_html(verdict.document()),
        figures([image(bits, CAPTIONS[name]) for name, bits in images.items()]),
        section("What came out, and what it cost", html_table(rows), note(WORDS)),
        _chosen(words),
        "" if verdict is None else sites_html(verdict),
        section("Settings", folded("all keys, as JSON", settings)),
    )


def _chosen(words: Sequence[str]) -> str:
    said = "\n".join(f"<li>{html.escape(line)}</li>" for line in words)
    return section("What the sites chose", f"<ul>{said}</ul>") if words else ""
