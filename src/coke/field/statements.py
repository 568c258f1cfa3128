"""What sites say in audits, as bytes and back: calls, who asks for what, and what is signed.

    call       round, no bits                    all are to state their edges in that round
               −round, no bits                   … and to pass statements on over every edge
    ask        round, a bit for each site        the statements that I have; tell me the others
    statement  who, round, loss, edges; signed   the loss in float32, the duals rounded
    notice     who, −round, whom, no edges; signed   I have closed my edge to that site

All in msgpack; a call or an ask is an array of two, and no other is.
"""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec
import numpy as np

from coke.errors import MessageError
from coke.maths.algorithms.integers import pack_integers, unpack_integers
from coke.maths.arrays import Array
from coke.maths.audit import Dual, Stated

FINE = 2  # powers of two that a dual is stated more finely than its root mean square
CLOSES = 0  # and minus its round are those of a notice: all below
Edge = tuple[int, int, int, int, bytes]  # neighbour, epoch, step, exponent, whole numbers
Body = tuple[int, int, int, list[Edge]]  # who, round, bits of the loss in float32 or whom, edges
Asked = tuple[int, bytes]
_Read = TypeVar("_Read")
_BODY: msgspec.msgpack.Decoder[Body] = msgspec.msgpack.Decoder(Body)
_ASKED: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)
_ASKS = msgspec.msgpack.encode((0, b""))[:1]
_LOSS, _INFINITE = float(np.finfo(np.float32).max), int(np.float32(np.inf).view(np.uint32))


def asked(at: int, mask: bytes = b"") -> bytes:
    """A call, or who asks."""
    return msgspec.msgpack.encode((at, mask))


def asks(data: bytes) -> bool:
    """Whether it is a call or an ask."""
    return data[:1] == _ASKS


def read_asked(data: bytes, sites: int) -> tuple[int, bytes]:
    """The round and the bits, of so many sites or none."""
    at, mask = _decoded(data, _ASKED)
    if len(mask) not in (0, -(-sites // 8)) or not 0 < (at if mask else abs(at)) < 2**31:
        raise MessageError(f"{len(mask)} bytes and round {at} ask for no statements")
    return at, mask


def read_body(data: bytes, sites: int, size: int) -> Body:
    """What is signed: of one of so many sites, with duals of so many numbers."""
    if len(data) > 64 + sites * (64 + 10 * size):
        raise MessageError(f"a statement of {len(data)} bytes, of {sites} sites")
    body = index, at, bits, edges = _decoded(data, _BODY)
    whom = 0 <= bits < sites and not edges
    known = 0 <= index < sites and abs(at) < 2**31
    if not (known and 0 <= bits < _INFINITE and (at > CLOSES or whom)):
        raise MessageError("a statement of a site, a round or a loss that cannot be")
    return body


def bits_of(loss: float) -> int:
    """Of a loss in float32."""
    return int(np.float32(min(loss, _LOSS)).view(np.uint32))


def stated(body: Body, names: list[str], size: int) -> Stated:
    """What one of these sites states, by name."""
    _, _, bits, edges = body
    duals = {names[edge[0]]: _dual(edge, size) for edge in edges if edge[0] < len(names)}
    return Stated(float(np.uint32(bits).view(np.float32)), duals)


def edge_of(neighbour: int, epoch: int, step: int, gamma: Array) -> Edge:
    """A dual as it is stated."""
    e, n = rounded(gamma)
    return neighbour, epoch, step, e, pack_integers(n.astype(np.int64))


def rounded(gamma: Array) -> tuple[int, Array]:
    """(e, n) with n 2ᵉ near γ (D,): the same at both ends but for the sign."""
    size = float(np.sqrt(np.mean(gamma**2))) if len(gamma) else 0.0
    e = math.floor(math.log2(size)) - FINE if 0 < size < math.inf else 0
    return e, np.rint(np.ldexp(gamma, -e))


def _dual(edge: Edge, size: int) -> Dual:
    neighbour, epoch, step, e, packed = edge
    if not (abs(e) < 900 and neighbour >= 0):
        raise MessageError("a dual of a size that cannot be")
    n = unpack_integers(packed, size).astype(np.float64)
    return Dual(epoch, step, np.ldexp(n, e))


def _decoded(data: bytes, reader: msgspec.msgpack.Decoder[_Read]) -> _Read:
    try:
        return reader.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes are no statement: {error}") from error
