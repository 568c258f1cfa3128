"""Ctrl-C where it would leave something half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def held() -> Iterator[Sequence[int]]:
    """Ctrl-C is raised at the end of the block; until then it is only in what this gives.

    For processes: one that is started is known, and all are ended, however often it comes. So
    the block looks whether it has come, and ends soon if so.
    """
    came: list[int] = []
    if not _main_thread() or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        yield came  # nobody would hear it, or not by Python
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _main_thread() -> bool:
    """Signals are handled in it alone."""
    return threading.current_thread() is threading.main_thread()
