"""Processes that share work and end with it: no thread, no lock, nothing that outlives the block.

Not `ProcessPoolExecutor`: where a worker dies in the middle of an answer, as it does on Ctrl-C, the
pool waits for the rest for ever; one interrupted while it starts a worker loses sight of it; and
its workers stay when this process is killed.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from coke.errors import CokeError
from coke.interrupts import held

T = TypeVar("T")
R = TypeVar("R")
OFTEN = 0.1  # seconds between two looks whether Ctrl-C has come


@contextmanager
def team(function: Callable[[T], R], size: int) -> Iterator[_Team[T, R]]:
    """So many processes that call the function; all are ended at the end of the block.

    Ctrl-C ends it soon, and is raised after that.
    """
    processes: list[BaseProcess] = []
    with held() as came:
        try:
            with _deaf():
                links = [_started(function, processes) for _ in range(size)]
            yield _Team(links, came)
        finally:
            for process in processes:
                process.kill()  # they write nothing: there is nothing to lose
            for process in processes:
                process.join()


class _Team(Generic[T, R]):
    """Processes at work, each at the other end of a link."""

    def __init__(self, links: Sequence[Connection], came: Sequence[int]):
        self.links, self._came = links, came

    def results(self, items: Iterable[T]) -> Iterator[tuple[T, R]]:
        """Every item and what the function gives for it, in the order in which they are done."""
        waiting, free, busy = deque(items), list(self.links), dict[Connection, T]()
        while waiting or busy:
            while waiting and free:
                link = free.pop()
                busy[link] = waiting.popleft()
                with _alive():
                    link.send(busy[link])
            for link in self._ready(busy):
                yield busy.pop(link), self.answer(link)
                free.append(link)

    def _ready(self, busy: Iterable[Connection]) -> list[Any]:
        while not self._came:
            if ready := wait(list(busy), OFTEN):
                return ready
        raise KeyboardInterrupt

    def answer(self, link: Connection) -> R:
        """What a worker says next, or the error that its function has raised."""
        with _alive():
            result, error = link.recv()
        if error is not None:
            raise error
        found: R = result
        return found


@contextmanager
def _alive() -> Iterator[None]:
    """An error where the other end of a link has died."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise CokeError(
            "a worker process ended early, perhaps for lack of memory: the same command goes on "
            "from the runs that are finished; use fewer workers"
        ) from error


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here never hear Ctrl-C: it is this one's to end them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started with the first process, it would end the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(function: Callable[[T], R], processes: list[BaseProcess]) -> Connection:
    # Spawned, not forked: a fork of a process with threads may hang on a lock one of them holds.
    spawned = get_context("spawn")
    here, there = spawned.Pipe()
    process = spawned.Process(target=_work, args=(function, there), daemon=True)
    process.start()
    processes.append(process)
    there.close()  # so that the link breaks when the worker dies
    return here


def _work(function: Callable[[T], R], link: Connection) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where there is no mask
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            link.send(_tried(function, link.recv()))


def _end_with_parent() -> None:
    """Also in the middle of its work: nobody wants the result any more."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _tried(function: Callable[[T], R], item: T) -> tuple[R | None, Exception | None]:
    try:
        return function(item), None
    except Exception as error:
        error.add_note(traceback.format_exc())  # a traceback stays here
        return None, error
