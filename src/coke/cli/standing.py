"""How sites are, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from coke.cli.console import Screen, legible, print_json
from coke.report.tables import shown

_COLUMNS = ("site", "state", "phase", "round", "away", "loss", "wire_bytes", "missing", "models")
_NAMES = {"missing": "waits for", "away": "moves/tol", "models": "model of run"}


def show_sites(found: Sequence[dict[str, Any]], as_json: bool) -> None:
    """On stdout, a line for each site."""
    if as_json:
        print_json({"sites": list(found)})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(_NAMES.get(name, name))
    for one in found:
        table.add_row(*(escape(legible(_cell(key, one[key]))) for key in _COLUMNS))
    out = Screen(highlight=False)
    out.print(table)
    for one in found:
        if one["page"] is not None:
            out.print(f"{one['site']}: {one['page']}", markup=False, soft_wrap=True)


def _cell(key: str, value: Any) -> str:
    if key == "models":
        value = value["used"]
    return ", ".join(value) if isinstance(value, list) else shown(key, value)
