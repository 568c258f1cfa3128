"""Whom a site believes, as its files say now: its identity, its authority, the revoked keys.

The files are looked at again while the agent runs: a renewed certificate is shown from then on, and
whose key is revoked or whose certificate has run out loses its link.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from coke.data.files import stamp, write_file
from coke.errors import CokeError, MessageError
from coke.field import identity
from coke.field.carriers.address import tls_context
from coke.field.carriers.base import Event
from coke.field.carriers.stream import Plug
from coke.field.identity import Identity
from coke.field.keys import key_digest, parsing
from coke.field.revoking import LIST, RevocationList, parse_list, read_list
from coke.settings.sites import expiry_warning

with suppress(ImportError):  # an extra: a site without it is refused before
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

PROTOCOL = "coke/1"  # as the handshake names it: whoever speaks another is refused
DAY = 86400.0  # seconds between two warnings


class UnwelcomeError(MessageError):
    """Why somebody gets no link, in words for both ends."""


class Peer(NamedTuple):
    """What a certificate of our authority says of its owner."""

    id: str
    ends: float  # its last second, of the wall clock
    key: str  # SHA-256


class Papers:
    """One site's own; to be used by one thread at a time, but for the contexts."""

    def __init__(self, own: Identity, say: Callable[[Event], None]) -> None:
        self._own, self._say = own, say
        self._list = own.ca.with_name(LIST)
        self._known = RevocationList("")
        self._warned = -DAY
        self._stamp: Sequence[object] = self._stamps()
        self._take(own)
        if self._list.exists():
            self._known = read_list(self._list, identity.read_credential(own.ca))

    def _take(self, own: Identity) -> None:
        client, server = tls_context(own), tls_context(own, server=True)
        client.check_hostname = False  # an address says nothing; `peer` says who it is
        for one in (client, server):
            one.set_alpn_protocols([PROTOCOL])
        self.client, self.server = client, server
        self.me = _peer(x509.load_pem_x509_certificate(own.certificate.read_bytes()))

    def refresh(self, now: float) -> bool:
        """Looks at the files again; whether our own certificate is a new one.

        What cannot be used is told, and what was known before stays.
        """
        self._warn(now)
        before, now_there = self.me, self._stamps()
        if now_there == self._stamp:
            return False
        self._stamp = now_there
        try:
            own = identity.load(
                self._own.ca.parent, self._own.name, datetime.fromtimestamp(now, UTC)
            )
            self._take(own)
            if self._list.exists():
                self._newer(read_list(self._list, identity.read_credential(own.ca)))
        except (CokeError, OSError, ValueError) as error:
            self._say(Event("spoilt", str(self._own.certificate), str(error)))
        if self.me != before:
            ends = datetime.fromtimestamp(self.me.ends, UTC)
            self._say(Event("renewed", self._own.name, f"its certificate holds to {ends:%Y-%m-%d}"))
        return self.me != before

    def _newer(self, found: RevocationList) -> bool:
        if found.number < self._known.number:
            why = f"list {found.number} is older than {self._known.number}, which stays in force"
            self._say(Event("spoilt", str(self._list), why))
            return False
        newer, self._known = found.number > self._known.number, found
        return newer

    def told(self, data: bytes) -> bool:
        """A list that a neighbour passes on: kept if our authority signed it and it is newer."""
        try:
            ca = identity.read_credential(self._own.ca)
            found = parse_list(data, ca, "a list of revoked keys")
            if found.number <= self._known.number:
                return False
            write_file(self._list, data)
        except CokeError as error:
            raise UnwelcomeError(str(error)) from error
        self._known, self._stamp = found, self._stamps()
        return True

    @property
    def passed_on(self) -> bytes:
        """The list as it is told to neighbours; empty where there is none."""
        with suppress(OSError):
            return self._list.read_bytes() if self._known.number else b""
        return b""

    @property
    def number(self) -> int:
        """Of the list that is in force."""
        return self._known.number

    def _stamps(self) -> Sequence[object]:
        return [stamp(path) for path in (*self._own[1:4], self._list)]

    def _warn(self, now: float) -> None:
        soon = expiry_warning(self._own.name, self.me.ends - now)
        if soon and now - self._warned >= DAY:
            self._warned = now
            self._say(Event("expiring", self._own.name, soon))

    def peer(self, plug: Plug) -> Peer:
        """Who that is; `UnwelcomeError` if its certificate is none of a site."""
        assert isinstance(plug.socket, ssl.SSLSocket)
        try:
            whole = plug.socket.getpeercert(binary_form=True) or b""
            with parsing(Path("certificate"), "one of a site"):
                found = _peer(x509.load_der_x509_certificate(whole))
        except (CokeError, x509.ExtensionNotFound) as error:
            raise UnwelcomeError(f"a certificate of no site: {error}") from error
        if plug.socket.selected_alpn_protocol() != PROTOCOL:
            raise UnwelcomeError(
                f"{found.id} does not speak {PROTOCOL}: another version, or carrier"
            )
        return found

    def standing(self, peer: Peer, now: float) -> str:
        """Why that peer gets no link, or loses it; nothing if it is welcome."""
        for one, whose in ((peer, f"the certificate of {peer.id}"), (self.me, "our certificate")):
            if one.key in self._known.keys:
                return f"{whose} is revoked, by list {self._known.number}"
            if now > one.ends:
                return f"{whose} has expired"
        return ""


def _peer(whole: x509.Certificate) -> Peer:
    (name,) = whole.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    other = whole.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    key = whole.public_key()
    if other.get_values_for_type(x509.DNSName) != [name.value] or len(list(other)) != 1:
        raise ValueError("two names")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("another kind of key")
    return Peer(str(name.value), whole.not_valid_after_utc.timestamp(), key_digest(key))


def why(error: Exception) -> str:
    """A failed handshake in words."""
    found = getattr(error, "verify_message", "") or getattr(error, "reason", "") or ""
    if isinstance(error, ssl.SSLError):
        return str(found) or str(error)
    return str(getattr(error, "strerror", "") or error)
