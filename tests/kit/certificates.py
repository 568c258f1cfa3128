"""Small certificate authorities for tests: ECDSA P-256, CN = SAN DNS = the site's name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


class Paths(NamedTuple):
    """Where a site's three PEM files are."""

    ca: Path
    certificate: Path
    key: Path


class Authority:
    """A CA whose files live in `folder`, and what it signs."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        draft = _draft(self._name, self._name, self._key.public_key(), datetime.now(UTC) + DAY)
        draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.path = _write(folder / "ca.pem", draft.sign(self._key, hashes.SHA256()))

    def issue(self, site: str, *, expires: timedelta = DAY) -> Paths:
        """A certificate and key for `site`; a negative `expires` gives one of the past."""
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(_named(site), self._name, key.public_key(), datetime.now(UTC) + expires)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        for extension in (
            x509.SubjectAlternativeName([x509.DNSName(site)]),
            x509.ExtendedKeyUsage(uses),
        ):
            draft = draft.add_extension(extension, critical=False)
        signed = draft.sign(self._key, hashes.SHA256())
        folder = self._folder
        return Paths(
            self.path, _write(folder / f"{site}.pem", signed), _write(folder / f"{site}.key", key)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(until - 100 * DAY).not_valid_after(until)


def _write(path: Path, thing: x509.Certificate | ec.EllipticCurvePrivateKey) -> Path:
    pem = serialization.Encoding.PEM
    if isinstance(thing, x509.Certificate):
        path.write_bytes(thing.public_bytes(pem))
    else:
        private = serialization.PrivateFormat.PKCS8
        path.write_bytes(thing.private_bytes(pem, private, serialization.NoEncryption()))
    return path
