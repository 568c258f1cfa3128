"""Whole numbers as bytes and back: a Rice code, and no more than eight bytes an entry.

Format of D numbers n. No byte at all: all are zero. Otherwise

    r, k    4 + 4 bits    Rice parameters, of zero runs and of folded integers
    low     the lowest bits of the coded numbers, most significant first, in fixed width
    unary   their remaining bits q, each as q zeros and a one; then zeros up to a whole byte

with n folded to 2|n| − [n > 0]: 0, 1, −1, 2, −2, … ↦ 0, 1, 2, 3, 4, …. The coded numbers are

    r < 15  for the m entries n ≠ 0: the zeros before each (r low bits), then each fold − 1 (k)
    r = 15  for all D entries: the fold (k); shorter where zeros are rare

m is not sent: a larger m leaves fewer bits to `unary` and needs more ones there, so at most one
m fits. Low bits and unary codes stand apart so that neither end needs a loop over entries.

A Rice code has no upper bound, for k ends at 14. Where it would take more than two bytes an entry,
n = 2¹⁴ high + low with −2¹³ ≤ low < 2¹³, and both are told (`pack_integers`):

    WIDE    a byte that is no r, k of the above
    length  4 bytes, little endian: of what comes next
    high    in this format again
    low     as above, in at most 2D + 1 bytes

Numbers of up to 48 bits have at most three low parts, and 2⁶ is left: `most_bytes` in all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.errors import InputError, MessageError
from coke.maths.arrays import Sizes

LARGEST = 1 << 48  # size of a number that can be packed, far from where sums of many overflow
DENSE = 15  # in place of r: no zero runs
WIDTHS = np.arange(16)
WIDE = b"\xff"  # r and k that no Rice code has
_PART, _PARTS = 14, 3  # bits of a low part, and how many of them there are at most
_HEAD = len(WIDE) + 4
_WORD = 16  # bits, more than low ones

Integers = NDArray[np.int64]
Bits = NDArray[np.uint8]


def most_bytes(size: int) -> int:
    """That so many numbers take when packed: 8D + 20.

    Each low part 2D + 1 and its head 5, the rest, of which |n| ≤ 2⁶, 9D/8 + 2.
    """
    return 8 * size + 20


def pack_integers(n: Integers) -> bytes:
    """The integers n (D,) up to LARGEST in size; no byte where all are zero."""
    far = max(int(n.max(initial=0)), -int(n.min(initial=0)))
    if far > LARGEST:
        raise InputError(f"{far} in a message: expected whole numbers up to {LARGEST}")
    if far < 1 << 31:  # else it is too long anyway, and sums of folds might overflow
        plan = planned(n[None])
        if min(plan.cost[0], plan.dense_cost[0]) <= 8 * (1 + 2 * len(n)):
            return plan.packed(0)
    high = (n + (1 << _PART - 1)) >> _PART
    above, low = pack_integers(high), n - (high << _PART)
    return WIDE + len(above).to_bytes(4, "little") + above + planned(low[None]).packed(0)


def unpack_integers(data: bytes, size: int) -> Integers:
    """The integers (D,) that `pack_integers` was given, or MessageError; work is O(D)."""
    refuse(len(data) > most_bytes(size), f"{len(data)} bytes for {size} numbers")
    parts = list[Integers]()
    while data[:1] == WIDE and len(parts) < _PARTS:
        refuse(len(data) < _HEAD, f"{len(data)} bytes for {size} numbers")
        end = _HEAD + int.from_bytes(data[len(WIDE) : _HEAD], "little")
        refuse(end > len(data), f"high parts of {end - _HEAD} bytes")
        parts.append(rice_decoded(data[end:], size))
        data = data[_HEAD:end]
    refuse(data[:1] == WIDE, f"more than {_PARTS} high parts")
    n = rice_decoded(data, size)
    for low in parts[::-1]:
        n = (n << _PART) + low
        refuse(int(np.abs(n).max(initial=0)) > LARGEST, f"numbers beyond {LARGEST}")
    return n


class Plan(NamedTuple):
    """The coded numbers of rows of integers, and of each row the cheapest low bits."""

    n: Integers  # (A, D)
    runs: Integers  # zeros before each entry that is not zero, row after row
    rest: Integers  # each of these entries' fold − 1
    ends: Integers  # (A + 1,) where a row's begin, and the last one's end
    r: Integers  # (A,)
    k: Integers  # (A,)
    cost: Integers  # (A,) bits with these
    dense: Integers  # (A,) k without runs
    dense_cost: Integers  # (A,)

    def sizes(self) -> Sizes:
        """Bytes of each row (A, 1), packed."""
        some = self.ends[1:] > self.ends[:-1]
        return (some * (np.minimum(self.cost, self.dense_cost) + 15 >> 3))[:, None]

    def packed(self, i: int) -> bytes:
        """Row i."""
        own = slice(int(self.ends[i]), int(self.ends[i + 1]))
        if own.start == own.stop:
            return b""
        if self.dense_cost[i] < self.cost[i]:
            r, k = DENSE, int(self.dense[i])
            bits = _joined((_folded(self.n[i]), k))
        else:
            r, k = int(self.r[i]), int(self.k[i])
            bits = _joined((self.runs[own], r), (self.rest[own], k))
        return bytes((16 * r + k,)) + np.packbits(bits).tobytes()


def planned(n: Integers) -> Plan:
    """Of the rows of n (A, D)."""
    A, D = n.shape
    (at,) = n.ravel().nonzero()
    ends = at.searchsorted(D * np.arange(A + 1))
    m, best = ends[1:] - ends[:-1], np.zeros((2, 3, A), np.int64)
    coded = np.empty((3, len(at)), np.int64)  # runs, folds − 1, folds
    if at.size:
        (some,) = m.nonzero()
        first = ends[some]
        coded[0] = at
        coded[0, 1:] -= at[:-1] + 1
        coded[0, first] = at[first] % D  # a row's first run begins with the row
        coded[2] = _folded(n.ravel()[at])
        np.subtract(coded[2], 1, out=coded[1])
        counts = np.full((3, len(some)), D)
        counts[:2] = m[some]
        best[:, :, some] = _rice(coded, first, counts)
    (r, k, dense), (run_cost, rest_cost, dense_cost) = best
    return Plan(n, coded[0], coded[1], ends, r, k, run_cost + rest_cost, dense, dense_cost)


def _folded(n: Integers) -> Integers:
    twice = n + n
    return np.maximum(twice - 1, -twice)


def _unfolded(folds: Integers) -> Integers:
    return np.asarray(-((folds >> 1) ^ -(folds & 1)))


def rice_decoded(data: bytes, size: int) -> Integers:
    """The integers (D,) of a row that was `planned`, or MessageError; work is O(D)."""
    if not data:
        return np.zeros(size, np.int64)
    if not 2 <= len(data) <= 1 + 8 * size:
        raise refused(f"{len(data)} bytes for {size} numbers")
    refuse(not data[-1], "an empty last byte")
    r, k = divmod(data[0], 16)
    bits = np.unpackbits(np.frombuffer(data, np.uint8, offset=1))
    if r == DENSE:
        (folds,) = split(bits, (size, k))
    else:
        m = entries(bits, r + k)
        runs, rest = split(bits, (m, r), (m, k))
        at = (runs + 1).cumsum() - 1
        if at[-1] >= size:
            raise refused(f"an entry {at[-1]} of {size}")
        folds = np.zeros(size, np.int64)
        folds[at] = rest + 1
    return _unfolded(folds)


def _rice(values: Integers, first: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """The cheapest number of low bits for each row of each kind of values, and all their bits.

    A row's values (kinds, …) begin at `first`; `counts` (kinds, rows) are how many it codes, of
    which others are zero.
    """
    # Once no value has more bits, further ones only cost.
    widths = WIDTHS[: min(DENSE, int(values.max()).bit_length() + 1), None, None]
    costs = np.add.reduceat(values >> widths, first, axis=2) + counts * (1 + widths)
    return costs.argmin(axis=0), costs.min(axis=0)


def _joined(*parts: tuple[Integers, int]) -> Bits:
    """All low bits, then all unary codes, of values with k low bits each."""
    low = [_bits((v << _WORD - k).astype(">u2")).reshape(-1, _WORD)[:, :k] for v, k in parts if k]
    ends = (np.concatenate([v >> k for v, k in parts]) + 1).cumsum() - 1
    unary = np.zeros(ends[-1] + 1, np.uint8)
    unary[ends] = 1
    return np.concatenate([*(bits.ravel() for bits in low), unary])


def _bits(words: NDArray[np.uint16]) -> Bits:
    return np.unpackbits(words.view(np.uint8))


def _words(bits: Bits) -> Integers:
    """Of rows of at most so many bits (m, k), the first of a word, the words."""
    whole = np.zeros((len(bits), _WORD), np.uint8)
    whole[:, : bits.shape[1]] = bits
    return np.packbits(whole).view(">u2").astype(np.int64)


def entries(bits: Bits, width: int) -> int:
    """The m with exactly 2m ones after m × width bits."""
    (ones,) = bits.view(np.bool_).nonzero()
    m = np.arange(1, len(ones) // 2 + 1)
    (fits,) = (len(ones) - ones.searchsorted(m * width) == 2 * m).nonzero()
    refuse(not fits.size, "a number of unary codes that fits no number of entries")
    return int(m[fits[0]])


def split(bits: Bits, *parts: tuple[int, int]) -> list[Integers]:
    """The values that `_joined` made into bits, from how many they are and their low bits k."""
    start, count = sum(m * k for m, k in parts), sum(m for m, _ in parts)
    (ends,) = bits[start:].view(np.bool_).nonzero()
    if len(ends) != count:
        raise refused(f"{len(ends)} unary codes instead of {count}")
    quotients, values, at, first = ends.copy(), [], 0, 0
    quotients[1:] -= ends[:-1] + 1
    for m, k in parts:
        low = _words(bits[at : at + m * k].reshape(m, k)) >> _WORD - k
        values.append((quotients[first : first + m] << k) + low)
        at, first = at + m * k, first + m
    return values


def refuse(wrong: bool, what: str) -> None:
    """Raises MessageError where something is wrong."""
    if wrong:
        raise refused(what)


def refused(what: str) -> MessageError:
    """For a message with this; words are found only where something is wrong."""
    return MessageError(
        f"a message with {what}: expected one that the same codec made for as many numbers; "
        "compare the releases and settings at both ends"
    )
