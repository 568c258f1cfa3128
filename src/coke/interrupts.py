"""Ctrl-C and SIGTERM where they would leave something half done, or be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

STOPPED = 143  # the exit code of who was stopped by a signal


@contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C stop, and so does one that came within an outer block and was lost.

    The outer one may raise SystemExit, which Python drops in callbacks, and imports have some.
    """
    own = _Stop(stop)
    before = {n: signal.signal(n, own) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        if any(isinstance(one, _Stop) and one.came for one in before.values()):
            stop()
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Stop:
    """What a signal does: it stops; the same again ends at once."""

    def __init__(self, stop: Callable[[], None]):
        self._stop, self.came = stop, set[int]()

    def __call__(self, number: int, frame: object) -> None:
        if number in self.came:
            raise SystemExit(STOPPED)
        self.came.add(number)
        self._stop()


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
