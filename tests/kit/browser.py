"""Chromium through its own debugging pipe: two file descriptors, JSON, no driver to install."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LONG = 60.0  # seconds: a condition that does not come true by then never does
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--remote-debugging-pipe", "--force-prefers-reduced-motion",
)  # fmt: skip


class Tab:
    """A page in a browser, and all that it asked for or complained of."""

    def __init__(self, process: subprocess.Popen[bytes], into: int, out: int):
        self._process, self._into, self._out = process, into, out
        self._rest, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, and its result."""
        self._number += 1
        said = {"id": self._number, "method": method, "params": given}
        said |= {"sessionId": self._session} if self._session else {}
        os.write(self._into, json.dumps(said).encode() + b"\0")
        while True:
            told = self._told()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told)
                result: dict[str, Any] = told["result"]
                return result
            self._note(told)

    def _told(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._out, 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        one, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found

    def _note(self, told: dict[str, Any]) -> None:
        method, params = told.get("method"), told.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until(lambda: self.run("document.readyState") == "complete")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        told = self.call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def text(self, where: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(where)})?.textContent ?? ''"))

    def until(self, done: Callable[[], object]) -> None:
        end = time.monotonic() + LONG
        while not done():
            assert time.monotonic() < end, (self.run("document.body.innerText"), self.complaints)
            time.sleep(0.02)

    def look(self, wide: int, high: int, *, dark: bool) -> None:
        """As on a screen of that size, in light or dark."""
        size = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": wide < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def shoot(self, path: Path) -> None:
        """The whole page as PNG."""
        told = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A tab of Chromium, or the test is skipped."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no command chromium: `make browser` installs it")
    (theirs_in, into), (out, theirs_out) = os.pipe(), os.pipe()

    def plumb() -> None:
        os.dup2(theirs_in, 3)
        os.dup2(theirs_out, 4)

    high_in, high_out = _above(theirs_in), _above(theirs_out)
    theirs_in, theirs_out = high_in, high_out
    command = [program, *_FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        command, preexec_fn=plumb, close_fds=False, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(process, into, out)
    finally:
        process.kill()
        process.wait()
        os.close(into)
        os.close(out)


def _above(number: int) -> int:
    """The same file under a number that neither end of the pipe takes."""
    import fcntl

    higher = fcntl.fcntl(number, fcntl.F_DUPFD, 10)
    os.close(number)
    return higher
