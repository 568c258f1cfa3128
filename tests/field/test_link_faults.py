"""Links between sites that die, freeze, go, forget to close, or flood; with either carrier."""

from __future__ import annotations

import signal
import time

import pytest

from coke.field.carriers.base import Allowance, Event
from coke.field.carriers.tls import TlsCarrier
from coke.field.carriers.zenoh import ZenohCarrier
from kit.certificates import Authority
from kit.sessions import LONG, PLAIN, address, answered, drain, echo, identity, site, until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

pytest.importorskip("zenoh", reason="coke-learn[agent] is not installed")

Kind = type[TlsCarrier] | type[ZenohCarrier]
each = pytest.mark.parametrize("kind", [TlsCarrier, ZenohCarrier])


def _given_up(event: Event) -> bool:
    """Whether it is of a call that ended while it was made, as one of a killed process may."""
    ends = ("hung up", "reset by peer", "EOF_WHILE_READING")  # of the socket, or within TLS
    return event.kind == "refused" and event.why.endswith(ends)


@each
def test_a_neighbour_that_dies_or_freezes_is_missed_and_comes_back(
    kind: Kind, ca: Authority
) -> None:
    at, own = address(), identity(ca, "b")
    with kind(site(identity(ca, "a"), at, {"b": None})) as a:
        with echo(own, at, kind=kind.__name__) as first:
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
        with echo(own, at, kind=kind.__name__) as second:
            assert until(lambda: a.alive() == {"b"})
            assert answered(a, b"three")
            a.send("b", b"end")
            assert second.wait(timeout=LONG) == 0
        assert until(lambda: not a.alive())
        said = [event for event in a.events() if not _given_up(event)]
        assert [event.kind for event in said] == 3 * ["up", "down"]


@each
def test_a_caller_waits_for_its_neighbour_however_often_it_goes(kind: Kind, ca: Authority) -> None:
    at = address()
    with kind(site(identity(ca, "b"), None, {"a": at})) as b:
        for _ in range(2):
            assert until(lambda: "unreachable" in {event.kind for event in b.events()})
            with kind(site(identity(ca, "a"), at, {"b": None})) as a:
                assert until(lambda: a.alive() == {"b"} and b.alive() == {"a"})


@each
def test_a_process_ends_even_if_it_forgets_to_close(kind: Kind, ca: Authority) -> None:
    at = address()
    with (
        kind(site(identity(ca, "a"), at, {"b": None})) as a,
        echo(identity(ca, "b"), at, "forget", kind.__name__) as process,
    ):
        assert until(lambda: a.alive() == {"b"})
        a.send("b", b"end")
        while process.poll() is None:  # so that it is in the middle of hearing when it ends
            a.send("b", b"and another thing")
        assert process.returncode == 0


@each
def test_a_send_to_a_frozen_neighbour_waits_no_longer_than_the_patience(
    kind: Kind, ca: Authority
) -> None:
    at = address()
    hasty = site(identity(ca, "a"), at, {"b": None})._replace(patience_ms=200, lease_ms=20_000)
    with kind(hasty) as a, echo(identity(ca, "b"), at, kind=kind.__name__) as process:
        assert until(lambda: a.alive() == {"b"})
        process.send_signal(signal.SIGSTOP)
        longest, begin = 0.0, time.monotonic()
        while a.alive() and time.monotonic() < begin + LONG:
            then = time.monotonic()
            a.send("b", bytes(100_000))
            longest = max(longest, time.monotonic() - then)
        assert 0.1 < longest < 15  # without patience it would be the lease, 20 s
        assert a.alive() == frozenset()


@each
def test_a_flood_is_cut_down_to_the_burst_and_counted(kind: Kind) -> None:
    """In plaintext, which a site must ask for."""
    at = address().replace("tls", "tcp")
    plain = PLAIN._replace(listen=(at,), allowance=Allowance(burst=10))
    caller = PLAIN._replace(name="b", listen=(), neighbours={"a": at})
    with kind(plain, clock=lambda: 0.0) as a, kind(caller) as b:
        assert until(lambda: b.alive() and a.alive())
        for number in range(100):
            b.send("a", bytes([number]))
        assert until(lambda: a.counts()["b"].hurried == 90)
        assert drain(a) == [("b", bytes([number])) for number in range(10)]
