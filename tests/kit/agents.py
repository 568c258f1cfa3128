"""Agents in threads over a network in memory, each with a disk of its own: quick to break."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coke.data.split import deal
from coke.data.tables import Rows, checked_rows
from coke.field.agent import Agent, Status
from coke.field.carriers.base import Event
from coke.field.carriers.memory import Fault, Memory, faithful
from coke.field.edge import End
from coke.field.frames import Word, decode, encode, is_word
from coke.field.mission import Mission
from coke.field.node import Node
from coke.field.phases import Pace
from coke.field.store import Store
from coke.learning.ready import Ready, agree
from coke.maths.arrays import Array
from coke.maths.graph import build_graph
from coke.maths.losses.problem import matrix
from coke.settings.sites import checked_site
from kit.ready import held

SEED = 0
A, B, C, D = (f"site-{i}" for i in range(4))
GOAL = 1e-9
LONG = 300.0  # seconds: a condition that does not come true by then never does
PACE = Pace(tick=0.002, again=0.01, longest=0.05, patience=inf, linger=2)
GOING_ON = PACE._replace(patience=0.01)
TOL = 1e-10  # of the target's spread: the answer is then within 1e-9


def made_rows(T: int = 400, d: int = 3, seed: int = SEED) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, d))
    return checked_rows(X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=T))


class Net:
    """Sites by name, their rows, settings, disks and threads. Whoever has no thread is away."""

    def __init__(
        self,
        folder: Path,
        agents: int = 4,
        edges: int = 5,
        *,
        fault: Fault = faithful,
        pace: Pace = PACE,
        rows: int = 400,
        **settings: Any,
    ):
        self.folder, self.memory, self.pace, self.rows = (
            folder,
            Memory(fault),
            pace,
            made_rows(rows),
        )
        self.parts = deal(self.rows.y, agents, seed=SEED)
        self.graph = build_graph("random", agents, edges=edges, seed=SEED)
        self.names = [f"site-{i}" for i in range(agents)]
        self.friends = {n: {self.names[j] for j in self.graph[i]} for i, n in enumerate(self.names)}
        self.settings: dict[str, Any] = {
            "model": "plain", "lambda": 1e-3, "seed": SEED, "rounds": 3000, "tol": TOL,
            "data": {"file": "rows", "target": "y", "test": 0.0, "scale": "none"},
            "features": {"n_features": 12, "sigma": 2.0},
        } | settings  # fmt: skip
        self.own: dict[str, dict[str, Any]] = {n: {} for n in self.names}  # a site's own settings
        self.table: dict[str, dict[str, Any]] = {n: {} for n in self.names}  # and [site]
        self.kind: Callable[..., Mission] = Mission
        self.agents: dict[str, Agent] = {}
        self.status: dict[str, Status] = {}
        self.events: dict[str, list[Event]] = {n: [] for n in self.names}
        self.errors: dict[str, BaseException] = {}
        self.threads: dict[str, threading.Thread] = {}

    def mission(self, name: str) -> Mission:
        """What that site's agent is for, with the neighbours and settings of this moment."""
        friends = dict.fromkeys(sorted(self.friends[name]), "")
        table = {"name": name, "network": "test", "neighbours": friends} | self.table[name]
        config = checked_site({**self.settings, **self.own[name], "site": table})
        part = self.parts[self.names.index(name)]
        whose = self.rows._replace(X=self.rows.X[part], y=self.rows.y[part])
        return self.kind(config, whose)

    def start(self, *names: str, leave: bool = False) -> None:
        """A process for each, all by default."""
        for name in names or self.names:
            self.errors.pop(name, None)
            self.status.pop(name, None)
            carrier = self.memory.join(name, self.friends[name])
            agent = Agent(self.mission(name), carrier, Store(self.folder / name), self.pace)
            if leave:
                agent.leave()
            self.agents[name] = agent
            self.threads[name] = threading.Thread(
                target=self._live, args=(name, agent), daemon=True
            )
        for name in names or self.names:
            self.threads[name].start()

    def _live(self, name: str, agent: Agent) -> None:
        try:
            with agent.store.claimed():
                for status in agent.run():
                    self.status[name] = status
                    self.events[name] += status.events
        except Exception as error:  # whatever stopped it is the test's to judge
            self.errors[name] = error
        finally:
            agent.carrier.close()

    def stop(self, *names: str) -> None:
        """As SIGTERM does; what is on the disk is what a kill would have left."""
        for name in names or tuple(self.threads):
            self.agents[name].stop()
        for name in names or tuple(self.threads):
            self.threads.pop(name).join(LONG)

    def wait(self, *names: str, timeout: float = LONG) -> None:
        """Until they have ended, without an error."""
        until = time.monotonic() + timeout
        for name in names or tuple(self.threads):
            self.threads[name].join(max(0.0, until - time.monotonic()))
            assert not self.threads[name].is_alive(), self.told()
            if name in self.errors:
                raise self.errors[name]

    def until(self, done: Callable[[], bool], timeout: float = LONG) -> None:
        end = time.monotonic() + timeout
        while not done():
            assert time.monotonic() < end, self.told()
            time.sleep(0.001)

    def told(self) -> tuple[dict[str, tuple[object, ...]], dict[str, BaseException]]:
        """Where everybody is, and what stopped whom."""
        return {name: s[:4] for name, s in self.status.items()}, self.errors

    def rounds(self, *names: str) -> int:
        """The fewest that any of them has made."""
        return min(s.round if (s := self.status.get(n)) else 0 for n in names or self.names)

    def failed(self, *names: str) -> Callable[[], bool]:
        return lambda: all(name in self.errors for name in names)

    def node(self, name: str) -> Node:
        node = self.agents[name].node
        assert node is not None
        return node

    def end(self, name: str, neighbour: str) -> End:
        return self.node(name).ends[neighbour]

    def theta(self, *names: str) -> Array:
        return np.concatenate([self.node(name).theta for name in names or self.names])

    def optimum(self, names: Iterable[str]) -> Array:
        """argmin Σ_present R_i: the share λ/N₀ is each site's own."""
        found = [self.node(name).setup.risk for name in names]
        risks = [risk.sums for risk in found if risk.sums is not None]
        assert len(risks) == len(found)
        A = sum(risk.A[0] + matrix(risk.G, risk.size) for risk in risks)
        return np.asarray(np.linalg.solve(A, sum(risk.b[0] for risk in risks)))

    def distance(self, *names: str) -> float:
        """max_i ‖θ_i − θ*‖ over those present, to their optimum."""
        away = self.theta(*names) - self.optimum(names or self.names)
        return float(np.sqrt((away * away).sum(axis=1)).max())

    def asymmetry(self, *names: str) -> float:
        """The largest |g_ij + g_ji|, where one end is a step ahead before that step."""
        here = names or self.names
        ends = {(a, b): e for a in here for b, e in self.node(a).open.items() if b in here}
        pairs = [(e, ends[b, a]) for (a, b), e in ends.items()]
        assert all(e.epoch == f.epoch and abs(e.s - f.s) <= 1 for e, f in pairs)
        before = [e.g - (e.own - e.cp) * (e.s - f.s) + f.g for e, f in pairs if e.s >= f.s]
        return float(max(np.abs(apart).max() for apart in before))

    def task(self) -> Ready:
        """The same network in one process."""
        sites = replace(held(self.rows, self.parts, seed=SEED), names=tuple(self.names))
        terms = self.mission(self.names[0]).terms
        return agree(replace(sites, numbers=terms.numbers), self.graph, terms)


Nets = Callable[..., Net]


def made_nets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nets]:
    """Networks whose threads end with the test. No power is cut here, so nothing is flushed."""
    monkeypatch.setattr("coke.data.files.os.fsync", lambda _: None)
    monkeypatch.setattr("coke.field.journal._flush", lambda _: None)
    made: list[Net] = []

    def make(**settings: Any) -> Net:
        made.append(Net(folder / f"net{len(made)}", **settings))
        return made[-1]

    yield make
    for net in made:
        net.stop()


def others(net: Net, name: str) -> list[str]:
    return [n for n in net.names if n != name]


def fails(net: Net, name: str) -> BaseException:
    """What stops that agent."""
    net.until(net.failed(name))
    net.threads.pop(name).join(LONG)
    return net.errors[name]


def forger(forge: Callable[[Word], Word | None], sender: str, *receivers: str) -> Fault:
    """What the words of a sender become on the way to these receivers, by default all."""

    def fault(a: str, b: str, frame: bytes) -> tuple[bytes, ...]:
        if a == sender and (b in receivers or not receivers) and is_word(frame):
            word = decode(frame, 100)
            made = forge(word) if isinstance(word, Word) else None
            return (frame,) if made is None else (encode(made),)
        return (frame,)

    return fault
