"""A small server in a thread of its own: whatever clients do, it takes few resources.

    connections  so many at once; further ones wait in the system, unaccepted and unpaid
    streams      of these, so many that stay: the rest is always there for other requests
    rate         requests a second in the long run; above it they are refused, and held up a little
    patience     seconds for a request to come in, and for an answer to be taken

A body is read only of who may send one. So its work is bounded by rate · the price of an answer
+ connections / penalty · that of a refusal.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import NamedTuple, Self

from coke.errors import ConfigError
from coke.field.carriers.base import Bucket
from coke.page.access import LOOPBACK
from coke.page.http import END, Door, Flow, Reply, Request, head, parsed, refused

_GRACE = 2.0  # seconds for the last words of streams
_DROPPED = 1 << 16, 16  # bytes that a refused client may go on to send: so many, so often
_ANY = (LOOPBACK, 0)


class Bounds(NamedTuple):
    """How much all clients together can make a server hold or do."""

    connections: int = 32
    streams: int = 8
    head: int = 8192  # bytes of a request's lines
    patience: float = 5.0
    rate: float = 20.0
    burst: int = 60
    penalty: float = 0.5  # seconds that a refused client keeps its connection


Answer = Callable[[Request], Reply | Flow | None]
"""Asked behind the token ↦ what is there, if anything; called in the server's thread."""


class Server:
    """At an address of this machine from now until it is closed; port 0 is any free one."""

    def __init__(self, door: Door, answer: Answer, bounds: Bounds, at: tuple[str, int] = _ANY):
        self._listener = _listening(at)
        self.port: int = self._listener.getsockname()[1]
        self._door, self._answer, self._bounds = door.at(self.port), answer, bounds
        self._bucket = Bucket(bounds.rate, bounds.burst, time.monotonic)
        self._streams = 0
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Streams say their last words, for a short while; nobody is answered any more."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_GRACE + 1.0)

    def _run(self) -> None:
        with self._listener:
            try:
                self._loop.run_until_complete(self._serve())
            finally:
                self._loop.close()

    async def _serve(self) -> None:
        slots, tasks = asyncio.Semaphore(self._bounds.connections), set[asyncio.Task[None]]()
        accepting = self._loop.create_task(self._accept(slots, tasks))
        await self._over.wait()
        accepting.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(accepting, *tasks, return_exceptions=True)

    async def _accept(self, slots: asyncio.Semaphore, tasks: set[asyncio.Task[None]]) -> None:
        """One connection at a time, while there is room for it."""
        while True:
            await slots.acquire()
            try:
                await self._knock()
                client, _ = self._listener.accept()
            except OSError:  # it has gone already, or files have run out: the page can wait
                slots.release()
                await asyncio.sleep(self._bounds.penalty)
                continue
            task = self._loop.create_task(self._connection(client))
            tasks.add(task)
            for done in (tasks.discard, partial(_closed, client, slots)):
                task.add_done_callback(done)

    async def _knock(self) -> None:
        """Until somebody is there. To wait for who it is could lose him if that is cancelled."""
        knock = asyncio.Event()
        self._loop.add_reader(self._listener, knock.set)
        try:
            await knock.wait()
        finally:
            self._loop.remove_reader(self._listener)

    async def _connection(self, client: socket.socket) -> None:
        """A request and its answer; what goes wrong on the way ends this connection only."""
        with suppress(OSError, TimeoutError):
            client.setblocking(False)
            async with asyncio.timeout(self._bounds.patience):
                request = await self._request(client)
            reply = request if isinstance(request, Reply) else self._answered(request)
            if isinstance(reply, Flow):
                await self._flow(client, reply)
                return
            await self._send(client, reply.encoded())
            if reply.status != HTTPStatus.OK:
                await self._held_up(client)
            client.shutdown(socket.SHUT_WR)

    async def _held_up(self, client: socket.socket) -> None:
        """For a while; what it goes on to send is dropped, or it might miss the answer."""
        size, times = _DROPPED
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bounds.penalty):
                for _ in range(times):
                    if not await self._loop.sock_recv(client, size):
                        break
                await asyncio.sleep(self._bounds.penalty)

    async def _head(self, client: socket.socket) -> bytes:
        """A request's lines; as far as they came where they are too long."""
        data = b""
        while END not in data and len(data) <= self._bounds.head:
            more = await self._loop.sock_recv(client, 4096)
            if not more:
                raise ConnectionError
            data += more
        return data

    async def _request(self, client: socket.socket) -> Request | Reply:
        """Whole, or why not: nobody is waited for who may not ask."""
        whole, end, rest = (await self._head(client)).partition(END)
        asked = self._judged(whole, bool(end))
        if isinstance(asked, Reply):
            return asked
        if "expect" in asked.headers and len(rest) < asked.length:
            await self._loop.sock_sendall(client, b"HTTP/1.1 100 Continue" + END)
        body = bytearray(rest)
        while len(body) < asked.length:
            more = await self._loop.sock_recv(client, min(1 << 16, asked.length - len(body)))
            if not more:
                raise ConnectionError
            body += more
        if len(body) > asked.length:
            return refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "expected one request")
        return asked._replace(body=bytes(body))

    def _judged(self, data: bytes, whole: bool) -> Request | Reply:
        if not self._bucket.take():
            return refused(HTTPStatus.TOO_MANY_REQUESTS, "slower", "Retry-After: 1\n")
        if not whole or len(data) > self._bounds.head:
            return refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "expected a shorter request")
        request = parsed(data)
        return request if isinstance(request, Reply) else self._door.admitted(request)

    def _answered(self, request: Request) -> Reply | Flow:
        try:
            found = self._answer(request)
        except Exception:  # a page that cannot be drawn must not end the server
            return refused(HTTPStatus.INTERNAL_SERVER_ERROR, "this cannot be shown now")
        if isinstance(found, Flow) and self._streams >= self._bounds.streams:
            return refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open")
        return found or refused(HTTPStatus.NOT_FOUND, "nothing is there")

    async def _flow(self, client: socket.socket, flow: Flow) -> None:
        self._streams += 1
        try:
            await self._send(client, head(flow.kind))
            async for part in flow.parts:
                await self._send(client, part)
        finally:
            self._streams -= 1

    async def _send(self, client: socket.socket, data: bytes) -> None:
        async with asyncio.timeout(self._bounds.patience):
            await self._loop.sock_sendall(client, data)


def _closed(client: socket.socket, slots: asyncio.Semaphore, task: object) -> None:
    """Also where the task was cancelled before its first step."""
    client.close()
    slots.release()


def _listening(at: tuple[str, int]) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(at)
        listener.listen(64)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"page on port {at[1]} of {at[0]}: {error.strerror}: expected a free port of this "
            "machine; choose another, or 0 for any"
        ) from error
    return listener
