"""`coke audit`: what a neighbour could learn from this configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from coke.cli import options
from coke.cli.console import Screen, console, print_json, say
from coke.settings.knobs import Face

if TYPE_CHECKING:
    from coke.learning.folder import Folder
    from coke.studies.findings import Finding

app = options.app()


@app.command()
@options.command(Face.AUDIT)
def audit(
    wanted: options.Wanted,
    probes: Annotated[bool, typer.Option(help="Also try lying on one edge (slow).")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the report.")] = None,
    json: options.AsJson = False,
) -> None:
    """What a neighbour could learn from this configuration: attacks on your own rows."""
    settings = wanted()
    from coke.learning.case import resolved
    from coke.learning.folder import Folder
    from coke.learning.open import open_ready
    from coke.studies.audit import audited, warnings
    from coke.studies.findings import as_rows, verdict_of

    folder = Folder(out) if out else None
    with console.status("a run, and the attacks on it"):
        ready = open_ready(settings, out, say=say)
        algorithm = resolved(ready.agreement.terms.settings)[0]
        case = ready.case(algorithm)
        site, neighbour, overheard, found = audited(ready, case, settings.rounds, probes)
    said = warnings(ready)
    document: dict[str, Any] = {
        "verdict": verdict_of(site, found),
        "site": site,
        "neighbour": neighbour,
        "privacy": settings.privacy,
        "algorithm": algorithm,
        "overheard": overheard,
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
    from coke.data.files import write_file
    from coke.report.audit import audit_report

    path = folder.path / "audit.html"
    write_file(path, audit_report(document, found).encode())
    return str(path)


def _show(document: dict[str, Any], found: list[Finding]) -> None:
    sys.stdout.write(f"{document['verdict']}\n\n")
    title = f"what {document['neighbour']} and others could learn of {document['site']}"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("who", "found", "guessing", "which means"):
        table.add_column(name, justify="right" if name in ("found", "guessing") else "left")
    for one in found:
        who = f"{one.attack} ({one.measure})"
        table.add_row(who, f"{one.value:.2g}", f"{one.guessing:.2g}", one.meaning)
    Screen().print(table)
    for line in document["warnings"]:
        console.print(f"[bold]note:[/] {line}", highlight=False)
    sys.stdout.write("These are rows of yours: keep the report. docs/privacy.md says what helps.\n")
