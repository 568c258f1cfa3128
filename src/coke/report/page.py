"""One self-contained HTML page about a run: table, pictures, settings."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib import resources
from string import Template

from coke.engines.history import History
from coke.maths.graph import Graph
from coke.report.plots import audit_plot, loss_plot, network_plot, png, site_plot, speakers_plot
from coke.report.tables import Row, lines
from coke.studies.audit import Finding

CAPTIONS = {
    "audit": "Each attack's result beside guessing. Errors of the Gram matrix: the lower the worse "
    "for the site. Shares of rows found or ranked right: the higher the worse.",
    "loss-rounds": "Loss of the agents' models on everybody's rows, averaged over agents.",
    "loss-bytes": "The same against bytes sent, agreement included; a broadcast counts once.",
    "speakers": "Who spoke when. An agent is silent while its θ has moved less than the threshold "
    "since it last spoke.",
    "network": "The network, and how often each agent spoke.",
    "site": "Loss on the site's own rows, and how far it was from being content: below the line "
    "nothing on its edges moves by more than the tolerance. Dots are rounds with news.",
}


def pictures(histories: Sequence[History], graph: Graph, best: float) -> dict[str, bytes]:
    """PNG images by name; the first history is the run's own, `best` the optimum's loss."""
    return {
        "loss-rounds": png(loss_plot(histories, best, "round")),
        "loss-bytes": png(loss_plot(histories, best, "bytes")),
        "speakers": png(speakers_plot(histories[0])),
        "network": png(network_plot(graph, histories[0])),
    }


def html_report(rows: Sequence[Row], images: dict[str, bytes], settings: str) -> str:
    """A page that needs no other file; one row per algorithm or yardstick, the run's own first."""
    page = Template(resources.files("coke").joinpath("resources/report.html").read_text("utf-8"))
    return page.substitute(
        title=html.escape(f"{rows[0]['algorithm']} on {rows[0]['agents']} sites"),
        table=_table(rows),
        figures="\n".join(_figure(name, image) for name, image in images.items()),
        settings=html.escape(settings),
    )


def site_report(document: Row, rounds: Sequence[Row]) -> str:
    """A page about one site in the field: what came out, its rounds, the state of its edges."""
    page = Template(resources.files("coke").joinpath("resources/report.html").read_text("utf-8"))
    known = {k: v for k, v in document.items() if k not in ("asymmetry", "site", "frames")}
    name = str(document["site"])
    edges = {
        f"asymmetry of the edge to {n}": "not known" if gap is None else f"{gap:g}"
        for n, gap in document["asymmetry"].items()
    }
    return page.substitute(
        title=html.escape(f"{name} among {document['agents']} sites"),
        table=_table([{"algorithm": name, **known, **edges}]),
        figures=_figure("site", png(site_plot(rounds))) if rounds else "",
        settings=html.escape(f"rows and settings of {name}: see its file"),
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
        table=_table(rows),
        figures=_figure("audit", png(audit_plot(found))),
        settings=html.escape(
            f"{document['algorithm']}, privacy {document['privacy']}, {document['rounds']} rounds "
            f"overheard; the neighbour is {document['neighbour']}\n{notes}"
        ),
    )


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{html.escape(row['algorithm'])}</th>" for row in rows)
    body = "\n".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(f"<td>{html.escape(value)}</td>" for value in values)
        + "</tr>"
        for name, values in lines(rows)
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _figure(name: str, image: bytes) -> str:
    data, caption = base64.b64encode(image).decode(), html.escape(CAPTIONS[name])
    source = f"data:image/png;base64,{data}"
    return (
        f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>'
    )
