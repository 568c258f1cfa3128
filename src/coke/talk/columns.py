"""Raw columns: what sites tell of theirs, and the coding that all conclude from it.

One sweep more, and only where some site has text, dates or gaps: that site says so in place of its
numbers for the units (`coke.talk.told.tell`), and these are told once columns are numbers. Another
one for medians, where numbers or dates have gaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from coke.data.coding import LONGEST, MIXED, TOLD, Coding, ColumnCoding, ToldColumn
from coke.data.raw import DATE, NUMBER, TEXT
from coke.data.site import Site
from coke.errors import DataError, MessageError
from coke.maths.arrays import Array
from coke.maths.choice.quantiles import Quantiles
from coke.maths.guards import believed, capped
from coke.talk.claiming import ByName
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep

_LARGEST = 1e150  # beyond it numbers cannot be scaled
_MOST = 2.0**53

_Medians = list[float | None]
_Some = TypeVar("_Some", bound=list[Any])
_Column = tuple[str, float, float, tuple[float, float, float, float], dict[str, int], float]
_Wire = tuple[float, list[_Column]]


class ToldRaw(NamedTuple):
    """What is told of the raw columns of some sites."""

    T: float  # training rows
    columns: tuple[ToldColumn, ...]

    def merged(self, other: ToldRaw) -> ToldRaw:
        """Of both."""
        both = zip(self.columns, other.columns, strict=True)
        return ToldRaw(self.T + other.T, tuple(a.merged(b) for a, b in both))

    def _counted(self, T: float) -> ToldRaw:
        """As if there were so many rows, no more than there are."""
        part = T / self.T
        return ToldRaw(T, tuple(column.counted(part) for column in self.columns))

    @classmethod
    def believed(cls, told: Sequence[ToldRaw]) -> ToldRaw:
        """Of all sites, none with more rows than one can believe of one."""
        rows = believed(one.T for one in told).tolist()
        each = (one if one.T <= T else one._counted(T) for one, T in zip(told, rows, strict=True))
        return reduce(cls.merged, each).common()

    def common(self) -> ToldRaw:
        """Without rare levels."""
        return self._replace(columns=tuple(column.common(self.T) for column in self.columns))

    def encode(self) -> bytes:
        """For the parent, or for all."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes, d: int) -> ToldRaw:
        """What such bytes say of d columns, if that can be."""
        try:
            T, columns = msgspec.msgpack.decode(data, type=_Wire)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MessageError(f"{len(data)} bytes tell nothing of raw columns: {error}") from error
        found = cls(T, tuple(ToldColumn(*column) for column in columns))
        if not (0 < T < _MOST and len(columns) == d and all(_can_be(c, T) for c in found.columns)):
            raise MessageError(f"raw columns that cannot be, in {len(data)} bytes")
        return found


def _can_be(told: ToldColumn, T: float) -> bool:
    """Whether T rows can be like that."""
    low, high, early, late = told.ends
    if not (0 <= told.n <= T and math.isfinite(told.mean + sum(told.ends) + told.rest)):
        return False
    if not (
        low <= high and 0 <= early <= late < 1 and max(map(abs, (told.mean, low, high))) < _LARGEST
    ):
        return False
    if told.what == TEXT:
        counts = told.levels.values()
        words = len(told.levels) <= TOLD and all(len(word) <= LONGEST for word in told.levels)
        each = all(n > 0 for n in counts) and told.rest >= 0
        return told.n > 0 and words and each and sum(counts) + told.rest == told.n
    known = (NUMBER, DATE, MIXED) if told.n else ("",)
    return told.what in known and not (told.levels or told.rest)


def agree_coding(
    sweep: Sweep, site: Site, names: Sequence[str], *, hashed: bool, seed: int
) -> Talk[Coding]:
    """One site's part in agreeing on what the columns of these names become."""
    T, columns = site.here.raw(site.i, hashed=hashed)
    own, d = ToldRaw(T, tuple(columns)), len(names)

    def merged(children: Sequence[bytes]) -> bytes:
        heard = (ToldRaw.decode(child, d) for child in children)
        return reduce(ToldRaw.merged, heard, own).encode()

    if isinstance(sweep, ByName):
        claims = yield from sweep.claims(own.encode())
        told = ToldRaw.believed([ToldRaw.decode(one, d) for one in claims])
    else:
        # Rare levels are nobody's business but the root's.
        total = yield from sweep(merged, lambda data: ToldRaw.decode(data, d).common().encode())
        told = ToldRaw.decode(total, d)
    each = dict(zip(names, told.columns, strict=True))
    mixed = [name for name, column in each.items() if column.what == MIXED]
    if mixed:
        raise DataError(
            f"columns {mixed[:20]} hold one kind at one site and another elsewhere: expected "
            "numbers, text or dates at all sites alike; mend them, or leave them out: drop"
        )
    medians = yield from _medians(sweep, lambda: site.here.sample(site.i, seed)[0], own, told)
    codes = [ColumnCoding.of(name, it, told.T, hashed=hashed) for name, it in each.items()]
    for j, median in medians.items():
        codes[j] = msgspec.structs.replace(codes[j], fill=median)
    coding = Coding(tuple(codes))
    if not coding.names:
        raise DataError(f"no column is of any use as an input: {'; '.join(coding.words)}")
    return coding


def _medians(
    sweep: Sweep, sample: Callable[[], Array], own: ToldRaw, told: ToldRaw
) -> Talk[dict[int, float]]:
    """Of the columns of numbers and dates in which some site has gaps, about the median of all.

    From 17 quantiles of each in a sample of every site's rows; the root says the median alone.
    """
    kinds, each = (NUMBER, DATE), enumerate(told.columns)
    gaps = [j for j, column in each if column.what in kinds and column.n < told.T]
    if not gaps:
        return {}
    X, size = sample(), len(gaps)
    mine = [_quantiles(X[:, j], own.columns[j].n) for j in gaps]

    def merged(children: Sequence[bytes]) -> bytes:
        return _merged([mine, *(_decoded(child, size) for child in children)])

    def medians(data: bytes) -> bytes:
        return msgspec.msgpack.encode([one.median if one else None for one in _decoded(data, size)])

    if isinstance(sweep, ByName):
        encoded = [b"" if one is None else one.encode() for one in mine]
        claims = yield from sweep.claims(msgspec.msgpack.encode(encoded))
        total = medians(_merged([_decoded(one, size) for one in claims], most=True))
    else:
        total = yield from sweep(merged, medians)
    found = dict(zip(gaps, _listed(total, _Medians, size), strict=True))
    if not all(x is None or abs(x) < _LARGEST for x in found.values()):
        raise MessageError("medians that cannot be")
    return {j: x for j, x in found.items() if x is not None}


def _merged(told: Sequence[Sequence[Quantiles | None]], most: bool = False) -> bytes:
    """The quantiles of some sites' columns, of each the rows of all."""
    columns = [[one for one in column if one] for column in zip(*told, strict=True)]
    columns = [capped(column) if most and column else column for column in columns]
    found = [column[0].merged(column[1:]).encode() if column else b"" for column in columns]
    return msgspec.msgpack.encode(found)


def _quantiles(x: Array, n: float) -> Quantiles | None:
    """Of the values that are there, which stand for n; None where there is none."""
    x = x[np.isfinite(x)]
    return Quantiles.of(x, n) if len(x) else None


def _decoded(data: bytes, size: int) -> list[Quantiles | None]:
    """The quantiles of so many columns, where somebody has values of them."""
    return [Quantiles.decode(one) if one else None for one in _listed(data, list[bytes], size)]


def _listed(data: bytes, kind: type[_Some], size: int) -> _Some:
    """A list of so many things of a kind."""
    try:
        found = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes tell nothing of gaps: {error}") from error
    if len(found) != size:
        raise MessageError(f"{len(found)} columns with gaps: expected {size}")
    return found
