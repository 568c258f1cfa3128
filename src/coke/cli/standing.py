"""How sites are, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from coke.cli.console import Screen, legible, print_json
from coke.report.tables import shown

_COLUMNS = ("site", "state", "phase", "round", "away", "loss", "wire_bytes", "missing")


def show_sites(found: Sequence[dict[str, Any]], as_json: bool) -> None:
    """On stdout, a line for each site."""
    if as_json:
        print_json({"sites": list(found)})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in _COLUMNS:
        table.add_column({"missing": "waits for", "away": "left/allowed"}.get(name, name))
    for one in found:
        table.add_row(*(escape(legible(_cell(key, one[key]))) for key in _COLUMNS))
    out = Screen(highlight=False)
    out.print(table)
    for one in found:
        if one["models"]["kept"]:
            kept = ", ".join(map(str, one["models"]["kept"]))
            used = f"the model of run {one['models']['used'] or '?'} is in use; kept: {kept}"
            out.print(f"{one['site']}: {used}", markup=False, soft_wrap=True)
        if one["page"] is not None:
            out.print(f"{one['site']}: {one['page']}", markup=False, soft_wrap=True)


def _cell(key: str, value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else shown(key, value)
