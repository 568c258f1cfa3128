"""`coke export`: a trained model for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coke.cli import options
from coke.cli.console import print_json
from coke.errors import ConfigError

app = options.app()


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="Model file of `coke run --out`.")],
    out: Annotated[Path, typer.Argument(help="Where to write it: a file ending in .onnx.")],
    interval: Annotated[
        float | None,
        typer.Option(help="Outputs low and high: they hold such a share of targets; try 0.9."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """A trained model as ONNX, which many programs run without coke."""
    if out.suffix != ".onnx":
        raise ConfigError(f"{out}: expected a file ending in .onnx")
    from coke.export.onnx import export_onnx
    from coke.learning.model import load_model

    export_onnx(load_model(model), out, interval)
    size = out.stat().st_size
    if json:
        print_json({"out": str(out), "bytes": size})
    else:
        sys.stdout.write(f"{out}: {size} bytes\n")
