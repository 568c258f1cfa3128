"""The command line: a thin layer over the library."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

import coke
from coke.commands.output import console, print_json
from coke.commands.predict import predict
from coke.commands.reproduce import reproduce
from coke.commands.run import INTERRUPTED, run
from coke.errors import CokeError

app = typer.Typer(
    help="Learn one nonlinear model from data that stay where they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(predict)
app.command()(reproduce)


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


def main() -> None:
    """Entry point: errors of this package are a message and an exit code, never a traceback."""
    try:
        app()
    except CokeError as error:
        if "--json" in sys.argv:
            print_json({"error": str(error), "kind": type(error).__name__})
        console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        console.print("stopped by Ctrl-C")
        raise SystemExit(INTERRUPTED) from None
