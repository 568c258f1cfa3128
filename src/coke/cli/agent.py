"""`coke agent`: one site on a network, until the network has learnt."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from coke.cli import options
from coke.cli.console import console, print_json, say, warn
from coke.errors import ConfigError, ConvergenceError
from coke.field.carriers import CARRIERS
from coke.report.tables import shown
from coke.settings.declaration import SiteSettings
from coke.settings.sites import read_site

if TYPE_CHECKING:
    from coke.field.agent import Agent, Status
    from coke.field.store import Store

STOPPED = 143  # by SIGTERM or Ctrl-C; the state is kept
STRUCK = 3  # it has a model, but a neighbour was struck out on the way
EVERY = 0.5  # seconds between two lines for machines, but for rounds and events

app = options.app()


@app.command()
def agent(
    site: Annotated[Path, typer.Argument(help="The site's file, such as site.toml.")],
    leave: Annotated[
        bool, typer.Option("--leave", help="Leave the network for good, and end.")
    ] = False,
    rounds_shown: Annotated[
        bool, typer.Option("--rounds-shown", help="With --json, a line for every round.")
    ] = False,
    json: options.AsJson = False,
) -> None:
    """One site on a network: meets its neighbours, agrees, trains, writes its model.

    Stops cleanly on SIGTERM or Ctrl-C; started again, it goes on where it was.
    """
    with _signals(_exit):  # until there is an agent to stop, and after
        settings = read_site(site)
        _check_alone(settings)
        if rounds_shown and not json:
            warn("--rounds-shown has no effect: it is for --json")
        with _lasting():
            from coke.field.store import Store  # here: what is refused needs no NumPy

        store = Store(Path(settings.site.state))
        with store.claimed():
            follow = _machine(rounds_shown) if json else _people
            document = _run(settings, store, leave, follow, _warn_machine if json else _warn)
    if document is None:
        return  # it has left
    if json:
        _line({"phase": "result", **document})
    else:
        _show(document)
    if "struck out" in document["lost"].values():
        raise SystemExit(STRUCK)
    if document["largest_asymmetry"]:
        raise ConvergenceError(
            f"the duals of an edge do not cancel: {document['asymmetry']}; the answer is shifted "
            f"by about {document['predicted_shift']:.2g}; begin a new run, and keep the folders"
        )


def _check_alone(settings: SiteSettings) -> None:
    """Refuses a carrier whose sites must be threads of one process."""
    opening = CARRIERS[settings.site.carrier]
    if opening.together:
        raise ConfigError(
            f'carrier = "{settings.site.carrier}" is {opening.about}: start all sites together, '
            "with coke network run"
        )


def _run(
    settings: SiteSettings,
    store: Store,
    leave: bool,
    follow: Callable[[Agent], None],
    warn: Callable[[str], None],
) -> dict[str, Any] | None:
    """What it came to; None where the site has left."""
    with _lasting():
        from coke.field.agent import Agent
        from coke.field.mission import Mission
        from coke.field.phases import Pace
        from coke.studies.audit import site_warnings

    pace = Pace.of(settings.site.patience)
    opened = CARRIERS[settings.site.carrier].opener(settings.site)
    with console.status("reading rows"):
        mission = Mission(settings, say=say)
    warnings = site_warnings(mission)
    for line in warnings:
        warn(line)
    with opened() as carrier:
        own = Agent(mission, carrier, store, pace)
        if leave:
            own.leave()
        with _signals(own.stop):
            follow(own)
        if own.stopped:
            _exit()
        sent = {n: c._asdict() for n, c in carrier.counts().items()}
    if own.node is None or not own.node.done:
        return None
    document = _leave(own)
    ending = document["warnings"]  # which nobody has been told yet
    return document | {"frames": sent, "warnings": [*warnings, *ending], "ending": ending}


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


def _warn(line: str) -> None:
    console.print(f"privacy: {line}; see docs/privacy.md", markup=False, soft_wrap=True)


def _warn_machine(line: str) -> None:
    _line({"phase": "warning", "why": line})


def _exit() -> None:
    raise SystemExit(STOPPED)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C stop; the same again ends at once, which loses nothing either."""
    came: set[int] = set()

    def handle(number: int, frame: object) -> None:
        if number in came:
            _exit()
        came.add(number)
        stop()

    before = {n: signal.signal(n, handle) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _machine(every_round: bool) -> Callable[[Agent], None]:
    """A line of JSON now and then."""

    def follow(own: Agent) -> None:
        then, phase, last_round = -inf, "", -1
        for status in own.run():
            now = time.monotonic()
            new = every_round and status.round != last_round
            if now - then >= EVERY or status.phase != phase or status.events or new:
                then, phase, last_round = now, status.phase, status.round
                _line(_plain(status))

    return follow


def _plain(status: Status) -> dict[str, Any]:
    plain = status._asdict() | {"ledger": status.ledger._asdict()}
    plain["events"] = [event._asdict() for event in status.events]
    return {key: None if _odd(value) else value for key, value in plain.items()}


def _odd(value: Any) -> bool:
    return isinstance(value, float) and not isfinite(value)


def _line(document: dict[str, Any]) -> None:
    print_json(document, line=True)
    sys.stdout.flush()


def _people(own: Agent) -> None:
    """A table that follows the status, and a line for every event."""
    then = -inf
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        for status in own.run():
            for event in status.events:
                live.console.print(f"{event.kind} {event.who}: {event.why}", markup=False)
            if time.monotonic() - then > 0.2:
                then = time.monotonic()
                live.update(_table(own.mission.name, status))


def _table(name: str, status: Status) -> Table:
    table = Table(title=escape(name), show_header=False, box=None, title_justify="left")
    waits = f", waits for {', '.join(status.missing)}" if status.missing else ""
    table.add_row("phase", escape(f"{status.phase}, round {status.round}{waits}"))
    table.add_row("neighbours", escape(", ".join(status.alive)) or "none alive")
    sent = status.ledger
    words = "spoke" if status.spoke else "silent"
    table.add_row("sent", f"{words}; {sent.transmissions} in all, {shown('bytes', sent.bytes)}")
    if isfinite(status.away):
        ends = "" if status.countdown is None else f", ends in {status.countdown} rounds"
        table.add_row("progress", f"{status.away:.3g} × tol, loss {status.loss:.4g}{ends}")
    if status.refused:
        table.add_row("refused", f"{status.refused} frames that made no sense")
    return table


def _leave(own: Agent) -> dict[str, Any]:
    """Model, history and report in the state folder; and what there is to say."""
    from coke.data.files import write_file
    from coke.field.results import keep
    from coke.report.site import site_report

    path = own.store.folder / "report.html"
    document = {**keep(own), "report": str(path)}
    write_file(path, site_report(document, own.store.rounds(document["rounds"])).encode())
    return document


def _show(document: dict[str, Any]) -> None:
    told = document["verdict"]
    for line in [told["text"], *told["notes"]] if told else []:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in document["ending"]:
        console.print(f"warning: {line}", markup=False, soft_wrap=True)
    table = Table(show_header=False, box=None)
    for key, value in document.items():
        if key not in ("asymmetry", "frames", "warnings", "ending", "verdict"):
            table.add_row(escape(key.replace("_", " ")), escape(shown(key, value)))
    console.print(table)
