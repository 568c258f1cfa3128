"""`coke compare`: every method's sends and bytes to a wanted accuracy, side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coke.cli import options
from coke.cli.console import console, print_json, say
from coke.report.tables import shown
from coke.settings.knobs import Face

if TYPE_CHECKING:
    from coke.learning.folder import Folder
    from coke.studies.compare.compare import Comparison
    from coke.studies.compare.goal import Goal, Row

app = options.app()


@app.command()
@options.command(Face.COMPARE)
def compare(
    wanted: options.Wanted,
    goal: Annotated[
        float, typer.Option(help="Times the optimum's training MSE or objective.")
    ] = 1.01,
    method: Annotated[list[str] | None, typer.Option(help="Only this one; may repeat.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the plot.")] = None,
    json: options.AsJson = False,
) -> None:
    """Which method reaches a wanted accuracy with the fewest bytes on these data."""
    settings = wanted()
    from coke.learning.folder import Folder
    from coke.learning.open import open_ready
    from coke.studies.compare.compare import Comparison
    from coke.studies.compare.goal import advice

    folder = Folder(out) if out else None
    with console.status("reading rows, one pass over them"):
        ready = open_ready(settings, say=say)
        comparison = Comparison(ready, goal, settings.rounds)
    rows = _rows(comparison, method or list(comparison.methods))
    document = {
        "goal": goal,
        "optimum": comparison.goal.optimum,
        "rows": [row.document(comparison.goal) for row in rows],
        "advice": advice(rows),
    }
    if folder:
        document["plot"] = _plot(rows, comparison, folder)
    if json:
        print_json(document)
    else:
        _show(rows, comparison.goal, document)


def _rows(comparison: Comparison, methods: list[str]) -> list[Row]:
    columns = (TextColumn("{task.description:>17}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar, rows = progress.add_task("", total=len(methods)), []
        for name in methods:
            progress.update(bar, description=name)
            rows.append(comparison.row(name))
            progress.advance(bar)
    return rows


def _show(rows: list[Row], goal: Goal, document: dict[str, Any]) -> None:
    of = "MSE" if goal.by_loss else "objective"
    title = f"to {document['goal']:g} × the optimum's {of} {document['optimum']:.4g}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("method", "rounds", "sends", "bytes", "wire", "agreed", of):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in rows:
        sizes = (row.bytes, row.wire_bytes, row.agreement_bytes)
        table.add_row(
            row.method,
            str(row.rounds) if row.reached else f"not in {row.rounds}",
            shown("", row.transmissions),
            *(shown("bytes", size) for size in sizes),
            shown("", row.value),
        )
    Console().print(table)
    sys.stdout.write(f"{document['advice']}\n")


def _plot(rows: list[Row], comparison: Comparison, folder: Folder) -> str:
    from coke.data.files import write_file
    from coke.report.plots import cost_plot, png

    path = folder.path / "compare.png"
    write_file(path, png(cost_plot(rows, comparison.goal)))
    return str(path)
