"""`coke audit`: what a neighbour could learn from this configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from coke.cli import options
from coke.cli.console import AsJson, console, print_json
from coke.data.files import write_file
from coke.errors import ConfigError
from coke.learning.folder import Folder
from coke.learning.open import open_ready
from coke.studies.audit import Finding, as_rows, audited, victim_of, warnings


def audit(
    config: options.ConfigFile = None,
    data: options.Data = None,
    target: options.Target = None,
    site: options.Site = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    agents: options.Agents = None,
    graph: options.GraphName = None,
    edges: options.Edges = None,
    scale: options.Scale = None,
    sigma: options.Sigma = None,
    features: options.Features = None,
    lam: options.Lambda = None,
    algorithm: options.Algorithm = None,
    mu: options.Mu = None,
    seed: options.Seed = None,
    listened: Annotated[int, typer.Option("--rounds", help="How long the attacker listens.")] = 400,
    probes: Annotated[bool, typer.Option(help="Also try lying on one edge (slow).")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the report.")] = None,
    json: AsJson = False,
) -> None:
    """What a neighbour could learn from this configuration: the attacks, on your own rows."""
    wanted = options.config_from(config, locals())
    if wanted.loss != "quadratic" or wanted.algorithm == "cta":
        raise ConfigError(
            f"loss={wanted.loss}, algorithm={wanted.algorithm}: the attacks are on the quadratic "
            "loss and coke, coke-paper or dkla; other losses send what is no less telling"
        )
    folder = Folder(out) if out else None
    with console.status("a run, and the attacks on it"):
        ready = open_ready(wanted, folder.path if folder else None)
        case = ready.case(wanted.algorithm)
        found, said = audited(ready, case, listened, probes), warnings(ready)
    i, n = victim_of(ready)
    document: dict[str, Any] = {
        "site": ready.names[i],
        "neighbour": ready.names[n],
        "privacy": wanted.privacy,
        "algorithm": wanted.algorithm,
        "rounds": listened,
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
    from coke.report.page import audit_report  # here: matplotlib is slow to import

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
