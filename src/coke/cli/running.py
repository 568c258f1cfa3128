"""What `coke run` does once its settings are known: read, train, say and leave, with progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coke.cli import INTERRUPTED
from coke.cli.console import console, run_rows, run_words, say, show_run
from coke.data.files import write_file
from coke.learning.assessing import assessed
from coke.learning.folder import Folder
from coke.learning.open import open_ready
from coke.learning.ready import Ready
from coke.learning.train import Effects, Interrupted, Trained, train_all
from coke.learning.verdict import Verdict
from coke.report.progress import reading, training
from coke.report.summary import accuracy, chosen, summary, yardsticks
from coke.settings.declaration import Settings
from coke.studies.audit import warnings

if TYPE_CHECKING:
    from mpi4py import MPI

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
    with reading(settings, console) as watch:
        ready = open_ready(settings, where.folder, where.comm, watch, _foretell, say)
    everybody = ready.everybody
    said = [] if everybody is None else warnings(everybody, where.folder)
    for line in said:
        console.print(f"privacy: {line}; see docs/privacy.md", markup=False, soft_wrap=True)
    done, stopped = _trained(ready, effects)
    verdict = _assessed(done[0], ready, look=folder is not None) if done else None
    document = _document(ready, done) if done else None
    if document is not None:
        warned = verdict.warnings if verdict else list(filter(None, [done[0].ended.warning]))
        for line in warned:
            console.print(f"warning: {line}", markup=False, highlight=False, soft_wrap=True)
        document |= {"interrupted": stopped, "warnings": [*said, *warned]}
        document |= {"verdict": verdict and verdict.document(), **_budget(ready)}
        if folder:
            document |= _leave(folder, ready, done, document, verdict)
        show_run(document, json, verdict)
    if stopped:
        how = f"; go on with: coke run --resume {folder.path}" if folder else ""
        console.print(f"stopped by Ctrl-C{how}", markup=False, soft_wrap=True)
        raise SystemExit(INTERRUPTED)  # all is said: not typer's way, which says it again


def _budget(ready: Ready) -> dict[str, Any]:
    """With privacy, what may be spent and what was."""
    settings, noised = ready.agreement.terms.settings, ready.noised
    if settings.privacy != "dp":
        return {}
    spent = None if noised is None else noised.budget.epsilon
    return {"epsilon": settings.epsilon, "delta": settings.delta, "epsilon_spent": spent}


def _foretell(costs: Expected) -> None:
    """What a long run may take."""
    if costs.seconds > _LONG:
        console.print(str(costs), markup=False, highlight=False, soft_wrap=True)


def _trained(ready: Ready, effects: Effects) -> tuple[list[Trained], bool]:
    """What came of the rounds, and whether Ctrl-C ended them."""
    with training(ready, console) as watch:
        try:
            return train_all(ready, effects._replace(watch=watch)), False
        except Interrupted as interruption:
            return interruption.done, True


def _assessed(trained: Trained, ready: Ready, look: bool) -> Verdict | None:
    """Whether joining paid; all processes ask."""
    assert trained.model is not None  # there was a round
    return assessed(ready, trained.model, trained.ended, look=look)


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
    about["kernels"] = dict(model.kernels) or None
    everybody = ready.everybody
    if everybody is None:
        return None
    own, *others = [summary(everybody, one) for one in done if one.error is None]
    failed = [{"algorithm": one.name, "error": one.error} for one in done if one.error is not None]
    apart = {"beside": others, "failed": failed, "yardsticks": yardsticks(everybody)}
    return own | right | apart | about


def _leave(
    folder: Folder, ready: Ready, done: list[Trained], document: dict[str, Any],
    verdict: Verdict | None,
) -> dict[str, Any]:  # fmt: skip
    """Model, pictures and report in the folder; the histories are there already."""
    # here: matplotlib is slow to import
    from coke.report.page import html_report, model_pictures, pictures, verdict_pictures

    model = done[0].model
    assert model is not None  # there was a round
    model.save(folder.model)
    best = document[f"optimum_train_{ready.problem.train.metric}"]
    images = {} if verdict is None else verdict_pictures(verdict, ready.graph, done[0])
    images |= pictures([one.history for one in done if len(one.history)], best)
    images |= model_pictures(model, document["importance"], document["coverage"])
    for name, image in images.items():
        write_file(folder.path / f"{name}.png", image)
    plain = ready.agreement.terms.settings.plain()
    text = msgspec.json.format(msgspec.json.encode(plain)).decode()
    report = folder.path / "report.html"
    page = html_report(run_rows(document), images, text, run_words(document), verdict)
    write_file(report, page.encode())
    return {"model": str(folder.model), "report": str(report)}
