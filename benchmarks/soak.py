"""`python benchmarks/soak.py [MINUTES]`: eight agents over TLS, killed and frozen at random.

Real processes, real disks, TLS on loopback, patience "wait". For a fifth of the time nobody
disturbs them: rounds a second and CPU per directed word are from there, beside bare TCP with frames
of the same mean size, between as many processes on the same graph. Then kill -9 with a new start,
and freezes of up to 5 s. Promised, and exit code 1 where it does not hold:

    θ of every site is the undisturbed simulation's at its round, every bit
    g_ij of every edge end is the simulation's Σ(θ̂_i − θ̂_j) at its step, every bit: so g_ij = −g_ji
    no agent ends by itself, and all go on once they are left alone
    no process grows: by `FLAT` a minute while undisturbed, by `GROWTH` while links come and go

CPU of at most `GOAL` times bare TCP's is a goal: the last line says whether it is met.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import json
import multiprocessing
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from coke.engines.process import simulate
from coke.field.local import _free_ports
from coke.maths.arrays import Array
from kit.field import Field, made_rows
from processes import cpu, resident

AGENTS, EDGES, FEATURES = 8, 14, 100
CALM = 0.2  # of the time
BETWEEN = 6.0  # seconds from one disturbance to the next, on average
FREEZE, DOWN = 5.0, 2.0  # seconds, at most: stopped, and until a new start
SPARED = 2  # sites that are frozen but never killed: their memory is watched all the time
WARM = 60.0  # seconds after its start, and after the first trouble, in which memory may grow
# kB a minute at most, over so many seconds at least. One small object lost a frame is 1000 or more.
FLAT, GROWTH = (250.0, 45.0), (1024.0, 180.0)
GOAL, BARE = 35.0, 2000  # times bare TCP, and its rounds
AFTER, WITHIN = 5, 120.0  # rounds that all make once left alone, and seconds for them


class Life(NamedTuple):
    """One process, and its resident memory over time."""

    name: str
    samples: list[tuple[float, float]]  # (seconds, kB)

    def growth(self, begin: float, end: float) -> tuple[float, float]:
        """kB a minute between two times, by least squares, and over how many seconds."""
        begin = max(begin, self.samples[0][0] + WARM)
        t, kb = np.array([(t, kb) for t, kb in self.samples if begin <= t < end] or [(0, 0)]).T
        length = float(t[-1] - t[0])
        return (60 * float(np.polyfit(t - t[0], kb, 1)[0]) if length else 0.0), length


class Trouble:
    """What is done to the agents, and what is seen of them meanwhile."""

    def __init__(self, field: Field, seed: int):
        self.field, self.rng = field, np.random.default_rng(seed)
        self.lives: dict[int, Life] = {}
        self.undo: dict[str, tuple[float, Callable[[], None]]] = {}
        self.kills = self.freezes = 0
        self.wrong: list[str] = []

    def go_on(self, seconds: float, between: float) -> None:
        """So long, with a disturbance every `between` seconds on average."""
        until = time.monotonic() + seconds
        following = time.monotonic() + self.rng.exponential(between)
        while (now := time.monotonic()) < until and not self.wrong:
            self._undo(now)
            if now >= following:
                following = now + self.rng.exponential(between)
                self._disturb(now)
            self._watch(now)
            time.sleep(0.25)
        self._undo(np.inf)

    def settle(self) -> None:
        """Left alone, everybody goes on; then all are stopped."""
        goal, until = max(rounds(self.field)) + AFTER, time.monotonic() + WITHIN
        while min(rounds(self.field)) < goal and not self.wrong:
            self._watch(time.monotonic())
            if time.monotonic() > until:
                self.wrong.append(f"round {goal} not reached in time: {rounds(self.field)}")
            time.sleep(0.25)
        for name in self.field.names:
            self.field.kill(name, signal.SIGTERM)

    def _undo(self, now: float) -> None:
        for name, (at, undo) in list(self.undo.items()):
            if at <= now:
                del self.undo[name]
                undo()

    def _disturb(self, now: float) -> None:
        name = str(self.rng.choice(self.field.names))
        process = self.field.processes[name]
        if name in self.undo:
            return
        if name not in self.field.names[:SPARED] and self.rng.random() < 0.5:
            self.kills += 1
            self.field.kill(name)
            self.undo[name] = now + self.rng.uniform(0, DOWN), lambda: self.field.start(name)
        else:
            self.freezes += 1
            process.send_signal(signal.SIGSTOP)
            awake = now + self.rng.uniform(0, FREEZE)
            self.undo[name] = awake, lambda: process.send_signal(signal.SIGCONT)

    def _watch(self, now: float) -> None:
        for name, process in self.field.processes.items():
            if name in self.undo:
                continue
            if process.poll() is not None:
                last = self.field.log(name)[-1:]
                self.wrong.append(f"{name} ended by itself, {process.returncode}: {last}")
                return
            life = self.lives.setdefault(process.pid, Life(name, []))
            if not life.samples or now > life.samples[-1][0] + 1:
                life.samples.append((now, resident(process.pid)))


# What must hold


def twin(field: Field, last: int) -> Iterator[Any]:
    """The undisturbed run's states after rounds 1 to `last`, in one process."""
    way = field.task().case("coke")
    run = simulate(way.problem, field.graph, way.algorithm, rounds=last, scored=())
    return (record.state for record in run)


def lost(field: Field) -> list[str]:
    """Every site and edge end whose bits are not the simulation's, or not the other end's."""
    nodes, number = list(map(field.node, field.names)), field.names.index
    ends = {(i, number(n)): end for i, s in enumerate(nodes) for n, end in s.ends.items()}
    wrong = [
        f"{edge} began anew: {end.standing}" for edge, end in ends.items() if any(end.standing)
    ]
    left, right = map(list, zip(*ends, strict=True))
    g, last = 0.0, max(node.k for node in nodes)
    for k, s in enumerate(twin(field, last), start=1):
        g = g + (s.hat[left] - s.hat[right])
        for i, node in enumerate(nodes):
            if node.k == k and node.theta.tobytes() != s.theta[i].tobytes():
                wrong.append(f"θ of {i} at round {k}")
        for n, (edge, end) in enumerate(ends.items()):
            if end.s == k and not ((end.g == g[n]).all() and (end.own == s.hat[edge[0]]).all()):
                wrong.append(f"g or own of {edge} at step {k}")
    level = [(i, j) for i, j in ends if i < j and ends[i, j].s == ends[j, i].s]
    wrong += [f"g of {i} and {j}" for i, j in level if (ends[i, j].g + ends[j, i].g).any()]
    print(f"up to round {last}: {len(wrong)} places differ; "
          f"{len(level)} of {len(ends) // 2} edges have both ends at one step")  # fmt: skip
    return wrong


def swollen(lives: list[Life], troubled: float) -> list[str]:
    """Processes whose memory grows too fast; `troubled` is when the trouble began.

    The first link that breaks costs a process about 2 MB for good, the next fifty as much together.
    """
    times = {
        "undisturbed": (0.0, troubled, *FLAT),
        "in trouble": (troubled + WARM, np.inf, *GROWTH),
    }
    wrong = []
    for when, (begin, end, most, least) in times.items():
        found = [(*life.growth(begin, end), life) for life in lives]
        known = [(kb, s, life) for kb, s, life in found if s >= least]
        texts = [f"{x.name} {x.samples[-1][1] / 1024:.0f} MB {kb:+.0f}" for kb, _, x in known]
        print(f"memory {when}, kB a minute: {', '.join(texts) or 'too short to judge'}")
        wrong += [f"{x.name} grows by {kb:.0f} kB a minute" for kb, _, x in known if kb > most]
    return wrong


# What it costs


def spent(field: Field) -> Array:
    """(4,) seconds, CPU seconds, words (one a round and neighbour) and bytes of all."""
    pids = [process.pid for process in field.processes.values()]
    used = sum(cpu(Path(f"/proc/{pid}/stat")) for pid in pids)
    words = sum(k * field.graph.degree[i] for i, k in enumerate(rounds(field)))
    sent = sum(told(field, name)["wire_bytes"] for name in field.names)
    return np.array([time.monotonic(), used, words, sent])


def rounds(field: Field) -> list[int]:
    """How far every site is."""
    return [int(told(field, name)["round"]) for name in field.names]


def told(field: Field, name: str) -> dict[str, float]:
    """The last whole line of a site's history."""
    path, lines = field.folder / "sites" / name / "state" / "history.jsonl", list[bytes]()
    if path.exists():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 2000))
            lines = file.read().rpartition(b"\n")[0].splitlines()
    return json.loads(lines[-1]) if lines else {"round": 0, "wire_bytes": 0}


def bare(pipe: Connection, me: int, others: list[int], ports: list[int], size: int) -> None:
    """A site that sends a frame to each neighbour and hears one from each; CPU seconds."""
    with socket.create_server(("127.0.0.1", ports[me])) as server:
        pipe.send_bytes(b"listening")
        pipe.recv_bytes()
        plugs = [socket.create_connection(("127.0.0.1", ports[n])) for n in others if n > me]
        plugs += [server.accept()[0] for n in others if n < me]
    for plug in plugs:
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ears, frame, begin = [plug.makefile("rb") for plug in plugs], size.to_bytes(4, "big"), 0.0
    for k in range(BARE + 200):
        begin = time.process_time() if k == 200 else begin  # warm by then
        for plug in plugs:
            plug.sendall(frame + bytes(size))
        for ear in ears:
            ear.read(int.from_bytes(ear.read(4), "big"))
    pipe.send_bytes(str(time.process_time() - begin).encode())
    pipe.recv_bytes()  # all are through


def tcp(field: Field, size: int) -> float:
    """µs of CPU for a frame in one direction."""
    spawn, ports = multiprocessing.get_context("spawn"), _free_ports(AGENTS)
    ends, said = [spawn.Pipe() for _ in range(AGENTS)], list[bytes]()
    for i, (_, there) in enumerate(ends):
        given = there, i, sorted(field.graph[i]), ports, size
        spawn.Process(target=bare, args=given, daemon=True).start()
    for _ in ("listening", "through"):
        said = [here.recv_bytes() for here, _ in ends]
        for here, _ in ends:
            here.send_bytes(b"go on")
    return 1e6 * sum(map(float, said)) / (2 * field.graph.number_of_edges() * BARE)


def soak(field: Field, seconds: float) -> list[str]:
    """The whole; what was promised and does not hold."""
    trouble, directed = Trouble(field, seed=0), 2 * field.graph.number_of_edges()
    try:
        field.start()
        field.until(lambda: min(rounds(field)) > 20, timeout=WITHIN)
        before = spent(field)
        trouble.go_on(CALM * seconds, between=1e9)
        calm, used, words, sent = spent(field) - before
        troubled = time.monotonic()
        trouble.go_on((1 - CALM) * seconds, BETWEEN)
        trouble.settle()
    finally:
        field.end()
    print(f"undisturbed: {words / directed / calm:.1f} rounds/s over {calm:.0f} s; "
          f"then {trouble.kills} kills and {trouble.freezes} freezes")  # fmt: skip
    wrong = [*trouble.wrong, *swollen(list(trouble.lives.values()), troubled), *lost(field)]
    size, ours = round(sent / words), 1e6 * used / words
    base = tcp(field, size)
    print(f"CPU per directed word of {size} bytes: {ours:.0f} µs; "
          f"bare TCP {base:.1f} µs, {ours / base:.0f} times; "
          f"the goal of {GOAL:g} is {'met' if ours <= GOAL * base else 'missed'}")  # fmt: skip
    return wrong


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the agents are ended, too
    minutes = float(sys.argv[1] if sys.argv[1:] else 10)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"features": {"n_features": FEATURES, "sigma": 2.0}, "rounds": 10**9, "tol": 0.0}
        settings["links"] = "broadcast"  # else edges are in reserve, unlike in `twin`
        field = Field(Path(folder) / "net", made_rows(100 * AGENTS), AGENTS, EDGES, **settings)
        wrong = soak(field, 60 * minutes)
    for what in wrong[:20]:
        print(f"BROKEN: {what}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
