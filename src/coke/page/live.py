"""A page that follows what it shows: its files, and a stream of the parts that have changed.

    /TOKEN/          the page
    /TOKEN/stream    server-sent events: parts of the page that have changed, at most twice a second
    /TOKEN/state     all of it as JSON
    /TOKEN/metrics   figures in Prometheus' text form

A part is drawn once for all who look, and only while somebody does.
"""

from __future__ import annotations

import asyncio
import html
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple, Self

import msgspec

from coke.data.files import write_file
from coke.errors import ConfigError
from coke.page.access import FILE, LOOPBACK, Access, read_access
from coke.page.http import HTML, JSON, Door, Flow, Reply, Request
from coke.page.metrics import FIGURES
from coke.page.server import Bounds, Server

EVERY = 0.5  # seconds between two looks
_ALIVE = 30  # looks without news after which a stream says that it is there
OVER = "the agent has ended; this is the last that it told"
_FILES = {"live.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Show(NamedTuple):
    """What a page shows; everything is asked in the server's thread."""

    title: str
    sections: Mapping[str, str]  # heading of each part, by its id
    version: Callable[[], object]  # another one after every change
    parts: Callable[[], dict[str, str]]  # HTML by id
    state: Callable[[], object]
    metrics: Callable[[], str]
    ended: Callable[[], bool]


def settled(
    file: Path | None, at: tuple[str, int], serve: Callable[[str, tuple[str, int]], Server]
) -> tuple[Server, Access]:
    """A server by token and address, and where it is: in a file for its owner alone, if wanted.

    Where it was before it is again, if it can be: addresses stay good.
    """
    before = None if file is None else read_access(file.parent, file.name)
    token = secrets.token_urlsafe(16) if before is None else before.token
    server = None
    if at[1] == 0 and before is not None:
        with suppress(ConfigError):  # somebody else has it by now
            server = serve(token, (at[0], before.port))
    server = server or serve(token, at)
    access = Access(server.port, token, os.getpid())
    if file is not None:
        write_file(file, msgspec.json.encode(access), secret=True)
    return server, access


class Live:
    """A page on loopback; its address is in the folder, for the folder's owner alone."""

    def __init__(self, show: Show, folder: Path, port: int, bounds: Bounds = Bounds()):  # noqa: B008
        self._show = show
        self._drawn: dict[str, str] = {}
        self._version: object = None
        self._server, self.access = settled(
            folder / FILE,
            (LOOPBACK, port),
            lambda token, at: Server(Door(token), self._answer, bounds, at),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.close()

    def _answer(self, request: Request) -> Reply | Flow | None:
        path = request.path
        if path == "":
            return Reply(self._page().encode(), HTML)
        if path == "stream":
            return Flow(self._stream())
        if path == "state":
            return Reply(msgspec.json.encode(self._show.state()), JSON)
        if path == "metrics":
            return Reply(self._show.metrics().encode(), FIGURES)
        return Reply(_resource(path), _FILES[path]) if path in _FILES else None

    def _page(self) -> str:
        shell = Template(_resource("live.html").decode())
        sections = "\n".join(
            f'<section aria-labelledby="{i}-h"><h2 id="{i}-h">{html.escape(h)}</h2>'
            f'<div id="{i}"></div></section>'
            for i, h in self._show.sections.items()
        )
        return shell.substitute(title=html.escape(self._show.title), sections=sections)

    async def _stream(self) -> AsyncIterator[bytes]:
        """All parts, then those that have changed; a comment now and then, to see who is gone."""
        sent: dict[str, str] = {}
        quiet = 0
        while True:
            ended, now = self._show.ended(), self._parts()
            new = {name: part for name, part in now.items() if sent.get(name) != part}
            if new:
                yield b"event: parts\ndata: " + msgspec.json.encode(new) + b"\n\n"
            sent, quiet = now, 0 if new else quiet + 1
            if ended:
                yield f"event: over\ndata: {OVER}\n\n".encode()
                return
            if quiet >= _ALIVE:
                quiet = 0
                yield b": here\n\n"
            await asyncio.sleep(EVERY)

    def _parts(self) -> dict[str, str]:
        version = self._show.version()
        if version != self._version:
            self._drawn, self._version = self._show.parts(), version
        return self._drawn


def _resource(name: str) -> bytes:
    return resources.files("coke").joinpath(f"resources/{name}").read_bytes()
