"""Connections whose other end has shown who it is: from WELCOME to the last word.

At most one of them is in use with a neighbour. A new one takes over from the old, of which what is
under way is still read; where both ends have called each other, both keep the same one.
"""

from __future__ import annotations

import selectors
import time
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from coke.errors import MessageError
from coke.field.carriers import stream
from coke.field.carriers.base import Bucket, Event
from coke.field.carriers.calling import Call
from coke.field.carriers.papers import Peer, why
from coke.field.carriers.stream import Plug, Reader, packed

GREETED = 5.0  # seconds for the other end to say WELCOME
RETIRED = 2.0  # seconds in which what is under way on a replaced link still arrives
LEAVING = 0.5  # seconds for a refusal to arrive
LEASES = 5  # of silence after which a link is closed
UNSENT = 1 << 22  # bytes waiting for a neighbour before a sender waits, too


@dataclass(eq=False)
class Link:
    """One connection; in plaintext the other end only says who it is."""

    plug: Plug
    where: str
    peer: Peer | None
    name: str  # of the neighbour; empty in plaintext until it has said
    call: Call | None  # None where the neighbour has called
    reader: Reader
    control: Bucket  # of messages that are no frames
    heard: float
    until: float  # it is closed then, unless something happens before
    spoke: float = 0.0
    live: bool = False  # the other end has said WELCOME
    refused: bool = False  # by us: it only has to hear so
    broken: bool = False  # a sender has given up
    watched: int = selectors.EVENT_READ

    def say(self, kind: int, data: bytes, now: float, patience: float = 0.0) -> bool:
        """Sends it, now or soon; False where that is hopeless."""
        self.spoke = now
        try:
            sent = self.plug.write(packed(kind, data), UNSENT, patience)
        except OSError:
            sent = False
        self.broken |= not sent
        return sent


class Owner(Protocol):
    """Whose links they are."""

    @property
    def welcome(self) -> bytes:
        """What it says of itself."""
        ...

    def neighbour(self, name: str) -> str:
        """The name of a neighbour of that id; empty for others."""
        ...

    def arrived(self, sender: str, frame: bytes) -> None:
        """A frame has come."""
        ...

    def happened(self, kind: int, link: Link, data: bytes) -> None:
        """A message that is none has come."""
        ...

    def tell(self, event: Event) -> None:
        """Something an operator may want to know."""
        ...


class Links:
    """All connections of one site, used by one thread at a time but for `Link.say`."""

    def __init__(
        self, owner: Owner, selector: selectors.BaseSelector, frame: int, lease: float
    ) -> None:
        self._owner, self._selector, self._frame, self._lease = owner, selector, frame, lease
        self.used: dict[str, Link] = {}  # by neighbour
        self._all: dict[int, Link] = {}  # by file descriptor; also new and retired ones

    def __contains__(self, fd: int) -> bool:
        return fd in self._all

    def all(self) -> list[Link]:
        """Those in use, those not yet and those not any more."""
        return [*self._all.values()]

    def greet(self, plug: Plug, where: str, peer: Peer | None, one: Call | None) -> None:
        """A new connection; it is of use once the other end has said WELCOME."""
        now, name = time.monotonic(), self._owner.neighbour(peer.id) if peer else ""
        for old in self.all():
            if old.name == name and not old.live and old.call is one and name:
                self.drop(old)  # it has called again before it said anything
        link = Link(
            plug=plug, where=where, peer=peer, name=name, call=one, reader=Reader(self._frame),
            control=Bucket(10, 50, time.monotonic), heard=now, until=now + GREETED,
        )  # fmt: skip
        self._all[plug.fd] = link
        self._selector.register(plug.fd, selectors.EVENT_READ, partial(self._turn, link))
        link.say(stream.WELCOME, self._owner.welcome, now)

    def _turn(self, link: Link, now: float) -> None:
        """Reads what has come, and sends what waits."""
        try:
            link.plug.flush()
            data = link.plug.read()
            link.heard = now
            for kind, message in link.reader.feed(data):
                self._message(link, kind, message, now)
                if link.plug.fd not in self._all:
                    return
        except (OSError, MessageError) as error:
            self.drop(link, _refusal(link, error))

    def _message(self, link: Link, kind: int, data: bytes, now: float) -> None:
        if link.refused:
            return
        if kind == stream.FRAME and link.live:
            self._owner.arrived(link.name, data)
        elif kind == stream.WELCOME and not link.live:
            self._welcomed(link, data, now)
        elif kind == stream.REFUSED:
            self.drop(link, data.decode(errors="replace"))
        elif not link.control.take():
            raise MessageError("too much beside frames")
        elif kind != stream.PING and link.live:
            self._owner.happened(kind, link, data)

    def _welcomed(self, link: Link, data: bytes, now: float) -> None:
        """The other end takes us; if it is of this network, the link can be used."""
        network, _, own = data.partition(b"\n")
        ours = self._owner.welcome.partition(b"\n")[0]
        name = self._owner.neighbour(own.decode(errors="replace"))
        if network != ours or not name or link.name not in ("", name):
            self.refuse(link, f"is of the network {network[:80]!a}, or says another name", now)
            return
        link.name, old = name, self.used.get(name)
        if old is not None and not self._takes_over(link, old, own, now):
            self.drop(link)
            return
        link.live, link.until, self.used[name] = True, float("inf"), link
        if old is not None:
            old.until = now + RETIRED
        if link.call is not None:
            link.call.done(now)

    def _takes_over(self, new: Link, old: Link, own: bytes, now: float) -> bool:
        """The newer, unless the other end has called as well: then that of the lower name."""
        if (new.call is None) == (old.call is None) or now - old.heard > self._lease:
            return True
        caller = own if new.call is None else self._owner.welcome.partition(b"\n")[2]
        return caller == min(own, self._owner.welcome.partition(b"\n")[2])

    def refuse(self, link: Link, reason: str, now: float) -> None:
        """Tells both ends why there is no link any more; it is closed once that has arrived."""
        if link.refused:
            return
        link.say(stream.REFUSED, reason.encode()[:500], now)
        link.plug.end()
        link.refused, link.live, link.until = True, False, now + LEAVING
        self._unused(link, reason)

    def _unused(self, link: Link, reason: str) -> None:
        if self.used.get(link.name) is link:
            del self.used[link.name]
            if link.call is not None:
                link.call.lost(time.monotonic())
        if reason:
            who = link.name or (link.peer.id if link.peer else link.where)
            event = Event("refused", who, f"{link.where}: {reason}")
            often = link.call is not None and not (link.live or link.refused)  # at every call
            if link.call is None or not often or link.call.worth_telling(event, time.monotonic()):
                self._owner.tell(event)

    def drop(self, link: Link, reason: str = "") -> None:
        """Closes it, and tells if it was refused; a neighbour that we call is called again."""
        if self._all.pop(link.plug.fd, None) is None:
            return
        self._selector.unregister(link.plug.fd)
        link.plug.close()
        self._unused(link, reason)
        if link.call is not None and not link.live:
            link.call.failed(time.monotonic())

    def watch(self) -> None:
        """Whoever could not be told everything is looked at until it can; who is broken goes."""
        for link in self.all():
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.plug.waiting else 0)
            if link.broken:
                self.drop(link)
            elif wanted != link.watched:
                link.watched = wanted
                self._selector.modify(link.plug.fd, wanted, partial(self._turn, link))

    def tick(self, now: float) -> None:
        """Whose time is over goes; whoever has heard nothing for a while hears that we are here."""
        for link in self.all():
            if now > link.until or now - link.heard > LEASES * self._lease:
                self.drop(link)
            elif now - link.spoke > self._lease / 4:
                link.say(stream.PING, b"", now)

    def close(self, seconds: float) -> None:
        """What was said last arrives, if the other ends read it in time."""
        until = time.monotonic() + seconds
        for link in self.all():
            self._selector.unregister(link.plug.fd)
            link.plug.finish(until)
        self._all.clear()
        self.used.clear()


def _refusal(link: Link, error: Exception) -> str:
    """What there is to tell: why TLS or the rules refuse; nothing where a neighbour has gone."""
    gone = isinstance(error, ConnectionError) and link.live
    return "" if gone or link.refused else why(error)
