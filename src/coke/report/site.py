"""One page about a site in the field; its picture is drawn without a library.

Every agent writes one when it ends, and an agent may run on a small machine: to load a library of
plots takes longer there than to train.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coke.report.shell import figure, figures, note, page, section
from coke.report.tables import Row, by_name, html_table
from coke.report.verdict import verdict_html

WIDE, HIGH, LEFT, HEAD = 640, 150, 70, 18  # of a panel, its margin, and its name above it
MOST = 1000  # rounds shown
LARGEST = 1e300  # number shown: their differences are numbers, too
CAPTION = (
    "Loss on the site's own rows, and how far it was from being content: below the line nothing on "
    "its edges moves by more than the tolerance. Dots are rounds with news."
)
WORDS = (
    "All losses are of the site's own rows: nobody knows the others'. bytes: the paper's account "
    "(a broadcast counts once, silence is free). wire bytes: a copy per neighbour, headers, silent "
    "words. The site's settings are in its file."
)


class _Panel(NamedTuple):
    """A panel of the picture: numbers over rounds."""

    name: str
    points: list[tuple[int, float]]  # of the rounds in which it was a number to be shown
    dots: frozenset[int] = frozenset()  # rounds that are marked
    level: float | None = None  # a line across
    scale: Callable[[float], float] = float  # such as a logarithm


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
    """SVG: the loss, and below it the largest gap in units of the tolerance."""
    few = rounds[:: -(-len(rounds) // MOST) or 1]
    news = frozenset(int(line["round"]) for line in few if line["spoke"])
    away = [(k, x) for k, x in _numbers(few, "away") if x > 0]
    curves = (
        _Panel("loss on own rows", _numbers(few, "loss")),
        _Panel("moves / tolerance", away, news, level=1.0, scale=math.log10),
    )
    panels = "".join(_panel(curve, i * (HIGH + HEAD + 30)) for i, curve in enumerate(curves))
    height = len(curves) * (HIGH + HEAD + 30)
    return (
        f'<svg viewBox="0 0 {LEFT + WIDE + 20} {height}" role="img" font-size="12" '
        f'font-family="sans-serif" fill="#444"><title>{html.escape(CAPTION)}</title>{panels}</svg>'
    )


def _numbers(rounds: Sequence[Row], key: str) -> list[tuple[int, float]]:
    found = [(int(line["round"]), line[key]) for line in rounds]
    return [(k, float(x)) for k, x in found if x is not None and abs(x) < LARGEST]


def _panel(curve: _Panel, top: int) -> str:
    """A frame, the curve in it, and the ends of both axes in numbers."""
    if not curve.points:
        return ""
    rounds, values = zip(*curve.points, strict=True)
    seen = [*values, *([] if curve.level is None else [curve.level])]
    low, high, first, last = min(seen), max(seen), rounds[0], rounds[-1]
    below, span = curve.scale(low), (curve.scale(high) - curve.scale(low)) or 1.0

    def place(k: float, x: float) -> tuple[str, str]:
        along, up = (k - first) / ((last - first) or 1), (curve.scale(x) - below) / span
        return f"{LEFT + WIDE * along:.1f}", f"{top + HEAD + HIGH * (1 - up):.1f}"

    line = " ".join(",".join(place(k, x)) for k, x in curve.points)
    parts = [f'<rect x="{LEFT}" y="{top + HEAD}" width="{WIDE}" height="{HIGH}" fill="none"/>']
    if curve.level is not None:
        _, y = place(first, curve.level)
        parts.append(f'<path d="M{LEFT},{y}h{WIDE}" stroke-dasharray="6 4"/>')
    parts.append(f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="1.5"/>')
    marked = [place(k, x) for k, x in curve.points if k in curve.dots]
    parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="#0072b2"/>' for x, y in marked]
    return f'<g stroke="#888">{"".join(parts)}</g>' + _labels(curve.name, top, {
        (LEFT - 6, top + HEAD + 10, "end"): f"{high:.3g}",
        (LEFT - 6, top + HEAD + HIGH, "end"): f"{low:.3g}",
        (LEFT, top + HEAD + HIGH + 15, "start"): f"round {first}",
        (LEFT + WIDE, top + HEAD + HIGH + 15, "end"): f"{last}",
    })  # fmt: skip


def _labels(name: str, top: int, texts: dict[tuple[int, int, str], str]) -> str:
    whole = {(LEFT, top + HEAD - 5, "start"): name, **texts}
    return "".join(
        f'<text x="{x}" y="{y}" text-anchor="{at}">{html.escape(text)}</text>'
        for (x, y, at), text in whole.items()
    )
