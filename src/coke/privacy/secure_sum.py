"""A secure sum over the tree: first everybody's key and number of rows, then words under masks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from coke.data.learnt import learnt
from coke.errors import ConfigError, MessageError
from coke.privacy.masks import Words
from coke.privacy.release import AllSites, Release
from coke.privacy.share import Member, Roster, Share
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep

MOST = 2047  # sites: their numbers are below 2⁵², and the sum must be below 2⁶³


def secure_sum(sweep: Sweep, N: int, share: Share) -> Talk[tuple[Release, AllSites]]:
    """One of N sites' part: what it may train on as its own, and how large the noise in it is."""
    if N > MOST:
        raise ConfigError(f"secure_sum over {N} sites: expected at most {MOST}")
    own = {share.name: share.member}

    def everybody(children: Sequence[bytes]) -> bytes:
        known = dict(own)
        for child in children:
            known |= _decode_roster(child)
        return msgspec.msgpack.encode(known)

    roster = _decode_roster((yield from sweep(everybody)))
    if len(roster) != N or roster.get(share.name) != own[share.name]:
        raise MessageError(f"keys of {len(roster)} sites: expected one of each site, and our own")
    words = share.words(roster)

    def added(children: Sequence[bytes]) -> bytes:
        heard = (_decode_words(child, len(words)) for child in children)
        return sum(heard, words).astype("<u8").tobytes()

    total = _decode_words((yield from sweep(added)), len(words))
    return share.release(roster, total), AllSites(N, 1.0 / share.counted(roster) ** 2)


def _decode_roster(data: bytes) -> Roster:
    """What such bytes say of sites."""
    try:
        return msgspec.msgpack.decode(data, type=learnt(dict[str, Member]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes are no keys of sites: {error}") from error


def _decode_words(data: bytes, size: int) -> Words:
    """So many words; any bytes are words under a mask."""
    if len(data) != 8 * size:
        raise MessageError(f"{len(data)} bytes: expected a sum of {size} numbers")
    return np.frombuffer(data, "<u8").astype(np.uint64)
