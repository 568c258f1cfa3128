"""Carriers on this machine: identities, addresses, outsiders, a neighbour in its own process."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from coke.field.carriers.address import Endpoint, Spot
from coke.field.carriers.base import Carrier
from coke.field.carriers.papers import PROTOCOL
from coke.field.carriers.stream import Reader
from coke.field.carriers.zenoh import _zenoh_settings
from coke.field.identity import Identity

if TYPE_CHECKING:
    from kit.certificates import Authority

LONG = 300.0  # seconds: a condition that does not come true by then never does
PLAIN = Spot("a", "net", ("tcp/127.0.0.1:7447",), {"b": None}, allow_plaintext_loopback=True)


def identity(ca: Authority, name: str, expires: timedelta = timedelta(days=60)) -> Identity:
    return Identity(name, *ca.issue(name, expires=expires), datetime.now(UTC) + expires)


def address(host: str = "127.0.0.1") -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), 0), family=family) as free:
        return f"tls/{host}:{free.getsockname()[1]}"


def site(own: Identity, listen: str | None, neighbours: Mapping[str, str | None]) -> Spot:
    return Spot(own.name, "net", (listen,) if listen else (), neighbours, own)


@contextlib.contextmanager
def outsider(
    own: Identity, *, at: str | None = None, to: str | None = None, mtls: bool = True
) -> Iterator[Any]:
    """Zenoh as someone may run it who keeps to none of our rules."""
    import zenoh

    wanted = site(own, at or "tls/127.0.0.1:1", {"x": to})
    settings = _zenoh_settings(wanted) | {"listen/endpoints": [at] if at else []}
    settings["access_control"] = {"enabled": False}
    settings["transport/link/protocols"] = ["tcp", "tls"]
    settings["transport/link/tls"]["enable_mtls"] = mtls
    config = zenoh.Config()
    for path, value in settings.items():
        config.insert_json5(path, json.dumps(value))
    with zenoh.open(config) as session:
        yield session


def stranger(to: str, own: Identity | None = None, speaks: str = PROTOCOL) -> ssl.SSLSocket:
    """TLS as someone may speak it who keeps to none of our rules, with hands shaken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([speaks])
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    at = Endpoint.parse(to)
    return context.wrap_socket(socket.create_connection((at.bare, at.port), timeout=LONG))


def told(plug: socket.socket) -> list[tuple[int, bytes]]:
    """All that such a one is told until the other end hangs up, in whatever way."""
    reader, found = Reader(1 << 20), list[tuple[int, bytes]]()
    with plug, contextlib.suppress(OSError):
        while data := plug.recv(1 << 16):
            found += reader.feed(data)
    return found


def until(condition: Callable[[], object], seconds: float = LONG) -> bool:
    end = time.monotonic() + seconds
    while not (done := bool(condition())) and time.monotonic() < end:
        time.sleep(0.005)
    return done


# The network in one process


def drain(carrier: Carrier) -> list[tuple[str, bytes]]:
    return list(iter(lambda: carrier.receive(0), None))


def heard(ear: Any) -> list[bytes]:
    return [bytes(sample.payload) for sample in iter(ear.try_recv, None)]


ECHO = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from coke.field.identity import Identity
from coke.field.carriers.address import Spot
from coke.field.carriers.tls import TlsCarrier
from coke.field.carriers.zenoh import ZenohCarrier
kind, at, how, *paths = sys.argv[1:]
own = Identity("b", *map(Path, paths), datetime.now(UTC))
carrier = globals()[kind](Spot("b", "net", (), {"a": at}, own))
while (got := carrier.receive(300)) != ("a", b"end"):
    carrier.send(*got)
if how == "close":
    carrier.close()
"""


@contextlib.contextmanager
def echo(
    own: Identity, at: str, how: str = "close", kind: str = "TlsCarrier"
) -> Iterator[subprocess.Popen[bytes]]:
    """A neighbour in another process, which says what it hears until it hears "end"."""
    paths = map(str, (own.ca, own.certificate, own.key))
    process = subprocess.Popen([sys.executable, "-c", ECHO, kind, at, how, *paths])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answered(a: Carrier, frame: bytes) -> bool:
    a.send("b", frame)
    return a.receive(LONG) == ("b", frame)
