"""A site's place in a network, and what zenoh has to be told of it: whom to trust, and with what.

Zenoh verifies that the other end has a certificate of the network's CA, that it is valid and, where
the address is the neighbour's name, that it carries this name. An address such as 127.0.0.1 says
nothing about a name, so names are enforced once more, by access control: a peer whose certificate
has the common name n may put on coke/NETWORK/n/us, may hear coke/NETWORK/us/n, and everything else
is denied. Another site of the same CA can hold a link open; nothing crosses it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from coke.errors import ConfigError
from coke.field.carriers.base import Limits
from coke.field.identity import Identity
from coke.settings.sites import site_name

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

    def __str__(self) -> str:
        return f"{self.protocol}/{self.host}:{self.port}"


class Place(NamedTuple):
    """One site's place in a network: where it listens, whom it talks to, who it is."""

    name: str
    network: str
    listen: tuple[str, ...]  # tls/HOST:PORT
    neighbours: Mapping[str, str | None]  # name ↦ where to connect to; None: it connects to us
    identity: Identity | None = None  # None only in plaintext
    limits: Limits = Limits()
    lease_ms: int = 2000  # a neighbour that is silent for longer has no live link
    patience_ms: int = 1000  # the longest a send waits for a full link, which is then closed
    allow_plaintext_loopback: bool = False  # tcp/127.0.0.1:PORT without any identity, for tests

    def checked(self) -> Place:
        """Itself, or a `ConfigError` that says what is wrong."""
        for name in (self.name, self.network, *self.neighbours):
            site_name(name)
        if not self.listen and None in self.neighbours.values():
            raise ConfigError(f"{self.name!r} listens nowhere: expected every neighbour's address")
        _check_secure(self)
        return self

    def calls(self) -> dict[str, Endpoint]:
        """The neighbours we connect to, and where."""
        return {n: Endpoint.parse(at) for n, at in self.neighbours.items() if at is not None}

    def key(self, sender: str, receiver: str) -> str:
        """coke/NETWORK/SENDER/RECEIVER: what this sender may say to this receiver."""
        return f"coke/{self.network}/{sender}/{receiver}"


def _check_secure(site: Place) -> None:
    endpoints = [*map(Endpoint.parse, site.listen), *site.calls().values()]
    for at in endpoints:
        if at.protocol == "tcp" and not (site.allow_plaintext_loopback and at.host == "127.0.0.1"):
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


def tls_context(own: Identity) -> ssl.SSLContext:
    """Our end of a handshake, with the checks that zenoh makes and the name's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(own.ca)
        context.load_cert_chain(own.certificate, own.key)
    except OSError as error:  # an SSLError is one, too
        raise ConfigError(
            f"the files of {own.name!r} cannot be used ({error}): expected PEM; issue them again"
        ) from error
    return context


def zenoh_settings(site: Place) -> dict[str, Any]:
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
        "transport/link/rx/max_message_size": 2 * site.limits.frame + 4096,  # else dropped there
        "transport/link/tls": _tls_settings(own) if own else {},
        "access_control": access_control(site) if own else {"enabled": False},
    }


def _address(name: str, at: Endpoint) -> str:
    """Zenoh compares the certificate with the host: only where the host is the neighbour's name."""
    named = at.protocol == "tcp" or at.host == name
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


def access_control(site: Place) -> dict[str, Any]:
    """Each neighbour, known by its certificate's common name, on its own two keys; nobody else."""
    rules = {n: _rules(site, n) for n in sorted(site.neighbours)}
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [rule for own in rules.values() for rule in own],
        "subjects": [{"id": n, "cert_common_names": [n]} for n in rules],
        "policies": [{"subjects": [n], "rules": [r["id"] for r in rules[n]]} for n in rules],
    }


def _rules(site: Place, name: str) -> list[dict[str, Any]]:
    allowed = [
        ("ingress", "put", site.key(name, site.name)),
        ("egress", "put", site.key(site.name, name)),
        ("ingress", "declare_subscriber", site.key("*", name)),
        ("egress", "declare_subscriber", site.key("*", site.name)),
    ]
    return [
        {"id": f"{name} {flow} {what}", "permission": "allow"}
        | {"flows": [flow], "messages": [what], "key_exprs": [key]}
        for flow, what, key in allowed
    ]
