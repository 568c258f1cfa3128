"""Requests to a page, as browsers, scripts and worse send them."""

from __future__ import annotations

import http.client
import socket
from contextlib import suppress
from typing import NamedTuple

from coke.page.access import Access

LONG = 60.0  # seconds


class Answered(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    headers: dict[str, str]


def ask(
    access: Access, path: str = "", method: str = "GET", body: bytes | None = None, **headers: str
) -> Answered:
    """A request with the token; headers by name, with _ for -."""
    link = http.client.HTTPConnection("127.0.0.1", access.port, timeout=LONG)
    try:
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        link.request(method, f"/{access.token}/{path}", body, given)
        reply = link.getresponse()
        return Answered(reply.status, reply.read(), dict(reply.getheaders()))
    finally:
        link.close()


def send(access: Access, data: bytes) -> bytes:
    """Whatever comes back on these bytes, to the end."""
    with socket.create_connection(("127.0.0.1", access.port), timeout=LONG) as link:
        with suppress(ConnectionError):
            link.sendall(data)
        got = b""
        with suppress(ConnectionError):
            while more := link.recv(1 << 16):
                got += more
        return got
