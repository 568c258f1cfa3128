"""`coke run`: train, all sites at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from coke.cli import options
from coke.cli.bars import reading, training
from coke.cli.console import AsJson, console, run_rows, show_run
from coke.data.files import write_file
from coke.data.sites import Sites
from coke.engines.ranks.collectives import ended_together, job
from coke.errors import ConfigError
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
from coke.settings import Config, from_settings, merged
from coke.studies.audit import warnings

if TYPE_CHECKING:
    from mpi4py import MPI

INTERRUPTED = 130
MAY_CHANGE = ("rounds", "tol", "max_bytes", "max_transmissions")  # when a run is resumed


def run(
    config: options.ConfigFile = None,
    data: options.Data = None,
    target: options.Target = None,
    site: options.Site = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Pass over the rows; keep none in memory.")
    ] = False,
    on_disk: Annotated[
        Path | None,
        typer.Option(help="Folder for rows with class labels and their features, not in memory."),
    ] = None,
    agents: options.Agents = None,
    graph: options.GraphName = None,
    edges: options.Edges = None,
    split: options.Split = None,
    scale: options.Scale = None,
    sigma: options.Sigma = None,
    features: options.Features = None,
    kernel: options.Kernel = None,
    mapping: options.FeatureMap = None,
    lam: options.Lambda = None,
    loss: options.Loss = None,
    algorithm: options.Algorithm = None,
    beside: Annotated[
        list[str] | None, typer.Option(help="Another algorithm to run as well; may be repeated.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="ADMM step ρ of coke-paper, dkla.")] = None,
    v: Annotated[float | None, typer.Option(help="Threshold h(k) = v μᵏ: v.")] = None,
    mu: options.Mu = None,
    eta: Annotated[float | None, typer.Option(help="Step η of CTA.")] = None,
    rounds: Annotated[int | None, typer.Option(help="At most so many rounds.")] = None,
    tol: Annotated[
        float | None,
        typer.Option(help="Stop once no prediction moves by more, in the target's spread."),
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Budget of all sites together.")] = None,
    max_transmissions: Annotated[int | None, typer.Option(help="Budget of all sites.")] = None,
    whitening: options.Whitening = None,
    sample: options.Sample = None,
    privacy: Annotated[str | None, typer.Option(help="none or dp (docs/privacy.md).")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε of --privacy dp.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of --privacy dp.")] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Compiled rounds (the extra fast): other last bits.")
    ] = False,
    seed: options.Seed = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for history, model, plots and report.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    checkpoint: Annotated[
        float, typer.Option(help="Seconds between checkpoints in the folder.")
    ] = 30.0,
    engine: Annotated[
        str, typer.Option(help="simulation: this process; mpi: the ranks of mpirun (docs/mpi.md).")
    ] = "simulation",
    json: AsJson = False,
) -> None:
    """Train, all sites at once: in one process, or with --engine mpi on the ranks of a job."""
    changes = options.changes_of(locals())
    if resume is not None and out is not None:
        raise ConfigError(
            f"both --out {out} and --resume {resume}: a resumed run stays in its folder"
        )
    comm = job(engine)
    with _on_ranks(comm):
        wanted = _config(config, resume, changes)
        folder = Folder(out) if out else Folder(resume, create=False) if resume else None
        _run(wanted, comm, Effects(folder, None, resume is not None, checkpoint), json)


@contextmanager
def _on_ranks(comm: MPI.Comm | None) -> Iterator[None]:
    """On ranks, the first one speaks; another only if it fails alone."""
    if comm is None:
        yield
        return
    console.quiet = comm.rank > 0
    with ended_together(comm, lambda: setattr(console, "quiet", False)):
        yield


def _run(config: Config, comm: MPI.Comm | None, effects: Effects, json: bool) -> None:
    folder = effects.folder
    with reading(config) as watch:
        task, network, sites = load_task(config, folder.path if folder else None, comm, watch)
    everybody, before = task.everybody, folder.path if folder else None
    said = [] if everybody is None else warnings(everybody, before)
    for line in said:
        console.print(f"privacy: {line}; see docs/privacy.md", markup=False, soft_wrap=True)
    outcomes, stopped = _trained(config, task, network, effects)
    document = _document(task, network, sites, outcomes) if outcomes else None
    if document is not None:
        document |= {"interrupted": stopped, "warnings": said}
        if config.privacy == "dp":
            document |= {"epsilon": config.epsilon, "delta": config.delta}
            document["epsilon_spent"] = None if task.budget is None else task.budget.epsilon
        if folder:
            document |= _leave(folder, config, task, network, outcomes, document)
        show_run(document, json)
    if stopped:
        how = f"; go on with: coke run --resume {folder.path}" if folder else ""
        console.print(f"stopped by Ctrl-C{how}", markup=False, soft_wrap=True)
        raise SystemExit(INTERRUPTED)  # all is said: not typer's way, which says it again


def _config(path: Path | None, resume: Path | None, changes: dict[str, Any]) -> Config:
    if resume is not None:
        given = [key for key, value in changes.items() if value is not None]
        fixed = [*([str(path)] if path else []), *(key for key in given if key not in MAY_CHANGE)]
        if fixed:
            raise ConfigError(
                f"--resume {resume} with {', '.join(fixed)}: a resumed run keeps its own settings; "
                "only --rounds, --tol and budgets may change"
            )
        saved = Folder(resume, create=False).saved_config().settings()
        return from_settings(merged(saved, changes))
    return from_settings(options.settings_from(path, changes))


def _trained(
    config: Config, task: Task, graph: Graph, effects: Effects
) -> tuple[list[Outcome], bool]:
    """What came of the rounds, and whether Ctrl-C ended them."""
    with training(config, task.problem.train.metric) as watch:
        try:
            return train_all(config, task, graph, effects._replace(watch=watch)), False
        except Interrupted as interruption:
            return interruption.outcomes, True


def _document(
    task: Task, graph: Graph, sites: Sites, outcomes: list[Outcome]
) -> dict[str, Any] | None:
    """What there is to say, at the first process; None elsewhere."""
    right: dict[str, Any] = {}
    if len(task.classes):
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
    config: Config,
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
    settings = msgspec.json.format(msgspec.json.encode(config.settings())).decode()
    report = folder.path / "report.html"
    write_file(report, html_report(run_rows(document), images, settings).encode())
    return {"model": str(folder.model), "report": str(report)}
