"""Frames over Eclipse Zenoh: one session per site, along the graph's edges, over mutual TLS.

Zenoh verifies that the other end has a certificate of the network's CA, that it is valid and, where
the address is the neighbour's name, that it carries this name. An address such as 127.0.0.1 says
nothing about a name, so names are enforced once more, by access control: a peer whose certificate
has the common name n may put on coke/NETWORK/n/us, may hear coke/NETWORK/us/n, and everything else
is denied. All these names are ids; above, neighbours have the names that people read. Another site
of the same CA can hold a link open; nothing crosses it.

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
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coke.errors import ConfigError
from coke.field.carriers.address import Endpoint, Spot, tls_context
from coke.field.carriers.base import EVENTS, Carrier, Clock, Event
from coke.field.identity import Identity, load
from coke.talk.names import by_id, site_id

if TYPE_CHECKING:
    from coke.settings.declaration import SiteTable

FIRST, LAST = 1.0, 60.0  # seconds until we ask why a neighbour is missing; twice as long each time


def opener(site: SiteTable) -> Callable[[], Carrier]:
    """How that site goes on the network; its address and certificates are checked now."""
    own = None if site.identity is None else load(Path(site.identity), site.name, datetime.now(UTC))
    place = Spot(
        name=site.name, network=site.network, listen=tuple(site.listen),
        neighbours={name: address or None for name, address in site.neighbours.items()},
        identity=own, allow_plaintext_loopback=site.plaintext_loopback,
    )  # fmt: skip
    return partial(ZenohCarrier, place.checked())


def _ask(name: str, at: Endpoint, tls: ssl.SSLContext | None) -> Event:
    """Why there is no link: what a handshake of our own meets at a missing neighbour's address."""
    try:
        with socket.create_connection((at.host.strip("[]"), at.port), timeout=2) as plain:
            if tls is not None:
                _shake_hands(tls.wrap_socket(plain, server_hostname=site_id(name)))
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


def _open(place: Spot) -> Any:
    """Zenoh, and a session of it."""
    try:
        zenoh: Any = importlib.import_module("zenoh")
    except ImportError as error:
        raise ConfigError(
            f"agents need zenoh: pip install 'coke-learn[agent]' ({error})"
        ) from error
    config = zenoh.Config()
    for path, value in _zenoh_settings(place).items():
        config.insert_json5(path, json.dumps(value))
    try:
        return zenoh, zenoh.open(config)
    except zenoh.ZError as error:
        why = str(error).split(" at /")[0]  # zenoh goes on with where it was built
        raise ConfigError(f"cannot listen: {why}; choose a free port") from error


class ZenohCarrier(Carrier):
    """A site's carrier over zenoh; it connects, and connects again, by itself until closed."""

    def __init__(self, place: Spot, clock: Clock = time.monotonic) -> None:
        super().__init__(place.checked().name, place.neighbours, place.allowance, clock)
        self._place, self._stop = place, threading.Event()
        self._names = by_id(self.neighbours)
        self._zenoh, self._session = _open(place)
        channels = self._zenoh.handlers
        ring, fifo = channels.RingChannel(EVENTS), channels.FifoChannel(64)  # callbacks are slower
        self._links = self._session.info.declare_link_events_listener(ring, history=True)
        self._ear = self._session.declare_subscriber(place.key("*", site_id(place.name)), fifo)
        self._mouths = {name: self._mouth(name) for name in self.neighbours}
        works = self._wonder, self._listen
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)  # a thread inside zenoh when Python ends aborts the process

    def _mouth(self, name: str) -> Any:
        return self._session.declare_publisher(
            self._place.key(site_id(self.site), site_id(name)),
            congestion_control=self._zenoh.CongestionControl.BLOCK,
            reliability=self._zenoh.Reliability.RELIABLE,
        )

    def _transmit(self, neighbour: str, frame: bytes) -> bool:
        mouth = self._mouths[neighbour]
        with suppress(self._zenoh.ZError):  # closed meanwhile
            # Whoever had a link when last looked at is not asked for: that takes as long as a put.
            if neighbour in self._seen or mouth.matching_status.matching:
                mouth.put(frame)
                return True
        return False

    def _linked(self) -> frozenset[str]:
        """A link with a certificate of this name, over which its subscription has come."""
        found = {self._names.get(link.auth_identifier) for link in self._session.info.links()}
        known = self.neighbours & found if self._place.identity else self.neighbours
        return frozenset(name for name in known if self._mouths[name].matching_status.matching)

    def _hang_up(self) -> None:
        atexit.unregister(self.close)
        self._stop.set()
        self._threads[0].join()  # before the session ends under its feet
        self._session.close()
        self._threads[1].join()

    def _listen(self) -> None:
        for sample in self._ear:
            # Access control has compared this id with the sender's certificate.
            sender = self._names.get(str(sample.key_expr).split("/")[2])
            if sender is not None:
                self.arrived(sender, sample.payload.to_bytes())

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
                self._say(_ask(name, calls[name], tls))

    def _look(self) -> None:
        while not self.closed and (event := self._links.try_recv()) is not None:
            name, opened = event.link.auth_identifier, event.kind == self._zenoh.SampleKind.PUT
            if opened and self._place.identity and name not in self._names:
                why = f"{event.link.dst}: has a certificate, but is no neighbour"
                self._say(Event("refused", str(name), why))
        super()._look()


def _zenoh_settings(site: Spot) -> dict[str, Any]:
    """The settings that differ from zenoh's own, as path ↦ value."""
    own = site.identity
    block = "transport/link/tx/queue/congestion_control/block/wait_before_close"
    return {
        "mode": "peer",
        "listen/endpoints": list(site.listen),
        "connect/endpoints": [_address(name, at) for name, at in site.calls().items()],
        "connect/timeout_ms": -1,  # in the background, for ever; 0 would be once
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 250, "period_max_ms": 4000},
        "open/return_conditions": {"connect_scouted": False, "declares": False},
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,  # it would bypass TLS between processes
        "transport/link/protocols": ["tls" if own else "tcp"],
        "transport/link/tx/lease": site.lease_ms,
        block: 1000 * site.patience_ms,
        "transport/link/rx/max_message_size": 2 * site.allowance.frame + 4096,  # else dropped there
        "transport/link/tls": _tls_settings(own) if own else {},
        "access_control": _access_control(site) if own else {"enabled": False},
    }


def _address(name: str, at: Endpoint) -> str:
    """Zenoh compares the certificate with the host: only where the host is the neighbour's id."""
    named = at.protocol == "tcp" or at.host == site_id(name)
    return str(at) if named else f"{at}#verify_name_on_connect=false"


def _tls_settings(own: Identity) -> dict[str, Any]:
    return {
        "enable_mtls": True,
        "root_ca_certificate": str(own.ca.absolute()),
        **{f"{end}_certificate": str(own.certificate.absolute()) for end in ("listen", "connect")},
        **{f"{end}_private_key": str(own.key.absolute()) for end in ("listen", "connect")},
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
    }


def _access_control(site: Spot) -> dict[str, Any]:
    """Each neighbour, known by its certificate's common name, on its own two keys; nobody else."""
    rules = {n: _rules(site, n) for n in sorted(by_id(site.neighbours))}
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [rule for own in rules.values() for rule in own],
        "subjects": [{"id": n, "cert_common_names": [n]} for n in rules],
        "policies": [{"subjects": [n], "rules": [r["id"] for r in rules[n]]} for n in rules],
    }


def _rules(site: Spot, neighbour: str) -> list[dict[str, Any]]:
    own = site_id(site.name)
    allowed = [
        ("ingress", "put", site.key(neighbour, own)),
        ("egress", "put", site.key(own, neighbour)),
        ("ingress", "declare_subscriber", site.key("*", neighbour)),
        ("egress", "declare_subscriber", site.key("*", own)),
    ]
    return [
        {"id": f"{neighbour} {flow} {what}", "permission": "allow"}
        | {"flows": [flow], "messages": [what], "key_exprs": [key]}
        for flow, what, key in allowed
    ]
