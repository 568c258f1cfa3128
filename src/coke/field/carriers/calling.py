"""Calls to neighbours, again and again until they answer: one thread for each while it lasts."""

from __future__ import annotations

import math
import random
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coke.field.carriers.address import Endpoint
from coke.field.carriers.base import Event
from coke.field.carriers.papers import Papers, Peer, UnwelcomeError, why
from coke.field.carriers.stream import Plug
from coke.talk.names import site_id

SOON, LATE = 0.25, 4.0  # seconds until the next call; twice as long each time
FIRST, LAST = 1.0, 60.0  # seconds until it is told why a neighbour is missing; likewise
PATIENCE = 4.0  # seconds for an answer
Answer = tuple["Call", Plug | None, Peer | None, Event | None]


@dataclass(eq=False)
class Call:
    """How it stands with one neighbour that we call."""

    name: str
    at: Endpoint
    due: float
    told: float  # when to tell why there is no link
    wait: float = SOON
    silence: float = FIRST
    busy: bool = False
    again: bool = False  # although there is a link: somebody has a new certificate
    last: str = ""  # what was told last

    def done(self, now: float) -> None:
        """There is a link."""
        self.busy, self.again, self.wait, self.silence, self.last = False, False, SOON, FIRST, ""
        self.due, self.told = now, now + FIRST

    def lost(self, now: float) -> None:
        """There is a link no longer."""
        self.told = now + FIRST
        if not self.busy:
            self.due = now

    def failed(self, now: float) -> None:
        """Later, and not all callers at the same moment."""
        self.busy, self.due = False, now + self.wait * (0.5 + random.random())
        self.wait = min(2 * self.wait, LATE)

    def worth_telling(self, event: Event, now: float) -> bool:
        """Not at once, and the same thing ever more rarely."""
        if now < self.told and (self.silence == FIRST or event.why == self.last):
            return False
        self.last, self.told = event.why, now + self.silence
        self.silence = min(2 * self.silence, LAST)
        return True


def call(one: Call, papers: Papers | None, answer: Callable[[Answer], None]) -> None:
    """Begins; the answer comes from another thread."""
    one.busy, one.due = True, math.inf
    work = partial(_called, one, papers, answer)
    threading.Thread(target=work, daemon=True, name=f"call {site_id(one.name)}").start()


def _called(one: Call, papers: Papers | None, answer: Callable[[Answer], None]) -> None:
    try:
        answer((one, *_reached(one, papers), None))
    except UnwelcomeError as error:
        answer((one, None, None, Event("refused", one.name, f"{one.at}: {error}")))
    except OSError as error:
        kind = "refused" if hasattr(error, "reason") else "unreachable"  # by TLS, or by nobody
        answer((one, None, None, Event(kind, one.name, f"{one.at}: {why(error)}")))


def _reached(one: Call, papers: Papers | None) -> tuple[Plug, Peer]:
    """A link to where the neighbour should be, if it is there."""
    plain = socket.create_connection((one.at.bare, one.at.port), timeout=PATIENCE)
    own = site_id(one.name)
    try:
        tls = None if papers is None else papers.client
        plug = Plug(plain, tls, server=False, wait=PATIENCE)
        plain = plug.socket
        plug.shake()
        peer = Peer(own, math.inf, "") if papers is None else papers.peer(plug)
        if peer.id != own:
            raise UnwelcomeError(f"name mismatch: {peer.id!a} answers; expected {own!r}")
        plain.settimeout(0.0)
    except BaseException:
        plain.close()
        raise
    return plug, peer
