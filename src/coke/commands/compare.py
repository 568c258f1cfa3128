"""`coke compare`: every method's sends and bytes to a wanted accuracy, side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coke.commands.output import AsJson, console, print_json
from coke.commands.run import settings_from
from coke.config import Config, from_settings, load_task
from coke.data.files import write_file
from coke.errors import ConfigError
from coke.run.compare import Case, Comparison, Paper, Row, advice
from coke.tables import shown
from coke.workflow import Folder


def compare(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; without it, the paper's synthetic problem.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Parquet or CSV file of rows.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    site: Annotated[str | None, typer.Option(help="Column that says who holds a row.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents.")] = None,
    edges: Annotated[int | None, typer.Option(help="Edges of a random graph.")] = None,
    split: Annotated[str | None, typer.Option(help="iid, or sorted by target.")] = None,
    scale: Annotated[str | None, typer.Option(help="none, standard or minmax.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Kernel bandwidth σ.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of random features L.")] = None,
    mapping: Annotated[str | None, typer.Option(help="cos-sin or cos-phase.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="Regularisation λ.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of features, graph and splits.")] = None,
    goal: Annotated[
        float, typer.Option(help="Times the optimum's training MSE, on everybody's rows.")
    ] = 1.01,
    method: Annotated[list[str] | None, typer.Option(help="Only this one; may repeat.")] = None,
    rounds: Annotated[int, typer.Option(help="Horizon of the paper's COKE and DKLA.")] = 2000,
    out: Annotated[Path | None, typer.Option(help="Folder for the plot.")] = None,
    json: AsJson = False,
) -> None:
    """Which method reaches a wanted accuracy with the fewest bytes on these data."""
    changes = {
        "data.file": str(data.resolve()) if data else None, "data.target": target,
        "data.site": site, "data.drop": drop, "data.agents": agents, "data.split": split,
        "data.scale": scale, "features.sigma": sigma, "features.n_features": features,
        "features.mapping": mapping, "graph.edges": edges, "lambda": lam, "seed": seed,
    }  # fmt: skip
    wanted = from_settings(settings_from(config, changes))
    folder = Folder(out) if out else None
    if wanted.loss != "quadratic":
        raise ConfigError(f'loss = "{wanted.loss}": methods are compared for "quadratic" so far')
    with console.status("reading rows, one pass over them"):
        comparison = Comparison(*_case(wanted, rounds), goal)
    rows = _rows(comparison, method or list(comparison.methods))
    document = {
        "goal": goal,
        "optimum": comparison.optimum,
        "rows": [row._asdict() for row in rows],
        "advice": advice(rows),
    }
    if folder:
        document["plot"] = _plot(rows, comparison, folder)
    if json:
        print_json(document)
    else:
        _show(rows, document)


def _case(config: Config, rounds: int) -> tuple[Case, Paper]:
    task, graph, sites = load_task(config)
    X = [task.scaling.inputs(x) for x in sites.X]
    spread = float(np.concatenate([task.scaling.targets(y) for y in sites.y]).std())
    case = Case(task.problem, task.features, X, graph, spread, config.features.sigma, config.seed)
    return case, Paper(config.rho, config.v, config.mu, config.eta, rounds)


def _rows(comparison: Comparison, methods: list[str]) -> list[Row]:
    columns = (TextColumn("{task.description:>17}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar, rows = progress.add_task("", total=len(methods)), []
        for name in methods:
            progress.update(bar, description=name)
            rows.append(comparison.row(name))
            progress.advance(bar)
    return rows


def _show(rows: list[Row], document: dict[str, Any]) -> None:
    title = f"to {document['goal']:g} × the optimum's MSE {document['optimum']:.4g}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("method", "settled", "rounds", "sends", "bytes", "wire", "agreement", "MSE"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in rows:
        sizes = (row.bytes, row.wire_bytes, row.agreement_bytes)
        table.add_row(
            row.method,
            "yes" if row.reached else "no",
            str(row.rounds),
            shown("", row.transmissions),
            *(shown("bytes", size) for size in sizes),
            shown("", row.global_train_mse),
        )
    Console().print(table)
    sys.stdout.write(f"{document['advice']}\n")


def _plot(rows: list[Row], comparison: Comparison, folder: Folder) -> str:
    from coke.plots import cost_plot, png  # here: matplotlib is slow to import

    path = folder.path / "compare.png"
    write_file(path, png(cost_plot(rows, comparison.optimum)))
    return str(path)
