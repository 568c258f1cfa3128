"""Curves as SVG, without a library: on a small machine to load one takes longer than to train.

Colours are attributes, so a page's style may change them: by the classes `frame`, `level` and
`curve-0`, `curve-1`, … of its elements.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Points = Sequence[tuple[float, float]]
LARGEST = 1e300  # number shown: their differences are numbers, too
HEAD, FOOT = 18, 30  # of a panel: its name above it, the ends of its axis below
COLOURS = ("#0072b2", "#b35900")


class Size(NamedTuple):
    """Of a panel, without the margin for its numbers."""

    wide: int = 640
    high: int = 150
    left: int = 70


class Panel(NamedTuple):
    """Curves over one axis; points that are no numbers to be shown are left out."""

    name: str
    curves: Mapping[str, Points]  # by what they are called, if there are several
    dots: frozenset[float] = frozenset()  # where the first curve is marked
    level: float | None = None  # a line across
    log: bool = False
    along: Callable[[float], str] = "round {:g}".format  # the ends of the axis
    text: Callable[[float], str] = "{:.3g}".format  # of the values


def drawn(panels: Sequence[Panel], caption: str, size: Size = Size()) -> str:  # noqa: B008
    """SVG: the panels, one below the other."""
    step = size.high + HEAD + FOOT
    inner = "".join(_panel(panel, i * step, size) for i, panel in enumerate(panels))
    return (
        f'<svg viewBox="0 0 {size.left + size.wide + 20} {len(panels) * step}" role="img" '
        f'font-size="12" font-family="sans-serif" fill="#444"><title>{html.escape(caption)}</title>'
        f"{inner}</svg>"
    )


def _shown(points: Points, log: bool) -> Points:
    return [(k, x) for k, x in points if abs(x) < LARGEST and (x > 0 or not log)]


def _panel(panel: Panel, top: int, size: Size) -> str:
    """A frame, the curves in it, and the ends of both axes in numbers."""
    curves = {name: _shown(points, panel.log) for name, points in panel.curves.items()}
    if not any(curves.values()):
        return ""
    place, ends = _placed(panel, curves, top, size)
    parts = [
        f'<rect class="frame" x="{size.left}" y="{top + HEAD}" width="{size.wide}" '
        f'height="{size.high}" fill="none"/>'
    ]
    if panel.level is not None:
        _, y = place(ends[0], panel.level)
        parts.append(
            f'<path class="level" d="M{size.left},{y}h{size.wide}" stroke-dasharray="6 4"/>'
        )
    for i, (name, points) in enumerate(curves.items()):
        parts.append(_curve(i, name, [place(*point) for point in points]))
    first = next(iter(curves.values()))
    marked = [place(k, x) for k, x in first if k in panel.dots]
    parts += [
        f'<circle class="curve-0" cx="{x}" cy="{y}" r="2.5" fill="{COLOURS[0]}"/>'
        for x, y in marked
    ]
    return f'<g stroke="#888">{"".join(parts)}</g>' + _labels(panel, ends, top, size)


def _curve(i: int, name: str, points: Sequence[tuple[str, str]]) -> str:
    """A line, and what it is called at its end."""
    if not points:
        return ""
    line, (x, y) = " ".join(map(",".join, points)), points[-1]
    ink, dash = COLOURS[i % len(COLOURS)], ' stroke-dasharray="5 2"' * bool(i)
    text = f'<text x="{x}" y="{float(y) - 5:.1f}" text-anchor="end" stroke="none">{name}</text>'
    return (
        f'<polyline class="curve-{i}" points="{line}" fill="none" stroke="{ink}" '
        f'stroke-width="1.5"{dash}/>{text * bool(name)}'
    )


_Place = Callable[[float, float], tuple[str, str]]


def _placed(
    panel: Panel, curves: Mapping[str, Points], top: int, size: Size
) -> tuple[_Place, tuple[float, float, float, float]]:
    """Where a point is in the picture; first and last along the axis, lowest and highest value."""
    along, values = zip(*(point for points in curves.values() for point in points), strict=True)
    seen = [*values, *([] if panel.level is None else [panel.level])]
    first, last, low, high = ends = min(along), max(along), min(seen), max(seen)
    scale = math.log10 if panel.log else float
    below, span, wide = scale(low), (scale(high) - scale(low)) or 1.0, (last - first) or 1.0

    def place(k: float, x: float) -> tuple[str, str]:
        right, up = (k - first) / wide, (scale(x) - below) / span
        return f"{size.left + size.wide * right:.1f}", f"{top + HEAD + size.high * (1 - up):.1f}"

    return place, ends


def _labels(panel: Panel, ends: tuple[float, float, float, float], top: int, size: Size) -> str:
    first, last, low, high = ends
    left, right, foot = size.left, size.left + size.wide, top + HEAD + size.high
    whole = [
        (left, top + HEAD - 5, "start", panel.name),
        (left - 6, top + HEAD + 10, "end", panel.text(high)),
        (left - 6, foot, "end", panel.text(low)),
        (left, foot + 15, "start", panel.along(first)),
        (right, foot + 15, "end", panel.along(last)),
    ]
    return "".join(
        f'<text x="{x}" y="{y}" text-anchor="{at}">{html.escape(text)}</text>'
        for x, y, at, text in whole
    )
