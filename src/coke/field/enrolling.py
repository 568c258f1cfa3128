"""A site's identity without a key that travels: the site asks, the network's keeper signs.

    at the site      `ask_for`  makes ID.key, which stays, and ID.csr, which is no secret
    at the keeper    `sign`     makes ID.crt of a request, for the network and key that it names
    at the site      `accept`   takes ID.crt and ca.crt, if they are what was asked for

A request is proof that whoever made it has the key, not who that is: so the keeper
has to be told the key's SHA-256 in another way, and the site compares that of ca.crt.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from coke.data.files import make_folder, read_file, write_file
from coke.errors import FileError
from coke.field import identity
from coke.field.identity import Credential, Identity
from coke.field.keys import keep_key, key_digest, parsing, private_key, ready
from coke.settings.sites import SITE_DAYS
from coke.talk.names import CA, is_id, site_id

with suppress(ImportError):  # an extra: `ready` refuses without it
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric import ec

LONGEST = 1 << 14  # bytes of a request or certificate: far above any real one


class SiteRequest(NamedTuple):
    """A request that was read: who asks, with which key."""

    path: Path
    network: str
    name: str  # the site's id
    fingerprint: str  # SHA-256 of the public key, hexadecimal
    key: ec.EllipticCurvePublicKey


def ask_for(
    folder: Path, name: str, network: str, now: datetime, *, replace: bool = False
) -> SiteRequest:
    """A request for the key that the site has, or for a new one; the key stays here."""
    ready(now)
    own = site_id(name)
    path = folder / f"{own}.csr"
    make_folder(folder)
    key = _own_key(folder / f"{own}.key", replace)
    draft = x509.CertificateSigningRequestBuilder(identity.subject(site_id(network), own))
    write_file(path, draft.sign(key, hashes.SHA256()).public_bytes(pem.Encoding.PEM))
    return _read(path)


def _own_key(path: Path, replace: bool) -> ec.EllipticCurvePrivateKey:
    if path.exists() and not replace:
        return private_key(path)
    key = ec.generate_private_key(ec.SECP256R1())
    keep_key(path, key, replace=replace)
    return key


def _read(path: Path) -> SiteRequest:
    """What the one request in a file says, signed by the key it is for; or `FileError`."""
    ready()
    with parsing(path, "one PEM request, made by `coke identity request`"):
        whole = x509.load_pem_x509_csr(_short(path))
        network, name = (str(part.value) for part in whole.subject)
        key = whole.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != ec.SECP256R1.name:
            raise ValueError("another kind of key")
        if not whole.is_signature_valid:
            raise ValueError("not signed by the key it is for")
        if not (is_id(network) and is_id(name)) or name == CA or list(whole.extensions):
            raise ValueError("it asks for something else than a site's name")
        if whole.subject != identity.subject(network, name):
            raise ValueError("its subject is written in another way")
    return SiteRequest(path, network, name, key_digest(key), key)


def sign(
    folder: Path, request: Path, told: str, now: datetime, *, days: int = SITE_DAYS,
    replace: bool = False,
) -> Credential:  # fmt: skip
    """The certificate that a request asks for, if its key is the one that was told.

    Another key for a known site only with `replace`.
    """
    asked, network = _read(request), identity.check(folder, CA, now).network
    if told.strip().lower() != asked.fingerprint:
        raise FileError(
            f"{request}: a request for another key, of SHA-256 {asked.fingerprint}: expected "
            f"{told[:80]!a}; ask the site what its own `coke identity request` says"
        )
    if asked.network != network:
        raise FileError(
            f"{request}: asks for the network {asked.network!r}: expected {network!r}; make it "
            "again with that --network"
        )
    path = folder / f"{asked.name}.crt"
    if path.exists() and not replace and identity.read_credential(path).key != asked.key:
        raise FileError(
            f"{request}: {asked.name!r} has a certificate for another key: find out who asks, and "
            "if it is the site's own new key, sign with --replace"
        )
    return identity.certify(folder, asked.name, asked.key, now, days=days)


def accept(folder: Path, name: str, certificate: Path, ca: Path, now: datetime) -> Identity:
    """The site's identity from what the keeper sent back, if it fits the key that is here."""
    own, theirs = site_id(name), identity.read_credential(ca)
    kept = folder / f"{CA}.crt"
    if kept.exists() and identity.read_credential(kept).fingerprint != theirs.fingerprint:
        raise FileError(
            f"{ca}: another authority than {kept}: expected the same; if the network has a new "
            "one, use another folder"
        )
    files = {kept: _short(ca), folder / f"{own}.crt": _short(certificate)}
    with TemporaryDirectory(dir=folder) as trial:  # as the agent will check them, all or nothing
        for path, data in files.items():
            write_file(Path(trial) / path.name, data)
        key = private_key(folder / f"{own}.key")
        keep_key(Path(trial) / f"{own}.key", key, replace=False)
        identity.load(Path(trial), name, now)
    for path, data in files.items():
        write_file(path, data)
    return identity.load(folder, name, now)


def _short(path: Path) -> bytes:
    data = read_file(path)
    if len(data) > LONGEST:
        raise FileError(f"{path}: {len(data)} bytes: expected at most {LONGEST}; copy it again")
    return data
