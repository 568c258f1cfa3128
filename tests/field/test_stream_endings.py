"""Sites end a stream once all know that all are there; what one of them missed is told again."""

from __future__ import annotations

from typing import Any

from coke.field.carriers.memory import Memory
from coke.field.endings import Endings
from coke.field.frames import decode_pulse
from coke.field.phases import Desk, Pace
from coke.field.pulses import Ends


class Pair:
    """Two sites; letters come when they are to."""

    def __init__(self) -> None:
        memory, self.now = Memory(), 0.0
        self.desks = {
            name: Desk(memory.join(name, {other}), Pace(), lambda: self.now)
            for name, other in (("a", "b"), ("b", "a"))
        }
        self.sites = {name: self.fresh(name) for name in self.desks}

    def fresh(self, name: str) -> Endings:
        return Endings(self.desks[name], name, ["b" if name == "a" else "a"], 2)

    def heard(self) -> None:
        """All that is on its way, and what is said in answer."""
        for _ in range(9):
            for name, site in self.sites.items():
                while (got := self.desks[name].carrier.receive(0.0)) is not None:
                    letter: Any = decode_pulse(got[1])
                    assert isinstance(letter, Ends)
                    site.hear(got[0], letter)

    def tell(self, name: str, tick: int, *, here: bool, attempt: int = 1) -> None:
        site = self.sites[name]
        site.tell(tick, site.neighbours if here else (), attempt)
        self.heard()


def test_both_end_once_each_has_heard_that_the_other_is_there() -> None:
    net = Pair()
    a, b = net.sites.values()
    net.tell("a", 7, here=False)
    assert not a.over(7)
    net.tell("b", 9, here=False)
    assert a.over(9)
    assert b.over(9)
    net.tell("a", 7, here=True)
    assert b.together(1)
    assert not a.together(1)
    net.tell("b", 9, here=True)
    assert a.together(1)
    assert not a.together(2)  # a second try to end is another matter
    assert not b.together(2)


def test_who_starts_again_is_told_at_once() -> None:
    net = Pair()
    for here in (False, True):
        net.tell("a", 7, here=here)
        net.tell("b", 9, here=here)
    net.sites["b"] = net.fresh("b")
    net.tell("b", 9, here=False)
    assert net.sites["b"].over(9)
    assert net.sites["b"].together(1)


def test_a_later_tick_takes_back_what_was_said_before_it_and_none_comes_after_that() -> None:
    net = Pair()
    a, b = net.sites.values()
    for name, tick in (("a", 7), ("b", 9)):
        net.tell(name, tick, here=False)
    net.tell("a", 7, here=True)
    net.tell("b", 10, here=False)  # a row that came late, before it was there
    assert not a.over(9)
    assert not b.together(1)
    for name in ("a", "b"):
        net.tell(name, 10, here=True)
    net.tell("a", 12, here=True)  # too late
    assert b.over(10)
    assert b.together(1)
    assert a.together(1)
