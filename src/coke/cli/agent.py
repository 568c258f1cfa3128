"""`coke agent`: one site on a network, until the network has learnt."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.live import Live
from rich.table import Table

from coke.cli import options
from coke.cli.console import console
from coke.errors import ConvergenceError
from coke.report.tables import shown
from coke.settings.declaration import SiteSettings
from coke.settings.sites import read_site

if TYPE_CHECKING:
    from coke.field.agent import Agent, Outcome, Status
    from coke.field.mission import FieldMission
    from coke.field.store import Store
    from coke.learning.prepare import Ready

STOPPED = 143  # by SIGTERM or Ctrl-C; the state is kept
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
    if document["largest_asymmetry"]:
        raise ConvergenceError(
            f"the duals of an edge do not cancel: {document['asymmetry']}; the answer is shifted "
            f"by about {document['predicted_shift']:.2g}; begin a new run, and keep the folders"
        )


def _run(
    settings: SiteSettings,
    store: Store,
    leave: bool,
    follow: Callable[[Agent[Ready]], None],
    warn: Callable[[str], None],
) -> dict[str, Any] | None:
    """What it came to; None where the site has left."""
    from coke.field.agent import Agent
    from coke.field.carriers.zenoh import ZenohCarrier
    from coke.field.mission import FieldMission, pace_of, place_of
    from coke.studies.audit import site_warnings

    place, pace = place_of(settings), pace_of(settings)
    with console.status("reading rows"):
        mission = FieldMission(settings)
    warnings = site_warnings(mission)
    for line in warnings:
        warn(line)
    with ZenohCarrier(place) as carrier:
        own = Agent(mission, carrier, store, pace)
        if leave:
            own.leave()
        with _signals(own.stop):
            follow(own)
        if own.stopped:
            _exit()
        sent = {n: c._asdict() for n, c in carrier.counts().items()}
    assert own.site is not None
    if not own.site.done:
        return None
    return _leave(settings, mission, own, store) | {"frames": sent, "warnings": warnings}


def _warn(line: str) -> None:
    console.print(f"privacy: {line}; see docs/privacy.md", markup=False, soft_wrap=True)


def _warn_machine(line: str) -> None:
    _line({"phase": "warning", "why": line})


def _exit() -> None:
    raise SystemExit(STOPPED)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C stop."""
    before = {n: signal.signal(n, lambda *_: stop()) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _machine(every_round: bool) -> Callable[[Agent[Ready]], None]:
    """A line of JSON now and then."""

    def follow(own: Agent[Ready]) -> None:
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
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


def _people(own: Agent[Ready]) -> None:
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
    table = Table(title=name, show_header=False, box=None, title_justify="left")
    waits = f", waits for {', '.join(status.missing)}" if status.missing else ""
    table.add_row("phase", f"{status.phase}, round {status.round}{waits}")
    table.add_row("neighbours", ", ".join(status.alive) or "none alive")
    sent = status.ledger
    words = "spoke" if status.spoke else "silent"
    table.add_row("sent", f"{words}; {sent.transmissions} in all, {shown('bytes', sent.bytes)}")
    if isfinite(status.away):
        ends = "" if status.countdown is None else f", ends in {status.countdown} rounds"
        table.add_row("progress", f"{status.away:.3g} × tol, loss {status.loss:.4g}{ends}")
    if status.refused:
        table.add_row("refused", f"{status.refused} frames that made no sense")
    return table


def _leave(
    settings: SiteSettings, mission: FieldMission, own: Agent[Ready], store: Store
) -> dict[str, Any]:
    """Model, history and report in the state folder; and what there is to say."""
    import pyarrow as pa
    import pyarrow.parquet

    from coke.data.files import atomically, write_file
    from coke.report.page import site_report

    assert own.agreed is not None
    outcome = own.outcome()
    mission.model(own.agreed, outcome).save(store.folder / "model.coke")
    alone = own.agreed.task.alone
    if alone is not None:  # the owner may keep the better one, and need tell nobody
        own.agreed.task.model(alone[0]).save(store.folder / "model-alone.coke")
    rounds = store.rounds(outcome.rounds)
    table = pa.Table.from_pylist(rounds)
    atomically(store.folder / "history.parquet", lambda part: pa.parquet.write_table(table, part))
    document = _summary(settings, mission, own.agreed, outcome)
    write_file(store.folder / "report.html", site_report(document, rounds).encode())
    return document


def _summary(
    settings: SiteSettings, mission: FieldMission, ready: Ready, outcome: Outcome
) -> dict[str, Any]:
    """What training came to, for people and machines."""
    from coke.maths.ledger import Ledger

    task, N = ready.task, len(ready.task.net.names)
    theta = mission.theta(ready, outcome)[None]
    losses = {"train": float(task.problem.train.losses(theta)[0])}
    if task.problem.test is not None:
        losses["test"] = float(task.problem.test.losses(theta)[0])
    metric = task.problem.train.metric
    if task.alone is not None and task.problem.test is not None:
        losses["alone_test"] = float(task.problem.test.losses(task.alone)[0])
    private: dict[str, Any] = {}
    if task.budget is not None:
        spent = task.budget.epsilon
        private = {"epsilon": settings.epsilon, "delta": settings.delta, "epsilon_spent": spent}
    known = [a for a in outcome.asymmetry.values() if a is not None]
    folder = Path(settings.site.state)
    return {
        "site": mission.name,
        "agents": N,
        "neighbours": len(settings.site.neighbours),
        "rounds": outcome.rounds,
        "converged": outcome.converged,
        **private,
        **Ledger(*outcome.ledger)._asdict(),
        **{f"{key}_{metric}": value for key, value in losses.items()},
        "asymmetry": dict(outcome.asymmetry),
        "largest_asymmetry": max(known, default=None),
        "predicted_shift": outcome.pull / N,
        "largest_dual": outcome.dual / mission.unit(ready),
        "model": str(folder / "model.coke"),
        "report": str(folder / "report.html"),
    }


def _show(document: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None)
    for key, value in document.items():
        if key not in ("asymmetry", "frames", "warnings"):
            table.add_row(key.replace("_", " "), shown(key, value))
    console.print(table)
