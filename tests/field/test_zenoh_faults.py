"""Zenoh between sites that die, freeze, go, forget to close, or flood."""

from __future__ import annotations

import signal
import time

import pytest

from coke.field.carriers.base import Allowance
from coke.field.carriers.zenoh import ZenohCarrier
from kit.certificates import Authority
from kit.sessions import LONG, PLAIN, address, answered, drain, echo, identity, site, until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

pytest.importorskip("zenoh", reason="coke-learn[agent] is not installed")


def test_a_neighbour_that_dies_or_freezes_is_missed_and_comes_back(ca: Authority) -> None:
    at, own = address(), identity(ca, "b")
    with ZenohCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
        with echo(own, at) as first:
            assert until(lambda: a.alive() == {"b"})
            assert answered(a, b"one")
            first.send_signal(signal.SIGSTOP)
            assert until(lambda: not a.alive())
            a.send("b", b"into the void")
            first.send_signal(signal.SIGCONT)
            assert until(lambda: a.alive() == {"b"})
            assert answered(a, b"two")
            first.kill()
            assert until(lambda: not a.alive())
        with echo(own, at) as second:
            assert until(lambda: a.alive() == {"b"})
            assert answered(a, b"three")
            a.send("b", b"end")
            assert second.wait(timeout=LONG) == 0
        assert until(lambda: not a.alive())
        assert [event.kind for event in a.events()] == 3 * ["up", "down"]


def test_a_caller_waits_for_its_neighbour_however_often_it_goes(ca: Authority) -> None:
    at = address()
    with ZenohCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
        for _ in range(2):
            assert until(lambda: "unreachable" in {event.kind for event in b.events()})
            with ZenohCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
                assert until(lambda: a.alive() == {"b"} and b.alive() == {"a"})


def test_a_process_ends_even_if_it_forgets_to_close(ca: Authority) -> None:
    at = address()
    with (
        ZenohCarrier(site(identity(ca, "a"), at, {"b": None})) as a,
        echo(identity(ca, "b"), at, "forget") as process,
    ):
        assert until(lambda: a.alive() == {"b"})
        a.send("b", b"end")
        while process.poll() is None:  # so that it is in the middle of hearing when it ends
            a.send("b", b"and another thing")
        assert process.returncode == 0


def test_a_send_to_a_frozen_neighbour_waits_no_longer_than_the_patience(ca: Authority) -> None:
    at = address()
    hasty = site(identity(ca, "a"), at, {"b": None})._replace(patience_ms=200, lease_ms=20_000)
    with ZenohCarrier(hasty) as a, echo(identity(ca, "b"), at) as process:
        assert until(lambda: a.alive() == {"b"})
        process.send_signal(signal.SIGSTOP)
        longest, begin = 0.0, time.monotonic()
        while a.alive() and time.monotonic() < begin + LONG:
            then = time.monotonic()
            a.send("b", bytes(100_000))
            longest = max(longest, time.monotonic() - then)
        assert 0.1 < longest < 15  # without patience it would be the lease, 20 s
        assert a.alive() == frozenset()


def test_a_flood_is_cut_down_to_the_burst_and_counted() -> None:
    """In plaintext, which a site must ask for."""
    at = address().replace("tls", "tcp")
    plain = PLAIN._replace(listen=(at,), allowance=Allowance(burst=10))
    caller = PLAIN._replace(name="b", listen=(), neighbours={"a": at})
    with ZenohCarrier(plain, clock=lambda: 0.0) as a, ZenohCarrier(caller) as b:
        assert until(lambda: b.alive() and a.alive())
        for number in range(100):
            b.send("a", bytes([number]))
        assert until(lambda: a.counts()["b"].hurried == 90)
        assert drain(a) == [("b", bytes([number])) for number in range(10)]
