"""Whoever calls, until hands are shaken: so many at a time, so long each, and nobody for sure.

Nothing is spent on a connection before it has begun as TLS does. When all places are taken, the
source with most of them gives one up: one that has said nothing, else any. So a stranger who fills
them takes them from himself first, and whoever calls again gets through with some luck each time.
"""

from __future__ import annotations

import errno
import ipaddress
import random
import selectors
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from coke.field.carriers.papers import UnwelcomeError, why
from coke.field.carriers.stream import REFUSED, Plug, packed

PLACES = 128  # callers who are not known yet, at most
SECONDS = 5.0  # until hands must be shaken
LEAVING = 0.5  # seconds for a refusal to arrive before the connection is closed
_AT_ONCE = 64  # accepted before links have their turn
_QUEUE = 1024  # of the system, before it forgets callers


@dataclass(eq=False)
class Visitor:
    """Somebody at the door."""

    socket: socket.socket
    where: str
    source: str  # callers of one source share places
    until: float
    plug: Plug | None = None  # none before it has begun as TLS does
    leaving: bool = False  # refused: it only has to hear so


class FrontDoor:
    """A site's listening sockets, and who stands before them."""

    def __init__(
        self, selector: selectors.BaseSelector, tls: Callable[[], ssl.SSLContext | None],
        enter: Callable[[Plug, str], None], refuse: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._selector, self._tls, self._enter, self._refuse = selector, tls, enter, refuse
        self._draw = random.SystemRandom()  # nobody should know who is next to go
        self._guests: dict[int, Visitor] = {}  # by file descriptor
        self._sources = Counter[str]()
        self._ears: list[socket.socket] = []

    def listen(self, host: str, port: int) -> None:
        """At one more address, of either kind."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        ear = socket.create_server((host, port), family=family, backlog=_QUEUE)
        ear.setblocking(False)
        self._ears.append(ear)
        self._selector.register(ear, selectors.EVENT_READ, lambda now: self._accept(ear, now))

    def __len__(self) -> int:
        return len(self._guests)

    def tick(self, now: float) -> None:
        """Whoever has taken too long goes."""
        for fd in [fd for fd, guest in self._guests.items() if now > guest.until]:
            self._drop(fd, "" if self._guests[fd].leaving else "no handshake in time")

    def close(self) -> None:
        """Nobody comes in any more."""
        for fd in [*self._guests]:
            self._drop(fd)
        for ear in self._ears:
            self._selector.unregister(ear)
            ear.close()

    def _accept(self, ear: socket.socket, now: float) -> None:
        for _ in range(_AT_ONCE):
            try:
                plain, (host, *_) = ear.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and self._guests:
                    self._make_room()
                return
            if len(self._guests) >= PLACES:
                self._make_room()
            plain.setblocking(False)
            fd, guest = plain.fileno(), Visitor(plain, host, _source(host), now + SECONDS)
            self._guests[fd] = guest
            self._sources[guest.source] += 1
            self._selector.register(
                fd, selectors.EVENT_READ, lambda now, fd=fd: self._turn(fd, now)
            )
            self._turn(fd, now)  # what it says first has often come with it

    def _make_room(self) -> None:
        """The source with most places gives one up."""
        most = max(self._sources, key=self._sources.__getitem__)
        theirs = [fd for fd, one in self._guests.items() if one.source == most]
        silent = (fd for fd in theirs if self._guests[fd].plug is None)
        self._drop(next(silent, None) or self._draw.choice(theirs), "too many callers at once")

    def _turn(self, fd: int, now: float) -> None:
        """Goes on with one of them."""
        guest = self._guests.get(fd)
        if guest is None:
            return  # it went while others had their turn
        try:
            if guest.leaving:
                if not guest.socket.recv(1 << 12):
                    self._drop(fd)
            elif guest.plug is not None or self._begun(guest):
                self._go_on(fd, guest, now)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except (OSError, ValueError) as error:
            self._drop(fd, "" if guest.leaving else why(error))

    def _begun(self, guest: Visitor) -> bool:
        """Whether it has said hello as TLS does."""
        tls = self._tls()
        if tls is not None:
            hello = guest.socket.recv(6, socket.MSG_PEEK)
            if not hello:
                raise ConnectionError("hung up without a word")
            if hello[:2] != b"\x16\x03"[: len(hello)] or hello[5:] not in (b"", b"\x01"):
                raise ConnectionError("speaks no TLS")
            if len(hello) < 6:
                return False
        guest.plug = Plug(guest.socket, tls, server=True)
        guest.socket = guest.plug.socket
        return True

    def _go_on(self, fd: int, guest: Visitor, now: float) -> None:
        assert guest.plug is not None
        try:
            if not guest.plug.shake():
                return
            self._forget(fd)
            self._enter(guest.plug, guest.where)
        except UnwelcomeError as error:
            guest.plug.write(packed(REFUSED, str(error).encode()[:500]), 0, 0.0)
            self._leave(fd, guest, now)
        except ssl.SSLError as error:  # TLS has told the other end why
            self._refuse(guest.where, why(error))
            self._leave(fd, guest, now)

    def _leave(self, fd: int, guest: Visitor, now: float) -> None:
        """Closed at once, what was said last might never arrive."""
        if fd not in self._guests:
            self._guests[fd] = guest
            self._sources[guest.source] += 1
            self._selector.register(fd, selectors.EVENT_READ, lambda now: self._turn(fd, now))
        guest.leaving, guest.until = True, now + LEAVING
        with suppress(OSError):
            guest.socket.shutdown(socket.SHUT_WR)

    def _forget(self, fd: int) -> None:
        """It stands at the door no longer."""
        source = self._guests.pop(fd).source
        self._selector.unregister(fd)
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]

    def _drop(self, fd: int, reason: str = "") -> None:
        guest = self._guests[fd]
        self._forget(fd)
        with suppress(OSError):
            guest.socket.close()
        if reason:
            self._refuse(guest.where, reason)


def _source(host: str) -> str:
    """Whom an address belongs to: with IPv6 one caller has a whole network of 2⁶⁴."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or int(address) >> 64)
