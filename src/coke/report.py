"""One self-contained HTML page about a run: table, pictures, settings."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

from coke.maths.graph import Graph
from coke.plots import loss_plot, network_plot, png, speakers_plot
from coke.run.history import History

Row = dict[str, Any]
CAPTIONS = {
    "loss-rounds": "Loss of the agents' models on everybody's rows, averaged over agents.",
    "loss-transmissions": "The same against what was sent: a broadcast to all neighbours is one.",
    "speakers": "Who spoke when. An agent is silent while its θ has moved less than the threshold "
    "since it last spoke.",
    "network": "The network, and how often each agent spoke.",
}


def pictures(histories: Sequence[History], graph: Graph, best: float) -> dict[str, bytes]:
    """PNG images by name; the first history is the run's own, `best` the optimum's loss."""
    return {
        "loss-rounds": png(loss_plot(histories, best, "round")),
        "loss-transmissions": png(loss_plot(histories, best, "transmissions")),
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


def lines(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """The rows turned on their side: a quantity's name and its values, one per algorithm."""
    keys = dict.fromkeys(key for row in rows for key in row if key != "algorithm")
    return [(key.replace("_", " "), [shown(key, row.get(key, "")) for row in rows]) for key in keys]


def shown(key: str, value: Any) -> str:
    """A number as people read it."""
    if value is None:
        return "–"
    if key.endswith("bytes") and value != "":
        return _bytes(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else str(value)


def _bytes(n: int) -> str:
    """12 B, 60.8 kB, 32 MB …"""
    if n < 1000:
        return f"{n} B"
    power = min(4, (len(str(n)) - 1) // 3)
    return f"{n / 1000**power:.3g} {' kMGT'[power]}B"


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
