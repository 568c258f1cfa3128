"""Pictures of a running site as SVG: whom it knows of, and who spoke when.

States differ by lines and words, not by colour alone.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from math import cos, pi, sin
from typing import Any

_MIDDLE, _NEAR, _FAR = 180, 100, 165  # of the picture, and how far out neighbours and others are
_SHOWN = 48  # of the others
_NAME = 14  # characters of a name in a picture
_LEFT, _WIDE, _ROW = 96, 300, 16
_ROWS = 24  # sites whose words are shown


def _svg(wide: float, high: float, title: str, inner: str) -> str:
    return (
        f'<svg viewBox="0 0 {wide} {high}" role="img" font-size="12" font-family="sans-serif">'
        f"<title>{html.escape(title)}</title>{inner}</svg>"
    )


def _text(x: float, y: float, text: str, at: str = "middle") -> str:
    short = text if len(text) <= _NAME else text[: _NAME - 1] + "…"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}">{html.escape(short)}</text>'


def _around(k: int, n: int, far: float) -> tuple[float, float]:
    turn = 2 * pi * k / max(n, 1) - pi / 2
    return _MIDDLE + far * cos(turn), _MIDDLE + far * sin(turn)


def known(site: str, neighbours: Sequence[dict[str, Any]], sites: int | None) -> str:
    """The site and its neighbours; of the others only that they are there."""
    others = 0 if sites is None else max(sites - 1 - len(neighbours), 0)
    dots = [_around(k, min(others, _SHOWN), _FAR) for k in range(min(others, _SHOWN))]
    grey = "".join(f'<circle class="other" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in dots)
    spots = [_around(k, len(neighbours), _NEAR) for k in range(len(neighbours))]
    each = "".join(_edge(one, *spot) for one, spot in zip(neighbours, spots, strict=True))
    names = "".join(_node(one, *spot) for one, spot in zip(neighbours, spots, strict=True))
    own = f'<circle class="own" cx="{_MIDDLE}" cy="{_MIDDLE}" r="9"/>'
    words = ", ".join(f"{one['name']} {one['state']}" for one in neighbours)
    title = f"{site} and its neighbours: {words}; {others} others, of whom it knows nothing more"
    inner = grey + each + own + names + _text(_MIDDLE, _MIDDLE + 26, site)
    return _svg(2 * _MIDDLE, 2 * _MIDDLE, title, inner)


def _edge(one: dict[str, Any], x: float, y: float) -> str:
    tree = " tree" if one["tree"] else ""
    return f'<path class="edge {one["state"]}{tree}" d="M{_MIDDLE},{_MIDDLE}L{x:.1f},{y:.1f}"/>'


def _node(one: dict[str, Any], x: float, y: float) -> str:
    """Its name and state are outside, where no edge is."""
    spot = f'<circle class="node {one["state"]}" cx="{x:.1f}" cy="{y:.1f}" r="8"/>'
    first = y - 26 if y < _MIDDLE - 1 else y + 21
    return spot + _text(x, first, one["name"]) + _text(x, first + 13, one["state"])


def spoken(names: Sequence[str], rounds: Sequence[tuple[int, frozenset[str]]], last: int) -> str:
    """A row for each site, a tick for each of the rounds, up to the last, in which it had news."""
    if not rounds:
        return ""
    shown, first = names[:_ROWS], rounds[0][0]
    step = _WIDE / max(last - first + 1, 1)
    rows = []
    for i, name in enumerate(shown):
        top = i * _ROW
        at = [_LEFT + step * (k - first) for k, who in rounds if name in who]
        wide = f"h{max(step - 0.5, 0.8):.2f}v{_ROW - 4}h-{max(step - 0.5, 0.8):.2f}z"
        ticks = "".join(f"M{x:.1f},{top}{wide}" for x in at)
        line = f'<path class="base" d="M{_LEFT},{top + _ROW - 4}h{_WIDE}"/>'
        rows.append(
            _text(_LEFT - 6, top + 10, name, "end") + line + f'<path class="news" d="{ticks}"/>'
        )
    foot = len(shown) * _ROW + 10
    ends = _text(_LEFT, foot, f"round {first}", "start")
    ends += _text(_LEFT + _WIDE, foot, str(last), "end")
    said = {name: sum(name in who for _, who in rounds) for name in shown}
    title = f"Rounds with news from {first} to {last}: " + ", ".join(
        f"{n} {k}" for n, k in said.items()
    )
    return _svg(_LEFT + _WIDE + 10, foot + 6, title, "".join(rows) + ends)
