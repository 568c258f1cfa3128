"""HTTP/1.1 as far as a page or an endpoint needs it: a request read and judged, a reply written.

One request a connection. GET without a body; POST with one, of a length that is said before, where
somebody takes it. Who may ask: whoever calls the server by a name of this machine (a page elsewhere
whose name was bent to 127.0.0.1 does not), knows the token, in the path or as a bearer's, and is no
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
_LENGTH = re.compile("[0-9]{1,12}")
_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
_BEARER = "Bearer "
_HERE = ("127.0.0.1", "localhost")
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
    body: bytes = b""

    @property
    def length(self) -> int:
        """Bytes of the body that are to come."""
        return int(self.headers.get("content-length") or 0)


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
    """Who may ask, and for what."""

    token: str
    hosts: frozenset[str] = frozenset()  # names by which the server may be called
    posts: frozenset[str] = frozenset()  # paths behind the token to which bodies are sent
    free: frozenset[str] = frozenset()  # paths that need no token
    body: int = 0  # bytes of a body, at most

    def at(self, port: int) -> Door:
        """Of a server that listens at that port: it may be called by this machine's names, too."""
        return self._replace(hosts=self.hosts | {f"{host}:{port}" for host in _HERE})

    def admitted(self, request: Request) -> Request | Reply:
        """With what is asked for behind the token as its path; or why not."""
        if request.headers.get("host", "").lower() not in self.hosts:
            return refused(HTTPStatus.MISDIRECTED_REQUEST, "expected a name of this machine")
        methods = ("GET", "POST") if self.posts else ("GET",)
        if request.method not in methods:
            return _allowed(*methods)
        wrong = self._burden(request)
        if wrong is not None:
            return wrong
        if self._foreign(request):
            return refused(HTTPStatus.FORBIDDEN, "not for pages of other sites")
        path = self._behind(request)
        if path is None:
            return refused(HTTPStatus.NOT_FOUND, "expected the address with its token")
        wanted = "POST" if path.partition("?")[0] in self.posts else "GET"
        return request._replace(path=path) if request.method == wanted else _allowed(wanted)

    def _burden(self, request: Request) -> Reply | None:
        """Why its body cannot be, if it cannot."""
        length = request.headers.get("content-length", "")
        if request.method == "GET":
            none = length in ("", "0") and "transfer-encoding" not in request.headers
            return None if none else refused(_LARGE, "expected no body")
        if "transfer-encoding" in request.headers or not _LENGTH.fullmatch(length):
            return refused(HTTPStatus.LENGTH_REQUIRED, "expected a body and its length")
        if int(length) > self.body:
            return refused(_LARGE, f"expected at most {self.body} bytes")
        return None

    def _behind(self, request: Request) -> str | None:
        """The path behind the token, if it was given."""
        if request.path[1:] in self.free:
            return request.path[1:]
        token, slash, path = request.path[1:].partition("/")
        given = request.headers.get("authorization", "")
        if given.startswith(_BEARER):
            token, slash, path = given.removeprefix(_BEARER), "/", request.path[1:]
        right = slash and compare_digest(token.encode(), self.token.encode())
        return path if right else None

    def _foreign(self, request: Request) -> bool:
        """Whether a page of another site asks; to follow a link from there is fine."""
        headers = request.headers
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            return True
        visit = (request.method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return not (own or visit == ("GET", "navigate", "document"))


def _allowed(*methods: str) -> Reply:
    some = ", ".join(methods)
    return refused(HTTPStatus.METHOD_NOT_ALLOWED, f"expected {some}", f"Allow: {some}\n")
