"""What sites tell of their columns for common units: numbers of about two bytes each.

Units must be common, not exact. So a standard deviation is told to one part in 2⁸, and a mean to
as fine a part of it, whatever the column's own units are; a range to one part in 2¹², and outwards,
so that it still holds all rows. Numbers are rounded where they are told: a site's, and those of a
subtree once merged. All go on with what was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coke.data.units import LABELS, Columns
from coke.errors import DataError, MessageError
from coke.maths.algorithms.integers import Integers, pack_integers, unpack_integers
from coke.maths.alike import alike
from coke.maths.arrays import Array, Mask
from coke.maths.guards import Claims
from coke.talk.claiming import checked, gathered
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep

DROP = 'drop such columns, and rows with missing = "drop", or begin a new run'
RAW = msgspec.msgpack.encode(None)  # of a site whose columns are not all numbers yet
_MOMENTS, _RANGES = 8, 12  # bits after the leading one
_FARTHEST = 2.0**32  # from zero, in its own size, that a column can be and be told in few bytes
_LEAST = 1e-290  # size that can be told so
_EXPONENT = 1000  # of a size at most: numbers are below 1e150, and their ranges
_Coded = tuple[bytes, bytes, bytes]  # places, sizes; which are exact, and these
_Wire = tuple[float, _Coded | None, _Coded | None, list[str | int | float | bool]]


class Told(NamedTuple):
    """What sites tell each other for scaling, σ = "auto" and class labels."""

    columns: Columns  # of the inputs and, for regression, the target; empty where not needed
    labels: tuple[Any, ...] = ()

    def merged(self, other: Told) -> Told:
        """Of both sites."""
        labels = _union(self.labels, other.labels)
        return Told(self.columns.merged(other.columns), labels)

    def encode(self) -> bytes:
        """Rounded, the ranges outwards."""
        T, mean, sd, low, high = self.columns
        # Once the low end is rounded down, and as wide as before, it must still hold the high end.
        wide = (high - low) * (1.0 + 2.0 ** (1 - _RANGES))
        moments = _encoded(mean, sd, _MOMENTS, outwards=False) if len(mean) else None
        ranges = _encoded(low, wide, _RANGES, outwards=True) if len(low) else None
        return msgspec.msgpack.encode((int(T) if int(T) == T else T, moments, ranges, self.labels))

    @classmethod
    def decode(cls, data: bytes, sizes: Sequence[int]) -> Told:
        """What such bytes say, if the four arrays have these sizes and make sense."""
        try:
            T, moments, ranges, labels = msgspec.msgpack.decode(data, type=_Wire)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MessageError(f"{len(data)} bytes tell nothing of columns: {error}") from error
        mean, sd = _decoded(moments, sizes[0], _MOMENTS)
        low, wide = _decoded(ranges, sizes[2], _RANGES)
        if not (0 < T < 2**53 and len(labels) <= LABELS):
            raise MessageError(f"numbers of columns that cannot be, in {len(data)} bytes")
        return cls(Columns(float(T), mean, sd, low, low + wide), tuple(labels))

    @property
    def parts(self) -> tuple[Array, Array, Array, Array]:
        """The columns' four arrays."""
        return self.columns.mean, self.columns.sd, self.columns.low, self.columns.high


def _encoded(place: Array, size: Array, bits: int, *, outwards: bool) -> _Coded:
    """Sizes to so many bits, places in steps of that; exact where a column has (nearly) no size."""
    few = (size > _LEAST) & (np.abs(place) < _FARTHEST * size)
    codes = _size_codes(np.where(few, size, 1.0), bits, np.ceil if outwards else np.rint)
    part = np.where(few, place, 0.0) / _step(codes, bits)
    places = (np.floor if outwards else np.rint)(part).astype(np.int64)
    exact = np.stack([place, size], axis=1)[~few].astype("<f8")
    which = b"" if few.all() else np.packbits(~few).tobytes()
    return pack_integers(places), pack_integers(codes), which + exact.tobytes()


def _decoded(told: _Coded | None, count: int, bits: int) -> tuple[Array, Array]:
    """Places and sizes (count,), if they can be."""
    if told is None or not count:
        if count or told is not None:
            raise MessageError(f"numbers of columns where {count} were expected")
        return np.empty(0), np.empty(0)
    places, codes = (unpack_integers(data, count) for data in told[:2])
    if np.abs(codes).max() > _EXPONENT << bits:
        raise MessageError("a column of a size that cannot be")
    place, size = places * _step(codes, bits), _sizes(codes, bits)
    if told[2]:
        exact, pairs = _exact(told[2], count)
        place[exact], size[exact] = pairs.T
    if not (np.isfinite(place + size).all() and (size >= 0).all()):
        raise MessageError("numbers of columns that cannot be")
    return place, size


def _exact(data: bytes, count: int) -> tuple[Mask, Array]:
    """A bit for each column (count,); places and sizes of those whose bit is set, in float64."""
    first = -(-count // 8)
    bits = np.unpackbits(np.frombuffer(data[:first], np.uint8)).astype(np.bool_)
    if len(data) != first + 16 * bits.sum() or bits[count:].any():
        raise MessageError(f"{len(data)} bytes do not say which of {count} columns are exact")
    return bits[:count], np.frombuffer(data, "<f8", offset=first).reshape(-1, 2)


def _size_codes(size: Array, bits: int, rounded: Any) -> Integers:
    """Sizes m 2ᵉ, 1 ≤ m < 2, as whole numbers 2ᵇ (e + m − 1): even within each power of two."""
    m, e = np.frexp(size)
    codes: Integers = rounded(2.0**bits * (e - 2 + 2 * m)).astype(np.int64)
    return codes


def _sizes(codes: Integers, bits: int) -> Array:
    e, m = np.divmod(codes, 1 << bits)
    return np.ldexp(1.0 + m / 2.0**bits, e)


def _step(codes: Integers, bits: int) -> Array:
    """A part in 2ᵇ of the power of two below each size."""
    return np.ldexp(1.0, (codes >> bits) - bits)


_everyones = alike(Told.decode)


def _union(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """All labels, sorted."""
    try:
        return tuple(sorted({*a, *b}))
    except TypeError as error:
        raise DataError(
            "class labels of different kinds cannot be sorted: use all text or all numbers"
        ) from error


def tell(
    sweep: Sweep, own: Told | None, name: str | None = None, sites: int = 0
) -> Talk[Told | None]:
    """The numbers of all sites together; None where a site has no numbers yet.

    With its `name` a site tells them apart, so that all `sites` can see which of them cannot be.
    """
    if name is not None:
        return (yield from _tell_by_name(sweep, own, name, sites))
    sizes = [] if own is None else [len(part) for part in own.parts]

    def merged(children: Sequence[bytes]) -> bytes:
        if own is None or RAW in children:
            return RAW
        return reduce(Told.merged, (Told.decode(child, sizes) for child in children), own).encode()

    total = yield from sweep(merged)
    return _everyones(total, sizes) if _numbered(total, own) else None


def _numbered(total: bytes, own: Told | None) -> bool:
    """Whether all sites have numbers; an error where this one has none."""
    if total != RAW and own is None:
        raise DataError(
            f"the others agreed on numbers without gaps, which are not all here: {DROP}"
        )
    return total != RAW


def _tell_by_name(sweep: Sweep, own: Told | None, name: str, sites: int) -> Talk[Told | None]:
    """Every site's claim comes to all, and counts for as much as one can believe."""
    mine = RAW if own is None else own.encode()

    def merged(children: Sequence[bytes]) -> bytes:
        return RAW if own is None or RAW in children else gathered(name, mine, children)

    total = yield from sweep(merged)
    if not _numbered(total, own) or own is None:
        return None
    claims, sizes = checked(total, name, mine, sites), [len(part) for part in own.parts]
    return _believed([Told.decode(data, sizes) for _, data in sorted(claims.items())])


def _believed(told: Sequence[Told]) -> Told:
    """All of them together, each as far as one can believe it."""
    rows = np.array([one.columns.T for one in told])
    mean, sd = (np.stack([getattr(one.columns, x) for one in told]) for x in ("mean", "sd"))
    bounded = Claims(rows, mean, sd).bounded()
    parts = zip(told, *bounded, strict=True)
    each = [
        one._replace(columns=one.columns._replace(T=float(T), mean=m, sd=s))
        for one, T, m, s in parts
    ]
    return reduce(Told.merged, each)
