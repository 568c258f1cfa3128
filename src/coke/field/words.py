"""What travels on an edge, as bytes and back.

    WORD   flags 1 | epoch 2 | step 4 | tag 4 | quiet 2 | payload: none, or the codec's bytes
    CTL    flags 1 | epoch 2     my end of the edge is here, open or closed
    STOP   flags 1 | epoch 2     training is over

Little endian. Every field has one meaning for every value and every frame one spelling, so
`encode(decode(data, size)) == data` for all bytes that are not refused.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from coke.maths.algorithms.codecs import refuse
from coke.maths.algorithms.stopping import NEVER
from coke.maths.ledger import HEADER

TAG = 4  # bytes of the chain that a word shows
TOP = 2**16 - 1  # the last epoch
NEWS, AGAIN, SHORT, WIDE = 1, 2, 4, 8  # bits of a word's flags
OPEN, CLOSED, STOP, STOP_AGAIN = 16, 17, 32, 33  # flags of the short frames
BRIEF = 3  # bytes of them

_WORD, _FLAG = struct.Struct("<BHI4sh"), struct.Struct("<BH")
assert _WORD.size == HEADER


class Word(NamedTuple):
    """My word of one step: the coded innovation θ − own, or no byte: silence."""

    epoch: int
    step: int
    tag: bytes  # first bytes of the chain before this step
    quiet: int  # count of quiet laps, or minus the countdown
    payload: bytes
    again: bool = False  # sent by a timer: the sender still waits for the answer
    short: bool = False  # the end was declared for want of budget or rounds
    wide: bool = False  # sites have come or gone: the diameter agreed on is no bound any more


class Place(NamedTuple):
    """Where an end is: the larger (epoch, closed) wins."""

    epoch: int
    closed: bool


class Stop(NamedTuple):
    """The sender has finished."""

    epoch: int
    again: bool = False  # sent by a timer: have you, too?


Frame = Word | Place | Stop


def encode(frame: Frame) -> bytes:
    """The bytes of a frame."""
    if isinstance(frame, Place):
        return _FLAG.pack(CLOSED if frame.closed else OPEN, frame.epoch)
    if isinstance(frame, Stop):
        return _FLAG.pack(STOP_AGAIN if frame.again else STOP, frame.epoch)
    w = frame
    flags = NEWS * bool(w.payload) | AGAIN * w.again | SHORT * w.short | WIDE * w.wide
    return _WORD.pack(flags, w.epoch, w.step, w.tag, w.quiet) + w.payload


def decode(data: bytes, size: int) -> Frame:
    """The frame, or MessageError; the payload for `size` numbers is left to the codec."""
    refuse(len(data) < BRIEF, f"{len(data)} bytes")
    if data[0] > NEWS | AGAIN | SHORT | WIDE:
        return _brief(data)
    # No codec writes more than this for so many numbers.
    refuse(not HEADER <= len(data) <= HEADER + 2 + 8 * size, f"a word of {len(data)} bytes")
    flags, epoch, step, tag, quiet = _WORD.unpack_from(data)
    payload = data[HEADER:]
    refuse(bool(flags & NEWS) != bool(payload), f"flags {flags} and {len(payload)} payload bytes")
    refuse(quiet <= -NEVER, f"a countdown of {-quiet}")
    refuse(bool(flags & SHORT) and quiet >= 0, "an end declared without a countdown")
    said = (bool(flags & bit) for bit in (AGAIN, SHORT, WIDE))
    return Word(epoch, step, tag, quiet, payload, *said)


def _brief(data: bytes) -> Place | Stop:
    refuse(data[0] not in (OPEN, CLOSED, STOP, STOP_AGAIN), f"flags {data[0]}")
    refuse(len(data) != BRIEF, f"{len(data)} bytes where {BRIEF} would do")
    flags, epoch = _FLAG.unpack(data)
    if flags in (OPEN, CLOSED):
        return Place(epoch, flags == CLOSED)
    return Stop(epoch, flags == STOP_AGAIN)
