"""Commands as processes that are interrupted, and of which no test leaves anything behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

LONG = 120.0  # seconds: the end of a wait for something that takes one or two
IGNORING = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]  # as a script starts what it ends with &


@contextmanager
def group(command: Sequence[str], **given: Any) -> Iterator[subprocess.Popen[str]]:
    """The leader of a process group of its own, all of which ends with the block."""
    with hearing():  # or it would ignore Ctrl-C as well, where this process does
        process = subprocess.Popen(command, start_new_session=True, text=True, **given)
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """As a terminal sends it: to the whole group."""
    with suppress(ProcessLookupError):  # it is over already
        os.killpg(process.pid, signal.SIGINT)


def wait_until(done: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Until something is so; the process must live so long."""
    end = time.monotonic() + LONG
    while not done():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def hearing() -> Iterator[None]:
    """Ctrl-C is heard in this process, too, where whoever runs the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
