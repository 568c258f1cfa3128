"""A verdict for a page, and for a notebook."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from coke.learning.verdict import Figure, Verdict
from coke.report.shell import note, section, warning
from coke.report.tables import html_grid


def verdict_html(verdict: Mapping[str, Any]) -> str:
    """The sentence of a verdict's document, its warnings, and what stands behind it."""
    text = re.sub(r"(\d) (%|[kMGT]?B)\b", "\\1\u00a0\\2", verdict["text"])
    warned = "".join(map(warning, verdict["warnings"]))
    notes = note("; ".join(verdict["notes"]) + ".")
    return f'<p class="verdict">{html.escape(text)}.</p>\n{warned}{notes}'


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
    return section(f"{what} by site", html_grid(heads, rows))


def _cell(figure: Figure | None) -> str:
    return "–" if figure is None else str(figure)


def _error(figure: Figure) -> str:
    return "–" if figure.error is None else f"{figure.error:.4g}"


def _signed(gain: float | None) -> str:
    return "–" if gain is None else f"{gain:+.3f}".replace("-", "−")
