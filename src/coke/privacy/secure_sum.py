"""A secure sum over the tree: first everybody's key and number of rows, then words under masks.

Where sites have identities they sign the first: with a key of its own in place of another's, a
relay would share its masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from coke.data.learnt import learnt
from coke.errors import ConfigError, MessageError
from coke.privacy.masks import Words
from coke.privacy.release import AllSites, Release
from coke.privacy.share import Member, Roster, Share, SignedMember, SignedRoster
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep

M = TypeVar("M", Member, SignedMember)
K = TypeVar("K")
MOST = 2047  # sites: their numbers are below 2⁵², and the sum must be below 2⁶³


def secure_sum(sweep: Sweep, N: int, share: Share) -> Talk[tuple[Release, AllSites]]:
    """One of N sites' part: what it may train on as its own, and how large the noise in it is."""
    if N > MOST:
        raise ConfigError(f"secure_sum over {N} sites: expected at most {MOST}")
    if share.signing is None:
        roster = yield from _everybody(sweep, N, {share.name: share.member}, _decode_roster)
    else:
        own = {share.name: share.signed(share.signing)}
        told = yield from _everybody(sweep, N, own, _decode_signed)
        roster = share.believed(share.signing, told)
    words = share.words(roster)

    def added(children: Sequence[bytes]) -> bytes:
        heard = (_decode_words(child, len(words)) for child in children)
        return sum(heard, words).astype("<u8").tobytes()

    total = _decode_words((yield from sweep(added)), len(words))
    return share.release(roster, total), AllSites(N, 1.0 / share.counted(roster) ** 2)


def _everybody(
    sweep: Sweep, N: int, own: dict[str, M], decode: Callable[[bytes], dict[str, M]]
) -> Talk[dict[str, M]]:
    """What every one of N sites says of itself, this one among them."""

    def told(children: Sequence[bytes]) -> bytes:
        known = dict(own)
        for child in children:
            known |= decode(child)
        return msgspec.msgpack.encode(known)

    found = decode((yield from sweep(told)))
    if len(found) != N or any(found.get(name) != one for name, one in own.items()):
        raise MessageError(f"keys of {len(found)} sites: expected one of each site, and our own")
    return found


def _decode_roster(data: bytes) -> Roster:
    """What such bytes say of sites."""
    return _decoded(data, learnt(dict[str, Member]))


def _decode_signed(data: bytes) -> SignedRoster:
    """The same, where every site signs."""
    return _decoded(data, learnt(dict[str, SignedMember]))


def _decoded(data: bytes, kind: type[K]) -> K:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes are no keys of sites: {error}") from error


def _decode_words(data: bytes, size: int) -> Words:
    """So many words; any bytes are words under a mask."""
    if len(data) != 8 * size:
        raise MessageError(f"{len(data)} bytes: expected a sum of {size} numbers")
    return np.frombuffer(data, "<u8").astype(np.uint64)
