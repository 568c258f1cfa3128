"""The command line: a thin layer over the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import coke
from coke.config import Config, default_settings, from_settings, load_task, merged, read_settings
from coke.data.files import atomically, write_file
from coke.data.sites import Sites
from coke.errors import CokeError, ConfigError
from coke.maths.graph import Graph
from coke.model import load_model
from coke.run.simulate import Record
from coke.tables import lines
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

app = typer.Typer(
    help="Learn one nonlinear model from data that stay where they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(stderr=True)
INTERRUPTED = 130
APART = ("beside", "yardsticks", "interrupted", "model", "report")  # not numbers of the run

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"coke {coke.__version__}\n")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
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
    sigma: Annotated[float | None, typer.Option(help="Kernel bandwidth σ.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of random features L.")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="gaussian, laplacian, cauchy, matern32 or matern52.")
    ] = None,
    mapping: Annotated[str | None, typer.Option(help="cos-sin or cos-phase.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="Regularisation λ.")] = None,
    loss: Annotated[str | None, typer.Option(help="quadratic, logistic or hinge.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="coke, dkla or cta.")] = None,
    beside: Annotated[
        list[str] | None, typer.Option(help="Another algorithm to run as well; may be repeated.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="ADMM step ρ.")] = None,
    v: Annotated[float | None, typer.Option(help="Threshold h(k) = v μᵏ: v.")] = None,
    mu: Annotated[float | None, typer.Option(help="Threshold h(k) = v μᵏ: μ.")] = None,
    eta: Annotated[float | None, typer.Option(help="Step η of CTA.")] = None,
    rounds: Annotated[int | None, typer.Option(help="At most so many rounds.")] = None,
    tol: Annotated[
        float | None,
        typer.Option(help="Stop once all agents have settled within this share of ‖θ‖."),
    ] = None,
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
        "data.file": str(data) if data else None, "data.target": target, "data.site": site,
        "data.drop": drop, "data.missing": missing, "data.agents": agents, "data.split": split,
        "data.scale": scale, "features.sigma": sigma, "features.n_features": features,
        "features.kernel": kernel, "features.mapping": mapping, "graph.kind": graph,
        "graph.edges": edges, "lambda": lam, "loss": loss, "algorithm": algorithm,
        "beside": beside, "rho": rho, "v": v, "mu": mu, "eta": eta, "rounds": rounds, "tol": tol,
        "seed": seed,
    }  # fmt: skip
    wanted = _config(config, resume, changes)
    folder = Folder(out or resume) if out or resume else None  # type: ignore[arg-type]
    with console.status("reading rows, one pass over them"):
        task, network, sites = load_task(wanted)
    try:
        outcomes = _watched(wanted, task, network, folder, resume is not None, checkpoint)
        stopped = False
    except Interrupted as interruption:
        outcomes, stopped = interruption.outcomes, True
    if outcomes:
        document = _document(task, network, sites, outcomes, stopped)
        if folder:
            document |= _leave(folder, wanted, task, network, outcomes, document)
        _show(document, json)
    if stopped:
        console.print(
            "stopped by Ctrl-C"
            + (f"; go on with: coke run --resume {folder.path}" if folder else "")
        )
        raise typer.Exit(INTERRUPTED)


def _config(path: Path | None, resume: Path | None, changes: dict[str, Any]) -> Config:
    if resume is not None:
        if path is not None:
            raise ConfigError(
                f"both {path} and --resume {resume}: a resumed run keeps its own settings"
            )
        return from_settings(merged(Folder(resume).saved_config().settings(), changes))
    if path is not None:
        return from_settings(merged(read_settings(path), changes))
    return from_settings(merged({} if changes["data.file"] else default_settings(), changes))


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
    own, *others = [summary(task, graph, outcome) for outcome in outcomes]
    if task.loss != "quadratic":
        own |= accuracy(consensus_model(task, outcomes[0]), sites)
    return own | {"beside": others, "yardsticks": yardsticks(task), "interrupted": stopped}


def _rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The document's algorithms and yardsticks, one after the other."""
    own = {key: document[key] for key in document if key not in APART}
    return [own, *document["beside"], *document["yardsticks"]]


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
    images = pictures([outcome.history for outcome in outcomes], graph, best)
    for name, image in images.items():
        write_file(folder.path / f"{name}.png", image)
    settings = msgspec.json.format(msgspec.json.encode(config.settings())).decode()
    report = folder.path / "report.html"
    write_file(report, html_report(_rows(document), images, settings).encode())
    return {"model": str(folder.model), "report": str(report)}


def _show(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json(document)
        return
    rows = _rows(document)
    title = f"{document['agents']} agents, {document['edges']} edges"
    table = Table(
        title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    table.add_column("", min_width=13)
    for row in rows:
        table.add_column(row["algorithm"].replace("-", " "), justify="right")
    for name, values in lines(rows):
        if name not in ("agents", "edges") and not name.startswith("optimum"):
            table.add_row(name, *values)
    Console().print(table)
    if "report" in document:
        sys.stdout.write(f"model:  {document['model']}\nreport: {document['report']}\n")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model file of `coke run --out`.")],
    data: Annotated[
        Path, typer.Argument(help="Parquet or CSV file with the model's input columns.")
    ],
    out: Annotated[
        Path, typer.Option(help="Where to write the predictions: .csv or .parquet.")
    ] = Path("predictions.csv"),
    proba: Annotated[
        bool, typer.Option("--proba", help="Class probabilities beside the labels.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Predictions of a trained model for the rows of a file."""
    writers = {".csv": pa.csv.write_csv, ".parquet": pa.parquet.write_table}
    if out.suffix not in writers:
        raise ConfigError(f"--out {out}: expected a file ending in .csv or .parquet")
    trained = load_model(model)
    X = trained.inputs(data)
    columns = {"prediction": trained.predict(X)}
    if proba:
        P = trained.predict_proba(X)
        columns |= {f"p_{label}": P[:, j] for j, label in enumerate(trained.classes)}
    atomically(out, lambda part: writers[out.suffix](pa.table(columns), part))
    if json:
        _print_json({"rows": len(X), "out": str(out)})
    else:
        sys.stdout.write(f"{len(X)} predictions in {out}\n")


def _print_json(document: dict[str, Any]) -> None:
    def plain(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else value

    encoded = msgspec.json.encode(document, enc_hook=plain)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def main() -> None:
    """Entry point: errors of this package are a message and an exit code, never a traceback."""
    as_json = "--json" in sys.argv
    try:
        app()
    except CokeError as error:
        if as_json:
            _print_json({"error": str(error), "kind": type(error).__name__})
        console.print(f"[bold red]error:[/] {error}", highlight=False, markup=True, soft_wrap=True)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        console.print("stopped by Ctrl-C")
        raise SystemExit(INTERRUPTED) from None
