"""Claims by name: what every site says of itself comes to all, and all see that it is the same.

A sum hides who said what. By name all sites hear all parts, so that each part can count for as much
as one can believe of one site. A relay on the tree could change what others say: so a site looks
for its own claim in the total, and `vouch` lets neighbours compare a digest of the total over every
edge. Where the honest sites are connected without the liar, all of them then hold the same claims,
and each its own: no relay has changed one. No signature is needed for that, and keys that are
claimed so can sign what is said later. The digest is of all totals of the agreement: nobody can
have told two sites two of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from coke.errors import MessageError
from coke.maths.audit import Vouched
from coke.talk.conversation import Talk, Turn
from coke.talk.names import SHORT, short_ids
from coke.talk.place import Place

if TYPE_CHECKING:
    from coke.talk.sums import Part, Sweep

# Λ_s, R_s(0), ‖θ‖ alone, rows, bytes of a key; then the key, and neighbours' short ids.
_HEAD = struct.Struct("<ffffB")
_DIGEST = 8  # bytes that neighbours compare
KEY = 32  # bytes of a public key, where there is one


class ByName(NamedTuple):
    """A site's way to totals under a guard: it can tell its part by name."""

    sweep: Sweep
    name: str
    sites: int

    def __call__(self, own: Part, concluded: Callable[[bytes], bytes] = bytes) -> Talk[bytes]:
        """As without a guard, where what is told bears no name."""
        return self.sweep(own, concluded)

    def claims(self, mine: bytes) -> Talk[list[bytes]]:
        """What every site says, in the order of their names."""
        total = yield from self.sweep(partial(gathered, self.name, mine))
        found = checked(total, self.name, mine, self.sites)
        return [found[name] for name in sorted(found)]


def gathered(name: str, mine: bytes, children: Sequence[bytes]) -> bytes:
    """A site's claim, and those of the sites below."""
    known = {name: mine}
    for child in map(_claims, children):
        if known.keys() & child.keys():
            raise MessageError(f"two claims of {sorted(known.keys() & child.keys())[:4]}")
        known |= child
    return msgspec.msgpack.encode(dict(sorted(known.items())))


def checked(total: bytes, name: str, mine: bytes, sites: int) -> dict[str, bytes]:
    """The claims in a total, if they can be all sites' and this one's is among them."""
    found = _claims(total)
    if len(found) != sites:
        raise MessageError(f"{len(found)} sites claim something, of {sites} in all")
    if found.get(name, mine) != mine:
        raise MessageError(f"what {name!r} claims has been changed on the way")
    return found


def _claims(data: bytes) -> dict[str, bytes]:
    """By name."""
    try:
        return msgspec.msgpack.decode(data, type=dict[str, bytes])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes are no claims of sites: {error}") from error


def vouch(
    sweep: Sweep, place: Place, own: Vouched, totals: Sequence[bytes] = ()
) -> Talk[dict[str, Vouched]]:
    """What every site says of itself, compared with all neighbours: the same everywhere.

    So are all totals that were agreed on before.
    """
    mine, name = _encoded(own), place.name
    total = yield from sweep(partial(gathered, name, mine))
    told = checked(total, name, mine, place.shape.sites)
    names = {i: who for who, i in short_ids(told).items()}
    found = {who: _decoded(data, names) for who, data in told.items()}
    near = sorted(place.degrees)
    digest = digest_of({**told, "": digest_of(dict(enumerate(totals)))})
    if near:
        heard = yield Turn(dict.fromkeys(near, digest), near, broadcast=True)
        if other := [n for n, theirs in heard.items() if theirs != digest]:
            raise MessageError(
                f"{', '.join(other)} holds other claims or totals of all sites than {name!r}: one "
                "of the sites between has changed some; compare what all have said, by another way"
            )
    return found


def digest_of(told: Mapping[Any, bytes]) -> bytes:
    """Of claims by name, or of totals in their order."""
    data = msgspec.msgpack.encode(dict(sorted(told.items())))
    return blake2b(data, digest_size=_DIGEST).digest()


def _encoded(own: Vouched) -> bytes:
    ids = np.array(sorted(short_ids(own.neighbours).values()), "<u4")
    return _HEAD.pack(*own[:3], own.rows, len(own.key)) + own.key + ids.tobytes()


def _decoded(data: bytes, names: Mapping[int, str]) -> Vouched:
    """If it can be; neighbours whose names nobody has are left out."""
    whole = len(data) >= _HEAD.size
    bend, zero, size, rows, length = _HEAD.unpack_from(data) if whole else (-1.0, 0, 0, 0, 0)
    key, ids = data[_HEAD.size :][:length], data[_HEAD.size + length :]
    fine = math.isfinite(bend + zero + size + rows) and min(bend, zero, size) >= 0 < rows
    fine = fine and length in (0, KEY)
    if not (fine and len(key) == length and len(ids) % SHORT == 0):
        raise MessageError("a claim of a curvature, loss, model, rows or neighbours that cannot be")
    near = [names[i] for i in np.frombuffer(ids, "<u4").tolist() if i in names]
    return Vouched(bend, zero, size, tuple(sorted(set(near))), key, rows)
