"""What `coke run` does once its settings are known: read, train, say and leave, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
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

from coke.cli import INTERRUPTED
from coke.cli.console import console, run_rows, run_words, say, show_run
from coke.data.files import write_file
from coke.learning.folder import Folder
from coke.learning.open import open_ready
from coke.learning.ready import Ready
from coke.learning.train import Effects, Interrupted, Trained, Watch, train_all
from coke.report.summary import accuracy, chosen, summary, yardsticks
from coke.settings.declaration import Settings
from coke.studies.audit import warnings

if TYPE_CHECKING:
    from mpi4py import MPI

    from coke.data.sources import Watch as Passes
    from coke.engines.process import Record
    from coke.learning.costs import Expected


_LONG = 10.0  # seconds


class Where(NamedTuple):
    """Where a run takes place, and what it leaves."""

    folder: Path | None
    resume: bool  # go on from the folder's checkpoints
    checkpoint: float  # seconds between two
    comm: MPI.Comm | None  # the ranks, if there are several


def run(settings: Settings, where: Where, json: bool) -> None:
    """Trains every algorithm asked for, shows what came of it and leaves it in the folder."""
    folder = Folder(where.folder) if where.folder else None
    effects = Effects(folder, None, where.resume, where.checkpoint)
    with _reading(settings) as watch:
        ready = open_ready(settings, where.folder, where.comm, watch, _foretell, say)
    everybody = ready.everybody
    said = [] if everybody is None else warnings(everybody, where.folder)
    for line in said:
        console.print(f"privacy: {line}; see docs/privacy.md", markup=False, soft_wrap=True)
    done, stopped = _trained(settings, ready, effects)
    document = _document(ready, done) if done else None
    if document is not None:
        document |= {"interrupted": stopped, "warnings": said}
        if settings.privacy == "dp":
            document |= {"epsilon": settings.epsilon, "delta": settings.delta}
            noised = ready.noised
            document["epsilon_spent"] = None if noised is None else noised.budget.epsilon
        if folder:
            document |= _leave(folder, ready, done, document)
        show_run(document, json)
    if stopped:
        how = f"; go on with: coke run --resume {folder.path}" if folder else ""
        console.print(f"stopped by Ctrl-C{how}", markup=False, soft_wrap=True)
        raise SystemExit(INTERRUPTED)  # all is said: not typer's way, which says it again


def _foretell(costs: Expected) -> None:
    """What a long run may take."""
    if costs.seconds > _LONG:
        console.print(str(costs), markup=False, highlight=False, soft_wrap=True)


def _trained(settings: Settings, ready: Ready, effects: Effects) -> tuple[list[Trained], bool]:
    """What came of the rounds, and whether Ctrl-C ended them."""
    with _training(settings, ready.problem.train.metric) as watch:
        try:
            return train_all(ready, effects._replace(watch=watch)), False
        except Interrupted as interruption:
            return interruption.done, True


def _document(ready: Ready, done: list[Trained]) -> dict[str, Any] | None:
    """What there is to say, at the first process; None elsewhere."""
    right: dict[str, Any] = {}
    model = done[0].model
    assert model is not None  # there was a round
    if not ready.agreement.terms.numbers:
        right = accuracy(ready, model)
    about: dict[str, Any] = {"choice": None, "importance": None, "coverage": None}
    if ready.agreement.choice is not None:
        about = chosen(ready, model, ready.agreement.choice)
    everybody = ready.everybody
    if everybody is None:
        return None
    own, *others = [summary(everybody, one) for one in done if one.error is None]
    failed = [{"algorithm": one.name, "error": one.error} for one in done if one.error is not None]
    apart = {"beside": others, "failed": failed, "yardsticks": yardsticks(everybody)}
    return own | right | apart | about


def _leave(
    folder: Folder, ready: Ready, done: list[Trained], document: dict[str, Any]
) -> dict[str, Any]:
    """Model, pictures and report in the folder; the histories are there already."""
    # here: matplotlib is slow to import
    from coke.report.page import html_report, model_pictures, pictures

    model = done[0].model
    assert model is not None  # there was a round
    model.save(folder.model)
    best = document[f"optimum_train_{ready.problem.train.metric}"]
    images = pictures([one.history for one in done if len(one.history)], ready.graph, best)
    images |= model_pictures(model, document["importance"], document["coverage"])
    for name, image in images.items():
        write_file(folder.path / f"{name}.png", image)
    plain = ready.agreement.terms.settings.plain()
    text = msgspec.json.format(msgspec.json.encode(plain)).decode()
    report = folder.path / "report.html"
    page = html_report(run_rows(document), images, text, run_words(document))
    write_file(report, page.encode())
    return {"model": str(folder.model), "report": str(report)}


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
def _reading(settings: Settings) -> Iterator[Passes | None]:
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
def _training(settings: Settings, metric: str) -> Iterator[Watch]:
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
