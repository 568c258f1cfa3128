"""What commands show: JSON and tables on stdout; progress and messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from coke.report.tables import Row, lines

if TYPE_CHECKING:
    from coke.data.sources import Watch as Passes
    from coke.engines.process import Record
    from coke.learning.train import Watch
    from coke.settings.declaration import Settings

console = Console(stderr=True)
# what a run says beside its numbers
APART = ("beside", "failed", "yardsticks", "interrupted", "model", "report", "warnings")


def print_json(document: dict[str, Any], *, line: bool = False) -> None:
    """The one document of a `--json` run; as one line for commands that write lines."""
    encoded = msgspec.json.encode(document, enc_hook=lambda number: number.item())  # NumPy's
    text = encoded if line else msgspec.json.format(encoded, indent=2)
    sys.stdout.write(text.decode() + "\n")


def run_rows(document: dict[str, Any]) -> list[Row]:
    """A run's algorithms and yardsticks, one after the other."""
    own = {key: document[key] for key in document if key not in APART}
    return [own, *document["beside"], *document["yardsticks"]]


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
    if "report" in document:
        sys.stdout.write(f"model:  {document['model']}\nreport: {document['report']}\n")


class _Bars:
    """A bar for each name, made when it is first heard of."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._known: dict[str, TaskID] = {}

    def show(self, name: str, done: int, total: int | None, note: str = "") -> None:
        """So much of that is done."""
        if name not in self._known:
            self._known[name] = self._progress.add_task(name, total=total, note="")
        self._progress.update(self._known[name], completed=done, note=note)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} rows/s" if speed else "")


@contextmanager
def reading(settings: Settings) -> Iterator[Passes | None]:
    """While rows are read; whom to tell of the passes over those that memory may not hold."""
    if not (settings.data.out_of_core or settings.data.on_disk):
        with console.status("reading rows, one pass over them"):
            yield None
        return
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(),
        TextColumn("{task.completed:,} rows"),
    )
    with Progress(*columns, _Rate(), console=console) as progress:
        yield _Bars(progress).show


@contextmanager
def training(settings: Settings, metric: str) -> Iterator[Watch]:
    """While agents train; whom to tell of every round."""
    note = TextColumn("{task.fields[note]}")
    columns = (TextColumn("{task.description:>5}"), BarColumn(), MofNCompleteColumn(), note)
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bars = _Bars(progress)

        def watch(name: str, record: Record) -> None:
            if record.k % 10 == 0 or record.k == settings.rounds or record.k < 10:
                loss, sent = record.score.global_train, record.ledger.transmissions
                bars.show(name, record.k, settings.rounds, f"{metric} {loss:.4g}, {sent} sent")

        yield watch
