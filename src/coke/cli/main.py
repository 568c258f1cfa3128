"""The command line: a thin layer over the library."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

import coke
from coke.cli import data, identity, network
from coke.cli.agent import agent
from coke.cli.audit import audit
from coke.cli.compare import compare
from coke.cli.console import console, print_json
from coke.cli.predict import predict
from coke.cli.reproduce import reproduce
from coke.cli.run import INTERRUPTED, run
from coke.cli.theory import theory
from coke.errors import CokeError
from coke.interrupts import hear

app = typer.Typer(
    help="Learn one nonlinear model from data that stay where they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(compare)
app.command()(agent)
app.command()(audit)
app.command()(predict)
app.command()(reproduce)
app.command()(theory)
app.add_typer(data.app, name="data")
app.add_typer(network.app, name="network")
app.add_typer(identity.identity_app, name="identity")


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
    """Entry point: anything refused is a message and an exit code, never a traceback."""
    hear()
    try:
        code = app(standalone_mode=False)
    except CokeError as error:
        _refuse(str(error), type(error).__name__)
    except Exception as error:
        # Usage errors of the option parser, which typer may bring along under another name.
        if not hasattr(error, "format_message"):
            raise
        _refuse(error.format_message(), "UsageError")
    else:
        if code == INTERRUPTED:  # what typer makes of a KeyboardInterrupt
            _stopped()
        raise SystemExit(code or 0)


def _refuse(message: str, kind: str) -> NoReturn:
    if "--json" in sys.argv:
        print_json({"error": message, "kind": kind}, line="agent" in sys.argv[1:2])
    if message:  # none where the parser has shown its help instead
        console.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    raise SystemExit(2)


def _stopped() -> NoReturn:
    if "--json" in sys.argv:
        print_json({"error": "stopped by Ctrl-C", "kind": "Stop"})
    console.print("stopped by Ctrl-C")
    raise SystemExit(INTERRUPTED)
