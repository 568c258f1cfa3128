"""What commands show: JSON and tables on stdout; messages on stderr."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from coke.report.tables import Row, by_name, lines

console = Console(stderr=True)
# what a run says beside its numbers
APART = (
    "beside", "failed", "yardsticks", "interrupted", "model", "report", "warnings",
    "choice", "importance", "coverage", "targets",
)  # fmt: skip


def say(line: str) -> None:
    """What was found out about a file, and what else is to be known."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(document: dict[str, Any], *, line: bool = False) -> None:
    """The one document of a `--json` run; as one line for commands that write lines."""
    encoded = msgspec.json.encode(document, enc_hook=lambda number: number.item())  # NumPy's
    text = encoded if line else msgspec.json.format(encoded, indent=2)
    sys.stdout.write(text.decode() + "\n")


def run_rows(document: dict[str, Any]) -> list[Row]:
    """A run's algorithms and yardsticks, one after the other."""
    rows = [document, *document["beside"], *document["yardsticks"]]
    return [{key: row[key] for key in row if key not in APART} | by_name(row) for row in rows]


def run_words(document: dict[str, Any]) -> list[str]:
    """What the sites chose, and what their intervals hold."""
    said = list(document["choice"]["words"]) if document["choice"] else []
    held = [share for share in (document["coverage"] or {}).values() if share is not None]
    if held:
        ends = dict.fromkeys(f"{100 * share:.0f} %" for share in (min(held), max(held)))
        said.append(f"90 % intervals hold {' to '.join(ends)} of a site's test rows")
    return said


def show_run(document: dict[str, Any], as_json: bool) -> None:
    """A run's outcome on stdout: one column per algorithm, narrow enough for 80 characters."""
    if as_json:
        print_json(document)
        return
    rows = run_rows(document)
    title = f"{document['agents']} agents, {document['edges']} edges"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", min_width=13)
    for row in rows:
        table.add_column(row["algorithm"].replace("-", "\n"), justify="right", no_wrap=True)
    for name, values in lines(rows):
        if name not in ("agents", "edges") and not name.startswith("optimum"):
            table.add_row(name, *values)
    Console().print(table)
    for other in document["failed"]:
        console.print(f"{other['algorithm']} failed: {other['error']}", markup=False)
    for line in run_words(document):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)
    if "report" in document:
        sys.stdout.write(f"model:  {document['model']}\nreport: {document['report']}\n")
