"""Private keys in files: made for their owner alone, and refused where others could read them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from warnings import catch_warnings

from coke.data.files import atomically
from coke.errors import CokeError, FileError, InputError

_missing: ImportError | None = None
try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError as error:  # an extra: the rest of coke works without it
    _missing = error


def keep_key(path: Path, key: ec.EllipticCurvePrivateKey, *, replace: bool) -> None:
    """Readable by its owner alone at every moment; over another key only if asked."""
    data = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())

    def write(part: Path) -> None:
        if not replace:
            write_private(path, b"")  # fails if it is there: of two who try at once, one gets it
        part.unlink()  # it is open to others, who may be reading already
        write_private(part, data)

    atomically(path, write)


def write_private(path: Path, data: bytes) -> None:
    """A new file that its owner alone can read, at every moment."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A private key that nobody else can read."""
    try:
        with path.open("rb") as file:
            mode, data = os.fstat(file.fileno()).st_mode & 0o777, file.read()
    except OSError as error:
        advice = "a key stays where it was made, `ca.key` where `coke identity init` was run"
        raise FileError(f"{path}: the key cannot be read: {error.strerror}; {advice}") from error
    if mode & 0o077 and os.name == "posix":
        advice = "issue a new one (--replace), or if nobody did, `chmod 600`"
        raise FileError(f"{path}: mode {mode:04o}, others may read it: expected 0600; {advice}")
    with parsing(path, "a PEM private key without a password"):
        key = pem.load_pem_private_key(data, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FileError(f"{path}: another kind of key; expected one of `coke identity`")
    return key


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key, hexadecimal: what people compare by telephone."""
    plain = key.public_bytes(pem.Encoding.DER, pem.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(plain).hexdigest()


@contextmanager
def parsing(path: Path, expected: str) -> Iterator[None]:
    """Whatever cryptography says of bytes it cannot use, as `FileError`."""
    try:
        with catch_warnings(action="ignore"):  # of odd fields; they have to pass the checks too
            yield
    except (
        *(ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion),
        *(x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
    ) as error:
        what = str(error).partition(". ")[0]
        raise FileError(f"{path}: {what}: expected {expected}; copy or issue it again") from error


def ready(now: datetime | None = None) -> None:
    """Refuses where an extra is not installed, or a time has no zone."""
    if _missing is not None:
        raise CokeError(f"certificates need an extra ({_missing}): pip install 'coke-learn[agent]'")
    if now is not None and now.tzinfo is None:
        raise InputError(f"time {now} without a zone: expected one, as in datetime.now(UTC)")
