"""Who looks after the links: whoever waits for what they bring; a thread while nobody does.

An agent waits most of its time. Were another thread to read what comes, each word would change
threads twice, and whoever reads would compete with whoever computes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Asked = Callable[[], bool]


class Helm:
    """Turns of `turn(seconds, hurried)`, one at a time: it waits so long at most, and works then.

    What can wait it leaves for later once `hurried()`. Only one thread may wait `until` something.
    """

    def __init__(
        self, turn: Callable[[float, Asked], None], ring: Callable[[], None],
        end: Callable[[], None], idle: float,
    ) -> None:  # fmt: skip
        self._turn, self._ring, self._end, self._idle = turn, ring, end, idle
        self._lock, self._stirred = threading.Lock(), threading.Event()
        self._wanted = self._over = False
        self._turned = time.monotonic()
        self._thread = threading.Thread(target=self._stand_by, daemon=True)
        self._thread.start()

    def until(self, done: Asked, timeout: float) -> None:
        """Turns in the caller's thread until that is so, for so many seconds at most."""
        end = time.monotonic() + timeout
        if not self._lock.acquire(blocking=False):
            self._wanted = True  # before it rings: whoever hears that looks here next
            self._ring()
            self._lock.acquire()
            self._wanted = False
        try:
            while not (done() or self._over) and (left := end - time.monotonic()) > 0:
                self._turn(min(left, self._idle), done)
            self._turned = time.monotonic()
        finally:
            self._lock.release()

    def stir(self) -> None:
        """There is something to do now, whether somebody waits or not."""
        self._ring()
        self._stirred.set()

    def close(self) -> None:
        """No more turns; what comes last is done when this returns."""
        self._over = True
        self.stir()
        self._thread.join()

    def _stand_by(self) -> None:
        while not self._over:
            stirred = self._stirred.wait(self._idle)
            self._stirred.clear()
            late = time.monotonic() - self._turned >= self._idle
            if (stirred or late) and self._lock.acquire(blocking=False):
                try:
                    while not (self._wanted or self._over):
                        self._turn(self._idle, lambda: self._wanted)
                finally:
                    self._lock.release()
        with self._lock:
            self._end()
