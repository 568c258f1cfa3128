"""`coke run`: train in one process, all sites at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from coke.audit import warnings
from coke.commands.output import AsJson, console, run_rows, show_run
from coke.config import (
    Config,
    Settings,
    default_settings,
    from_settings,
    merged,
    read_settings,
)
from coke.data.files import write_file
from coke.data.sites import Sites
from coke.errors import ConfigError
from coke.loading import load_task
from coke.maths.graph import Graph
from coke.run.simulate import Record
from coke.task import Task
from coke.workflow import (
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

INTERRUPTED = 130
MAY_CHANGE = ("rounds", "tol", "max_bytes", "max_transmissions")  # when a run is resumed


def run(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; without it, the paper's synthetic problem.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Parquet or CSV file of rows.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    site: Annotated[
        str | None, typer.Option(help="Column that says which site holds a row.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; may be repeated.")
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="Rows with missing values: refuse or drop.")
    ] = None,
    agents: Annotated[
        int | None, typer.Option(help="Number of agents, where no column names the sites.")
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(help="random, erdos-renyi, ring, star, complete, grid or small-world."),
    ] = None,
    edges: Annotated[int | None, typer.Option(help="Edges of a random graph.")] = None,
    split: Annotated[
        str | None, typer.Option(help="How rows are dealt out: iid, or sorted by target.")
    ] = None,
    scale: Annotated[str | None, typer.Option(help="none, standard or minmax.")] = None,
    sigma: Annotated[str | None, typer.Option(help="Kernel bandwidth σ, or auto.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of random features L.")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="gaussian, laplacian, cauchy, matern32 or matern52.")
    ] = None,
    mapping: Annotated[str | None, typer.Option(help="cos-sin or cos-phase.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="Regularisation λ.")] = None,
    loss: Annotated[str | None, typer.Option(help="quadratic, logistic or hinge.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="coke, or the paper's coke-paper, dkla or cta.")
    ] = None,
    beside: Annotated[
        list[str] | None, typer.Option(help="Another algorithm to run as well; may be repeated.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="ADMM step ρ of coke-paper, dkla.")] = None,
    v: Annotated[float | None, typer.Option(help="Threshold h(k) = v μᵏ: v.")] = None,
    mu: Annotated[float | None, typer.Option(help="Threshold h(k) = v μᵏ: μ.")] = None,
    eta: Annotated[float | None, typer.Option(help="Step η of CTA.")] = None,
    rounds: Annotated[int | None, typer.Option(help="At most so many rounds.")] = None,
    tol: Annotated[
        float | None,
        typer.Option(help="Stop once no prediction moves by more, in the target's spread."),
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Budget of all sites together.")] = None,
    max_transmissions: Annotated[int | None, typer.Option(help="Budget of all sites.")] = None,
    whitening: Annotated[
        str | None, typer.Option(help="Common basis: mixture, moments, gram or sample.")
    ] = None,
    sample: Annotated[
        Path | None, typer.Option(help="File of public inputs, for --whitening sample.")
    ] = None,
    privacy: Annotated[str | None, typer.Option(help="none or dp (docs/privacy.md).")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε of --privacy dp.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of --privacy dp.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of features, graph, data and splits.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for history, model, plots and report.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    checkpoint: Annotated[
        float, typer.Option(help="Seconds between checkpoints in the folder.")
    ] = 30.0,
    json: AsJson = False,
) -> None:
    """Train in one process, all sites at once."""
    changes = {
        "data.file": str(data.resolve()) if data else None, "data.target": target,
        "data.site": site, "data.drop": drop, "data.missing": missing, "data.agents": agents,
        "data.split": split, "data.scale": scale, "features.sigma": number_or_word(sigma),
        "features.n_features": features, "features.kernel": kernel, "features.mapping": mapping,
        "graph.kind": graph,
        "graph.edges": edges, "lambda": lam, "loss": loss, "algorithm": algorithm,
        "beside": beside, "rho": rho, "v": v, "mu": mu, "eta": eta, "rounds": rounds, "tol": tol,
        "max_bytes": max_bytes, "max_transmissions": max_transmissions, "whitening": whitening,
        "sample": str(sample.resolve()) if sample else None, "privacy": privacy,
        "epsilon": epsilon, "delta": delta, "seed": seed,
    }  # fmt: skip
    if resume is not None and out is not None:
        raise ConfigError(
            f"both --out {out} and --resume {resume}: a resumed run stays in its folder"
        )
    wanted = _config(config, resume, changes)
    folder = Folder(out) if out else Folder(resume, create=False) if resume else None
    with console.status("reading rows, one pass over them"):
        task, network, sites = load_task(wanted, folder.path if folder else None)
    said = warnings(task)
    for line in said:
        console.print(f"privacy: {line}; see docs/privacy.md", markup=False, soft_wrap=True)
    try:
        outcomes = _watched(wanted, task, network, folder, resume is not None, checkpoint)
        stopped = False
    except Interrupted as interruption:
        outcomes, stopped = interruption.outcomes, True
    if outcomes:
        document = _document(task, network, sites, outcomes, stopped)
        document["warnings"] = said
        if wanted.privacy == "dp":
            document |= {"epsilon": wanted.epsilon, "delta": wanted.delta}
        if folder:
            document |= _leave(folder, wanted, task, network, outcomes, document)
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
    return from_settings(settings_from(path, changes))


def number_or_word(text: str | None) -> float | str | None:
    """An option that is a number or a word such as auto."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def settings_from(path: Path | None, changes: dict[str, Any]) -> Settings:
    """A file's settings, or the defaults of one's own data, or the synthetic problem's; changed."""
    if path is not None:
        return merged(read_settings(path), changes)
    return merged({} if changes["data.file"] else default_settings(), changes)


def _watched(
    config: Config, task: Task, graph: Graph, folder: Folder | None, resume: bool, every: float
) -> list[Outcome]:
    """Trains under a progress bar on stderr."""
    metric = task.problem.train.metric
    columns = (
        TextColumn("{task.description:>5}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars: dict[str, Any] = {}

        def watch(name: str, record: Record) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=config.rounds, note="")
            if record.k % 10 == 0 or record.k == config.rounds or record.k < 10:
                loss, sent = record.score.global_train, record.ledger.transmissions
                note = f"{metric} {loss:.4g}, {sent} sent"
                progress.update(bars[name], completed=record.k, note=note)

        return train_all(config, task, graph, Effects(folder, watch, resume, every))


def _document(
    task: Task, graph: Graph, sites: Sites, outcomes: list[Outcome], stopped: bool
) -> dict[str, Any]:
    whole = [outcome for outcome in outcomes if outcome.error is None]
    own, *others = [summary(task, graph, outcome) for outcome in whole]
    if task.loss != "quadratic":
        own |= accuracy(consensus_model(task, outcomes[0]), sites)
    failed = [{"algorithm": o.name, "error": o.error} for o in outcomes if o.error is not None]
    apart = {"beside": others, "failed": failed, "yardsticks": yardsticks(task)}
    return own | apart | {"interrupted": stopped}


def _leave(
    folder: Folder,
    config: Config,
    task: Task,
    graph: Graph,
    outcomes: list[Outcome],
    document: dict[str, Any],
) -> dict[str, Any]:
    """Model, pictures and report in the folder; the histories are there already."""
    from coke.report import html_report, pictures  # here: matplotlib is slow to import

    consensus_model(task, outcomes[0]).save(folder.model)
    best = document[f"optimum_train_{task.problem.train.metric}"]
    images = pictures([o.history for o in outcomes if len(o.history)], graph, best)
    for name, image in images.items():
        write_file(folder.path / f"{name}.png", image)
    settings = msgspec.json.format(msgspec.json.encode(config.settings())).decode()
    report = folder.path / "report.html"
    write_file(report, html_report(run_rows(document), images, settings).encode())
    return {"model": str(folder.model), "report": str(report)}
