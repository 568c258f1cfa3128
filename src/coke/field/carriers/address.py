"""A site's place in a network of machines: where it listens, whom it calls, who it is."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from coke.errors import ConfigError
from coke.field.carriers.base import Allowance
from coke.field.identity import Identity
from coke.talk.names import by_id, site_id, site_name

_ENDPOINT = re.compile(r"(tls|tcp)/(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")


class Endpoint(NamedTuple):
    """tls/host:port"""

    protocol: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """No options behind the port: one of zenoh's could switch authentication off."""
        match = _ENDPOINT.fullmatch(text)
        if match is None or not 0 < int(match[3]) < 65536:
            raise ConfigError(f"address {text[:80]!r}: expected tls/HOST:PORT; write it so")
        return cls(match[1], match[2], int(match[3]))

    @property
    def bare(self) -> str:
        """The host as the system takes it: an IPv6 address without its brackets."""
        return self.host.strip("[]")

    def __str__(self) -> str:
        return f"{self.protocol}/{self.host}:{self.port}"


class Spot(NamedTuple):
    """One site's place in a network: where it listens, whom it talks to, who it is."""

    name: str
    network: str
    listen: tuple[str, ...]  # tls/HOST:PORT
    neighbours: Mapping[str, str | None]  # name ↦ where to connect to; None: it connects to us
    identity: Identity | None = None  # None only in plaintext
    allowance: Allowance = Allowance()
    lease_ms: int = 2000  # a neighbour that is silent for longer has no live link
    patience_ms: int = 1000  # the longest a send waits for a full link, which is then closed
    allow_plaintext_loopback: bool = False  # tcp/127.0.0.1:PORT without any identity, for tests

    def checked(self) -> Spot:
        """Itself, or a `ConfigError` that says what is wrong."""
        site_name(self.network)
        by_id((self.name, *self.neighbours))
        if not self.listen and None in self.neighbours.values():
            raise ConfigError(f"{self.name!r} listens nowhere: expected every neighbour's address")
        _check_secure(self)
        return self

    def calls(self) -> dict[str, Endpoint]:
        """The neighbours we connect to, and where."""
        return {n: Endpoint.parse(at) for n, at in self.neighbours.items() if at is not None}

    def key(self, sender: str, receiver: str) -> str:
        """coke/NETWORK/SENDER/RECEIVER, ids: what this sender may say to this receiver."""
        return f"coke/{site_id(self.network)}/{sender}/{receiver}"


def _check_secure(site: Spot) -> None:
    endpoints = [*map(Endpoint.parse, site.listen), *site.calls().values()]
    for at in endpoints:
        loopback = at.bare in ("127.0.0.1", "::1")
        if at.protocol == "tcp" and not (site.allow_plaintext_loopback and loopback):
            raise ConfigError(
                f"address {at} is plaintext: expected tls/HOST:PORT, or tcp/127.0.0.1:PORT in a "
                "test with allow_plaintext_loopback=True"
            )
    if {at.protocol for at in endpoints} != {"tls" if site.identity else "tcp"}:
        raise ConfigError(
            f"site {site.name!r}: expected tls addresses and an identity; `coke identity` issues it"
        )
    if site.identity is not None:
        _check_identity(site.name, site.identity)


def _check_identity(name: str, own: Identity) -> None:
    if own.name != name:
        raise ConfigError(f"site {name!r} has the identity of {own.name!r}: expected its own")
    for path in (own.ca, own.certificate, own.key):
        if ";" in str(path.absolute()):  # zenoh reads it as the end of the path
            raise ConfigError(f"{path}: expected a path without ';'; move the file")
    tls_context(own)


def tls_context(own: Identity, *, server: bool = False) -> ssl.SSLContext:
    """Our end of a handshake: both show a certificate of the network's authority, and of no other.

    A caller that says whom it wants to find also checks the name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.verify_mode = ssl.TLSVersion.TLSv1_3, ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0  # every handshake shows certificates
    try:
        context.load_verify_locations(own.ca)
        context.load_cert_chain(own.certificate, own.key)
    except OSError as error:  # an SSLError is one, too
        raise ConfigError(
            f"the files of {own.name!r} cannot be used ({error}): expected PEM; issue them again"
        ) from error
    return context
