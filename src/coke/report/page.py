"""One self-contained HTML page about a run: table, pictures, settings."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib import resources
from string import Template

from coke.engines.history import History
from coke.learning.model import Model
from coke.maths.graph import Graph
from coke.report.plots import (
    audit_plot,
    coverage_plot,
    curves_plot,
    importance_plot,
    loss_plot,
    network_plot,
    png,
    speakers_plot,
)
from coke.report.tables import Row, html_table
from coke.studies.audit import Finding

CAPTIONS = {
    "audit": "Each attack's result beside guessing. Errors of the Gram matrix: the lower the worse "
    "for the site. Shares of rows found or ranked right: the higher the worse.",
    "loss-rounds": "Loss of the agents' models on everybody's rows, averaged over agents.",
    "loss-bytes": "The same against bytes sent, agreement included; a broadcast counts once.",
    "speakers": "Who spoke when. An agent is silent while its θ has moved less than the threshold "
    "since it last spoke.",
    "network": "The network, and how often each agent spoke.",
    "importance": "How much predictions change along each column, for columns in their spreads: "
    "the model's slopes, averaged over inputs as the sites described them. No rows were pooled.",
    "curves": "The mean prediction with one column fixed and the others as they are spread. An "
    "important column with a flat curve matters in company with others.",
    "coverage": "Share of each site's test rows inside the 90 % intervals; with fewer than 20 test "
    "rows nothing is said. The line is what was asked for.",
}


def pictures(histories: Sequence[History], graph: Graph, best: float) -> dict[str, bytes]:
    """PNG images by name; the first history is the run's own, `best` the optimum's loss."""
    return {
        "loss-rounds": png(loss_plot(histories, best, "round")),
        "loss-bytes": png(loss_plot(histories, best, "bytes")),
        "speakers": png(speakers_plot(histories[0])),
        "network": png(network_plot(graph, histories[0])),
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
    rows: Sequence[Row], images: dict[str, bytes], settings: str, words: Sequence[str] = ()
) -> str:
    """A page that needs no other file; one row per algorithm or yardstick, the run's own first."""
    page = Template(resources.files("coke").joinpath("resources/report.html").read_text("utf-8"))
    return page.substitute(
        title=html.escape(f"{rows[0]['algorithm']} on {rows[0]['agents']} sites"),
        words=_words(words),
        table=html_table(rows),
        figures="\n".join(_figure(name, image) for name, image in images.items()),
        settings=html.escape(settings),
    )


def audit_report(document: Row, found: Sequence[Finding]) -> str:
    """A page for a site's owner: what a neighbour could learn, beside guessing."""
    page = Template(resources.files("coke").joinpath("resources/report.html").read_text("utf-8"))
    rows = [
        {
            "algorithm": one.attack,
            "measure": one.measure,
            "found": one.value,
            "guessing": one.guessing,
            "which means": one.meaning,
        }
        for one in found
    ]
    notes = "\n".join(document["warnings"]) or "No warnings."
    return page.substitute(
        title=html.escape(f"what others could learn of {document['site']}"),
        words="",
        table=html_table(rows),
        figures=_figure("audit", png(audit_plot(found))),
        settings=html.escape(
            f"{document['algorithm']}, privacy {document['privacy']}, {document['rounds']} rounds "
            f"overheard; the neighbour is {document['neighbour']}\n{notes}"
        ),
    )


def _words(words: Sequence[str]) -> str:
    if not words:
        return ""
    said = "\n".join(f"<li>{html.escape(line)}</li>" for line in words)
    return f"<h2>What the sites chose</h2>\n<ul>{said}</ul>"


def _figure(name: str, image: bytes) -> str:
    data, caption = base64.b64encode(image).decode(), html.escape(CAPTIONS[name])
    source = f"data:image/png;base64,{data}"
    return (
        f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>'
    )
