"""`coke serve` keeps the rules of pages: strangers wait, hold and learn nothing."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke import load_model
from coke.data.units import Scaling
from coke.errors import ConfigError
from coke.learning.model import Model
from coke.maths.features.features import FeatureSettings, draw_features
from coke.page.access import Access, read_access
from coke.serving import endpoint
from coke.serving.endpoint import BODY, FILE, Serving, served
from kit.asking import ask, send
from kit.commands import COKE, coke

pytestmark = pytest.mark.processes

drawn = draw_features(FeatureSettings(5), 2)
MODEL = Model(np.ones((1, 10)), drawn, Scaling.none(2), "quadratic", np.empty(0), ("a", "b"))
ROWS = b'{"rows": [[1, 2], [3, 4]]}'
WANTED = MODEL.predict(np.array([[1.0, 2], [3, 4]])).tolist()


@pytest.fixture(scope="module")
def place() -> Iterator[Access]:
    """That is quick to give clients up."""
    patch = pytest.MonkeyPatch()
    patch.setattr(endpoint, "_BOUNDS", endpoint._BOUNDS._replace(patience=0.5, penalty=0.01))
    with served(MODEL, Serving(rate=1e6, names=("api.example",))) as access:
        yield access
    patch.undo()


def request(access: Access, line: str, *headers: str, body: bytes = ROWS) -> bytes:
    lines = [line, f"Host: 127.0.0.1:{access.port}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(said: bytes) -> int:
    return int(said.split(b" ", 2)[1]) if said else 0


def test_rows_are_predicted(place: Access) -> None:
    found = ask(place, "predict", "POST", ROWS, Content_Type="application/json")
    assert found.status == 200
    assert json.loads(found.body)["predictions"]["prediction"] == pytest.approx(WANTED)
    assert json.loads(ask(place, "model").body)["columns"] == {"a": "number", "b": "number"}
    assert not [name for name in found.headers if name.lower().startswith("access-control")]


def test_the_token_may_be_a_bearers(place: Access) -> None:
    bare = f"Authorization: Bearer {place.token}"
    assert status(send(place, request(place, "POST /predict HTTP/1.1", bare))) == 200
    assert status(send(place, request(place, "POST /predict HTTP/1.1", bare[:-1]))) == 404


def test_health_needs_no_token_and_says_nothing(place: Access) -> None:
    link = http.client.HTTPConnection("127.0.0.1", place.port, timeout=60)
    link.request("GET", "/health")
    assert link.getresponse().read() == b"well\n"
    link.close()
    assert ask(place, "health", Host="evil.example").status == 421


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("POST", "predict", {"Host": "api.example"}, 200),
        ("POST", "predict", {"Host": "evil.example"}, 421),
        ("POST", "predict", {"Origin": "http://evil.example"}, 403),
        ("POST", "predict", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
                             "Sec-Fetch-Dest": "document"}, 403),  # a form elsewhere
        ("OPTIONS", "predict", {"Origin": "http://evil.example"}, 405),  # no CORS
        ("PUT", "predict", {}, 405),
        ("GET", "predict", {}, 405),
        ("POST", "model", {}, 405),
        ("POST", "nowhere", {}, 405),
        ("GET", "nowhere", {}, 404),
        ("GET", "stream", {}, 404),
    ],
)  # fmt: skip
def test_who_is_let_in(
    place: Access, method: str, path: str, headers: dict[str, str], expected: int
) -> None:
    body = ROWS if method in ("POST", "PUT") else None
    assert ask(place, path, method, body, **headers).status == expected


def test_a_body_of_a_stranger_is_not_waited_for(place: Access) -> None:
    """The answer comes before a byte of it."""
    line = "POST /wrongtoken/predict HTTP/1.1\r\nContent-Length: 1000\r\n"
    said = send(place, f"{line}Host: 127.0.0.1:{place.port}\r\n\r\n".encode())
    assert status(said) == 404


def test_bodies_are_bounded_and_have_a_length(place: Access) -> None:
    line = f"POST /{place.token}/predict HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n"
    for header, expected in (
        (f"Content-Length: {BODY + 1}", 413),
        ("Content-Length: -1", 411),
        ("Content-Length: 1e3", 411),
        ("Content-Length: 99999999999999999999", 411),
        ("Transfer-Encoding: chunked", 411),
        ("Accept: */*", 411),
    ):
        assert status(send(place, f"{line}{header}\r\n\r\n".encode())) == expected, header
    assert status(send(place, request(place, line.split("\r\n")[0]) + b"more")) == 413
    large = ask(place, "predict", "POST", bytes(BODY))
    assert large.status == 422  # taken, and no rows


def test_who_sends_a_body_slowly_is_hung_up_on(place: Access) -> None:
    with socket.create_connection(("127.0.0.1", place.port), timeout=60) as slow:
        slow.sendall(request(place, f"POST /{place.token}/predict HTTP/1.1")[:-3])
        assert slow.recv(10) == b""
    assert ask(place, "model").status == 200


def test_who_expects_to_be_asked_is_asked(place: Access) -> None:
    whole = request(place, f"POST /{place.token}/predict HTTP/1.1", "Expect: 100-continue")
    with socket.create_connection(("127.0.0.1", place.port), timeout=60) as link:
        link.sendall(whole[: -len(ROWS)])
        assert link.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        link.sendall(ROWS)
        assert link.recv(100).startswith(b"HTTP/1.1 200")


def test_requests_above_the_rate_are_refused() -> None:
    with served(MODEL, Serving(rate=1e-3)) as access:
        found = [ask(access, "predict", "POST", ROWS).status for _ in range(3)]
    assert found == [200, 429, 429]


@given(st.binary(max_size=80), st.integers(0, 200), st.integers(0, 60))
def test_any_bytes_in_a_request_are_answered_or_hung_up_on(
    place: Access, noise: bytes, at: int, gone: int
) -> None:
    """No 500, and whoever comes next is answered."""
    whole = request(place, f"POST /{place.token}/predict HTTP/1.1", "Content-Type: text/csv")
    said = send(place, whole[:at] + noise + whole[at + gone :] + b"\r\n\r\n")
    assert status(said) in (0, 200, *range(400, 500))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (Serving(rate=0.0), "expected a positive number"),
        (Serving(names=("http://a",)), "expected a host"),
        (Serving(folder=Path("/nowhere")), "expected a folder"),
        (Serving(address="256.0.0.1"), "expected a free port"),
    ],
)
def test_settings_that_cannot_be_are_refused(how: Serving, why: str) -> None:
    with pytest.raises(ConfigError, match=why), served(MODEL, how):
        pass


def test_the_command_serves_until_it_is_ended_and_comes_back_where_it_was(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "m.coke")
    command = [*COKE, "serve", "m.coke", "--json", "--access", "."]
    seen = []
    for _ in range(2):
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said = json.loads(process.stdout.readline())
                access = read_access(tmp_path, FILE)
                assert access is not None
                assert (said["port"], said["token"]) == (access.port, access.token)
                found = ask(access, "predict", "POST", ROWS)
                assert json.loads(found.body)["predictions"]["prediction"] == pytest.approx(WANTED)
                seen.append(access.url)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
    assert seen[0] == seen[1]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert load_model(tmp_path / "m.coke").theta.shape == (1, 10)


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.coke").write_bytes(b"no")
    assert "error" in coke("serve", "m.coke", cwd=tmp_path, code=2).stderr
    assert "no such file" in coke("serve", "n.coke", cwd=tmp_path, code=2).stderr
