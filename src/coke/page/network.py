"""The page of a whole network on one machine: how every site is, and where its own page is."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coke.page.live import Live, Show
from coke.page.metrics import exposed
from coke.page.status import site_status
from coke.report.shell import note
from coke.report.tables import shown
from coke.settings.declaration import SiteSettings
from coke.talk.names import readable

EVERY = 1.0  # seconds between two looks at all sites
SECTIONS = {"lead": "Now", "sites": "Sites"}
_COLUMNS = {
    "site": "site", "state": "state", "phase": "phase", "round": "round", "away": "left / allowed",
    "loss": "loss on own rows", "bytes": "told", "wire_bytes": "wire", "missing": "waits for",
}  # fmt: skip


class _Overview:
    """All sites as they were when last looked at, by a thread of its own."""

    def __init__(self, settings: Sequence[SiteSettings]):
        self._settings, self.version, self.ended = settings, 0, threading.Event()
        self.sites = [site_status(one) for one in settings]
        threading.Thread(target=self._look, name="overview", daemon=True).start()

    def _look(self) -> None:
        while not self.ended.wait(EVERY):
            self.look()

    def look(self) -> None:
        """At all sites, now."""
        found = [site_status(one) for one in self._settings]
        if found != self.sites:
            self.sites, self.version = found, self.version + 1


@contextmanager
def network_page(settings: Sequence[SiteSettings], folder: Path, port: int) -> Iterator[str]:
    """The address of a page that shows these sites until the block ends."""
    over = _Overview(settings)
    show = Show(
        title=f"{settings[0].site.network}: {len(settings)} sites on this machine",
        sections=SECTIONS,
        version=lambda: (over.version, over.ended.is_set()),
        parts=lambda: {"lead": _lead(over.sites), "sites": _table(over.sites)},
        state=lambda: {"sites": over.sites},
        metrics=lambda: _metrics(over.sites),
        ended=over.ended.is_set,
    )
    with Live(show, folder, port) as live:
        try:
            yield live.access.url
        finally:
            over.look()
            over.ended.set()


def _lead(sites: Sequence[dict[str, Any]]) -> str:
    states = [one["state"] for one in sites]
    said = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"<p>{html.escape(said)}</p>" + note("A site's name leads to its own page.")


def _table(sites: Sequence[dict[str, Any]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS.values())
    rows = "".join(f"<tr>{_name(one)}{''.join(_cells(one))}</tr>" for one in sites)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _name(one: dict[str, Any]) -> str:
    name = html.escape(readable(one["site"]))
    own = f'<a href="{html.escape(one["page"])}">{name}</a>' if one["page"] else name
    return f'<th scope="row">{own}</th>'


def _cells(one: dict[str, Any]) -> Iterator[str]:
    for key in list(_COLUMNS)[1:]:
        value = one[key]
        text = ", ".join(value) if isinstance(value, list) else shown(key, value)
        yield f"<td>{html.escape(readable(text))}</td>"


def _metrics(sites: Sequence[dict[str, Any]]) -> str:
    states = [({"site": one["site"], "state": one["state"]}, 1) for one in sites]
    rounds = [({"site": one["site"]}, one["round"]) for one in sites]
    return exposed(
        [
            ("coke_site", "gauge", "Every site, in its state.", states),
            ("coke_site_round", "gauge", "Rounds, or sweeps over the tree.", rounds),
        ]
    )
