"""Keys that are not to be believed any more: a list that the network's authority signs.

    folder/ca.revoked      one line of JSON, one line with its signature

It names keys, not certificates: a renewed certificate is for the same key, and so is an older one.
A list has a number; whoever knows one takes none with a lower number in its place.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from coke.data.files import read_file, write_file
from coke.data.learnt import learnt
from coke.errors import FileError, InputError
from coke.field import identity
from coke.field.keys import key_digest, private_key, ready
from coke.talk.names import CA, site_id

with suppress(ImportError):  # an extra: `ready` refuses without it
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

LIST = f"{CA}.revoked"
LONGEST = 1 << 20  # bytes of a list: some 6000 keys
_ABOUT = b"coke revocation list 1\n"  # so that nothing else that the authority signs is one
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Revoked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key that was revoked."""

    key: _Digest  # SHA-256, as `coke identity request` prints it
    name: str  # the site's id
    since: datetime


class RevocationList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a list says."""

    network: str
    number: Annotated[int, msgspec.Meta(ge=0)] = 0
    revoked: list[_Revoked] = []

    @property
    def keys(self) -> frozenset[str]:
        """The keys that are not to be believed."""
        return frozenset(one.key for one in self.revoked)


def revoke(folder: Path, who: str, now: datetime) -> RevocationList:
    """A new list with that site's key, or a key given as SHA-256; where ca.key is."""
    ready(now)
    ca = identity.check(folder, CA, now)
    secret, path = private_key(folder / f"{CA}.key"), folder / LIST
    if secret.public_key() != ca.key:
        raise FileError(f"{folder / CA}.key: not the key of {ca.path}; copy both again")
    before = read_list(path, ca) if path.exists() else RevocationList(ca.network)
    key, name = _meant(folder, who)
    if key in before.keys:
        raise InputError(f"{who}: its key is revoked already, by list {before.number}")
    since = now.astimezone(UTC).replace(microsecond=0)
    found = RevocationList(
        ca.network, before.number + 1, [*before.revoked, _Revoked(key, name, since)]
    )
    body = msgspec.json.encode(found)
    signed = base64.b64encode(secret.sign(_ABOUT + body, ec.ECDSA(hashes.SHA256())))
    write_file(path, body + b"\n" + signed + b"\n")
    return found


def _meant(folder: Path, who: str) -> tuple[str, str]:
    """The key, and whose it is as far as is known."""
    if len(who) == 64 and not set(who.lower()) - set("0123456789abcdef"):
        return who.lower(), ""
    own = identity.read_credential(folder / f"{site_id(who)}.crt")
    return key_digest(own.key), own.name


def read_list(path: Path, ca: identity.Credential) -> RevocationList:
    """A list that this authority has signed for its own network, or `FileError`."""
    return parse_list(read_file(path), ca, str(path))


def parse_list(data: bytes, ca: identity.Credential, where: str) -> RevocationList:
    """What such bytes say, if the authority has signed them; or `FileError`."""
    body, _, signed = data.partition(b"\n")
    try:
        if len(data) > LONGEST:
            raise ValueError(f"{len(data)} bytes")
        found = msgspec.json.decode(body, type=learnt(RevocationList))
        ca.key.verify(base64.b64decode(signed), _ABOUT + body, ec.ECDSA(hashes.SHA256()))
        if found.network != ca.network:
            raise ValueError(f"it is of the network {found.network[:80]!a}")
    except (ValueError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(_wrong(where, str(error))) from error
    except InvalidSignature as error:
        raise FileError(_wrong(where, "another has signed it, or nobody")) from error
    return found


def _wrong(where: str, why: str) -> str:
    return (
        f"{where}: no list of revoked keys: {why}: expected what `coke identity revoke` makes for "
        "this network; copy it again"
    )


def take_list(folder: Path, source: Path, now: datetime) -> RevocationList:
    """At a site: a list in place of an older one that is here; its agent reads it at once."""
    ca, path, data = identity.check(folder, CA, now), folder / LIST, read_file(source)
    found = parse_list(data, ca, str(source))
    if path.exists() and read_list(path, ca).number > found.number:
        raise FileError(f"{source}: list {found.number} is older than {path}; get the newest")
    write_file(path, data)
    return found


def check_believed(folder: Path, name: str, now: datetime) -> None:
    """Refuses an id whose key the list beside it revokes."""
    ca, path = identity.check(folder, CA, now), folder / LIST
    if path.exists() and name != CA:
        found, own = read_list(path, ca), identity.read_credential(folder / f"{name}.crt")
        if key_digest(own.key) in found.keys:
            raise FileError(
                f"{own.path}: its key is revoked, by list {found.number}; make a new one, and have "
                "it signed (--replace)"
            )
