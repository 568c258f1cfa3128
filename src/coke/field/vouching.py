"""A site's name under what it says to all sites: with the key of its identity, for one run.

What is signed goes through others' hands; whoever hears it has the network's authority to compare
with. Time does not matter: what was believed when it was said is believed after a crash as well.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coke.data.files import read_file
from coke.data.learnt import learnt
from coke.errors import CokeError, MessageError
from coke.field import identity
from coke.field.keys import private_key, ready
from coke.privacy.share import Signing
from coke.talk.names import site_id

with suppress(ImportError):  # an extra: `ready` refuses without it
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from coke.settings.declaration import SiteTable


class _Vouching(NamedTuple):
    """One site's identity, for one run of a network."""

    folder: Path
    name: str
    network: str
    run: int

    def sign(self, said: bytes) -> bytes:
        """Its certificate, and its signature."""
        own = site_id(self.name)
        signed = private_key(self.folder / f"{own}.key").sign(
            self._meant(said), ec.ECDSA(hashes.SHA256())
        )
        return msgspec.msgpack.encode((read_file(self.folder / f"{own}.crt"), signed))

    def check(self, name: str, said: bytes, signed: bytes) -> None:
        """`MessageError` unless the site of that name says so, in this run of this network."""
        try:
            certificate, signature = msgspec.msgpack.decode(
                signed, type=learnt(tuple[bytes, bytes])
            )
            own = identity.vouched(self.folder, site_id(name), certificate)
            own.key.verify(signature, self._meant(said), ec.ECDSA(hashes.SHA256()))
        except (msgspec.DecodeError, CokeError, InvalidSignature) as error:
            raise MessageError(
                f"a key for the secure sum is said to be of {name!r}, and {name!r} has not signed "
                f"it: somebody between may have put in another ({error or 'another signature'})"
            ) from error

    def _meant(self, said: bytes) -> bytes:
        return msgspec.msgpack.encode((site_id(self.network), self.run, said))


def vouching(site: SiteTable) -> Signing | None:
    """How that site signs; not where it has no identity."""
    if site.identity is None:
        return None
    ready()
    return _Vouching(Path(site.identity), site.name, site.network, site.run)
