"""Strangers with a socket loop: `python floods.py HOST PORT NUMBER [KIND …]`.

As many connections as fast as they come, of the kinds in turn; as many of them as the system lets
one process have stay open until the stranger is killed. It says "done" when all were tried.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

KEPT = 900


def _hello() -> bytes:
    """What TLS says first, without a certificate or an intention to go on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


KINDS = {
    "silent": b"",
    "junk": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 20,
    "half": b"\x16\x03\x01",
    "hello": _hello(),
    "garbled": _hello()[:60] + bytes(200),
}


def main(host: str, port: str, number: str, *kinds: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    said, kept = [KINDS[kind] for kind in kinds or KINDS], deque[socket.socket]()
    begin = time.monotonic()
    for i in range(int(number)):
        with contextlib.suppress(OSError):
            plug = socket.create_connection((host, int(port)), timeout=5)
            kept.append(plug)
            plug.send(said[i % len(said)])
        if len(kept) > KEPT:
            kept.popleft().close()
    sys.stdout.write(f"done {time.monotonic() - begin}\n")
    sys.stdout.flush()
    time.sleep(600)


@contextlib.contextmanager
def flood(at: str, number: int, *kinds: str) -> Iterator[subprocess.Popen[str]]:
    """A stranger at that address, as long as the block lasts."""
    host, _, port = at.partition("/")[2].rpartition(":")
    command = [sys.executable, __file__, host.strip("[]"), port, str(number), *kinds]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main(*sys.argv[1:])
