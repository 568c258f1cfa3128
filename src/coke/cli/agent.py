"""`coke agent`: one site on a network, until the network has learnt."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer
from msgspec.structs import replace
from typer.core import TyperGroup
from typer.main import get_command

from coke import __version__
from coke.cli import options
from coke.cli.console import console, say, warn
from coke.cli.following import PEOPLE, Onlooker, machines
from coke.cli.rolling import RollingLog
from coke.errors import ConfigError, ConvergenceError
from coke.field.carriers import CARRIERS
from coke.interrupts import STOPPED, signals
from coke.settings.declaration import SiteSettings
from coke.settings.sites import expiry_warning, read_site
from coke.talk.names import site_id

if TYPE_CHECKING:
    from coke.field.agent import Agent, Status
    from coke.field.carriers.base import Carrier
    from coke.field.mission import Mission
    from coke.field.store import Store

STRUCK = 3  # it has a model, but a neighbour was struck out on the way

_agents = options.app()


@_agents.command(
    cls=options.Paged, epilog="coke agent status SITE and coke agent health SITE look at it."
)
def agent(
    site: Annotated[Path, typer.Argument(help="The site's file, such as site.toml.")],
    leave: Annotated[
        bool, typer.Option("--leave", help="Leave the network for good, and end.")
    ] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="End a stream with its source, once all sites do.")
    ] = False,
    rounds_shown: Annotated[
        bool, typer.Option("--rounds-shown", help="With --json, a line for every round.")
    ] = False,
    page: options.Page = None,
    json: Annotated[
        bool, typer.Option("--json", help="JSON lines on stdout; the last is the result.")
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(help="JSON lines into this file instead; full (8 MiB), it becomes FILE.1."),
    ] = None,
) -> None:
    """One site on a network: meets its neighbours, agrees, trains, writes its model.

    Stops cleanly on SIGTERM or Ctrl-C; started again, it goes on where it was.
    """
    with signals(_exit):  # until there is an agent to stop, and after
        settings = _with_page(read_site(site), page)
        _check_alone(settings)
        stamp = {"site": settings.site.name, "run": settings.site.run, "version": __version__}
        face = PEOPLE
        if json or log is not None:
            rolling = None if log is None else RollingLog(log)
            face = machines(stamp, every_round=rounds_shown, log=rolling)
        elif rounds_shown:
            warn("--rounds-shown has no effect: it is for --json")
        with _lasting():
            from coke.data.files import make_folder
            from coke.field.store import Store  # here: what is refused needs no NumPy

        if finish and settings.stream.time is None:
            warn("--finish has no effect: it is for sites on a stream ([stream] time)")
        make_folder(Path(settings.site.models))  # before hours of training
        store = Store(Path(settings.site.state))
        with store.claimed():
            document = _run(settings, store, _Asked(site, leave, finish), face)
    if document is None:
        return  # it has left
    face.show(document)
    if "struck out" in document["lost"].values():
        raise SystemExit(STRUCK)
    if document["largest_asymmetry"]:
        raise ConvergenceError(
            f"the duals of an edge do not cancel: {document['asymmetry']}; the answer is shifted "
            f"by about {document['predicted_shift']:.2g}; begin a new run, and keep the folders"
        )


class _Group(TyperGroup):
    """A site's file starts its agent; a word in place of it does something else."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Of the group for such a word, else of the agent's own command."""
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return get_command(_agents).make_context(info_name, args, parent, **extra)


app = options.app(cls=_Group, help=agent.__doc__)


@app.command()
def status(
    site: Annotated[Path, typer.Argument(help="The site's file, such as site.toml.")],
    json: options.AsJson = False,
) -> None:
    """How a site is: from its folder, and from its agent if that has a page."""
    from coke.cli.standing import show_sites
    from coke.page.status import site_status

    show_sites([site_status(read_site(site))], json)


@app.command()
def health(
    site: Annotated[Path, typer.Argument(help="The site's file, such as site.toml.")],
) -> None:
    """Exit code 0 if the agent works, waits for others or has finished; 1 if somebody must look."""
    from coke.page.status import healthy, site_status

    found = site_status(read_site(site))
    sys.stdout.write(f"{found['state']}\n")
    if not healthy(found):
        raise typer.Exit(1)


def _with_page(settings: SiteSettings, port: int | None) -> SiteSettings:
    """An option overrides the file."""
    if port is None:
        return settings
    return replace(settings, site=replace(settings.site, page=port))


def _check_alone(settings: SiteSettings) -> None:
    """Refuses a carrier whose sites must be threads of one process."""
    opening = CARRIERS[settings.site.carrier]
    if opening.together:
        raise ConfigError(
            f'carrier = "{settings.site.carrier}" is {opening.about}: start all sites together, '
            "with coke network run"
        )


class _Asked(NamedTuple):
    """What the command asks for."""

    file: Path  # the site's
    leave: bool
    finish: bool


def _run(
    settings: SiteSettings, store: Store, asked: _Asked, face: Onlooker
) -> dict[str, Any] | None:
    """What it came to; None where the site has left."""
    with _lasting():
        from coke.field.agent import Agent
        from coke.field.mission import Mission
        from coke.field.named import StillNamed
        from coke.field.phases import Pace
        from coke.studies.audit import site_warnings

    pace = Pace.of(settings.site.patience)
    opened = CARRIERS[settings.site.carrier].opener(settings.site)
    with console.status("reading rows"):
        come = settings.stream.time is not None
        mission = _streaming(settings, store) if come else Mission(settings, say=say)
    exposed = [f"{line}; see docs/privacy.md" for line in site_warnings(mission)]
    warnings = [*exposed, *_expiring(settings)]
    for line in warnings:
        face.warn(line)
    with opened() as carrier:
        named = StillNamed(asked.file, carrier)
        own = Agent(mission, carrier, store, pace, finishing=asked.finish, named=named)
        if asked.leave:
            own.leave()
        with _shown(own, warnings, face) as watch:
            with signals(own.stop):
                face.follow(mission.name, watch.statuses)
            if own.stopped:
                _exit()
            carrier.close()
            if own.node is None or not own.node.done:
                return None
            document = _leave(own) | {"frames": _counted(carrier)}
            document["warnings"] = [*warnings, *document["warnings"]]
            watch.finish(document)
    return document


def _streaming(settings: SiteSettings, store: Store) -> Mission:
    """What an agent on a stream is for, once its source has given the first rows."""
    from coke.field.streams import stream_mission

    with signals(_exit):
        return stream_mission(settings, store.folder, lambda: False, say) or _exit()


def _expiring(settings: SiteSettings) -> list[str]:
    """What to say of the site's identity, if it ends soon."""
    site, now = settings.site, datetime.now(UTC)
    if site.identity is None:
        return []
    from coke.field.identity import check

    own = check(Path(site.identity), site_id(site.name), now)
    return list(filter(None, [expiry_warning(site.name, (own.ends - now).total_seconds())]))


class _Watch(NamedTuple):
    """An agent that is looked at."""

    statuses: Iterator[Status]
    finish: Callable[[dict[str, Any]], None]


@contextmanager
def _shown(own: Agent, warnings: list[str], face: Onlooker) -> Iterator[_Watch]:
    """On a page, if it is to have one."""
    port = own.mission.config.site.page
    if port is None:
        yield _Watch(own.run(), lambda _: None)
        return
    from coke.page.board import Board
    from coke.page.site import facts, site_page

    board = Board(facts(own.mission, warnings))
    with site_page(board, own.carrier, own.store.folder, port) as address:
        face.say(address)
        yield _Watch(board.followed(own), board.finish)


def _counted(carrier: Carrier) -> dict[str, dict[str, int]]:
    return {name: counts._asdict() for name, counts in carrier.counts().items()}


@contextmanager
def _lasting() -> Iterator[None]:
    """Imports that stay for good: nobody looks for garbage among them, now or when all ends.

    It would take a third of an agent's time to start and to end.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _exit() -> NoReturn:
    raise SystemExit(STOPPED)


def _leave(own: Agent) -> dict[str, Any]:
    """Model, history and report in the state folder; and what there is to say."""
    from coke.data.files import write_file
    from coke.field.kept import keep_model
    from coke.field.results import keep
    from coke.report.site import site_report

    path = own.store.folder / "report.html"
    document = {**keep(own), "report": str(path)}
    write_file(path, site_report(document, own.store.rounds(document["rounds"])).encode())
    site = own.mission.config.site
    keep_model(Path(site.models), site.run, Path(document["model"]), site.last_models)
    return document
