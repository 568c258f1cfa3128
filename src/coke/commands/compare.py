"""`coke compare`: every method's sends and bytes to a wanted accuracy, side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coke.commands.output import AsJson, console, print_json
from coke.commands.run import number_or_word, settings_from
from coke.config import from_settings
from coke.data.files import write_file
from coke.errors import ConfigError
from coke.loading import load_task
from coke.run.compare import Comparison, Paper
from coke.run.goal import Row, advice
from coke.tables import shown
from coke.workflow import Folder

HORIZON = {"quadratic": 2000}  # rounds of the paper's methods
SHORTER = 300  # for class labels, whose rounds take longer


def compare(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; without it, the paper's synthetic problem.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Parquet or CSV file of rows.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    site: Annotated[str | None, typer.Option(help="Column that says who holds a row.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    missing: Annotated[
        str | None, typer.Option(help="Rows with missing values: refuse or drop.")
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents.")] = None,
    graph: Annotated[str | None, typer.Option(help="random, ring, star, complete, …")] = None,
    edges: Annotated[int | None, typer.Option(help="Edges of a random graph.")] = None,
    split: Annotated[str | None, typer.Option(help="iid, or sorted by target.")] = None,
    scale: Annotated[str | None, typer.Option(help="none, standard or minmax.")] = None,
    sigma: Annotated[str | None, typer.Option(help="Kernel bandwidth σ, or auto.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of random features L.")] = None,
    kernel: Annotated[str | None, typer.Option(help="gaussian, laplacian, cauchy, …")] = None,
    mapping: Annotated[str | None, typer.Option(help="cos-sin or cos-phase.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="Regularisation λ.")] = None,
    loss: Annotated[str | None, typer.Option(help="quadratic, logistic or hinge.")] = None,
    whitening: Annotated[
        str | None, typer.Option(help="Common basis: mixture, moments, gram or sample.")
    ] = None,
    sample: Annotated[
        Path | None, typer.Option(help="File of public inputs, for --whitening sample.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of features, graph and splits.")] = None,
    goal: Annotated[
        float, typer.Option(help="Times the optimum's training MSE or objective.")
    ] = 1.01,
    method: Annotated[list[str] | None, typer.Option(help="Only this one; may repeat.")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Horizon of the paper's COKE and DKLA (2000, classes 300).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the plot.")] = None,
    json: AsJson = False,
) -> None:
    """Which method reaches a wanted accuracy with the fewest bytes on these data."""
    changes = {
        "data.file": str(data.resolve()) if data else None, "data.target": target,
        "data.site": site, "data.drop": drop, "data.missing": missing, "data.agents": agents,
        "data.split": split, "data.scale": scale, "features.sigma": number_or_word(sigma),
        "features.n_features": features, "features.kernel": kernel, "features.mapping": mapping,
        "graph.kind": graph, "graph.edges": edges, "lambda": lam, "loss": loss,
        "whitening": whitening, "sample": str(sample.resolve()) if sample else None, "seed": seed,
    }  # fmt: skip
    wanted = from_settings(settings_from(config, changes))
    if wanted.privacy == "dp":
        raise ConfigError(
            'privacy = "dp": a comparison looks at raw rows; compare on public data, or without it'
        )
    folder = Folder(out) if out else None
    with console.status("reading rows, one pass over them"):
        task, _, _ = load_task(wanted)
        horizon = rounds or HORIZON.get(wanted.loss, SHORTER)
        paper = Paper(wanted.rho, wanted.v, wanted.mu, wanted.eta, horizon)
        comparison = Comparison(task.case(), paper, goal)
    rows = _rows(comparison, method or list(comparison.methods))
    document = {
        "goal": goal,
        "optimum": comparison.goal.optimum,
        "rows": [row.document(comparison.goal.metric) for row in rows],
        "advice": advice(rows),
    }
    if folder:
        document["plot"] = _plot(rows, comparison, folder)
    if json:
        print_json(document)
    else:
        _show(rows, comparison.goal.metric, document)


def _rows(comparison: Comparison, methods: list[str]) -> list[Row]:
    columns = (TextColumn("{task.description:>17}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar, rows = progress.add_task("", total=len(methods)), []
        for name in methods:
            progress.update(bar, description=name)
            rows.append(comparison.row(name))
            progress.advance(bar)
    return rows


def _show(rows: list[Row], metric: str, document: dict[str, Any]) -> None:
    of = "MSE" if metric == "mse" else "objective"
    title = f"to {document['goal']:g} × the optimum's {of} {document['optimum']:.4g}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("method", "rounds", "sends", "bytes", "wire", "agreed", of):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in rows:
        sizes = (row.bytes, row.wire_bytes, row.agreement_bytes)
        table.add_row(
            row.method,
            str(row.rounds) if row.reached else f"not in {row.rounds}",
            shown("", row.transmissions),
            *(shown("bytes", size) for size in sizes),
            shown("", row.value),
        )
    Console().print(table)
    sys.stdout.write(f"{document['advice']}\n")


def _plot(rows: list[Row], comparison: Comparison, folder: Folder) -> str:
    from coke.plots import cost_plot, png  # here: matplotlib is slow to import

    path = folder.path / "compare.png"
    write_file(path, png(cost_plot(rows, comparison.goal)))
    return str(path)
