"""Whatever clients do, a page's server holds little, works little, and answers who comes next."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import ConfigError
from coke.page.access import Access
from coke.page.http import Door, Flow, Reply, Request
from coke.page.server import Bounds, Server
from kit.asking import ask, send

pytestmark = pytest.mark.processes

TOKEN = "t" * 22
QUICK = Bounds(patience=0.2, penalty=0.01, rate=1e6, burst=10**6)
Made = Callable[..., Access]


def answer(request: Request) -> Reply | Flow | None:
    path = request.path
    if path == "stream":
        return Flow(_ticks())
    if path == "broken":
        raise ValueError("this must not be told")
    return Reply(b"yes") if path == "" else None


def wanted(access: Access, path: str) -> bytes:
    return f"GET /{TOKEN}/{path} HTTP/1.1\r\nHost: localhost:{access.port}\r\n\r\n".encode()


async def _ticks() -> AsyncIterator[bytes]:
    while True:
        yield b"tick\n"
        await asyncio.sleep(0.01)


@pytest.fixture
def served() -> Iterator[Made]:
    with ExitStack() as open_:

        def make(bounds: Bounds = QUICK) -> Access:
            server = open_.enter_context(Server(Door(TOKEN), answer, bounds))
            return Access(server.port, TOKEN, 0)

        yield make


def test_it_listens_on_loopback_alone(served: Made) -> None:
    """Any other address of 127/8 would answer if it listened on all."""
    access = served()
    assert ask(access).status == 200
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", access.port), timeout=5)


def test_a_failure_is_not_told_and_ends_nothing(served: Made) -> None:
    access = served()
    broken = ask(access, "broken")
    assert broken.status == 500
    assert b"must not" not in broken.body
    assert ask(access, "nowhere").status == 404
    assert ask(access).status == 200


def test_slow_requests_are_hung_up_on(served: Made) -> None:
    access = served()
    with socket.create_connection(("127.0.0.1", access.port), timeout=30) as slow:
        slow.sendall(b"GET / HT")
        assert slow.recv(10) == b""


def test_a_long_request_is_refused_however_long_it_goes_on(served: Made) -> None:
    access = served()
    assert send(access, b"GET /" + b"a" * 100_000).startswith(b"HTTP/1.1 431")
    many = b"".join(b"A%d: b\r\n" % i for i in range(70))
    assert send(access, b"GET / HTTP/1.1\r\n" + many + b"\r\n").startswith(b"HTTP/1.1 431")


def test_an_answer_that_is_not_taken_is_given_up() -> None:
    """A stream whose reader sleeps ends, and its place is free again."""
    bounds = QUICK._replace(streams=1)

    async def much() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)

    with Server(Door(TOKEN), lambda _: Flow(much()), bounds) as server:
        access = Access(server.port, TOKEN, 0)
        with socket.create_connection(("127.0.0.1", access.port)) as asleep:
            asleep.sendall(
                f"GET /{TOKEN}/ HTTP/1.1\r\nHost: localhost:{access.port}\r\n\r\n".encode()
            )
            until = time.monotonic() + 60
            while server._streams != 1:
                assert time.monotonic() < until
            while server._streams == 1:
                assert time.monotonic() < until


def test_a_thousand_connections_are_not_accepted_and_leave_room_when_they_go(served: Made) -> None:
    """Those that wait cost nothing here: the system holds them, or turns them away."""
    access = served(QUICK._replace(connections=4, patience=30.0))
    before = threading.active_count()
    idle = []
    for _ in range(1000):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", access.port))
        idle.append(one)
    assert threading.active_count() == before
    for one in idle:
        one.close()
    assert ask(access).status == 200


def test_requests_above_the_rate_are_refused(served: Made) -> None:
    access = served(QUICK._replace(rate=1e-9, burst=3))
    assert [ask(access).status for _ in range(5)] == [200, 200, 200, 429, 429]


def test_few_streams_are_open_at_once_and_requests_are_answered_beside_them(served: Made) -> None:
    access = served(QUICK._replace(streams=1))
    with socket.create_connection(("127.0.0.1", access.port), timeout=60) as stream:
        stream.sendall(wanted(access, "stream"))
        seen = b""
        while b"tick" not in seen:
            seen += stream.recv(1000)
        assert ask(access, "stream").status == 503
        assert ask(access).status == 200


def test_a_port_that_is_taken_is_refused_with_what_to_do(served: Made) -> None:
    with pytest.raises(ConfigError, match="choose another"):
        Server(Door(TOKEN), answer, QUICK, ("127.0.0.1", served().port))


@pytest.fixture(scope="module")
def lasting() -> Iterator[Access]:
    with Server(Door(TOKEN), answer, QUICK) as server:
        yield Access(server.port, TOKEN, 0)


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_answered_or_hung_up_on(lasting: Access, data: bytes) -> None:
    said = send(lasting, data + b"\r\n\r\n")
    assert said == b"" or said.startswith(b"HTTP/1.1 4")


def test_who_comes_while_it_closes_is_hung_up_on() -> None:
    """The word to close and a caller in one turn of the loop, the word first."""
    callers: list[socket.socket] = []
    server = Server(Door(TOKEN), answer, QUICK)
    access = Access(server.port, TOKEN, 0)

    def called() -> None:
        callers.append(socket.create_connection(("127.0.0.1", server.port)))
        server._loop.call_soon(server._over.set)

    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        assert b"yes" in send(access, wanted(access, ""))  # so that it waits for the next
        server._loop.call_soon_threadsafe(called)
        server._thread.join()
        server.close()
        gc.collect()
    callers.pop().close()
    assert [str(one.message) for one in left] == []
