"""`coke theory`: what the paper's theorems say about a configuration, beside what is measured."""

from __future__ import annotations

import sys
from typing import Any

from rich import box
from rich.table import Table

from coke.cli import options
from coke.cli.console import Screen, console, print_json, say
from coke.settings.knobs import Face

app = options.app()


@app.command()
@options.command(Face.THEORY)
def theory(wanted: options.Wanted, json: options.AsJson = False) -> None:
    """Constants, guaranteed and measured rate, and the ρ, λ and L that follow."""
    settings = wanted()
    from coke.learning.open import open_ready
    from coke.studies.theory import MEANINGS, MEASURED, advice, summary

    with console.status("reading rows, one pass over them"):
        ready = open_ready(settings, say=say)
    with console.status(f"{MEASURED} rounds of DKLA, to measure its pace"):
        document = summary(settings, ready)
    if json:
        print_json(document)
        return
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    for key, meaning in MEANINGS.items():
        table.add_row(key.replace("_", " "), _shown(document[key]), meaning)
    Screen().print(table)
    sys.stdout.write(advice(document) + "\n")


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return "–" if value is None else str(value)
    close = 0 < 1 - value < 1e-3  # a factor just below one: say by how much
    return f"1 − {1 - value:.2g}" if close else f"{value:.4g}"
