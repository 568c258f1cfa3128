"""`make bench-serve`: what `coke serve` holds on one core, and whether it survives a fuzzer.

A model with numbers, text and gaps, 300 features, in a process of its own on one core. First 100
requests a second of 100 rows each for ten seconds, by the clock, whatever the answers take; then as
fast as eight clients ask. Then requests that are cut, changed, mixed and left half done: every one
is answered below 500 or hung up on, memory stays, and the predictions afterwards are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from coke import COKERegressor, Features

RATE, ROWS, SECONDS, CLIENTS = 100, 100, 10, 8
FUZZERS = 32  # at once: whoever is refused is held up for a fifth of a second
SLOW = 1000.0  # milliseconds within which 99 of 100 are answered, on a free core
GROWTH = 100  # megabytes that a fuzzed server may gain
PROGRAM = "import os, sys; os.sched_setaffinity(0, {%d}); from coke.cli.main import main; main()"
DIGITS = "0123456789.,:;{}[]\"'eE+-naulStrfs \r\n\t\x00\xff"


class Place(NamedTuple):
    """Where the server is, and its process."""

    port: int
    token: str
    pid: int

    def request(self, body: bytes, query: str = "", kind: str = "application/json") -> bytes:
        """A whole one."""
        lines = (
            f"POST /{self.token}/predict{query} HTTP/1.1", f"Host: 127.0.0.1:{self.port}",
            f"Content-Type: {kind}", f"Content-Length: {len(body)}", "", "",
        )  # fmt: skip
        return "\r\n".join(lines).encode() + body

    def send(self, data: bytes, patience: float = 60.0, *, ended: bool = False) -> bytes:
        """What comes back, to the end; `ended`: it is said that nothing more will come."""
        got = b""
        at = ("127.0.0.1", self.port)
        with (
            socket.create_connection(at, timeout=patience) as link,
            suppress(ConnectionError, TimeoutError),
        ):
            link.sendall(data)
            if ended:
                link.shutdown(socket.SHUT_WR)
            while more := link.recv(1 << 16):
                got += more
        return got

    def cpu(self) -> float:
        """CPU seconds of the process."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Megabytes in memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def trained(folder: Path) -> tuple[Path, bytes, bytes]:
    """A model, and the bodies of ROWS rows as JSON and CSV."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2000, 18)), columns=[f"x{j}" for j in range(18)])
    frame["ward"] = rng.choice(["A", "B", "C"], 2000)
    frame["open"] = rng.random(2000) > 0.5
    y = np.sin(frame["x0"]) + (frame["ward"] == "B") + 0.1 * rng.normal(size=2000)
    frame.loc[rng.random(2000) < 0.1, "x3"] = np.nan
    model = COKERegressor(n_agents=3, features=Features(n_features=300)).fit(frame, y).model_
    model.save(folder / "model.coke")
    some = frame[:ROWS]
    body = json.dumps({"rows": json.loads(some.to_json(orient="records"))}).encode()
    return folder / "model.coke", body, some.to_csv(index=False).encode()


def at_rate(ask: Callable[[], bytes]) -> list[float]:
    """Seconds until each answer, of requests sent by the clock."""
    due: Queue[float | None] = Queue()
    took: list[float] = []

    def client() -> None:
        while (when := due.get()) is not None:
            time.sleep(max(0.0, when - time.monotonic()))
            said = ask()
            took.append(time.monotonic() - when if said.startswith(b"HTTP/1.1 200") else np.inf)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    began = time.monotonic() + 0.2
    for k in range(RATE * SECONDS):
        due.put(began + k / RATE)
    for thread in threads:
        due.put(None)
        thread.start()
    for thread in threads:
        thread.join()
    return took


def flat_out(place: Place, whole: bytes, seconds: float = 5.0) -> tuple[float, float]:
    """Requests a second, and CPU milliseconds of the server each."""
    until, done = time.monotonic() + seconds, Counter[bool]()

    def client() -> None:
        while time.monotonic() < until:
            done[place.send(whole).startswith(b"HTTP/1.1 200")] += 1

    cpu, threads = place.cpu(), [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done[True] / seconds, 1000 * (place.cpu() - cpu) / max(1, done.total())


def spoilt(rng: random.Random, whole: bytes) -> bytes:
    """A request that is cut, changed or doubled somewhere."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(max(1, len(data)))
        what = rng.randrange(5)
        if what == 0:
            data[at : at + rng.randint(1, 40)] = b""
        elif what == 1:
            data[at:at] = rng.choice(DIGITS).encode("latin-1") * rng.randint(1, 30)
        elif what == 2 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif what == 3:
            data[at:at] = data[: rng.randint(0, 300)]
        else:
            data = data[: at + 1]
    return bytes(data)


def fuzzed(place: Place, wholes: list[bytes], many: int) -> Counter[str]:
    """Statuses of so many spoilt requests; `none` where an end was awaited."""
    found: Counter[str] = Counter()

    def client(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(many // FUZZERS):
            said = b""
            with suppress(OSError):
                # Whoever has sent half a request is waited for: one of fifty lets it be.
                data, ended = spoilt(rng, rng.choice(wholes)), rng.random() > 0.02
                said = place.send(data, 60.0 if ended else 0.3, ended=ended)
            found[said.split(b" ", 2)[1].decode() if said.startswith(b"HTTP") else "none"] += 1

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(FUZZERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fuzz", type=int, default=20_000, help="spoilt requests")
    many: int = parser.parse_args().fuzz
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        path, body, csv = trained(Path(folder))
        command = [sys.executable, "-c", PROGRAM % cores[-1], "serve", str(path), "--json"]
        command += ["--rate", "100000"]
        os.sched_setaffinity(0, set(cores[:-1]) or set(cores))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said: dict[str, Any] = json.loads(process.stdout.readline())
                return judged(Place(said["port"], said["token"], process.pid), body, csv, many)
            finally:
                process.terminate()


def judged(place: Place, body: bytes, csv: bytes, many: int) -> int:
    wholes = [place.request(body), place.request(csv, "?interval=0.9", "text/csv")]
    before = [place.send(whole) for whole in wholes]
    cpu = place.cpu()
    took = at_rate(lambda: place.send(wholes[0]))
    ends = [1000 * q for q in (statistics.median(took), float(np.quantile(took, 0.99)))]
    share = (place.cpu() - cpu) / SECONDS
    held = bool(all(np.isfinite(took))) and share < 1.0 and ends[1] < SLOW
    print(f"{len(took)} requests of {ROWS} rows at {RATE}/s: {sum(np.isfinite(took))} answered,")
    print(f"  {ends[0]:.1f} ms in the middle, {ends[1]:.1f} ms of 99 %, {share:.2f} of a core")
    for name, whole in zip(("JSON", "CSV"), wholes, strict=True):
        rate, each = flat_out(place, whole)
        print(f"{name}, as fast as it goes: {rate:.0f}/s, {each:.2f} ms of CPU a request")
        held = held and 1000 / each >= RATE
    memory = place.memory()
    found = fuzzed(place, wholes, many)
    grown = place.memory() - memory
    print(f"{found.total()} spoilt requests: {dict(found.most_common())}; {grown:+.0f} MB")
    same = [place.send(whole) for whole in wholes] == before
    broken = sum(n for status, n in found.items() if status.startswith("5"))
    print(f"afterwards the same predictions: {same}; failures: {broken} (promised: 0)")
    return int(not (held and same and broken == 0 and grown < GROWTH))


if __name__ == "__main__":
    sys.exit(main())
