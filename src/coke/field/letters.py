"""What sites tell each other beside the words of training, as bytes and back.

    HELLO   flags 1 | settings, JSON            what must be common, in words
    TALK    a word's header, step = which | message     the agreement, in order
    ASK     flags 1 | which 4                   I wait for this message of the agreement
    WANT    flags 1                             I join later: what was agreed on?
    TOTALS  flags 1 | totals, msgpack           that
    CHECK   flags 1 | epoch 2 | step 4 | g 8D   my end of the edge when all was over; and yours?
    CHECKED the same                            and I have yours

Flags are 64 and up, those of words are below. Every length is checked before anything is read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec
import numpy as np

from coke.errors import MessageError
from coke.maths.arrays import Array
from coke.maths.ledger import HEADER

FIRST = 64
HELLO, HELLO_BACK, TALK, ASK, WANT, TOTALS, CHECK, CHECKED = range(FIRST, FIRST + 8)
MOST = 256  # messages of an agreement on one edge: two sweeps and a flood, many times over
SETTINGS = 2**16  # bytes of all settings

_TALK, _ASK, _CHECK = struct.Struct("<BHI4sh"), struct.Struct("<BI"), struct.Struct("<BHI")
assert _TALK.size == HEADER


class Hello(NamedTuple):
    """What must be common; `back` asks for the other's."""

    settings: dict[str, str]
    back: bool


class Said(NamedTuple):
    """A message of the agreement."""

    which: int
    message: bytes


class Ask(NamedTuple):
    """I wait for this message of yours."""

    which: int


class Want(NamedTuple):
    """I join later: what was agreed on?"""


class Totals(NamedTuple):
    """What was agreed on."""

    totals: tuple[bytes, ...]


class Check(NamedTuple):
    """My end of the edge when all was over."""

    epoch: int
    step: int
    g: Array  # (D,)
    had: bool  # whether the sender has the other's


Letter = Hello | Said | Ask | Want | Totals | Check


def encode(letter: Letter) -> bytes:
    """The bytes of a letter."""
    match letter:
        case Hello(settings, back):
            return bytes([HELLO_BACK if back else HELLO]) + msgspec.json.encode(settings)
        case Said(which, message):
            return _TALK.pack(TALK, 0, which, bytes(4), 0) + message
        case Ask(which):
            return _ASK.pack(ASK, which)
        case Want():
            return bytes([WANT])
        case Totals(totals):
            return bytes([TOTALS]) + msgspec.msgpack.encode(totals)
        case Check(epoch, step, g, had):
            flags = CHECKED if had else CHECK
            return _CHECK.pack(flags, epoch, step) + np.asarray(g, "<f8").tobytes()


def decode(data: bytes) -> Letter:
    """The letter, or MessageError."""
    try:
        return _decoded(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, struct.error) as error:
        raise MessageError(
            f"a letter of {len(data)} bytes that cannot be read ({error}): compare the releases"
        ) from error


def _decoded(data: bytes) -> Letter:
    kind, rest = data[0] if data else 0, data[1:]
    if kind in (HELLO, HELLO_BACK) and len(data) <= SETTINGS:
        return Hello(msgspec.json.decode(rest, type=dict[str, str]), kind == HELLO_BACK)
    if kind == TALK and len(data) >= HEADER:
        _, zero, which, tag, quiet = _TALK.unpack_from(data)
        if (zero, tag, quiet) == (0, bytes(4), 0) and which < MOST:
            return Said(which, data[HEADER:])
    if kind == ASK and (which := _ASK.unpack(data)[1]) < MOST:
        return Ask(which)
    if kind == WANT and not rest:
        return Want()
    if kind == TOTALS:
        return Totals(tuple(msgspec.msgpack.decode(rest, type=list[bytes])))
    if kind in (CHECK, CHECKED) and (len(data) - _CHECK.size) % 8 == 0:
        _, epoch, step = _CHECK.unpack_from(data)
        g = np.frombuffer(data, "<f8", offset=_CHECK.size)
        if np.isfinite(g).all():
            return Check(epoch, step, g, kind == CHECKED)
    raise MessageError(f"a letter of {len(data)} bytes that no site writes: compare the releases")


def differing(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """Which settings differ, in words; nothing where none does."""
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    return "; ".join(
        f"{key} is {ours.get(key, 'not set')} here and {theirs.get(key, 'not set')} there"
        for key in keys[:8]
    )
