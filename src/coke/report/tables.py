"""Numbers as people read them, one column per algorithm."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from coke.maths.sizes import sized

Row = dict[str, Any]


def lines(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """The rows turned on their side: a quantity's name and its values, one per algorithm."""
    keys = dict.fromkeys(key for row in rows for key in row if key != "algorithm")
    return [(key.replace("_", " "), [shown(key, row.get(key, "")) for row in rows]) for key in keys]


def by_name(row: Row) -> Row:
    """The errors of each of several targets as lines of their own."""
    targets = row.get("targets") or {}
    return {f"{name} {key}": v for name, errors in targets.items() for key, v in errors.items()}


def html_table(rows: Sequence[Row]) -> str:
    """The same for a page."""
    return html_grid(["", *(row["algorithm"] for row in rows)], [[k, *v] for k, v in lines(rows)])


def html_grid(heads: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 0) -> str:
    """A row a line, its first cell a heading; so many columns at the end are words."""
    kinds = [""] * (len(heads) - words) + [' class="text"'] * words
    head = "".join(f"<th{k}>{html.escape(h)}</th>" for k, h in zip(kinds, heads, strict=True))
    body = "\n".join(_line(row, kinds) for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="wide">\n{table}\n</div>'


def _line(row: Sequence[str], kinds: Sequence[str]) -> str:
    cells = "".join(
        f"<td{kind}>{html.escape(cell)}</td>" for kind, cell in zip(kinds[1:], row[1:], strict=True)
    )
    return f"<tr><th>{html.escape(row[0])}</th>{cells}</tr>"


def shown(key: str, value: Any) -> str:
    """A number as people read it."""
    if value is None:
        return "–"
    if key.endswith("bytes") and value != "":
        return sized(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else str(value)
