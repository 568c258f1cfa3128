"""`coke serve`: predictions on request."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from coke.cli import options
from coke.cli.console import print_json, warn
from coke.errors import ConfigError
from coke.page.access import LOOPBACK

app = options.app()


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(help="Model file of `coke run --out`.")],
    port: Annotated[int, typer.Option(help="Where; 0: any free one.", min=0, max=65535)] = 0,
    access: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Port and token are kept there: next time the same."),
    ] = None,
    rows: Annotated[int, typer.Option(help="Of a request, at most.", min=1)] = 10_000,
    rate: Annotated[
        float, typer.Option(help="Requests a second in the long run; others are refused.")
    ] = 500.0,
    address: Annotated[
        str, typer.Option(help="Of this machine. Other machines: behind a proxy with TLS.")
    ] = LOOPBACK,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host by which it may be called beside this machine's; may be repeated."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Predictions of a trained model on request, on this machine."""
    if not model.exists():
        raise ConfigError(f"{model}: no such file; coke run --out writes one")
    from coke.learning.model import load_model
    from coke.serving.endpoint import Serving, served

    if address != LOOPBACK:
        warn(f"{address}: token and rows go as they are; put a proxy with TLS before it")
    how = Serving(port, access, rows, rate, address, tuple(name or ()))
    with _ended() as over, served(load_model(model), how) as found:
        if json:
            print_json({"url": found.url, "port": found.port, "token": found.token}, line=True)
        else:
            sys.stdout.write(f"POST rows to {found.url}predict; Ctrl-C ends it\n")
        sys.stdout.flush()
        over.wait()


@contextmanager
def _ended() -> Iterator[threading.Event]:
    """Set by the signal with which systems end services."""
    over = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: over.set())
    try:
        yield over
    finally:
        signal.signal(signal.SIGTERM, before)
