"""`coke network`: a whole network on one machine, to try it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from coke.cli import options
from coke.cli.console import console, print_json, say
from coke.errors import ConfigError
from coke.settings.knobs import Face
from coke.settings.sites import read_site, shared

app = options.app(help="A network of agents on this machine.", no_args_is_help=True)


_Folder = Annotated[Path, typer.Argument(help="A folder that `coke network init` wrote.")]


@app.callback()
def _about() -> None:
    """A network of agents on this machine, to try it."""


@app.command()
@options.command(Face.NETWORK, typer.Option(help="TOML file as for coke run."))
def init(
    wanted: options.Wanted,
    folder: Annotated[Path, typer.Argument(help="A new folder for the network.")],
    patience: Annotated[
        str, typer.Option(help="For the missing: seconds, auto (ten usual rounds) or wait.")
    ] = "auto",
    name: Annotated[str, typer.Option(help="The network's name.")] = "demo",
    json: options.AsJson = False,
) -> None:
    """Write a ready set of site files, certificates and a start script."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: expected a new or empty folder; choose another")
    settings = wanted()
    from coke.data.split import parts_of
    from coke.field.local import NetworkPlan, write_network
    from coke.learning.kinds import reading_of, with_kind, with_target
    from coke.learning.open import dealing, load_rows
    from coke.maths.graph import build_graph

    settings = with_kind(with_target(settings), say)
    rows = load_rows(settings, reading_of(settings, say))
    parts, graph = parts_of(rows.y, rows.sites, **dealing(settings)), settings.graph
    network = build_graph(graph.kind, len(parts), edges=graph.edges, seed=settings.seed)
    wait = options.number_or_word(patience) or "auto"
    plan = NetworkPlan(
        network=name, graph=network, rows=rows, parts=parts, settings=shared(settings),
        patience=wait,
    )  # fmt: skip
    paths = write_network(folder, plan)
    document = {"folder": str(folder), "sites": [str(path) for path in paths]}
    if json:
        print_json(document)
    else:
        console.print(
            f"{len(paths)} sites in {folder}; start them all with {folder}/start.sh, or one by one "
            f"with: coke agent {paths[0]}",
            markup=False,
            soft_wrap=True,
        )


@app.command()
def status(
    folder: _Folder,
    json: options.AsJson = False,
) -> None:
    """How every site of such a folder is; exit code 1 if somebody must look at one."""
    from coke.cli.standing import show_sites
    from coke.page.status import healthy, site_status

    found = [site_status(read_site(path)) for path in _files(folder)]
    show_sites(found, json)
    if not all(map(healthy, found)):
        raise typer.Exit(1)


def _files(folder: Path) -> list[Path]:
    """Of all sites in a folder that `init` wrote, or of the one site of a machine."""
    one = folder / "site.toml"
    paths = [one] if one.exists() else sorted(folder.glob("sites/*/site.toml"))
    if not paths:
        raise ConfigError(
            f"{folder}: no sites/*/site.toml and no site.toml there; run coke network init first"
        )
    return paths


@app.command(cls=options.Paged)
def run(
    folder: _Folder,
    timeout: Annotated[float, typer.Option(help="Seconds until the agents are given up.")] = 600.0,
    page: options.Page = None,
    json: options.AsJson = False,
) -> None:
    """Start every agent of such a folder, wait for all, and say what each came to."""
    _train(folder, timeout, page, json)


def _train(folder: Path, timeout: float, page: int | None, json: bool) -> None:
    paths = _files(folder)
    from coke.field.local import run_network

    with _shown(paths, folder, page), console.status(f"{len(paths)} agents at work"):
        results = run_network(paths, timeout, page=page is not None)
    if json:
        print_json({"sites": results})
        return
    for result in results:
        losses = ", ".join(f"{k} {v:.4g}" for k, v in result.items() if k.startswith("train_"))
        console.print(
            f"{result['site']}: {result['rounds']} rounds, {result['bytes']} bytes, {losses}",
            markup=False,
        )


@contextmanager
def _shown(paths: list[Path], folder: Path, port: int | None) -> Iterator[None]:
    """On a page, if they are to have one."""
    if port is None:
        yield
        return
    from coke.page.network import network_page

    with network_page([read_site(path) for path in paths], folder, port) as address:
        say(f"page: {address}")
        yield


@app.command(cls=options.Paged)
def retrain(
    folder: _Folder,
    rows: Annotated[
        Path | None,
        typer.Option(help="Folder with a file of new rows for each site, called as the site is."),
    ] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only write the files; start the agents yourself.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds until the agents are given up.")] = 600.0,
    page: options.Page = None,
    json: options.AsJson = False,
) -> None:
    """A new run of these sites, with new rows or with those that their files name by now.

    The next run number and another state folder, in every site's file; then as `run` does. Between
    machines: the same on each, in the folder of its one site.
    """
    from coke.field.retraining import prepare as prepared

    run = prepared(_files(folder), rows)
    say(f"run {run}")
    if prepare:
        print_json({"run": run}) if json else None
        return
    _train(folder, timeout, page, json)


@app.command()
def back(
    folder: _Folder,
    run: Annotated[
        int | None, typer.Option(help="Whose model; by default that of the run before.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """The model of an earlier run in use again, at every site: models/model.coke."""
    from coke.field.kept import go_back

    sites = {one.site.name: Path(one.site.models) for one in map(read_site, _files(folder))}
    found = {name: go_back(models, run) for name, models in sites.items()}
    if json:
        print_json({"runs": found})
        return
    for name, number in found.items():
        console.print(f"{name}: the model of run {number} is in use", markup=False)


@app.command()
def backup(
    folder: _Folder,
    archive: Annotated[Path, typer.Argument(help="A new file, such as monday.tar.")],
    json: options.AsJson = False,
) -> None:
    """All files of these sites, keys included, in one file; their agents must be stopped."""
    from coke.field.backups import backup as written

    _counted(written(folder, _files(folder), archive), str(archive), json)


@app.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `coke network backup` wrote.")],
    folder: Annotated[Path, typer.Argument(help="A new folder for the sites.")],
    json: options.AsJson = False,
) -> None:
    """The sites of a backup, in a new folder; whole, or not at all."""
    from coke.field.backups import restore as taken

    _counted(taken(archive, folder), str(folder), json)


def _counted(files: int, place: str, json: bool) -> None:
    if json:
        print_json({"files": files, "place": place})
    else:
        console.print(f"{files} files in {place}", markup=False)
