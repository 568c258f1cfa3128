"""What `coke run` does once its settings are known: read, train, say and leave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coke.cli import INTERRUPTED
from coke.cli.console import console, reading, run_rows, show_run, training
from coke.data.files import write_file
from coke.data.sites import Sites
from coke.learning.loading import load_task
from coke.learning.task import Task
from coke.learning.workflow import (
    Effects,
    Folder,
    Interrupted,
    Outcome,
    accuracy,
    consensus_model,
    summary,
    train_all,
    yardsticks,
)
from coke.maths.graph import Graph
from coke.maths.losses import CLASSES, LOSSES
from coke.settings.declaration import Settings
from coke.studies.audit import warnings

if TYPE_CHECKING:
    from mpi4py import MPI


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
    with reading(settings) as watch:
        task, network, sites = load_task(settings, where.folder, where.comm, watch)
    everybody = task.everybody
    said = [] if everybody is None else warnings(everybody, where.folder)
    for line in said:
        console.print(f"privacy: {line}; see docs/privacy.md", markup=False, soft_wrap=True)
    outcomes, stopped = _trained(settings, task, network, effects)
    document = _document(task, network, sites, outcomes) if outcomes else None
    if document is not None:
        document |= {"interrupted": stopped, "warnings": said}
        if settings.privacy == "dp":
            document |= {"epsilon": settings.epsilon, "delta": settings.delta}
            document["epsilon_spent"] = None if task.budget is None else task.budget.epsilon
        if folder:
            document |= _leave(folder, settings, task, network, outcomes, document)
        show_run(document, json)
    if stopped:
        how = f"; go on with: coke run --resume {folder.path}" if folder else ""
        console.print(f"stopped by Ctrl-C{how}", markup=False, soft_wrap=True)
        raise SystemExit(INTERRUPTED)  # all is said: not typer's way, which says it again


def _trained(
    settings: Settings, task: Task, graph: Graph, effects: Effects
) -> tuple[list[Outcome], bool]:
    """What came of the rounds, and whether Ctrl-C ended them."""
    with training(settings, task.problem.train.metric) as watch:
        try:
            return train_all(settings, task, graph, effects._replace(watch=watch)), False
        except Interrupted as interruption:
            return interruption.outcomes, True


def _document(
    task: Task, graph: Graph, sites: Sites, outcomes: list[Outcome]
) -> dict[str, Any] | None:
    """What there is to say, at the first process; None elsewhere."""
    right: dict[str, Any] = {}
    if LOSSES[task.loss].kind == CLASSES:
        right = accuracy(task, consensus_model(task, outcomes[0]), sites)
    everybody = task.everybody
    if everybody is None:
        return None
    whole = [outcome for outcome in outcomes if outcome.error is None]
    own, *others = [summary(everybody, graph, outcome) for outcome in whole]
    failed = [{"algorithm": o.name, "error": o.error} for o in outcomes if o.error is not None]
    apart = {"beside": others, "failed": failed, "yardsticks": yardsticks(everybody)}
    return own | right | apart


def _leave(
    folder: Folder,
    settings: Settings,
    task: Task,
    graph: Graph,
    outcomes: list[Outcome],
    document: dict[str, Any],
) -> dict[str, Any]:
    """Model, pictures and report in the folder; the histories are there already."""
    from coke.report.page import html_report, pictures  # here: matplotlib is slow to import

    consensus_model(task, outcomes[0]).save(folder.model)
    best = document[f"optimum_train_{task.problem.train.metric}"]
    images = pictures([o.history for o in outcomes if len(o.history)], graph, best)
    for name, image in images.items():
        write_file(folder.path / f"{name}.png", image)
    text = msgspec.json.format(msgspec.json.encode(settings.plain())).decode()
    report = folder.path / "report.html"
    write_file(report, html_report(run_rows(document), images, text).encode())
    return {"model": str(folder.model), "report": str(report)}
