"""Who is answered by a page, and who is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.page.http import Door, Reply, Request, parsed

TOKEN = "abcdefghijklmnopqrstuv"
DOOR = Door(TOKEN).at(8123)
SEEN = "".join(map(chr, range(33, 127)))
HOST = {"host": "127.0.0.1:8123"}


def status(found: Reply | Request) -> int:
    return found.status.value if isinstance(found, Reply) else 200


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", f"/{TOKEN}/state", {}, 200),
        ("GET", f"/{TOKEN}/", {"host": "localhost:8123"}, 200),
        ("GET", f"/{TOKEN}/", {"host": "LOCALHOST:8123"}, 200),
        ("GET", f"/{TOKEN}/", {"host": "evil.example:8123"}, 421),  # a name bent to 127.0.0.1
        ("GET", f"/{TOKEN}/", {"host": "127.0.0.1:80"}, 421),
        ("GET", f"/{TOKEN}/", {"host": ""}, 421),
        ("POST", f"/{TOKEN}/", {}, 405),
        ("HEAD", f"/{TOKEN}/", {}, 405),
        ("OPTIONS", f"/{TOKEN}/", {"origin": "http://evil.example"}, 405),  # no CORS
        ("GET", f"/{TOKEN}/", {"content-length": "5"}, 413),
        ("GET", f"/{TOKEN}/", {"transfer-encoding": "chunked"}, 413),
        ("GET", f"/{TOKEN}/", {"origin": "http://evil.example"}, 403),
        ("GET", f"/{TOKEN}/", {"origin": "null"}, 403),
        ("GET", f"/{TOKEN}/", {"origin": "http://127.0.0.1:8123"}, 200),
        ("GET", f"/{TOKEN}/state", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", f"/{TOKEN}/state", {"sec-fetch-site": "same-site"}, 403),  # another port
        ("GET", f"/{TOKEN}/state", {"sec-fetch-site": "same-origin"}, 200),
        (
            "GET", f"/{TOKEN}/",
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate",
             "sec-fetch-dest": "document"}, 200,
        ),
        (
            "GET", f"/{TOKEN}/",
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate",
             "sec-fetch-dest": "iframe"}, 403,
        ),
        ("GET", "/", {}, 404),
        ("GET", f"/{TOKEN}", {}, 404),
        ("GET", f"/{TOKEN[:-1]}/", {}, 404),
        ("GET", f"/{TOKEN}x/", {}, 404),
        ("GET", f"//{TOKEN}/", {}, 404),
        ("GET", f"/x/{TOKEN}/", {}, 404),
    ],
)  # fmt: skip
def test_who_is_let_in(method: str, path: str, headers: dict[str, str], expected: int) -> None:
    assert status(DOOR.admitted(Request(method, path, HOST | headers))) == expected


def test_a_path_is_what_follows_the_token() -> None:
    asked = DOOR.admitted(Request("GET", f"/{TOKEN}/a/b", HOST))
    assert isinstance(asked, Request)
    assert asked.path == "a/b"


def test_a_header_of_blanks_is_read_in_one_pass() -> None:
    """Two hundred of them: tried in all ways, each would take a second."""
    blanks = f"GET / HTTP/1.1\r\na:{' ' * 8000}\x01\r\n".encode()
    assert {status(parsed(blanks)) for _ in range(200)} == {400}


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    found = parsed(data)
    if isinstance(found, Request):
        assert re.fullmatch("/[!-~]*", found.path)
        assert all("\n" not in value and "\r" not in value for value in found.headers.values())
    else:
        assert found.status.value in (400, 431)


@given(
    st.text(SEEN, max_size=30).map("/{}".format),
    st.dictionaries(st.text("abz-", min_size=1, max_size=9), st.text(SEEN, max_size=9), max_size=8),
)
def test_what_is_written_is_what_is_read(path: str, headers: dict[str, str]) -> None:
    lines = [f"GET {path} HTTP/1.1", *(f"{k.title()}: {v}" for k, v in headers.items())]
    assert parsed("\r\n".join(lines).encode()) == Request("GET", path, headers)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b",  # which of them would count?
        b"GET / HTTP/1.1\r\nHost: a\r\n folded",
        b"GET / HTTP/1.1\r\nHost : a",
        b"GET / HTTP/1.1\nHost: a",
        b"GET http://127.0.0.1/ HTTP/1.1",
        b"GET / HTTP/2.0",
        b"GET /\x00 HTTP/1.1",
        b"",
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(data: bytes) -> None:
    found = parsed(data)
    assert isinstance(found, Reply)
    assert found.status.value == 400


def test_no_answer_may_be_kept_framed_or_read_by_others() -> None:
    head = Reply(b"x").encoded().partition(b"\r\n\r\n")[0].decode().lower()
    assert "content-security-policy: default-src 'self';" in head
    assert "frame-ancestors 'none'" in head
    assert "cache-control: no-store" in head
    assert "x-content-type-options: nosniff" in head
    assert "referrer-policy: no-referrer" in head
    assert "access-control-" not in head
