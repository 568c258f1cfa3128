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
    head = "".join(f"<th>{html.escape(row['algorithm'])}</th>" for row in rows)
    body = "\n".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(f"<td>{html.escape(value)}</td>" for value in values)
        + "</tr>"
        for name, values in lines(rows)
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


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
