"""`coke reproduce`: the paper's tables and figures, ours beside the paper's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from coke.commands.output import AsJson, console, print_json
from coke.data.files import write_file
from coke.errors import ConfigError, unknown
from coke.reproduce.published import FIGURES, MARKS, NAMES, ROUNDS, SETTINGS, settings_of
from coke.workflow import Folder


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
    json: AsJson = False,
) -> None:
    """The paper's experiments: Markdown, PNG and JSON, the paper's number beside ours."""
    wanted = _names(names or ["all"])
    short = rounds is not None and rounds < (ROUNDS if set(MARKS) & set(wanted) else 1)
    if seeds < 1 or workers < 1 or short:
        raise ConfigError(
            f"seeds={seeds}, workers={workers}, rounds={rounds}: expected at least one seed and "
            f"worker, and {ROUNDS} rounds for the tables"
        )
    folder = Folder(out)
    found = _run(wanted, seeds, rounds, folder.path, workers)
    written = _write(wanted, found, folder.path)
    if json:
        print_json(written)
    else:
        sys.stdout.write(f"tables, figures and numbers in {folder.path}\n")


def _names(names: list[str]) -> list[str]:
    for name in names:
        if name not in (*NAMES, "all"):
            raise ConfigError(unknown("table or figure", name, (*NAMES, "all")))
    return list(NAMES) if "all" in names else [name for name in NAMES if name in names]


def _run(names: list[str], seeds: int, rounds: int | None, folder: Path, workers: int) -> list[Any]:
    from coke.reproduce.experiments import Job, run_all

    settings = dict.fromkeys(setting for name in names for setting in settings_of(name))
    tabled = {MARKS[name].setting for name in names if name in MARKS}
    jobs = [
        Job(setting, split, seed, rounds or SETTINGS[setting].rounds)
        for setting in settings
        for split in (("iid", "sorted") if setting in tabled else ("iid",))
        for seed in range(seeds if split == "iid" else -(-seeds // 2))  # sorted ones vary less
    ]
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("runs", total=len(jobs))
        return run_all(
            jobs, folder, workers, lambda done, total: progress.update(bar, completed=done)
        )


def _write(names: list[str], results: list[Any], folder: Path) -> dict[str, Any]:
    from coke.plots import png
    from coke.reproduce.summary import document
    from coke.reproduce.writing import figure, levels_markdown, marks_markdown

    found = document(names, results)
    texts = []
    for name in (name for name in names if name not in FIGURES):
        texts.append((marks_markdown if name in MARKS else levels_markdown)(name, found[name]))
    for name in (name for name in names if name in FIGURES):
        write_file(folder / f"{name}.png", png(figure(name, results)))
        texts.append(f"## {name}\n\n![{FIGURES[name]}]({name}.png)\n")
        found[name] |= {"title": FIGURES[name], "file": f"{name}.png"}
    seeds = len({result.job.seed for result in results})
    head = f"# The paper's tables and figures, ours beside them\n\n{seeds} seeds each.\n\n"
    write_file(folder / "reproduction.md", (head + "\n".join(texts)).encode())
    write_file(folder / "reproduction.json", msgspec.json.format(msgspec.json.encode(found)))
    return found
