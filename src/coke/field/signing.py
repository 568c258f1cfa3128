"""A run's own key: signs what a site states in an audit, so that no relay can make it up.

It is drawn when a site with `guard` first agrees, lies in its state folder for its owner alone, and
is claimed by name before training (`coke.talk.claiming`).
"""

from __future__ import annotations

from pathlib import Path

from coke.data.files import atomically, read_file
from coke.errors import FileError
from coke.field.keys import ready, write_private

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as Private
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey as Public
except ImportError:  # an extra: `ready` says so
    pass

FILE = "audit.key"
SIGNATURE = 64  # bytes


class Signer:
    """One site's key of one run."""

    def __init__(self, key: Private):
        self._key = key
        self.public: bytes = key.public_key().public_bytes_raw()

    @classmethod
    def drawn(cls) -> Signer:
        """A new one."""
        ready()
        return cls(Private.generate())

    @classmethod
    def kept(cls, folder: Path) -> Signer:
        """The one in this folder, drawn where there is none."""
        ready()
        path = folder / FILE
        if not path.exists():
            drawn = Private.generate().private_bytes_raw()

            def write(part: Path) -> None:
                part.unlink()  # it is open to others, who may be reading already
                write_private(part, drawn)

            atomically(path, write)
        try:
            return cls(Private.from_private_bytes(read_file(str(path))))
        except ValueError as error:
            raise FileError(f"{path}: no key of 32 bytes: begin a new run") from error

    def sign(self, data: bytes) -> bytes:
        """64 bytes that only this site can make."""
        return self._key.sign(data)


def genuine(key: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of the key has signed that."""
    try:
        Public.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
