"""`coke audit`: what a neighbour could learn from this configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from coke.audit import Finding, as_rows, audited, victim_of, warnings
from coke.commands.output import AsJson, console, print_json
from coke.commands.run import number_or_word, settings_from
from coke.config import from_settings
from coke.data.files import write_file
from coke.errors import ConfigError
from coke.loading import load_task
from coke.workflow import Folder


def audit(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; without it, the paper's synthetic problem.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Parquet or CSV file of rows.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    site: Annotated[str | None, typer.Option(help="Column that says who holds a row.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out.")] = None,
    missing: Annotated[str | None, typer.Option(help="Missing values: refuse or drop.")] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents.")] = None,
    graph: Annotated[str | None, typer.Option(help="random, ring, star, complete, …")] = None,
    edges: Annotated[int | None, typer.Option(help="Edges of a random graph.")] = None,
    scale: Annotated[str | None, typer.Option(help="none, standard, minmax or public.")] = None,
    sigma: Annotated[str | None, typer.Option(help="Kernel bandwidth σ, or auto.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of random features L.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="Regularisation λ.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="coke, coke-paper or dkla.")] = None,
    mu: Annotated[float | None, typer.Option(help="Threshold of coke-paper: μ.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of features, graph and splits.")] = None,
    rounds: Annotated[int, typer.Option(help="How long the attacker listens.")] = 400,
    probes: Annotated[bool, typer.Option(help="Also try lying on one edge (slow).")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the report.")] = None,
    json: AsJson = False,
) -> None:
    """What a neighbour could learn from this configuration: the attacks, on your own rows."""
    changes = {
        "data.file": str(data.resolve()) if data else None, "data.target": target,
        "data.site": site, "data.drop": drop, "data.missing": missing, "data.agents": agents,
        "data.scale": scale, "features.sigma": number_or_word(sigma),
        "features.n_features": features, "graph.kind": graph, "graph.edges": edges,
        "lambda": lam, "algorithm": algorithm, "mu": mu, "seed": seed,
    }  # fmt: skip
    wanted = from_settings(settings_from(config, changes))
    if wanted.loss != "quadratic" or wanted.algorithm == "cta":
        raise ConfigError(
            f"loss={wanted.loss}, algorithm={wanted.algorithm}: the attacks are on the quadratic "
            "loss and coke, coke-paper or dkla; other losses send what is no less telling"
        )
    folder = Folder(out) if out else None
    with console.status("a run, and the attacks on it"):
        task, _, _ = load_task(wanted, folder.path if folder else None)
        way = task.way(wanted.algorithms()[wanted.algorithm])
        found, said = audited(task, way, rounds, probes), warnings(task)
    i, n = victim_of(task)
    document: dict[str, Any] = {
        "site": task.sites[i],
        "neighbour": task.sites[n],
        "privacy": wanted.privacy,
        "algorithm": wanted.algorithm,
        "rounds": rounds,
        "findings": as_rows(found),
        "warnings": said,
    }
    if folder:
        document["report"] = _report(folder, document, found)
    if json:
        print_json(document)
    else:
        _show(document, found)


def _report(folder: Folder, document: dict[str, Any], found: list[Finding]) -> str:
    from coke.report import audit_report  # here: matplotlib is slow to import

    path = folder.path / "audit.html"
    write_file(path, audit_report(document, found).encode())
    return str(path)


def _show(document: dict[str, Any], found: list[Finding]) -> None:
    title = f"what {document['neighbour']} and others could learn of {document['site']}"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("who", "found", "guessing", "which means"):
        table.add_column(name, justify="right" if name in ("found", "guessing") else "left")
    for one in found:
        who = f"{one.attack} ({one.measure})"
        table.add_row(who, f"{one.value:.2g}", f"{one.guessing:.2g}", one.meaning)
    Console().print(table)
    for line in document["warnings"]:
        console.print(f"[bold]note:[/] {line}", highlight=False)
    sys.stdout.write("These are rows of yours: keep the report. docs/privacy.md says what helps.\n")
