"""HTTP/1.1 as far as a page on this machine needs it: a request read and judged, a reply written.

One request a connection, GET only, no body. Who may ask: whoever calls the server by a name of this
machine (a page elsewhere whose name was bent to 127.0.0.1 does not), knows the token, and is no
other site's page in a browser.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from secrets import compare_digest
from typing import NamedTuple

_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]{0,2000}) HTTP/1\.[01]")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):([\t -~\x80-\xff]*)")
MOST_HEADERS = 64
END = b"\r\n\r\n"
TEXT, HTML = (f"text/{kind}; charset=utf-8" for kind in ("plain", "html"))
JSON = "application/json"
EVENTS = "text/event-stream"
# Nothing from elsewhere, nothing for elsewhere, nothing kept.
_OURS = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ALWAYS = f"""\
Connection: close
Cache-Control: no-store
Content-Security-Policy: {_OURS}
Cross-Origin-Opener-Policy: same-origin
Cross-Origin-Resource-Policy: same-origin
Referrer-Policy: no-referrer
X-Content-Type-Options: nosniff
"""


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    headers: dict[str, str]  # names in small letters


class Reply(NamedTuple):
    """What is answered, whole."""

    body: bytes
    kind: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    more: str = ""  # headers

    def encoded(self) -> bytes:
        """As bytes."""
        length = f"Content-Length: {len(self.body)}\n{self.more}"
        return head(self.kind, self.status, length) + self.body


class Flow(NamedTuple):
    """What is answered bit by bit, while it is taken."""

    parts: AsyncIterator[bytes]
    kind: str = EVENTS


def head(kind: str, status: HTTPStatus = HTTPStatus.OK, more: str = "") -> bytes:
    """The first lines of an answer."""
    lines = f"HTTP/1.1 {status.value} {status.phrase}\nContent-Type: {kind}\n{_ALWAYS}{more}\n"
    return lines.replace("\n", "\r\n").encode("ascii")


def refused(status: HTTPStatus, why: str, more: str = "") -> Reply:
    """An answer that says why not."""
    return Reply(f"{why}\n".encode(), TEXT, status, more)


def parsed(data: bytes) -> Request | Reply:
    """A request without its body, or why it is none."""
    first, *lines = data.removesuffix(END).decode("latin-1").split("\r\n")
    asked = _LINE.fullmatch(first)
    found = [_HEADER.fullmatch(line) for line in lines]
    pairs = [(one[1].lower(), one[2].strip()) for one in found if one is not None]
    headers = dict(pairs)
    if asked is None or None in found or len(headers) < len(pairs):
        return refused(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1, each header once")
    if len(lines) > MOST_HEADERS:
        return refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "expected fewer headers")
    return Request(asked[1], asked[2], headers)


class Door(NamedTuple):
    """Who may ask."""

    hosts: frozenset[str]  # HOST:PORT, all names by which this machine calls the server
    token: str

    @classmethod
    def of(cls, port: int, token: str) -> Door:
        """Of a server on loopback."""
        return cls(frozenset(f"{host}:{port}" for host in ("127.0.0.1", "localhost")), token)

    def path(self, request: Request) -> str | Reply:
        """What is asked for, behind the token; or why not."""
        headers, empty = request.headers, ("", "0")
        if headers.get("host", "").lower() not in self.hosts:
            return refused(HTTPStatus.MISDIRECTED_REQUEST, "expected a name of this machine")
        if request.method != "GET":
            return refused(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET", "Allow: GET\n")
        if headers.get("content-length", "") not in empty or "transfer-encoding" in headers:
            return refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "expected no body")
        if self._foreign(headers):
            return refused(HTTPStatus.FORBIDDEN, "not for pages of other sites")
        token, slash, path = request.path[1:].partition("/")
        if not (slash and compare_digest(token.encode(), self.token.encode())):
            return refused(HTTPStatus.NOT_FOUND, "expected the address with its token")
        return path

    def _foreign(self, headers: dict[str, str]) -> bool:
        """Whether a page of another site asks; to follow a link from there is fine."""
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            return True
        visit = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return not (own or visit == ("navigate", "document"))
