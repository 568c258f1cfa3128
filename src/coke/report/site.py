"""One page about a site in the field, written by every agent when it ends."""

from __future__ import annotations

from collections.abc import Sequence

from coke.report.chart import Panel, Points, drawn
from coke.report.shell import figure, figures, note, page, section
from coke.report.tables import Row, by_name, html_table
from coke.report.verdict import verdict_html

MOST = 1000  # rounds shown
CAPTION = (
    "Loss on the site's own rows, and how far it was from being content: below the line nothing on "
    "its edges moves by more than the tolerance, or it is near enough for a proof. Dots are news."
)
WORDS = (
    "All losses are of the site's own rows: nobody knows the others'. bytes: the paper's account "
    "(a broadcast counts once, silence is free). wire bytes: a copy per neighbour, headers, silent "
    "words. The site's settings are in its file."
)


def site_report(document: Row, rounds: Sequence[Row]) -> str:
    """A page about one site in the field: what came out, its rounds, the state of its edges."""
    apart = ("asymmetry", "site", "frames", "targets", "verdict", "warnings")
    known = {k: v for k, v in document.items() if k not in apart} | by_name(document)
    name = str(document["site"])
    edges = {
        f"asymmetry of the edge to {n}": "not known" if gap is None else f"{gap:g}"
        for n, gap in document["asymmetry"].items()
    }
    row = {"algorithm": name, **known, **edges}
    return page(
        f"{name} among {document['agents']} sites",
        verdict_html(document["verdict"]) if document.get("verdict") else "",
        figures([figure(_picture(rounds), CAPTION)] if rounds else []),
        section("What came out, and what it cost", html_table([row]), note(WORDS)),
    )


def _picture(rounds: Sequence[Row]) -> str:
    """SVG: the loss, and below it what is left in parts of what may be."""
    few = rounds[:: -(-len(rounds) // MOST) or 1]
    news = frozenset(float(line["round"]) for line in few if line["spoke"])
    panels = (
        Panel("loss on own rows", {"": _numbers(few, "loss")}),
        Panel("left / allowed", {"": _numbers(few, "away")}, news, level=1.0, log=True),
    )
    return drawn(panels, CAPTION)


def _numbers(rounds: Sequence[Row], key: str) -> Points:
    return [(line["round"], float(line[key])) for line in rounds if line[key] is not None]
