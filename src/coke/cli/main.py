"""The command line: a thin layer over the library; a command is imported when it is run."""

from __future__ import annotations

import signal
import sys
import threading
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from coke.cli import INTERRUPTED
from coke.errors import CokeError, ConfigError, unknown

COMMANDS = {
    "run": "Train, all sites at once, in one process or on the ranks of an MPI job.",
    "compare": "Which method reaches a wanted accuracy with the fewest bytes on these data.",
    "agent": "One site on a network: meets its neighbours, agrees, trains, writes its model.",
    "audit": "What a neighbour could learn from this configuration: attacks on your own rows.",
    "predict": "Predictions of a trained model for the rows of a file.",
    "export": "A trained model as ONNX, which many programs run without coke.",
    "serve": "Predictions of a trained model on request, on this machine.",
    "reproduce": "The paper's experiments, its numbers beside ours: Markdown, PNG and JSON.",
    "theory": "Constants, guaranteed and measured rate, and the ρ, λ and L that follow.",
    "data": "The paper's data sets.",
    "network": "A network of agents on this machine.",
    "identity": "Certificates for a network of sites.",
}


class _Commands(TyperGroup):
    """Every command in a module of its own, which help of all commands need not import."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """From its module."""
        if cmd_name not in COMMANDS:
            raise ConfigError(unknown("command", cmd_name, COMMANDS))
        return get_command(import_module(f"coke.cli.{cmd_name}").app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A line for each."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=_Commands,
    help="Learn one nonlinear model from data that stay where they are.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help is quick to show
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from coke import __version__

        sys.stdout.write(f"coke {__version__}\n")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Entry point: anything refused is a message and an exit code, never a traceback."""
    _hear()
    try:
        code = app(standalone_mode=False)
    except CokeError as error:
        _refuse(str(error), type(error).__name__)
    except Exception as error:
        # Usage errors of the option parser, which typer may bring along under another name.
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(error.format_message() + "\n")
            raise SystemExit(2) from error
        _refuse(error.format_message(), "UsageError")
    else:
        if code == INTERRUPTED:  # what typer makes of a KeyboardInterrupt
            _stopped()
        raise SystemExit(code or 0)


def _refuse(message: str, kind: str) -> NoReturn:
    from rich.markup import escape

    from coke.cli.console import console, print_json

    if "--json" in sys.argv:
        print_json({"error": message, "kind": kind}, line="agent" in sys.argv[1:2])
    console.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    raise SystemExit(2)


def _stopped() -> NoReturn:
    from coke.cli.console import console, print_json

    if "--json" in sys.argv:
        print_json({"error": "stopped by Ctrl-C", "kind": "Stop"})
    console.print("stopped by Ctrl-C")
    raise SystemExit(INTERRUPTED)


def _hear() -> None:
    """Ctrl-C is heard, also where a script has started this process with & at the end.

    A shell without job control has such processes ignore it, and Python leaves that as it is.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
