"""Types that bytes are read as: msgspec learns each once, in one thread at a time. Without NumPy.

What it has learnt so far of a type it keeps with the type: another thread that used it meanwhile
would crash the process.
"""

from __future__ import annotations

from threading import Lock
from typing import TypeVar

import msgspec

T = TypeVar("T")
_LEARNING = Lock()
_KNOWN = set[object]()


def learnt(kind: type[T]) -> type[T]:
    """The type itself, once msgspec knows all of it."""
    if kind not in _KNOWN:
        with _LEARNING:
            msgspec.msgpack.Decoder(kind)
        _KNOWN.add(kind)
    return kind
