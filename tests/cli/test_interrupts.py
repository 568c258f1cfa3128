"""Ctrl-C is raised once nothing is half done; and it is heard, also by what a script starts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from coke.cli.main import _hear
from coke.interrupts import held
from kit.processes import hearing

pytestmark = pytest.mark.processes  # it starts some, or opens sockets


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    with hearing():
        yield


def test_it_is_raised_at_the_end_of_the_block() -> None:
    done = []

    def whole() -> None:
        with held() as came:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append(list(came))

    with pytest.raises(KeyboardInterrupt):
        whole()
    assert done == [[signal.SIGINT] * 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_callers_is_told_once() -> None:
    told: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
    with held():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert not told
    assert told == [signal.SIGINT]


def test_what_the_caller_ignores_is_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held() as came:
        signal.raise_signal(signal.SIGINT)
    assert not came


def test_other_threads_handle_no_signals() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            _hear()
            with held() as came:
                assert not came
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed


def test_ctrl_c_that_a_shell_has_ignored_is_heard() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hear()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_handler_stays() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _hear()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
