"""A running agent's page: what its board says, shown by a server of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from coke import __version__
from coke.errors import CokeError
from coke.page.board import Board, Facts
from coke.page.live import Live, Show
from coke.page.metrics import metrics
from coke.page.parts import parts
from coke.settings.sites import digest_of
from coke.talk.names import site_id

if TYPE_CHECKING:
    from coke.field.carriers.base import Carrier
    from coke.field.mission import Mission
    from coke.settings.declaration import SiteTable

SECTIONS = {
    "lead": "Now",
    "warned": "Warnings",
    "result": "Own and common model",
    "near": "Neighbours",
    "curves": "Course",
    "events": "Events",
    "about": "About this site",
}


def facts(mission: Mission, warnings: Sequence[str]) -> Facts:
    """Of a site whose agent is about to start."""
    site = mission.config.site
    return Facts(
        site=site.name, network=site.network, run=site.run, version=__version__,
        neighbours=tuple(sorted(site.neighbours)), settings=mission.settings,
        digest=digest_of(mission.settings), warnings=tuple(warnings), ends=_ends(site),
    )  # fmt: skip


def _ends(site: SiteTable) -> Callable[[], float | None]:
    """When the certificate ends that lies there now: it may have been renewed."""
    path = None if site.identity is None else Path(site.identity) / f"{site_id(site.name)}.crt"

    def ends() -> float | None:
        try:
            return None if path is None else _last_second(path, path.stat().st_mtime_ns)
        except (CokeError, OSError):
            return None

    return ends


@lru_cache(maxsize=1)
def _last_second(path: Path, written: int) -> float:
    from coke.field.identity import read_credential

    return read_credential(path).ends.timestamp()


@contextmanager
def site_page(board: Board, carrier: Carrier, folder: Path, port: int) -> Iterator[str]:
    """The address of a page that shows the board until the block ends."""
    show = Show(
        title=f"{board.facts.site} on {board.facts.network}",
        sections=SECTIONS,
        version=lambda: board.version,
        parts=lambda: parts(board),
        state=board.document,
        metrics=lambda: metrics(board.document(), _frames(carrier)),
        ended=lambda: board.ended,
    )
    with Live(show, folder, port) as live:
        try:
            yield live.access.url
        finally:
            board.end()


def _frames(carrier: Carrier) -> dict[str, dict[str, int]]:
    return {name: counts._asdict() for name, counts in carrier.counts().items()}
