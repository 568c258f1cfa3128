"""Workers give what the function gives, and none outlives the block, whatever ends it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from coke.errors import CokeError, DataError
from coke.studies.reproduce.workers import team
from kit.processes import hearing, wait_until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets


def half(n: int) -> int:
    if n % 2:
        raise DataError(f"{n} is odd")
    return n // 2


def large(n: int) -> bytes:
    return bytes(n)


def slow(n: int) -> None:
    time.sleep(n)


def dies(n: int) -> None:
    os._exit(n)


def test_every_item_has_its_result() -> None:
    with team(half, 2) as own:
        assert dict(own.results(range(0, 20, 2))) == {n: n // 2 for n in range(0, 20, 2)}
        assert dict(own.results([4])) == {4: 2}
    with team(half, 1) as own:
        assert dict(own.results([])) == {}
    assert not active_children()


def test_an_error_is_the_callers_and_says_where_it_was() -> None:
    with team(half, 2) as own, pytest.raises(DataError, match="3 is odd") as raised:
        list(own.results([2, 3]))
    assert "in half" in raised.value.__notes__[0]
    assert not active_children()


def test_a_worker_that_dies_is_told() -> None:
    with team(dies, 1) as own, pytest.raises(CokeError, match="ended early"):
        list(own.results([1]))
    with team(half, 1) as own:
        active_children()[0].kill()
        active_children()[0].join()
        with pytest.raises(CokeError, match="ended early"):
            list(own.results([2]))


def test_a_worker_that_dies_in_the_middle_of_its_answer_is_told() -> None:
    """The answer is longer than any pipe holds: it waits half said, for what never comes."""
    with team(large, 1) as own:
        (link,) = own.links
        link.send(10**8)
        wait_until(link.poll)
        active_children()[0].kill()
        with pytest.raises(CokeError, match="ended early"):
            own.answer(link)


def test_ctrl_c_while_workers_start_leaves_none(monkeypatch: Any) -> None:
    """It comes right after the first has started, when nobody knows of it."""
    start = BaseProcess.start
    begun = []

    def interrupted(process: BaseProcess) -> None:
        start(process)
        begun.append(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(BaseProcess, "start", interrupted)
    with hearing(), pytest.raises(KeyboardInterrupt), team(slow, 2) as own:
        list(own.results([600, 600]))
    assert begun
    assert not active_children()


def test_ctrl_c_again_and_again_leaves_none(monkeypatch: Any) -> None:
    """Also where it comes while the others are ended."""
    kill = BaseProcess.kill

    def items() -> Iterator[int]:
        yield from (600, 600, 600)
        signal.raise_signal(signal.SIGINT)

    def interrupted(process: BaseProcess) -> None:
        signal.raise_signal(signal.SIGINT)
        kill(process)

    monkeypatch.setattr(BaseProcess, "kill", interrupted)
    with hearing(), pytest.raises(KeyboardInterrupt), team(slow, 3) as own:
        list(own.results(items()))
    assert not active_children()


def test_workers_never_hear_ctrl_c() -> None:
    """A terminal sends it to them, too, also while they start; they would show a traceback."""
    with team(half, 2) as own:
        for process in active_children():
            os.kill(process.pid or 0, signal.SIGINT)
        assert dict(own.results([2, 4])) == {2: 1, 4: 2}
