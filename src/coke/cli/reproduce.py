"""`coke reproduce`: the paper's tables and figures, ours beside the paper's."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from coke.cli import options
from coke.cli.console import console, print_json
from coke.errors import ConfigError, FileError, unknown
from coke.settings.declaration import KNOBS
from coke.studies.reproduce.published import (
    FIGURES,
    LEVELS,
    MARKS,
    NAMES,
    RANDOM,
    RHO,
    ROUNDS,
    SETTINGS,
    settings_of,
)

if TYPE_CHECKING:
    from coke.studies.reproduce.experiments import Job

app = options.app()


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="table1 … table6, figure1 … figure3, or all.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs with different splits, graphs and ω.")] = 10,
    rounds: Annotated[
        int | None,
        typer.Option(help="Of every run; the paper's 2000, for synthetic data 5000."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and JSON.")] = Path(
        "out/reproduction"
    ),
    workers: Annotated[int, typer.Option(help="Processes.")] = min(2, os.cpu_count() or 1),
    rho: Annotated[float, typer.Option(help="ρ of COKE and DKLA, for another than theirs.")] = RHO,
    graph: Annotated[
        str, typer.Option(help="Network, for another than theirs, such as ring.")
    ] = RANDOM,
    json: options.AsJson = False,
) -> None:
    """The paper's experiments, its numbers beside ours: Markdown, PNG and JSON."""
    names = names or ["all"]
    wanted = _names(names)
    tables = {*MARKS, *LEVELS} & set(wanted)
    short = rounds is not None and rounds < (ROUNDS if tables else 1)
    if seeds < 1 or workers < 1 or short:
        raise ConfigError(
            f"seeds={seeds}, workers={workers}, rounds={rounds}: expected at least one seed and "
            f"worker, and {ROUNDS} rounds for the tables"
        )
    if not 0 < rho < math.inf:
        raise ConfigError(f"rho={rho}: expected a step size ρ > 0; the paper uses {RHO}")
    if graph not in (kinds := KNOBS["graph.kind"].knob.choices):
        raise ConfigError(unknown("graph", graph, kinds))
    wanted, note = _possible(wanted, names)
    if note:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    from coke.learning.folder import Folder

    folder = Folder(out)
    jobs = _jobs(wanted, seeds, rounds, {"rho": rho, "graph": graph})
    found = _run(jobs, folder.path, workers)
    written = _write(wanted, found, folder.path, note)
    if json:
        print_json(written)
    else:
        sys.stdout.write(f"tables, figures and numbers in {folder.path}\n")


def _names(names: list[str]) -> list[str]:
    for name in names:
        if name not in (*NAMES, "all"):
            raise ConfigError(unknown("table or figure", name, (*NAMES, "all")))
    return list(NAMES) if "all" in names else [name for name in NAMES if name in names]


def _possible(wanted: list[str], named: list[str]) -> tuple[list[str], str]:
    """What can be run on the data there are, and a note on what `all` must do without."""
    from coke.studies.reproduce.experiments import check_data, data_file

    note, without = "", []
    try:
        data_file(SETTINGS["twitter"])
    except FileError as error:  # no command brings these rows, so `all` goes on without them
        without = [name for name in wanted if name not in named and _needs_twitter(name)]
        note = f"Left out: {', '.join(without)}. {error}" if without else ""
    wanted = [name for name in wanted if name not in without]
    check_data(setting for name in wanted for setting in settings_of(name))
    return wanted, note


def _needs_twitter(name: str) -> bool:
    return any(SETTINGS[setting].data == "twitter" for setting in settings_of(name))


def _jobs(names: list[str], seeds: int, rounds: int | None, how: dict[str, Any]) -> list[Job]:
    from coke.studies.reproduce.experiments import Job

    settings = dict.fromkeys(setting for name in names for setting in settings_of(name))
    tabled = {MARKS[name].setting for name in names if name in MARKS}
    return [
        Job(setting, split, seed, rounds or SETTINGS[setting].rounds, **how)
        for setting in settings
        for split in (("iid", "sorted") if setting in tabled else ("iid",))
        for seed in range(seeds if split == "iid" else -(-seeds // 2))  # sorted ones vary less
    ]


def _run(jobs: list[Job], folder: Path, workers: int) -> list[Any]:
    from coke.studies.reproduce.experiments import run_all

    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("runs", total=len(jobs))
            return run_all(
                jobs, folder, workers, lambda done, total: progress.update(bar, completed=done)
            )
    except KeyboardInterrupt:
        kept = f"finished runs are kept in {folder}: the same command goes on from there"
        console.print(kept, markup=False, highlight=False, soft_wrap=True)
        raise


def _write(names: list[str], results: list[Any], folder: Path, note: str) -> dict[str, Any]:
    from coke.data.files import write_file
    from coke.report.plots import png
    from coke.report.reproduction import extent, figure, levels_markdown, marks_markdown
    from coke.studies.reproduce.summary import document

    found = document(names, results)
    texts = []
    for name in (name for name in names if name not in FIGURES):
        texts.append((marks_markdown if name in MARKS else levels_markdown)(name, found[name]))
    for name in (name for name in names if name in FIGURES):
        write_file(folder / f"{name}.png", png(figure(name, results)))
        texts.append(f"## {name}\n\n![{FIGURES[name]}]({name}.png)\n")
        found[name] |= {"title": FIGURES[name], "file": f"{name}.png"}
    head = ["# The paper's tables and figures, ours beside them\n", extent(results) + "\n"]
    head += [note + "\n"] if note else []
    write_file(folder / "reproduction.md", "\n".join([*head, *texts]).encode())
    write_file(folder / "reproduction.json", msgspec.json.format(msgspec.json.encode(found)))
    return found
