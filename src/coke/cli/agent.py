"""`coke agent`: one site on a network, until the network has learnt."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import typer
from rich.live import Live
from rich.table import Table

from coke.cli.console import AsJson, console
from coke.data.files import atomically, write_file
from coke.errors import ConfigError, ConvergenceError
from coke.field.agent import Agent, Outcome, Status
from coke.field.carriers.zenoh import ZenohCarrier
from coke.field.mission import FieldMission, SiteConfig, pace_of, place_of, read_site
from coke.field.store import Store
from coke.learning.ready import Ready
from coke.maths.ledger import Ledger
from coke.report.tables import shown
from coke.studies.audit import site_warnings

STOPPED = 143  # by SIGTERM or Ctrl-C; the state is kept
EVERY = 0.5  # seconds between two lines for machines, but for rounds and events


def agent(
    site: Annotated[Path, typer.Argument(help="The site's file, such as site.toml.")],
    leave: Annotated[
        bool, typer.Option("--leave", help="Leave the network for good, and end.")
    ] = False,
    rounds_shown: Annotated[
        bool, typer.Option("--rounds-shown", help="With --json, a line for every round.")
    ] = False,
    json: AsJson = False,
) -> None:
    """One site on a network: meets its neighbours, agrees, trains, writes its model.

    Stops cleanly on SIGTERM or Ctrl-C; started again, it goes on where it was.
    """
    with _signals(_exit):  # until there is an agent to stop, and after
        config = read_site(site)
        if config.data.stream:
            raise ConfigError("data.stream is for coke run: an agent reads its own rows at once")
        store = Store(Path(config.site.state))
        with store.claimed():
            follow = _machine(rounds_shown) if json else _people
            document = _run(config, store, leave, follow, _warn_machine if json else _warn)
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
    config: SiteConfig,
    store: Store,
    leave: bool,
    follow: Callable[[Agent[Ready]], None],
    warn: Callable[[str], None],
) -> dict[str, Any] | None:
    """What it came to; None where the site has left."""
    place, pace = place_of(config), pace_of(config)
    with console.status("reading rows"):
        mission = FieldMission(config)
    warnings = site_warnings(mission)
    for line in warnings:
        warn(line)
    with ZenohCarrier(place) as carrier:
        own: Agent[Ready] = Agent(mission, carrier, store, pace)
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
    return _leave(config, mission, own, store) | {"frames": sent, "warnings": warnings}


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


def _machine(every_round: bool) -> Callable[[Agent[Ready]], None]:
    """A line of JSON now and then."""

    def follow(own: Agent[Ready]) -> None:
        then, phase, last_round = -np.inf, "", -1
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
    return isinstance(value, float) and not np.isfinite(value)


def _line(document: dict[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


def _people(own: Agent[Ready]) -> None:
    """A table that follows the status, and a line for every event."""
    then = -np.inf
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
    if np.isfinite(status.away):
        ends = "" if status.countdown is None else f", ends in {status.countdown} rounds"
        table.add_row("progress", f"{status.away:.3g} × tol, loss {status.loss:.4g}{ends}")
    if status.refused:
        table.add_row("refused", f"{status.refused} frames that made no sense")
    return table


def _leave(
    config: SiteConfig, mission: FieldMission, own: Agent[Ready], store: Store
) -> dict[str, Any]:
    """Model, history and report in the state folder; and what there is to say."""
    from coke.report.page import site_report  # here: matplotlib is slow to import

    assert own.agreed is not None
    outcome = own.outcome()
    mission.model(own.agreed, outcome).save(store.folder / "model.coke")
    noised = own.agreed.noised
    if noised is not None:  # the owner may keep the better one, and need tell nobody
        own.agreed.agreement.model(noised.alone[0]).save(store.folder / "model-alone.coke")
    rounds = store.rounds(outcome.rounds)
    table = pa.Table.from_pylist(rounds)
    atomically(store.folder / "history.parquet", lambda part: pa.parquet.write_table(table, part))
    document = summary(config, mission, own.agreed, outcome)
    write_file(store.folder / "report.html", site_report(document, rounds).encode())
    return document


def summary(
    config: SiteConfig, mission: FieldMission, ready: Ready, outcome: Outcome
) -> dict[str, Any]:
    """What training came to, for people and machines."""
    problem, noised, N = ready.problem, ready.noised, ready.agreement.N
    theta = mission.theta(ready, outcome)[None]
    losses = {"train": float(problem.train.losses(theta)[0])}
    if problem.test is not None:
        losses["test"] = float(problem.test.losses(theta)[0])
    metric = problem.train.metric
    if noised is not None and problem.test is not None:
        losses["alone_test"] = float(problem.test.losses(noised.alone)[0])
    private: dict[str, Any] = {}
    if noised is not None:
        spent = noised.budget.epsilon
        private = {"epsilon": config.epsilon, "delta": config.delta, "epsilon_spent": spent}
    known = [a for a in outcome.asymmetry.values() if a is not None]
    folder = Path(config.site.state)
    return {
        "site": mission.name,
        "agents": N,
        "neighbours": len(config.site.neighbours),
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
