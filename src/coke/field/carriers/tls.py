"""Frames over mutual TLS, with listeners and links of our own, which whoever waits looks after.

Both ends show a certificate of the network's authority, and each says WELCOME once it has seen that
the other is a neighbour, that its certificate holds and that its key is not revoked. Only then is
there a link. That stays true: the files are looked at every second, and whoever is no neighbour
any more, or whose certificate has run out or is revoked, loses its link, which ends it for both.

A new certificate is shown without a gap: whoever has one calls again, or asks to be called, and the
new link takes over from the old one. A list of revoked keys goes from neighbour to neighbour.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coke.errors import ConfigError
from coke.field.carriers import stream
from coke.field.carriers.address import Endpoint, Spot
from coke.field.carriers.base import Bucket, Carrier, Clock, Event
from coke.field.carriers.calling import FIRST, Answer, Call, call
from coke.field.carriers.door import FrontDoor
from coke.field.carriers.helm import Asked, Helm
from coke.field.carriers.links import Link, Links
from coke.field.carriers.papers import Papers, Peer, UnwelcomeError, why
from coke.field.carriers.stream import Plug
from coke.field.identity import load
from coke.field.revoking import check_believed
from coke.talk.names import by_id, site_id

if TYPE_CHECKING:
    from coke.settings.declaration import SiteTable

TICK = 0.1  # seconds between two looks at clocks
FILES = 1.0  # … and at files
FAREWELL = 0.5  # seconds for the last words to arrive


def opener(site: SiteTable) -> Callable[[], Carrier]:
    """How that site goes on the network; its address and certificates are checked now."""
    own, now = None, datetime.now(UTC)
    if site.identity is not None:
        own = load(Path(site.identity), site.name, now)
        check_believed(own.ca.parent, site_id(site.name), now)
    place = Spot(
        name=site.name, network=site.network, listen=tuple(site.listen),
        neighbours={name: address or None for name, address in site.neighbours.items()},
        identity=own, allow_plaintext_loopback=site.plaintext_loopback,
    )  # fmt: skip
    return partial(TlsCarrier, place.checked())


class TlsCarrier(Carrier):
    """A site's carrier over links of its own; it calls, and calls again, by itself until closed."""

    def __init__(self, place: Spot, clock: Clock = time.monotonic) -> None:
        super().__init__(place.checked().name, place.neighbours, place.allowance, clock)
        self._place, self._names = place, by_id(self.neighbours)
        self.welcome = f"{site_id(place.network)}\n{site_id(place.name)}".encode()
        self._papers = None if place.identity is None else Papers(place.identity, self.tell)
        now = self._turned = self._ticked = self._looked_at = time.monotonic()
        self._strangers, self._unsaid = Bucket(0.2, 8, time.monotonic), 0
        self._summary = Bucket(1 / 60, 1, time.monotonic)
        self._known: deque[tuple[str, str]] = deque(maxlen=32)  # strangers who were told of
        self._calls = {n: Call(n, at, now, now + FIRST) for n, at in place.calls().items()}
        self._answers: deque[Answer] = deque()  # from the threads that call
        self._selector = selectors.DefaultSelector()
        self._door = FrontDoor(self._selector, self._server, self._enter, self._turn_away)
        self._links = Links(self, self._selector, place.allowance.frame, place.lease_ms / 1000)
        self._listen()
        self._bell, self._button = socket.socketpair()
        for one in (self._bell, self._button):
            one.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, self._rung)
        self._helm = Helm(self._turn, self._ring, self._end, TICK)

    def __enter__(self) -> TlsCarrier:
        return self

    def _listen(self) -> None:
        for at in map(Endpoint.parse, self._place.listen):
            try:
                self._door.listen(at.bare, at.port)
            except OSError as error:
                self._door.close()
                self._selector.close()
                raise ConfigError(
                    f"cannot listen at {at}: {why(error)}; choose a free port"
                ) from error

    # What the agent's thread asks for.

    def _transmit(self, neighbour: str, frame: bytes) -> bool:
        link = self._links.used.get(neighbour)
        if link is None or not self._alive(link):
            return False
        sent = link.say(stream.FRAME, frame, time.monotonic(), self._place.patience_ms / 1000)
        if link.plug.waiting or not sent:
            self._helm.stir()
        return sent

    def receive(self, timeout: float, together: Collection[str] = ()) -> tuple[str, bytes] | None:
        """The next frame; the links are looked after by whoever waits for it."""
        if timeout > 0 and not self._inbox.expects(together):
            self._helm.until(self._inbox.ready, timeout)
        return self._inbox.take(0.0)

    def _linked(self) -> frozenset[str]:
        """Those who were heard within the lease, when all that had come was last read."""
        found = self._links.used.copy().items()
        return self.neighbours & {name for name, link in found if self._alive(link)}

    def _alive(self, link: Link | None) -> bool:
        return link is not None and self._turned - link.heard < self._place.lease_ms / 1000

    def _hang_up(self) -> None:
        self._helm.close()

    def _ring(self) -> None:
        with suppress(OSError):  # full: then it has rung already
            self._button.send(b"!")

    # What whoever has the helm does.

    def _turn(self, wait: float, hurried: Asked) -> None:
        """All that has come; links first, for strangers are no reason to be late."""
        found = [key for key, _ in self._selector.select(wait)]
        now, strangers = time.monotonic(), list[selectors.SelectorKey]()
        for key in found:
            if key.fd in self._links:
                key.data(now)
            else:
                strangers.append(key)
        self._turned = now
        for key in strangers:
            if hurried():
                break  # they are still there at the next turn
            key.data(now)
        while self._answers:
            self._answered(*self._answers.popleft())
        self._links.watch()
        if now - self._ticked >= TICK:
            self._ticked = now
            self._tick(now)

    def _end(self) -> None:
        self._forget_answers()
        self._links.close(FAREWELL)
        self._door.close()
        self._selector.close()
        for one in (self._bell, self._button):
            one.close()

    def _rung(self, now: float) -> None:
        with suppress(OSError):
            self._bell.recv(1 << 12)

    def _tick(self, now: float) -> None:
        self._door.tick(now)
        self._links.tick(now)
        for name, one in self._calls.items():
            missing = one.again or not self._alive(self._links.used.get(name))
            if missing and not one.busy and now >= one.due and name in self.neighbours:
                call(one, self._papers, self._answer)
        if now - self._looked_at >= FILES:
            self._looked_at = now
            self._tell_strangers()
            if self._papers is not None:
                self._examine(self._papers, now)

    def _examine(self, papers: Papers, now: float) -> None:
        """Looks at the files again, and whether every link still holds."""
        wall, before = time.time(), papers.number
        if papers.refresh(wall):
            for link in self._links.used.values():
                self._renewed(link, now)
        if papers.number != before:
            self._pass_on(papers, None)
        for link in self._links.all():
            assert link.peer is not None  # there is no link without a certificate
            gone = "" if link.name in self.neighbours else "is no neighbour any more"
            reason = papers.standing(link.peer, wall) or gone
            if reason:
                self._links.refuse(link, reason, now)

    def _renewed(self, link: Link, now: float) -> None:
        """The other end sees our certificate on a new link; the old one stays until then."""
        if link.call is None:
            link.say(stream.AGAIN, b"", now)
        else:
            link.call.again, link.call.due = True, now

    def _pass_on(self, papers: Papers, source: Link | None) -> None:
        """The newest list of revoked keys, to all neighbours but the one that told it."""
        data = papers.passed_on
        for link in self._links.used.values():
            if data and link is not source:
                link.say(stream.REVOKED, data, time.monotonic())

    # What its links tell it.

    def neighbour(self, name: str) -> str:
        """The name of a neighbour of that id; empty for others."""
        found = self._names.get(name, "")
        return found if found in self.neighbours else ""

    def tell(self, event: Event) -> None:
        """Something an operator may want to know."""
        self._say(event)

    def happened(self, kind: int, link: Link, data: bytes) -> None:
        """A message that is no frame has come."""
        if kind == stream.OVERSIZED:
            self._count(link.name, "oversized")
        elif kind == stream.AGAIN and link.call is not None and not link.call.busy:
            link.call.again, link.call.due = True, time.monotonic()
        elif kind == stream.REVOKED and self._papers is not None:
            self._told(self._papers, link, data)

    def _told(self, papers: Papers, link: Link, data: bytes) -> None:
        try:
            if papers.told(data):
                self._say(Event("revoked", link.name, f"has told list {papers.number}"))
                self._pass_on(papers, link)
        except UnwelcomeError as error:
            self._say(Event("spoilt", link.name, str(error)))

    # New connections.

    def _server(self) -> ssl.SSLContext | None:
        return None if self._papers is None else self._papers.server

    def _answer(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._helm.stir()
        if self.closed:
            self._forget_answers()

    def _forget_answers(self) -> None:
        """Hangs up on those that came too late to be of use."""
        with suppress(IndexError):
            while True:
                plug = self._answers.popleft()[1]
                if plug is not None:
                    plug.close()

    def _answered(
        self, one: Call, plug: Plug | None, peer: Peer | None, event: Event | None
    ) -> None:
        now = time.monotonic()
        if plug is not None:
            self._links.greet(plug, str(one.at), peer, one)
            return
        one.failed(now)
        if event is not None and one.worth_telling(event, now):
            self._say(event)

    def _enter(self, plug: Plug, where: str) -> None:
        """Somebody has shaken hands at the door."""
        if self._papers is None:
            self._links.greet(plug, where, None, None)
            return
        try:
            peer = self._papers.peer(plug)
        except UnwelcomeError as error:
            self._turn_away(where, str(error))
            raise
        reason = self._papers.standing(peer, time.time())
        if not self.neighbour(peer.id):
            reason = "has a certificate, but is no neighbour"
        if reason:
            self._turn_away(peer.id, f"{where}: {reason}")
            raise UnwelcomeError(f"{peer.id} {reason} of {self.site}")
        self._links.greet(plug, where, peer, None)

    def _turn_away(self, where: str, reason: str) -> None:
        """A stranger: the first of each kind are told one by one, then only how many."""
        if (where, reason) not in self._known and self._strangers.take():
            self._known.append((where, reason))
            self._say(Event("refused", where, reason))
            return
        self._unsaid += 1
        with self._lock:
            self._refusals += 1

    def _tell_strangers(self) -> None:
        if self._unsaid and self._summary.take():
            more, self._unsaid = self._unsaid, 0
            self._known.clear()
            self._say(Event("refused", "strangers", f"{more} more connections were turned away"))
