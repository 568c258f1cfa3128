"""`coke data`: the paper's data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from coke.cli import options
from coke.cli.console import console, print_json

app = options.app(help="The paper's data sets.", no_args_is_help=True)


@app.callback()
def _about() -> None:
    """Commands about data sets."""


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="energy, air_quality or toms_hardware.")],
    to: Annotated[
        Path | None, typer.Option(help="Folder; without it COKE_DATA or the user's cache.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Another place to download it from.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="UCI's file or archive, downloaded elsewhere.")
    ] = None,
    sha256: Annotated[str | None, typer.Option(help="Refuse any other file.")] = None,
    json: options.AsJson = False,
) -> None:
    """Download a data set from UCI, check it, and keep it as Parquet."""
    from coke.studies.reproduce.download import fetch as download
    from coke.studies.reproduce.recipes import data_folders
    from coke.studies.reproduce.uci import format_of

    format_of(name)  # refused before a progress bar shows
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=file is not None) as progress:
        bar = progress.add_task(name, total=None)
        got = download(
            name,
            to or data_folders()[0],
            url=url,
            file=file,
            sha256=sha256,
            watch=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if json:
        print_json({**got._asdict(), "path": str(got.path)})
    else:
        sys.stdout.write(f"{got.rows} rows in {got.path} (UCI's file: SHA-256 {got.sha256})\n")
