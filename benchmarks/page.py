"""`make bench-page`: what a page that is hammered costs training, and what it costs itself.

Four agents in threads train by rounds, with and without a page at one of them; processes ask that
page as fast as they can, and two keep its stream open. Ratio of the CPU time of the training thread
a round, promised to be at most 1.1; the CPU time of the page's own thread a second.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from coke.field.agent import Agent
from coke.page.access import Access
from kit.agents import A, Net
from kit.asking import ask
from kit.paged import PagedNet

ROUNDS, REPEATS, CLIENTS, PROMISED = 1500, 3, 4, 1.1
SETTINGS: dict[str, Any] = {
    "algorithm": "coke",
    "tol": 0.0,
    "rounds": ROUNDS,
    "features": {"n_features": 100},
}
HAMMER = """
import socket, sys
port, path = int(sys.argv[1]), sys.argv[2]
text = f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode()
while True:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            link.sendall(text)
            while link.recv(65536):
                pass
    except OSError:
        pass
"""


class _Timed:
    """CPU seconds of the thread of one site."""

    seconds = 0.0

    def live(self, net: Net, name: str, agent: Agent) -> None:
        type(net)._live(net, name, agent)
        if name == A:
            self.seconds = time.thread_time()


def trained(kind: type[Net], folder: Path) -> tuple[float, float, list[float]]:
    """CPU seconds a round of the site's thread; seconds in all; CPU seconds of its page."""
    net, timed, page = kind(folder, **SETTINGS), _Timed(), [0.0]
    net._live = lambda name, agent: timed.live(net, name, agent)  # type: ignore[method-assign]
    began = time.monotonic()
    net.start()
    with ExitStack() as open_:
        if isinstance(net, PagedNet):
            net.until(lambda: (folder / A / "page.json").exists())
            access = net.access(A)
            for path in ("state",) * CLIENTS + ("stream",) * 2:
                open_.callback(subprocess.Popen(_command(access, path)).kill)
            while net.threads[A].is_alive():
                _look(access, page)
                time.sleep(0.2)
        net.wait()
    return timed.seconds / ROUNDS, time.monotonic() - began, page


def _command(access: Access, path: str) -> list[str]:
    return [sys.executable, "-c", HAMMER, str(access.port), f"/{access.token}/{path}"]


def _look(access: Access, page: list[float]) -> None:
    try:
        text = ask(access, "metrics").body.decode()
    except OSError:
        return
    page += [float(x.split()[1]) for x in text.splitlines() if x.startswith("coke_page_cpu_")]


def main() -> int:
    threading.current_thread().name = "benchmark"
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(REPEATS):
            calm, _, _ = trained(Net, Path(folder) / f"calm{i}")
            busy, took, page = trained(PagedNet, Path(folder) / f"busy{i}")
            ratios.append(busy / calm)
            shares.append(max(page) / took)
            print(f"{1e6 * calm:.0f} µs a round, {1e6 * busy:.0f} with a page that is hammered")
    ratio = statistics.median(ratios)
    print(f"training thread: {ratio:.2f} × (promised: {PROMISED})")
    print(f"page's own thread: {1000 * statistics.median(shares):.0f} ms of CPU a second")
    return int(ratio > PROMISED)


if __name__ == "__main__":
    sys.exit(main())
