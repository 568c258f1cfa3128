"""Who is who on a network: its own authority (CA), and a short-lived certificate for every site.

    folder/ca.crt, ca.key          the network's authority; ca.key stays where it was made
    folder/ID.crt, ID.key          a site's; with ca.crt, all that a site has

ID is the id of the site's name, and what its certificate calls it.

Nothing revokes a certificate: so they run out soon, and a site lists whom it talks to. Whatever is
not as made here is refused. The clock is the caller's: `now` is explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from coke.data.files import make_folder, read_file, write_file
from coke.errors import FileError, InputError
from coke.field.keys import keep_key, parsing, private_key, ready
from coke.settings.sites import LONGEST_DAYS, SITE_DAYS
from coke.talk.names import CA, is_id, site_id

with suppress(ImportError):  # an extra: the rest of coke works without it, and `ready` refuses
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
SKEW = timedelta(minutes=5)  # by which a site's clock may be behind ours


class Identity(NamedTuple):
    """A site's files, all of them checked: what a carrier needs for mutual TLS."""

    name: str
    ca: Path
    certificate: Path
    key: Path
    ends: datetime  # the certificate's last second


class Credential(NamedTuple):
    """What an X.509 certificate says; nothing of it is believed before it is checked."""

    path: Path
    network: str  # O
    name: str  # CN: the site's id
    begins: datetime
    ends: datetime
    fingerprint: str  # SHA-256, hexadecimal
    key: ec.EllipticCurvePublicKey
    whole: x509.Certificate


class _Authority(NamedTuple):
    """What signs for a network, now, and nothing that would outlive it."""

    network: str
    key: ec.EllipticCurvePrivateKey
    now: datetime
    ends: datetime


def found(folder: Path, network: str, now: datetime, *, replace: bool = False) -> Credential:
    """A new network: the key and certificate of its authority, for ten years."""
    ready(now)
    key = ec.generate_private_key(ec.SECP256R1())
    ca = _Authority(site_id(network), key, now, now + timedelta(days=CA_DAYS))
    make_folder(folder)
    _check_free(folder, CA, replace)
    return _write_pair(folder, CA, key, _signed(ca, CA, key.public_key(), CA_DAYS), replace)


def issue(
    folder: Path, name: str, now: datetime, *, days: int = SITE_DAYS, replace: bool = False
) -> Credential:
    """A new key and certificate for a site, signed by the authority in `folder`."""
    ca = _authority(folder, now)
    own, key = site_id(name), ec.generate_private_key(ec.SECP256R1())
    _check_free(folder, own, replace)
    return _write_pair(folder, own, key, _signed(ca, own, key.public_key(), days), replace)


def renew(folder: Path, name: str, now: datetime, *, days: int = SITE_DAYS) -> Credential:
    """A new certificate for the key a site has, which need not be here: the old one tells it."""
    own = site_id(name)
    old = read_credential(_paths(folder, own)[0])
    _check_made(old, own, read_credential(_paths(folder, CA)[0]))  # it may have run out
    return certify(folder, own, old.key, now, days=days)


def certify(
    folder: Path, own: str, key: ec.EllipticCurvePublicKey, now: datetime, *, days: int
) -> Credential:
    """A certificate for a site's id and key, signed by the authority in `folder`."""
    made, path = _signed(_authority(folder, now), own, key, days), _paths(folder, own)[0]
    write_file(path, made.public_bytes(pem.Encoding.PEM))
    return read_credential(path)


def load(folder: Path, name: str, now: datetime) -> Identity:
    """A site's identity if chain, time, name, key and its file's mode are right, else an error."""
    own, key = check(folder, site_id(name), now), _paths(folder, site_id(name))[1]
    _read_key(key, own)
    return Identity(name, _paths(folder, CA)[0], own.path, key, own.ends)


def check(folder: Path, name: str, now: datetime) -> Credential:
    """The certificate of an id or of "ca" if chain, time and name are right; needs no key."""
    ready(now)
    ca = read_credential(_paths(folder, CA)[0])
    own = ca if name == CA else read_credential(_paths(folder, name)[0])
    for one, its_name in ((ca, CA), (own, name)):
        _check_made(one, its_name, ca)
        _check_time(one, now)
    return own


def vouched(folder: Path, name: str, data: bytes) -> Credential:
    """A certificate that our authority made for that id, at whatever time; or `FileError`."""
    own = _parsed(Path(f"{name}.crt"), lambda: x509.load_pem_x509_certificate(data))
    _check_made(own, name, read_credential(_paths(folder, CA)[0]))
    return own


def read_credential(path: Path) -> Credential:
    """What the one certificate in a file says, or `FileError`."""
    ready()
    data = read_file(path)
    # One: of a second authority in the file we would know nothing, and TLS would trust it.
    return _parsed(path, lambda: _only(x509.load_pem_x509_certificates(data)))


def _only(found: Sequence[x509.Certificate]) -> x509.Certificate:
    (one,) = found
    return one


def _parsed(path: Path, parse: Callable[[], x509.Certificate]) -> Credential:
    with parsing(path, "one PEM certificate, made by `coke identity`"):
        whole = parse()
        network, name = (str(part.value) for part in whole.subject)
        key = whole.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != ec.SECP256R1.name:
            raise ValueError("another kind of key")
        if not is_id(network):
            raise ValueError(f"network {network[:80]!a} is no id")
        return Credential(
            path=path, network=network, name=name, key=key, whole=whole,
            begins=whole.not_valid_before_utc, ends=whole.not_valid_after_utc,
            fingerprint=whole.fingerprint(hashes.SHA256()).hex(),
        )  # fmt: skip


def _signed(
    ca: _Authority, name: str, key: ec.EllipticCurvePublicKey, days: int
) -> x509.Certificate:
    if name != CA and not 1 <= days <= LONGEST_DAYS:
        raise InputError(f"{days} days: expected 1 to {LONGEST_DAYS}; renew instead")
    draft = (
        x509.CertificateBuilder()
        .subject_name(subject(ca.network, name))
        .issuer_name(subject(ca.network, CA))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(ca.now - SKEW)
        .not_valid_after(min(ca.now + timedelta(days=days), ca.ends))
    )
    for extension, critical in _extensions(name, key, ca.key.public_key()):
        draft = draft.add_extension(extension, critical=critical)
    return draft.sign(ca.key, hashes.SHA256())


def subject(network: str, name: str) -> x509.Name:
    """How a certificate or request names a site."""
    parts = (NameOID.ORGANIZATION_NAME, network), (NameOID.COMMON_NAME, name)
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


def _extensions(
    name: str, key: ec.EllipticCurvePublicKey, signer: ec.EllipticCurvePublicKey
) -> list[tuple[x509.ExtensionType, bool]]:
    """All that a certificate may be used for, and whether who does not understand must refuse."""
    ca, no = name == CA, False
    common: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=ca, path_length=0 if ca else None), True),
        # an authority signs certificates (6th) and lists (7th), a site its handshakes (1st)
        (x509.KeyUsage(not ca, no, no, no, no, ca, ca, no, no), True),
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
    ]
    if ca:
        return common
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return [
        *common,
        (x509.ExtendedKeyUsage(both), False),
        (x509.SubjectAlternativeName([x509.DNSName(name)]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), False),
    ]


def _check_made(own: Credential, name: str, ca: Credential) -> None:
    """Signed by `ca`, for this name, for nothing else."""
    try:
        own.whole.verify_directly_issued_by(ca.whole)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        wanted = f"expected one signed by the authority of {ca.path}; issue it again"
        raise FileError(f"{own.path}: a foreign certificate: {wanted}") from error
    if own.whole.subject != subject(ca.network, name):
        raise FileError(
            f"{own.path}: a certificate of {own.name!r}: expected {name!r}; use that site's own"
        )
    with parsing(own.path, f"the extensions that `coke identity` gives to {name!r}"):
        uses = [(extension.value, extension.critical) for extension in own.whole.extensions]
        if uses != _extensions(name, own.key, ca.key):
            raise ValueError("it is for something else")


def _check_time(own: Credential, now: datetime) -> None:
    if not own.begins <= now <= own.ends:
        raise FileError(
            f"{own.path}: valid from {own.begins:%Y-%m-%d %H:%M} to {own.ends:%Y-%m-%d %H:%M} UTC, "
            f"not at {now.astimezone(UTC):%Y-%m-%d %H:%M}; renew it, or set the clock right"
        )


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.crt", folder / f"{name}.key"


def _authority(folder: Path, now: datetime) -> _Authority:
    own = check(folder, CA, now)
    return _Authority(own.network, _read_key(_paths(folder, CA)[1], own), now, own.ends)


def _write_pair(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, whole: x509.Certificate, replace: bool
) -> Credential:
    """The key first: a crash between the two leaves a pair that `load` refuses."""
    path, secret = _paths(folder, name)
    keep_key(secret, key, replace=replace)
    write_file(path, whole.public_bytes(pem.Encoding.PEM))
    return read_credential(path)


def _check_free(folder: Path, name: str, replace: bool) -> None:
    """No file is there of that id; DNS and some file systems do not tell A from a."""
    for path in (*folder.glob("*.crt"), *folder.glob("*.key")):
        if path.stem.lower() == name.lower() and not (replace and path.stem == name):
            advice = "--renew keeps a site's key, --replace makes a new one; or choose another name"
            raise FileError(f"{path}: is there already, and is not overwritten; {advice}")


def _read_key(path: Path, owner: Credential) -> ec.EllipticCurvePrivateKey:
    """The private key of a certificate, if it is the right one and nobody else can read it."""
    key = private_key(path)
    if key.public_key() != owner.key:
        raise FileError(f"{path}: not the key of {owner.path}; copy both from one place again")
    return key
