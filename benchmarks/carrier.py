"""`make bench-carrier`: CPU per frame of the carriers beside bare TCP, between two processes.

500-byte frames on this machine's loopback. Ping-pong is one word and its answer. Rounds are what
agents do: eight words to each other, then eight to hear. Stream is one end sending as fast as it
can. CPU is user and system time of both processes with all their threads, for one frame in one
direction.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from coke.field import identity
from coke.field.carriers.address import Spot
from coke.field.carriers.base import Allowance
from coke.field.carriers.tls import TlsCarrier
from coke.field.carriers.zenoh import ZenohCarrier
from figures import Found, Section, main
from floors import FLOORS

SIZE = 500
ANY = Allowance(rate=1e9, burst=10**9, backlog=2**30)


class Line(NamedTuple):
    """Two verbs, whatever the network."""

    send: Callable[[bytes], None]
    receive: Callable[[], bytes]


Opening = Callable[[bool, int], contextlib.AbstractContextManager[Line]]


@contextlib.contextmanager
def tcp(first: bool, port: int) -> Iterator[Line]:
    """Length and bytes over a socket, nothing else."""
    if first:
        with socket.create_server(("127.0.0.1", port)) as server:
            plug = server.accept()[0]
    else:
        plug = _patient(port)
    plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with plug, plug.makefile("rb") as ear:

        def receive() -> bytes:
            return ear.read(int.from_bytes(ear.read(4), "big"))

        yield Line(lambda frame: plug.sendall(len(frame).to_bytes(4, "big") + frame), receive)


def _patient(port: int) -> socket.socket:
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port))
        time.sleep(0.01)


@contextlib.contextmanager
def carrier(
    kind: type[TlsCarrier] | type[ZenohCarrier], secure: bool, folder: Path, first: bool, port: int
) -> Iterator[Line]:
    """A carrier, with mutual TLS or without."""
    me, other = ("a", "b") if first else ("b", "a")
    own = identity.load(folder, me, datetime.now(UTC)) if secure else None
    at = f"{'tls' if secure else 'tcp'}/127.0.0.1:{port}"
    listen, neighbours = ((at,), {other: None}) if first else ((), {other: at})
    site = Spot(
        name=me, network="bench", listen=listen, neighbours=neighbours, identity=own,
        allowance=ANY, allow_plaintext_loopback=not secure,
    )  # fmt: skip
    with kind(site) as line:
        while not line.alive():
            time.sleep(0.01)

        def receive() -> bytes:
            got = line.receive(10)
            if got is None:
                raise TimeoutError("a frame was lost")
            return got[1]

        yield Line(partial(line.send, other), receive)


def play(opening: Opening, first: bool, port: int, frames: int) -> dict[str, float]:
    """CPU seconds of this end for each pattern."""
    cpu = {}
    with opening(first, port) as line:
        for name, pattern in PATTERNS.items():
            pattern(line, first, 100)  # warm
            begin = time.process_time()
            pattern(line, first, frames)
            cpu[name] = time.process_time() - begin
        time.sleep(0.3)  # the other end may still be reading
    return cpu


def ping_pong(line: Line, first: bool, frames: int) -> None:
    for _ in range(frames // 2):
        if first:
            line.send(bytes(SIZE))
        line.receive()
        if not first:
            line.send(bytes(SIZE))


def rounds(line: Line, first: bool, frames: int) -> None:
    for _ in range(frames // 16):
        for _ in range(8):
            line.send(bytes(SIZE))
        for _ in range(8):
            line.receive()


def stream(line: Line, first: bool, frames: int) -> None:
    for _ in range(frames):
        if first:
            line.send(bytes(SIZE))
        else:
            line.receive()
    # The end, so that neither begins the next pattern early.
    if first:
        line.receive()
    else:
        line.send(b"done")


PATTERNS = {"ping-pong": ping_pong, "rounds": rounds, "stream": stream}


def other_end(pipe: Connection, folder: Path, frames: int) -> None:
    while (order := pipe.recv_bytes()) != b"end":
        name, port = order.decode().split()
        cpu = play(openings(folder)[name], False, int(port), frames)
        pipe.send_bytes(" ".join(map(str, cpu.values())).encode())


def openings(folder: Path) -> dict[str, Opening]:
    return {
        "tcp": tcp,
        "links": partial(carrier, TlsCarrier, False, folder),
        "links+mTLS": partial(carrier, TlsCarrier, True, folder),
        "zenoh": partial(carrier, ZenohCarrier, False, folder),
        "zenoh+mTLS": partial(carrier, ZenohCarrier, True, folder),
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def costs(frames: int, folder: Path) -> Iterator[tuple[str, list[float]]]:
    """For each network, µs of CPU per frame in each pattern."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=other_end, args=(there, folder, frames))
    process.start()
    for name, opening in openings(folder).items():
        port = free_port()
        here.send_bytes(f"{name} {port}".encode())
        ours = play(opening, True, port, frames).values()
        theirs = map(float, here.recv_bytes().split())
        yield name, [1e6 * (a + b) / frames for a, b in zip(ours, theirs, strict=True)]
    here.send_bytes(b"end")
    process.join()


def measure(size: str) -> Found:
    """Bare TCP in µs, which is the floor, and the others as multiples of it."""
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), datetime.now(UTC)
        identity.found(folder, "bench", now)
        for site in "ab":
            identity.issue(folder, site, now)
        found = dict(costs(4_000 if size == "short" else 20_000, folder))
    bare = found.pop("tcp")
    figures = {f"bare TCP, {p}, µs a frame": c for p, c in zip(PATTERNS, bare, strict=True)}
    for network, cost in found.items():
        for pattern, taken, least in zip(PATTERNS, cost, bare, strict=True):
            figures[f"{network} / bare TCP, {pattern}"] = taken / least
    return figures


CARRIER = Section("carrier", measure, {})

if __name__ == "__main__":
    sys.exit(main(FLOORS, CARRIER))
