"""`coke network`: a whole network on one machine, to try it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coke.commands.output import AsJson, console, print_json
from coke.commands.run import number_or_word, settings_from
from coke.config import from_settings
from coke.errors import ConfigError
from coke.loading import load_parts
from coke.maths.graph import build_graph
from coke.networks import Plan, run_network, write_network

app = typer.Typer(help="A network of agents on this machine.", no_args_is_help=True)


@app.callback()
def about() -> None:
    """A network of agents on this machine, to try it."""


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the network.")],
    config: Annotated[Path | None, typer.Option(help="TOML file as for coke run.")] = None,
    data: Annotated[Path | None, typer.Option(help="Parquet or CSV file of rows.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    site: Annotated[str | None, typer.Option(help="Column that says who holds a row.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    missing: Annotated[str | None, typer.Option(help="Missing values: refuse or drop.")] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents.")] = None,
    graph: Annotated[str | None, typer.Option(help="random, ring, star, complete, …")] = None,
    edges: Annotated[int | None, typer.Option(help="Edges of a random graph.")] = None,
    split: Annotated[str | None, typer.Option(help="iid, or sorted by target.")] = None,
    scale: Annotated[str | None, typer.Option(help="none, standard or minmax.")] = None,
    sigma: Annotated[str | None, typer.Option(help="Kernel bandwidth σ, or auto.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of random features L.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="Regularisation λ.")] = None,
    loss: Annotated[str | None, typer.Option(help="quadratic, logistic or hinge.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of features, graph and splits.")] = None,
    patience: Annotated[
        str, typer.Option(help="For the missing: seconds, auto (ten usual rounds) or wait.")
    ] = "auto",
    name: Annotated[str, typer.Option(help="The network's name.")] = "demo",
    json: AsJson = False,
) -> None:
    """Write a ready set of site files, certificates and a start script."""
    changes = {
        "data.file": str(data.resolve()) if data else None, "data.target": target,
        "data.site": site, "data.drop": drop, "data.missing": missing, "data.agents": agents,
        "data.split": split, "data.scale": scale, "features.sigma": number_or_word(sigma),
        "features.n_features": features, "graph.kind": graph, "graph.edges": edges,
        "lambda": lam, "loss": loss, "seed": seed,
    }  # fmt: skip
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: expected a new or empty folder; choose another")
    wanted = from_settings(settings_from(config, changes))
    rows, parts = load_parts(wanted)
    network = build_graph(wanted.graph.kind, len(parts), edges=wanted.graph.edges, seed=wanted.seed)
    paths = write_network(
        folder,
        Plan(name, network, rows, parts, wanted.shared(), number_or_word(patience) or "auto"),
    )
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
