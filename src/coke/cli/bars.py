"""Progress bars on stderr: of the passes over rows, and of the rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
from rich.text import Text

from coke.cli.console import console
from coke.data.site import Watch as Passes
from coke.engines.process import Record
from coke.learning.train import Watch
from coke.settings import Config


class Bars:
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
def reading(config: Config) -> Iterator[Passes | None]:
    """While rows are read; whom to tell of the passes over those that memory may not hold."""
    if not (config.data.stream or config.data.on_disk):
        with console.status("reading rows, one pass over them"):
            yield None
        return
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(),
        TextColumn("{task.completed:,} rows"),
    )
    with Progress(*columns, _Rate(), console=console) as progress:
        yield Bars(progress).show


@contextmanager
def training(config: Config, metric: str) -> Iterator[Watch]:
    """While agents train; whom to tell of every round."""
    note = TextColumn("{task.fields[note]}")
    columns = (TextColumn("{task.description:>5}"), BarColumn(), MofNCompleteColumn(), note)
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bars = Bars(progress)

        def watch(name: str, record: Record) -> None:
            if record.k % 10 == 0 or record.k == config.rounds or record.k < 10:
                loss, sent = record.score.global_train, record.ledger.transmissions
                bars.show(name, record.k, config.rounds, f"{metric} {loss:.4g}, {sent} sent")

        yield watch
