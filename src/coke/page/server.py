"""A small server on loopback in a thread of its own: whatever clients do, it takes few resources.

    connections  so many at once; further ones wait in the system, unaccepted and unpaid
    streams      of these, so many that stay: the rest is always there for other requests
    rate         requests a second in the long run; above it they are refused, and held up a little
    patience     seconds for a request to come in, and for an answer to be taken

So its work is bounded by rate · the price of an answer + connections / penalty · that of a refusal.
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
from coke.page.http import END, Door, Flow, Reply, head, parsed, refused

_GRACE = 2.0  # seconds for the last words of streams


class Bounds(NamedTuple):
    """How much all clients together can make a server hold or do."""

    connections: int = 32
    streams: int = 8
    head: int = 8192  # bytes of a request
    patience: float = 5.0
    rate: float = 20.0
    burst: int = 60
    penalty: float = 0.5  # seconds that a refused client keeps its connection


Answer = Callable[[str], Reply | Flow | None]
"""Path behind the token ↦ what is there, if anything; called in the server's thread."""


class Server:
    """On 127.0.0.1 from now until it is closed; port 0 is any free one."""

    def __init__(self, token: str, answer: Answer, bounds: Bounds, port: int = 0):
        self._listener = _listening(port)
        self.port: int = self._listener.getsockname()[1]
        self._door, self._answer, self._bounds = Door.of(self.port, token), answer, bounds
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
                client, _ = await self._loop.sock_accept(self._listener)
            except OSError:  # it has gone already, or files have run out: the page can wait
                slots.release()
                await asyncio.sleep(self._bounds.penalty)
                continue
            task = self._loop.create_task(self._connection(client))
            tasks.add(task)
            for done in (tasks.discard, partial(_closed, client, slots)):
                task.add_done_callback(done)

    async def _connection(self, client: socket.socket) -> None:
        """A request and its answer; what goes wrong on the way ends this connection only."""
        with suppress(OSError, TimeoutError):
            client.setblocking(False)
            async with asyncio.timeout(self._bounds.patience):
                reply = self._judged(await self._head(client))
            if isinstance(reply, Flow):
                await self._flow(client, reply)
                return
            await self._send(client, reply.encoded())
            if reply.status != HTTPStatus.OK:
                await asyncio.sleep(self._bounds.penalty)
            client.shutdown(socket.SHUT_WR)

    async def _head(self, client: socket.socket) -> bytes:
        """A request's lines; as far as they came where they are too long."""
        data = b""
        while END not in data and len(data) <= self._bounds.head:
            more = await self._loop.sock_recv(client, 4096)
            if not more:
                raise ConnectionError
            data += more
        return data

    def _judged(self, data: bytes) -> Reply | Flow:
        whole, end, rest = data.partition(END)
        if not self._bucket.take():
            return refused(HTTPStatus.TOO_MANY_REQUESTS, "slower", "Retry-After: 1\n")
        if not end or len(whole) > self._bounds.head:
            return refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "expected a shorter request")
        if rest:
            return refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "expected no body")
        request = parsed(whole)
        path = request if isinstance(request, Reply) else self._door.path(request)
        return path if isinstance(path, Reply) else self._answered(path)

    def _answered(self, path: str) -> Reply | Flow:
        try:
            found = self._answer(path)
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


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(64)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"page on port {port}: {error.strerror}: expected a free port of this machine; "
            "choose another, or 0 for any"
        ) from error
    return listener
