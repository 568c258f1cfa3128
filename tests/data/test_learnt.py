"""Types are learnt by one thread at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any, NamedTuple

import msgspec
import pytest

from coke.data.learnt import learnt


def test_no_two_threads_learn_types_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """msgspec crashes the process where one uses a type that another is still learning."""
    kinds = [NamedTuple(f"Kind{i}", [("x", int)]) for i in range(8)]
    learning, ready, decoder = Lock(), Barrier(8), msgspec.msgpack.Decoder

    def slowly(kind: Any) -> Any:
        assert learning.acquire(blocking=False)
        for _ in range(1000):
            found = decoder(kind)
        learning.release()
        return found

    def work(kind: Any) -> Any:
        ready.wait()
        return learnt(kind)

    monkeypatch.setattr(msgspec.msgpack, "Decoder", slowly)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, kinds)) == kinds
