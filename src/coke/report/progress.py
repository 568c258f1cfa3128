"""How far a run has come: bars on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from coke.data.sources import Watch as Passes
    from coke.engines.process import Record
    from coke.learning.prequential import Feed
    from coke.learning.ready import Ready
    from coke.learning.train import Watch
    from coke.settings.declaration import Settings

_EVERY = 5.0  # seconds between two lines where there is no terminal
_WHOLE = 1000  # parts of a bar


class _Bars:
    """A bar for each name, made when it is first heard of; or lines, where nobody sees a bar."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._known: dict[str, TaskID] = {}
        self._said = time.monotonic()

    def show(self, name: str, done: int, total: int | None, note: str = "") -> None:
        """So much of that is done."""
        if name not in self._known:
            self._known[name] = self._progress.add_task(name, total=total, note="")
        self._progress.update(self._known[name], completed=done, note=note)
        console = self._progress.console
        if not console.is_terminal and time.monotonic() - self._said > _EVERY:
            self._said = time.monotonic()
            told = note or f"{done:,} rows"
            console.print(f"{name}: {told}", markup=False, highlight=False, soft_wrap=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} rows/s" if speed else "")


@contextmanager
def reading(settings: Settings, console: Console) -> Iterator[Passes | None]:
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
    with Progress(*columns, _Rate(), TimeElapsedColumn(), console=console) as progress:
        yield _Bars(progress).show


@contextmanager
def training(ready: Ready, console: Console) -> Iterator[Watch]:
    """While agents train; whom to tell of every round.

    A bar is as full as the way to what ends the run is done, on a log scale: nobody knows how many
    rounds that takes.
    """
    note = TextColumn("{task.fields[note]}")
    settings, T = ready.agreement.terms.settings, float(ready.problem.train.T.sum())
    columns = (TextColumn("{task.description:>5}"), BarColumn(), note, TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars, ways = _Bars(progress), dict[str, _Way]()

        def watch(name: str, record: Record) -> None:
            way = ways.setdefault(name, _Way(T, settings.rounds))
            if record.k % 10 == 0 or record.settled or record.k < 10:
                bars.show(name, *way.at(record, ready.problem.train.metric))

        yield watch


@contextmanager
def following(T: int, console: Console) -> Iterator[Callable[[int, Feed], None]]:
    """While T rows of a stream are learnt from; whom to tell of how many have come."""
    note = TextColumn("{task.fields[note]}")
    columns = (TextColumn("{task.description:>6}"), BarColumn(), note, TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars = _Bars(progress)

        def watch(rows: int, feed: Feed) -> None:
            alarms, last = len(feed.alarms), feed.predicted[-1] if feed.predicted else None
            if last is not None:
                note = f"{rows:,} of {T:,} rows, {alarms} alarms, {last.bytes / 1000:,.1f} kB"
                bars.show("stream", rows, T, note)

        yield watch


class _Way:
    """From the farthest that was left to what may be, or through all rounds if nothing tells."""

    def __init__(self, T: float, rounds: int):
        self._T, self._rounds = T, rounds
        self._far, self._began = 0.0, time.monotonic()

    def at(self, record: Record, metric: str) -> tuple[int, int, str]:
        """How much of a whole is done, and what there is to say."""
        share, away = record.k / self._rounds, f"{record.k} of {self._rounds} rounds"
        if math.isfinite(off := record.away):
            self._far = max(self._far, off)
            share = 1.0 - math.log(max(off, 1.0)) / math.log(max(self._far, 2.0))
            away = f"round {record.k}, {off:.2g} × what may be left"
        passed = max(time.monotonic() - self._began, 1e-3)
        loss, sent = record.score.global_train, record.ledger.transmissions
        note = (
            f"{away}, {metric} {loss:.4g}, {sent} sent, {record.k * self._T / passed:,.0f} rows/s"
        )
        return round(_WHOLE * min(max(share, 0.0), 1.0)), _WHOLE, note
