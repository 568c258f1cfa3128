"""Who looks after links: whoever waits, and a thread of their own while nobody does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from coke.field.carriers.helm import Asked, Helm

LONG = 300.0  # seconds: a condition that does not come true by then never does
NEVER = 10 * LONG  # seconds between two looks of its own


class _Links:
    """Notes in which thread each turn was made; a turn ends when somebody rings."""

    def __init__(self, idle: float):
        self.bell, self.turns, self.ends = threading.Event(), list[int](), list[int]()
        self.helm = Helm(self.turn, self.bell.set, self.end, idle)

    def turn(self, wait: float, hurried: Asked) -> None:
        self.turns.append(threading.get_ident())
        self.bell.wait(wait)
        self.bell.clear()

    def has_made(self, turns: int) -> bool:
        return len(self.turns) >= turns

    def end(self) -> None:
        self.ends.append(threading.get_ident())


@pytest.fixture
def links() -> Iterator[Callable[[float], _Links]]:
    made = list[_Links]()

    def links(idle: float) -> _Links:
        made.append(_Links(idle))
        return made[-1]

    yield links
    for one in made:
        one.helm.close()
        assert len(one.ends) == 1
        assert one.ends[0] != threading.get_ident()


def _until(done: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not done():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_whoever_waits_turns_in_his_own_thread(links: Callable[[float], _Links]) -> None:
    one, here = links(0.01), threading.get_ident()
    first = list[int]()

    def done() -> bool:
        first.append(len(one.turns))
        return len(first) > 5

    one.helm.until(done, LONG)
    assert one.turns[first[0] : first[-1]] == [here] * 5


def test_while_nobody_waits_a_thread_turns(links: Callable[[float], _Links]) -> None:
    one = links(0.01)
    _until(lambda: len(one.turns) > 2)
    assert threading.get_ident() not in one.turns


def test_what_is_stirred_is_done_at_once_and_the_helm_given_up(
    links: Callable[[float], _Links],
) -> None:
    """Here nothing happens by itself: the thread would wait for ever, in the helm or before it."""
    one = links(NEVER)
    for turns in range(3):
        one.helm.stir()
        _until(partial(one.has_made, turns + 1))
        one.helm.until(lambda: True, LONG)
    assert threading.get_ident() not in one.turns


def test_a_wait_has_an_end(links: Callable[[float], _Links]) -> None:
    """No sooner than asked for; one of no time at all makes no turn."""
    one, here = links(0.01), threading.get_ident()
    begun = time.monotonic()
    one.helm.until(lambda: False, 0.05)
    assert time.monotonic() - begun >= 0.05
    made = one.turns.count(here)
    one.helm.until(lambda: False, 0.0)
    assert one.turns.count(here) == made


def test_closing_ends_a_wait(links: Callable[[float], _Links]) -> None:
    one = links(NEVER)
    waiter = threading.Thread(target=one.helm.until, args=(lambda: False, NEVER), daemon=True)
    waiter.start()
    _until(lambda: one.turns)
    one.helm.close()
    waiter.join(LONG)
    assert not waiter.is_alive()
