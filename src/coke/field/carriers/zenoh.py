"""Frames over Eclipse Zenoh: one session per site, along the graph's edges, over mutual TLS.

Who may say what is in `coke.field.carriers.address`.

What zenoh does not tell. A failed handshake raises nothing. `events` has what can be known: links
whose certificate names no neighbour, and what a handshake of our own meets at the address of a
missing neighbour. Who fails at our listener is in zenoh's own log only (RUST_LOG, on stdout); each
such failure delays the next accept by 100 ms. When it connects, zenoh trusts the public web
authorities beside the network's CA: name sites so that none of these would certify the name.
"""

from __future__ import annotations

import atexit
import importlib
import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any

from coke.errors import ConfigError
from coke.field.carriers.address import Endpoint, Place, tls_context, zenoh_settings
from coke.field.carriers.base import EVENTS, Carrier, Clock, Event

FIRST, LAST = 1.0, 60.0  # seconds until we ask why a neighbour is missing; twice as long each time


def ask(name: str, at: Endpoint, tls: ssl.SSLContext | None) -> Event:
    """Why there is no link: what a handshake of our own meets at a missing neighbour's address."""
    try:
        with socket.create_connection((at.host.strip("[]"), at.port), timeout=2) as plain:
            if tls is not None:
                _shake_hands(tls.wrap_socket(plain, server_hostname=name))
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error
        return Event("refused", name, f"{at}: {why}")
    except OSError as error:
        return Event("unreachable", name, f"{at}: {error.strerror or error}")
    return Event("refused", name, f"{at}: answers, but no link; does it name us as a neighbour?")


def _shake_hands(secret: ssl.SSLSocket) -> None:
    with secret, suppress(TimeoutError):
        secret.settimeout(0.5)
        secret.recv(1)  # in TLS 1.3 the refusal of our certificate comes only now


def _open(place: Place) -> Any:
    """Zenoh, and a session of it."""
    try:
        zenoh: Any = importlib.import_module("zenoh")
    except ImportError as error:
        raise ConfigError(f"agents need zenoh: pip install 'coke[agent]' ({error})") from error
    config = zenoh.Config()
    for path, value in zenoh_settings(place).items():
        config.insert_json5(path, json.dumps(value))
    try:
        return zenoh, zenoh.open(config)
    except zenoh.ZError as error:
        why = str(error).split(" at /")[0]  # zenoh goes on with where it was built
        raise ConfigError(f"cannot listen: {why}; choose a free port") from error


class ZenohCarrier(Carrier):
    """A site's carrier over zenoh; it connects, and connects again, by itself until closed."""

    def __init__(self, place: Place, clock: Clock = time.monotonic) -> None:
        super().__init__(place.checked().name, place.neighbours, place.limits, clock)
        self._place, self._stop = place, threading.Event()
        self._zenoh, self._session = _open(place)
        channels = self._zenoh.handlers
        ring, fifo = channels.RingChannel(EVENTS), channels.FifoChannel(64)  # callbacks are slower
        self._links = self._session.info.declare_link_events_listener(ring, history=True)
        self._ear = self._session.declare_subscriber(place.key("*", place.name), fifo)
        self._mouths = {name: self._mouth(name) for name in self.neighbours}
        works = self._wonder, self._listen
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)  # a thread inside zenoh when Python ends aborts the process

    def _mouth(self, name: str) -> Any:
        return self._session.declare_publisher(
            self._place.key(self.site, name),
            congestion_control=self._zenoh.CongestionControl.BLOCK,
            reliability=self._zenoh.Reliability.RELIABLE,
        )

    def _transmit(self, neighbour: str, frame: bytes) -> bool:
        mouth = self._mouths[neighbour]
        with suppress(self._zenoh.ZError):  # closed meanwhile
            if mouth.matching_status.matching:
                mouth.put(frame)
                return True
        return False

    def _linked(self) -> frozenset[str]:
        """A link with a certificate of this name, over which its subscription has come."""
        names = {link.auth_identifier for link in self._session.info.links()}
        known = self.neighbours & names if self._place.identity else self.neighbours
        return frozenset(name for name in known if self._mouths[name].matching_status.matching)

    def _hang_up(self) -> None:
        atexit.unregister(self.close)
        self._stop.set()
        self._threads[0].join()  # before the session ends under its feet
        self._session.close()
        self._threads[1].join()

    def _listen(self) -> None:
        for sample in self._ear:
            # Access control has compared this name with the sender's certificate.
            self._arrived(str(sample.key_expr).split("/")[2], sample.payload.to_bytes())

    def _wonder(self) -> None:
        """Ask why neighbours are missing, ever more rarely."""
        tls = tls_context(self._place.identity) if self._place.identity else None
        calls = self._place.calls()
        wait, since = dict.fromkeys(calls, FIRST), dict.fromkeys(calls, time.monotonic())
        while not self._stop.wait(FIRST / 4):
            self._look()
            now = time.monotonic()
            for name in calls.keys() & self.alive():
                wait[name], since[name] = FIRST, now
            for name in [n for n in calls if now - since[n] >= wait[n]][:1]:  # one: it may take 4 s
                wait[name], since[name] = min(2 * wait[name], LAST), now
                self._say(ask(name, calls[name], tls))

    def _look(self) -> None:
        while not self._closed and (event := self._links.try_recv()) is not None:
            name, opened = event.link.auth_identifier, event.kind == self._zenoh.SampleKind.PUT
            if opened and self._place.identity and name not in self.neighbours:
                why = f"{event.link.dst}: has a certificate, but is no neighbour"
                self._say(Event("refused", str(name), why))
        super()._look()
