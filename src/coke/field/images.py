"""What a site on a stream must not forget, as bytes and back: its image, and journalled rows."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from coke.data.files import Arrays, pack
from coke.data.pending import Pending, Remembered
from coke.data.timed import Timed
from coke.errors import FileError
from coke.field.feeding import Offset
from coke.field.journal import Journal
from coke.field.numbered import Posted
from coke.field.pulses import Join
from coke.learning.frozen import Frozen, thaw
from coke.learning.resting import SiteStream

KIND = "stream"
Record = tuple[str, Any]
"""Rows, or what was heard of whom."""


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a site's state that is no array."""

    number: int
    offset: Offset
    stream: Frozen
    pending: Remembered
    targets: list[Any]  # of the rows that wait
    ids: list[int]
    post: Posted
    given: dict[str, Join]
    attempt: int
    paid: tuple[int, float, float]
    last: Any


def packed(image: Image, arrays: Arrays, rows: list[tuple[int, Any, Any]], d: int) -> bytes:
    """The bytes of an image, with the rows that wait."""
    arrays = arrays | {
        "pending.X": np.array([x for _, x, _ in rows]).reshape(len(rows), d),
        "pending.ticks": np.array([tick for tick, _, _ in rows], np.int64),
    }
    return pack(KIND, image, arrays)


def restore(image: Image, arrays: Arrays, stream: SiteStream, pending: Pending) -> None:
    """Into a stream that has just begun."""
    X, ticks = arrays.pop("pending.X"), arrays.pop("pending.ticks").tolist()
    thaw(stream, image.stream, arrays)
    pending.remember(image.pending, list(zip(ticks, X, image.targets, strict=True)))


def plain_rows(rows: Timed) -> tuple[Any, ...]:
    """Rows for the journal."""
    X = np.ascontiguousarray(rows.X)
    return X.tobytes(), list(X.shape), rows.y.tolist(), rows.ticks.tolist()


def rows_of(X: bytes, shape: list[int], y: list[Any], ticks: list[int]) -> Timed:
    """And back."""
    there = np.frombuffer(X).reshape(shape)
    return Timed(there, np.array(y), None, np.array(ticks, np.int64))


def label_of(y: Any) -> Any:
    """A target as JSON has it."""
    return y.tolist() if isinstance(y, np.ndarray | np.generic) else y


def recorded(journal: Journal, number: int) -> list[Record]:
    """What followed the image of that number; a journal of before it is forgotten."""
    mark = number.to_bytes(8, "little")
    begin, *blocks = journal.read() if journal else [b""]
    if begin != mark:
        journal.begin(mark)
        return []
    try:
        return [tuple(one) for data in blocks for one in msgspec.msgpack.decode(data)]
    except msgspec.DecodeError as error:
        raise FileError(f"{journal.path}: cannot be read: {error}; restore it") from error
