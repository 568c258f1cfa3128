"""`coke network`: a whole network on one machine, to try it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coke.cli import options
from coke.cli.console import AsJson, console, print_json
from coke.errors import ConfigError
from coke.field.local import NetworkPlan, run_network, write_network
from coke.learning.loading import load_rows, parts_of
from coke.maths.graph import build_graph

app = typer.Typer(help="A network of agents on this machine.", no_args_is_help=True)


@app.callback()
def about() -> None:
    """A network of agents on this machine, to try it."""


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the network.")],
    config: Annotated[Path | None, typer.Option(help="TOML file as for coke run.")] = None,
    data: options.Data = None,
    target: options.Target = None,
    site: options.Site = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    agents: options.Agents = None,
    graph: options.GraphName = None,
    edges: options.Edges = None,
    split: options.Split = None,
    scale: options.Scale = None,
    sigma: options.Sigma = None,
    features: options.Features = None,
    lam: options.Lambda = None,
    loss: options.Loss = None,
    seed: options.Seed = None,
    patience: Annotated[
        str, typer.Option(help="For the missing: seconds, auto (ten usual rounds) or wait.")
    ] = "auto",
    name: Annotated[str, typer.Option(help="The network's name.")] = "demo",
    json: AsJson = False,
) -> None:
    """Write a ready set of site files, certificates and a start script."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: expected a new or empty folder; choose another")
    wanted = options.config_from(config, locals())
    rows = load_rows(wanted)
    parts = parts_of(wanted, rows)
    network = build_graph(wanted.graph.kind, len(parts), edges=wanted.graph.edges, seed=wanted.seed)
    wait = options.number_or_word(patience) or "auto"
    plan = NetworkPlan(
        network=name, graph=network, rows=rows, parts=parts, settings=wanted.shared(), patience=wait
    )
    paths = write_network(folder, plan)
    document = {"folder": str(folder), "sites": [str(path) for path in paths]}
    if json:
        print_json(document)
    else:
        console.print(
            f"{len(paths)} sites in {folder}; start them all with {folder}/start.sh, or one by one "
            f"with: coke agent {paths[0]}",
            markup=False,
            soft_wrap=True,
        )


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="A folder that `coke network init` wrote.")],
    timeout: Annotated[float, typer.Option(help="Seconds until the agents are given up.")] = 600.0,
    json: AsJson = False,
) -> None:
    """Start every agent of such a folder, wait for all, and say what each came to."""
    paths = sorted(folder.glob("sites/*/site.toml"))
    if not paths:
        raise ConfigError(f"{folder}: no sites/*/site.toml there; run coke network init first")
    with console.status(f"{len(paths)} agents at work"):
        results = run_network(paths, timeout)
    if json:
        print_json({"sites": results})
        return
    for result in results:
        losses = ", ".join(f"{k} {v:.4g}" for k, v in result.items() if k.startswith("train_"))
        console.print(
            f"{result['site']}: {result['rounds']} rounds, {result['bytes']} bytes, {losses}",
            markup=False,
        )
