"""What neighbours tell each other of a stream, as bytes and back: letters, as those of `frames`.

TICK    flags 1 | tick 4 | k 1 | message    of a stream: the k-th message of a tick
WAITS   flags 1 | tick 4 | k 1              I wait for this message of a stream
RESTS   flags 1 | tick 4                    our edge rests since this tick, or I go
HERE    flags 1 | tick 4                    I have not said that yet: I wait for others, or my rows
JOIN    flags 1 | msgpack                   let us go on with it, from a tick on
ENDS    flags 1 | msgpack                   the last ticks of streams that have ended, by site

A message that all neighbours are told begins with the mark of what all have in common.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from coke.data.learnt import learnt
from coke.errors import MessageError
from coke.learning.common import MARK, Common
from coke.maths.ledger import TICKHEAD

TICK, WAITS, RESTS, HERE, JOIN, ENDS = range(75, 81)  # flags
_TICK, _RESTS = struct.Struct("<BIB"), struct.Struct("<BI")
assert _TICK.size + MARK == TICKHEAD


class TickSaid(NamedTuple):
    """A message of a stream."""

    tick: int  # since the stream began
    k: int  # the how-manieth of that tick to this neighbour
    message: bytes


class TickWaits(NamedTuple):
    """I wait for this message of yours."""

    tick: int
    k: int


class Rests(NamedTuple):
    """Our edge rests, or I go."""

    tick: int


class TickHere(NamedTuple):
    """What you wait for I have not said yet."""

    tick: int


class Hand(NamedTuple):
    """Where an end of an edge that rests stands, before a tick from which on to go on."""

    hat: bytes  # float64
    dual: bytes  # float64
    common: Common
    notices: bytes


class Join(NamedTuple):
    """Let us go on with an edge that rests, from a tick on."""

    at: int  # the sender's tick
    since: int  # the tick from which on to go on; 0: when could we? −1: the same, in answer
    hand: Hand | None = None  # the sender holds; None: it proposes


class Ends(NamedTuple):
    """Streams that have ended, by the short ids of their sites."""

    last: dict[int, int]
    here: int  # the try to end for which the sender is there, its edge to the receiver too; or 0


Pulse = TickSaid | TickWaits | Rests | TickHere | Join | Ends


def encode_tick(pulse: Pulse) -> bytes:
    """The bytes of a letter."""
    match pulse:
        case TickSaid(tick, k, message):
            return _TICK.pack(TICK, tick, k) + message
        case TickWaits(tick, k):
            return _TICK.pack(WAITS, tick, k)
        case Rests(tick) | TickHere(tick):
            return _RESTS.pack(RESTS if isinstance(pulse, Rests) else HERE, tick)
        case _:
            kind = JOIN if isinstance(pulse, Join) else ENDS
            return bytes([kind]) + msgspec.msgpack.encode(pulse)


def decode_tick(data: bytes) -> Pulse:
    """The letter, or an error that `decode_letter` takes for a MessageError."""
    kind = data[0]
    if kind == TICK:
        _, tick, k = _TICK.unpack_from(data)
        return TickSaid(tick, k, data[_TICK.size :])
    if kind == WAITS:
        return TickWaits(*_TICK.unpack(data)[1:])
    if kind == RESTS:
        return Rests(*_RESTS.unpack(data)[1:])
    if kind == HERE:
        return TickHere(*_RESTS.unpack(data)[1:])
    if kind == JOIN:
        found = msgspec.msgpack.decode(data[1:], type=learnt(Join))
        hand = found.hand
        if hand is None or len(hand.hat) % 8 == len(hand.dual) % 8 == 0:
            return found
    if kind == ENDS:
        return msgspec.msgpack.decode(data[1:], type=learnt(Ends))
    raise MessageError(f"a letter of {len(data)} bytes that no site writes: compare the releases")
