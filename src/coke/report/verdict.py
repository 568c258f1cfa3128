"""A verdict for a page, and for a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from coke.learning.verdict import Figure, Verdict


def verdict_html(verdict: Mapping[str, Any]) -> str:
    """The sentence of a verdict's document, its warnings, and what stands behind it."""
    warned = "".join(
        f'<p class="warning">Warning: {_safe(one)}.</p>' for one in verdict["warnings"]
    )
    notes, text = "; ".join(map(_safe, verdict["notes"])), _safe(verdict["text"])
    return f'<p class="verdict">{text}.</p>\n{warned}<p class="note">{notes}.</p>'


def sites_html(verdict: Verdict) -> str:
    """Every figure by site: own model, common model, gain."""
    what, other = ("R²", "RMSE") if verdict.numbers else ("accuracy", "log loss")
    heads = [
        "site", "own model, all sites' rows", "gain by joining", "own model, own rows",
        "common model, own rows", "gain at home", f"{other}: own, own rows", f"{other}: common",
    ]  # fmt: skip
    rows = [
        [
            name, _cell(at.alone), _signed(at.gain), _cell(at.home), _cell(at.together),
            _signed(at.gain_home), _error(at.home), _error(at.together),
        ]
        for name, at in verdict.sites.items()
    ]  # fmt: skip
    body = "\n".join(f"<tr><th>{_safe(name)}</th>{_cells(cells)}</tr>" for name, *cells in rows)
    head = "".join(f"<th>{_safe(text)}</th>" for text in heads)
    return (
        f"<h2>{what} by site</h2>\n<div class='wide'><table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(cells: list[str]) -> str:
    return "".join(f"<td>{cell}</td>" for cell in cells)


def _cell(figure: Figure | None) -> str:
    return "–" if figure is None else str(figure)


def _error(figure: Figure) -> str:
    return "–" if figure.error is None else f"{figure.error:.4g}"


def _signed(gain: float | None) -> str:
    return "–" if gain is None else f"{gain:+.3f}".replace("-", "−")


def _safe(text: str) -> str:
    return html.escape(text)
