"""An agent's news on a terminal, or as lines of JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from coke.cli.console import as_json, console, print_json, say, warn
from coke.report.tables import shown

if TYPE_CHECKING:
    from coke.cli.rolling import RollingLog
    from coke.field.agent import Status

EVERY = 0.5  # seconds between two lines for machines, but for rounds and events


class Onlooker(NamedTuple):
    """Who looks on."""

    follow: Callable[[str, Iterator[Status]], None]
    warn: Callable[[str], None]
    say: Callable[[str], None]  # where the page is
    show: Callable[[dict[str, Any]], None]  # what it came to


def machines(
    stamp: dict[str, Any], *, every_round: bool, log: RollingLog | None = None
) -> Onlooker:
    """Lines of JSON, each with the time and the stamp; into a file, or on stdout."""

    def line(document: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        whole = {"time": now, **stamp, **document}
        if log is not None:
            log.write(as_json(whole).encode())
            return
        print_json(whole, line=True)
        sys.stdout.flush()

    return Onlooker(
        follow=lambda _, statuses: _lines(statuses, line, every_round),
        warn=lambda why: line({"phase": "warning", "why": why}),
        say=lambda url: line({"phase": "page", "url": url}),
        show=lambda document: line({"phase": "result", **document}),
    )


def _lines(
    statuses: Iterator[Status], line: Callable[[dict[str, Any]], None], every_round: bool
) -> None:
    """Now and then."""
    then, phase, last_round = -inf, "", -1
    for status in statuses:
        now = time.monotonic()
        new = every_round and status.round != last_round
        if now - then >= EVERY or status.phase != phase or status.events or new:
            then, phase, last_round = now, status.phase, status.round
            line(_plain(status))


def _plain(status: Status) -> dict[str, Any]:
    plain = status._asdict() | {"ledger": status.ledger._asdict()}
    plain["events"] = [event._asdict() for event in status.events]
    return {key: None if _odd(value) else value for key, value in plain.items()}


def _odd(value: Any) -> bool:
    return isinstance(value, float) and not isfinite(value)


def _people(name: str, statuses: Iterator[Status]) -> None:
    """A table that follows the status, and a line for every event."""
    then = -inf
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        for status in statuses:
            for event in status.events:
                live.console.print(f"{event.kind} {event.who}: {event.why}", markup=False)
            if time.monotonic() - then > 0.2:
                then = time.monotonic()
                live.update(_table(name, status))


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
        table.add_row(
            "progress", f"{status.away:.3g} × what may be left, loss {status.loss:.4g}{ends}"
        )
    if status.refused:
        table.add_row("refused", f"{status.refused} frames that made no sense")
    return table


# said in words, or for machines alone
_SAID = (
    "asymmetry", "certificate", "frames", "lost", "suspects", "targets", "verdict", "warnings",
)  # fmt: skip


def _show(document: dict[str, Any]) -> None:
    told = document["verdict"]
    for line in [told["text"], *told["notes"]] if told else []:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for who, why in {**document["lost"], **document["suspects"]}.items():
        say(f"warning: {who}: {why}; see docs/trust.md")
    if document["settled"] is False:
        console.print(f"warning: {document['warnings'][-1]}", markup=False, soft_wrap=True)
    table = Table(show_header=False, box=None)
    for key, value in document.items():
        if key not in _SAID:
            table.add_row(escape(key.replace("_", " ")), escape(shown(key, value)))
    console.print(table)


PEOPLE = Onlooker(_people, warn, lambda url: say(f"page: {url}"), _show)
