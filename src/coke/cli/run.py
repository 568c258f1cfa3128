"""`coke run`: train, all sites at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coke.cli import options
from coke.cli.console import warn
from coke.errors import ConfigError
from coke.settings.knobs import Face

if TYPE_CHECKING:
    from mpi4py import MPI

OFTEN = 30.0  # seconds between two checkpoints

app = options.app()


@app.command()
@options.command(Face.RUN)
def run(
    wanted: options.Wanted,
    out: Annotated[
        Path | None, typer.Option(help="Folder for history, model, plots and report.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    checkpoint: Annotated[
        float | None,
        typer.Option(help=f"Seconds between checkpoints in the folder. [default: {OFTEN:g}]"),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="simulation: this process; mpi: the ranks of mpirun (docs/mpi.md).")
    ] = "simulation",
    online: Annotated[
        Path | None,
        typer.Option(help="Learn from this file's rows as if they came, one tick after another."),
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="With --online, end at the proven optimum.")
    ] = False,
    json: options.AsJson = False,
) -> None:
    """Train, all sites at once, in one process or on the ranks of an MPI job."""
    if finish and online is None:
        warn("--finish has no effect: it is for --online")
    if online is not None and (resume is not None or checkpoint is not None):
        raise ConfigError("--online with --resume or --checkpoint: the file is there to read again")
    if resume is not None and out is not None:
        raise ConfigError(
            f"both --out {out} and --resume {resume}: a resumed run stays in its folder"
        )
    with _on_ranks(engine) as comm:
        settings = wanted(resume=resume, online=online)
        if checkpoint is not None and out is None and resume is None:
            warn("--checkpoint has no effect: a run without --out keeps nothing")
        from coke.cli import running  # here: what is refused needs no NumPy

        often = OFTEN if checkpoint is None else checkpoint
        where = running.Where(out or resume, resume is not None, often, comm)
        if online is None:
            running.run(settings, where, json)
            return
        from coke.cli.onlining import run_online

        run_online(settings, where, finish, json)


@contextmanager
def _on_ranks(engine: str) -> Iterator[MPI.Comm | None]:
    """The ranks of an MPI job, of which the first one speaks; another only if it fails alone."""
    if engine == "simulation":
        yield None
        return
    from coke.cli.console import console
    from coke.engines.ranks.collectives import ended_together, job

    comm = job(engine)
    if comm is None:
        yield None
        return
    console.quiet = comm.rank > 0
    with ended_together(comm, lambda: setattr(console, "quiet", False)):
        yield comm
