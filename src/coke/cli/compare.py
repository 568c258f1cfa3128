"""`coke compare`: every method's sends and bytes to a wanted accuracy, side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coke.cli import options
from coke.cli.console import Screen, console, print_json, say
from coke.report.tables import shown
from coke.settings.knobs import Face

if TYPE_CHECKING:
    from coke.learning.folder import Folder
    from coke.studies.compare.compare import Comparison
    from coke.studies.compare.goal import Goal, Row

app = options.app()

OTHERS = (
    "{} is of the rows held out. linear and boosted are other models: the goal is not theirs, and "
    "boosted-pooled sends the rows.\n"
)


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
    from coke.settings.declaration import BROADCAST
    from coke.studies.compare.compare import Comparison, known
    from coke.studies.compare.goal import advice

    asked = [known(name) for name in method or ()]
    folder = Folder(out) if out else None
    with console.status("reading rows, one pass over them"):
        ready = open_ready(settings, say=say)
        comparison = Comparison(ready, goal, settings.rounds)
    rows = _rows(comparison, asked or list(comparison.methods))
    document = {
        "goal": goal,
        "optimum": comparison.goal.optimum,
        "rows": [row.document(comparison.goal) for row in rows],
        "measure": comparison.goal.measure,
        "advice": advice(rows, comparison.goal.measure, broadcast=settings.links == BROADCAST),
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
    held = {"r2": "R²"}.get(goal.measure, goal.measure)
    for name in ("method", "rounds", "sends", "bytes", "wire", of, held):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.method,
            _ended(row),
            shown("", row.transmissions),
            *(shown("bytes", size) for size in (row.bytes, row.wire_bytes)),
            shown("", None if row.reached is None else row.value),
            "–" if row.score is None else f"{row.score:.3f}",
        )
    Screen().print(table)
    for row in rows:
        if row.failed is not None:
            sys.stdout.write(f"{row.method} failed: {row.failed}\n")
    if any(row.reached is None for row in rows):
        sys.stdout.write(OTHERS.format(held))
    sys.stdout.write(f"{document['advice']}\n")


def _ended(row: Row) -> str:
    """After how many rounds, and how."""
    if row.failed is not None:
        return f"failed after {row.rounds}" if row.rounds else "failed"
    if row.reached is None:
        return "–"
    return str(row.rounds) if row.reached else f"not in {row.rounds}"


def _plot(rows: list[Row], comparison: Comparison, folder: Folder) -> str:
    from coke.data.files import write_file
    from coke.report.cost_plot import cost_plot
    from coke.report.plots import png

    path = folder.path / "compare.png"
    write_file(path, png(cost_plot(rows, comparison.goal)))
    return str(path)
