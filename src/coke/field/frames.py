"""What travels between neighbours, as bytes and back.

The words of training, and where an end of an edge stands:

    WORD    flags 1 | step 2 | tag 2 | quiet 1 | payload: none, or the codec's bytes; epoch 0
    LONG    flags 1 | epoch 2 | step 4 | tag 2 | quiet 2 | payload: where these do not fit a WORD
    CTL     flags 1 | epoch 2           my end of the edge is here, open or closed
    DONE    flags 1 | epoch 2 | said 4  I have said so many words in this epoch, and say no more

Letters, for all else that sites tell each other; their flags are 64 and up:

    HELLO   flags 1 | settings, JSON            what must be common, in words
    TALK    flags 1 | which 2 | message         a conversation, in order; from CLOSING on, the last
    ASK     flags 1 | which 2                   I wait for this message of a conversation
    WANT    flags 1                             I join later: what was agreed on?
    TOTALS  flags 1 | totals, msgpack           that
    CHECK   flags 1 | epoch 2 | step 4 | g 8D   my end of the edge when all was over; and yours?
    CHECKED the same                            and I have yours
    PARTED  flags 1                             and you have mine
    PROVEN  flags 1 | mark 4 | proof 12         the tree's root has ended a descent to that model
    AUDIT   flags 1 | see field/statements      what a site states in an audit, calls or asks for

Those of streams are in `coke.field.pulses`. Little endian. Every length is checked before anything
is read. A word, CTL or DONE has one meaning for every value and one spelling:
`encode(decode(data, size)) == data` for all that is not refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from coke.errors import MessageError
from coke.field.pulses import TICK, Pulse, decode_tick, encode_tick
from coke.maths.algorithms.integers import refuse, refused
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from coke.maths.ledger import COUNTS, HEADER, LETTERHEAD, LONG, STEPS

R = TypeVar("R")
TAG = 2  # bytes of the chain that a word shows
TOP = 2**16 - 1  # the last epoch
NEWS, AGAIN, SHORT, WIDE = 1, 2, 4, 8  # bits of a word's flags …
FLAGS, FAR = 15, 48  # … of all of them, and with a long header
OPEN, CLOSED, DONE = 16, 17, 32  # flags of CTL and DONE …
DONE_AGAIN, DONE_SHORT = 1, 2  # … whose last bits say more
LETTER = 64  # the first flags of a letter, which are
HELLO, HELLO_BACK, TALK, ASK, WANT, TOTALS, CHECK, CHECKED, PARTED, PROVEN, AUDIT = range(64, 75)
MOST = 4096  # messages of a conversation on one edge: a thousand sweeps and more
CLOSING = 2**15  # the number of the first after the last round
SETTINGS = 2**16  # bytes of all settings

_WORD, _FAR = struct.Struct("<BH2sb"), struct.Struct("<BHI2sh")
_CTL, _DONE = struct.Struct("<BH"), struct.Struct("<BHI")
_TALK, _PROVEN = struct.Struct("<BH"), struct.Struct("<B4s12s")
assert (_WORD.size, _FAR.size, _TALK.size) == (HEADER, LONG, LETTERHEAD)


class Word(NamedTuple):
    """My word of one step: the coded innovation θ − own, or no byte: silence."""

    epoch: int
    step: int
    tag: bytes  # first bytes of the chain before this step
    quiet: int  # count of quiet laps, or minus the countdown
    payload: bytes
    again: bool = False  # sent by a timer: the sender still waits for the answer
    short: bool = False  # the end was declared for want of budget
    wide: bool = False  # sites have come or gone: nobody knows how far the farthest is


class Standing(NamedTuple):
    """Where an end of an edge stands: the larger (epoch, closed) wins."""

    epoch: int
    closed: bool


class Done(NamedTuple):
    """The sender has finished, and says no more than it has said."""

    epoch: int
    said: int  # words of this epoch: those of steps 0 … said − 1
    again: bool = False  # sent by a timer: have you, too?
    short: bool = False  # it ended for want of budget or rounds


class Hello(NamedTuple):
    """What must be common; `back` asks for the other's."""

    settings: dict[str, str]
    back: bool


class Said(NamedTuple):
    """A message of a conversation, and the how-manieth of its sender on this edge it is."""

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


class Parted(NamedTuple):
    """I have your end of the edge, and you have mine."""


class Proven(NamedTuple):
    """What the tree's root has said last, for those who cannot hear it from their parent."""

    mark: bytes  # of the model
    proof: bytes


class Audited(NamedTuple):
    """A call for an audit, a statement, who asks for some: see `coke.field.statements`."""

    data: bytes


Frame = Word | Standing | Done
Told = Hello | Said | Ask | Want | Totals | Check | Parted | Proven | Audited
Letter = Told | Pulse


def encode(frame: Frame | Letter) -> bytes:
    """The bytes of a frame."""
    match frame:
        case Word():
            return _of_word(frame)
        case Standing(epoch, closed):
            return _CTL.pack(CLOSED if closed else OPEN, epoch)
        case Done(epoch, said, again, short):
            return _DONE.pack(DONE | DONE_AGAIN * again | DONE_SHORT * short, epoch, said)
        case Hello(settings, back):
            return bytes([HELLO_BACK if back else HELLO]) + msgspec.json.encode(settings)
        case Said(which, message):
            return _TALK.pack(TALK, which) + message
        case Ask(which):
            return _TALK.pack(ASK, which)
        case Want():
            return bytes([WANT])
        case Totals(totals):
            return bytes([TOTALS]) + msgspec.msgpack.encode(totals)
        case Check(epoch, step, g, had):
            flags = CHECKED if had else CHECK
            return _DONE.pack(flags, epoch, step) + np.asarray(g, "<f8").tobytes()
        case Parted():
            return bytes([PARTED])
        case Proven(mark, proof):
            return _PROVEN.pack(PROVEN, mark, proof)
        case Audited(statement):
            return bytes([AUDIT]) + statement
        case _:
            return encode_tick(frame)


@lru_cache(maxsize=128)  # a word goes to the disk twice beside its way to the neighbour
def _of_word(word: Word) -> bytes:
    epoch, step, tag, quiet, payload, again, short, wide = word
    flags = NEWS * bool(payload) | AGAIN * again | SHORT * short | WIDE * wide
    if fits(epoch, step, quiet):
        return _WORD.pack(flags, step, tag, quiet) + payload
    return _FAR.pack(FAR | flags, epoch, step, tag, quiet) + payload


def fits(epoch: int, step: int, quiet: int) -> bool:
    """Whether a word has the short header."""
    return epoch == 0 and step < STEPS and abs(quiet) < COUNTS


def decode(data: bytes, size: int) -> Frame:
    """The frame, or MessageError; the payload for `size` numbers is left to the codec."""
    kind = data[0] if data else LETTER
    if kind <= FLAGS or FAR <= kind <= FAR | FLAGS:
        return _word(data, size)
    wanted = {OPEN: _CTL.size, CLOSED: _CTL.size}.get(kind, _DONE.size)
    refuse(len(data) != wanted, f"{len(data)} bytes where {wanted} would do")
    if kind in (OPEN, CLOSED):
        return Standing(_CTL.unpack(data)[1], kind == CLOSED)
    refuse(not DONE <= kind <= DONE | DONE_AGAIN | DONE_SHORT, f"flags {kind}")
    _, epoch, said = _DONE.unpack(data)
    return Done(epoch, said, again=bool(kind & DONE_AGAIN), short=bool(kind & DONE_SHORT))


def is_word(data: bytes) -> bool:
    """Whether a frame is a word of a round, whatever it says."""
    kind = data[0] if data else LETTER
    return len(data) >= (HEADER if kind <= FLAGS else LONG) and kind & ~FLAGS in (0, FAR)


def _word(data: bytes, size: int) -> Word:
    flags, brief = data[0] & FLAGS, data[0] <= FLAGS
    head = HEADER if brief else LONG
    # No codec writes more than this for so many numbers.
    if not head <= len(data) <= head + 2 + 8 * size:
        raise refused(f"a word of {len(data)} bytes")
    epoch = 0
    if brief:
        _, step, tag, quiet = _WORD.unpack_from(data)
    else:
        _, epoch, step, tag, quiet = _FAR.unpack_from(data)
    if fits(epoch, step, quiet) != brief:
        raise refused(f"a header of {head} bytes that is not the shortest")
    payload, short = data[head:], flags & SHORT > 0
    if (flags & NEWS > 0) != (len(payload) > 0):
        raise refused(f"flags {flags} and {len(payload)} payload bytes")
    if quiet <= -NEVER:
        raise refused(f"a countdown of {-quiet}")
    refuse(short and quiet >= 0, "an end declared without a countdown")
    return Word(epoch, step, tag, quiet, payload, flags & AGAIN > 0, short, flags & WIDE > 0)


def decode_letter(data: bytes) -> Told:
    """The letter, or MessageError."""
    return _readable(_letter, data)


def decode_pulse(data: bytes) -> Pulse:
    """The letter of a stream, or MessageError."""
    return _readable(decode_tick, data)


def is_pulse(data: bytes) -> bool:
    """Whether it is a letter of a stream, whatever it says."""
    return bool(data) and data[0] >= TICK


def _readable(read: Callable[[bytes], R], data: bytes) -> R:
    try:
        return read(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, struct.error) as error:
        raise MessageError(
            f"a letter of {len(data)} bytes that cannot be read ({error}): compare the releases"
        ) from error


def _letter(data: bytes) -> Told:
    kind, rest = data[0] if data else 0, data[1:]
    if kind in (HELLO, HELLO_BACK) and len(data) <= SETTINGS:
        return Hello(msgspec.json.decode(rest, type=dict[str, str]), kind == HELLO_BACK)
    if kind == TALK and (which := _TALK.unpack_from(data)[1]) % CLOSING < MOST:
        return Said(which, data[LETTERHEAD:])
    if kind == ASK and (which := _TALK.unpack(data)[1]) % CLOSING < MOST:
        return Ask(which)
    if kind == WANT and not rest:
        return Want()
    if kind == TOTALS:
        return Totals(tuple(msgspec.msgpack.decode(rest, type=list[bytes])))
    if kind in (CHECK, CHECKED) and (len(data) - _DONE.size) % 8 == 0:
        _, epoch, step = _DONE.unpack_from(data)
        g = np.frombuffer(data, "<f8", offset=_DONE.size)
        if np.isfinite(g).all():
            return Check(epoch, step, g, kind == CHECKED)
    if kind == PARTED and not rest:
        return Parted()
    if kind == PROVEN:
        return Proven(*_PROVEN.unpack(data)[1:])
    if kind == AUDIT:
        return Audited(rest)
    raise MessageError(f"a letter of {len(data)} bytes that no site writes: compare the releases")
