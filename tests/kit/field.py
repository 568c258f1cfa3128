"""Networks of real agents on loopback, and the simulation they must equal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coke.data.split import deal
from coke.data.tables import Rows, checked_rows
from coke.engines.process import Record, simulate
from coke.field.local import NetworkPlan, _site_names, write_network
from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.node import Node
from coke.field.state import restored
from coke.field.store import Store
from coke.learning.model import load_model
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.learning.train import train
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.graph import Graph, build_graph
from coke.maths.ledger import Ledger
from coke.settings.reading import checked_settings
from coke.settings.sites import read_site
from kit import frail
from kit.ready import held

SEED = 0
LONG = 300.0  # seconds: a condition that does not come true by then never does


def made_rows(T: int = 600, d: int = 4, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, d))
    return checked_rows(X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=T))


class Field:
    """A network on disk, its processes, and its twin in one process."""

    def __init__(self, folder: Path, rows: Rows, agents: int, edges: int, **settings: Any):
        self.folder = folder
        base: dict[str, Any] = {
            "model": "plain", "lambda": 1e-3, "seed": SEED, "rounds": 1000,
            "data": {"test": 0.0, "scale": "none"},
            "features": {"n_features": 20, "sigma": 2.0},
        }  # fmt: skip
        patience, carrier = settings.pop("patience", "wait"), settings.pop("carrier", "tls")
        self.settings = {**base, **settings}
        self.parts = deal(rows.y, agents, seed=SEED)
        self.rows, self.graph = rows, build_graph("random", agents, edges=edges, seed=SEED)
        plan = NetworkPlan("test", self.graph, rows, self.parts, self.settings, patience, carrier)
        self.paths = write_network(folder, plan)
        self.names = _site_names(list(self.parts))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.frailty: dict[str, str] = {}  # of agents started from now on: `kit.frail`

    def start(self, *names: str) -> None:
        for name in names or self.names:
            path = self.folder / "sites" / name / "site.toml"
            usual = ["-m", "coke", "agent", str(path), "--json"]
            command = [frail.__file__, str(path)] if self.frailty else usual
            with (path.parent / "log.jsonl").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **self.frailty},
                )  # fmt: skip

    def nursed(self, seed: int = 0, kills: int = 0, loss: float = 0.0, **given: Any) -> int:
        """Runs all, each dying so often and started again, to the end; how many deaths it took."""
        self.frailty = frail.frail(seed, kills, loss)
        self.start()
        self.until(lambda: not self._raised(), **given)
        ended = dict(zip(self.processes, self.wait(), strict=True))
        assert not any(ended.values()), {name: self.log(name)[-9:] for name in ended if ended[name]}
        return sum(map(frail.deaths, self.paths))

    def orphaned(self, order: int) -> str:
        """Starts all; the root of the tree dies when it comes to that order. Its name."""
        root = next(place.name for place in self.task().places if place.parent is None)
        self.start(*(name for name in self.names if name != root))
        self.frailty = frail.frail(order=order)
        self.start(root)
        self.frailty = {}
        self.until(lambda: self.processes[root].poll() is not None)
        assert self.processes[root].returncode == -signal.SIGKILL, self.log(root)[-5:]
        return root

    def _raised(self) -> list[str]:
        """Whom it is still waiting for; who was killed is started again."""
        for name, process in self.processes.items():
            if process.poll() == -signal.SIGKILL:
                self.start(name)
        return [name for name, process in self.processes.items() if process.poll() is None]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        self.processes[name].send_signal(number)
        self.processes[name].wait(timeout=LONG)

    def wait(self, timeout: float = 2 * LONG) -> list[int]:
        until = time.monotonic() + timeout
        try:
            return [p.wait(max(0.1, until - time.monotonic())) for p in self.processes.values()]
        finally:
            self.end()

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def log(self, name: str) -> list[dict[str, Any]]:
        found = []
        for line in (self.folder / "sites" / name / "log.jsonl").read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                found.append({"text": line})
        return found

    def result(self, name: str) -> dict[str, Any]:
        last = self.log(name)[-1]
        assert last.get("phase") == "result", self.log(name)[-5:]
        return last

    def rounds(self, name: str) -> int:
        path = self.folder / "sites" / name / "state" / "history.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def until(self, done: Callable[[], bool], timeout: float = LONG) -> None:
        end = time.monotonic() + timeout
        while not done():
            assert time.monotonic() < end, {name: self.log(name)[-1:] for name in self.names}
            time.sleep(0.05)

    def node(self, name: str) -> Node:
        """The state a site left on its disk."""
        mission = Mission(read_site(self.folder / "sites" / name / "site.toml"))
        store = Store(self.folder / "sites" / name / "state")
        way = self.task().case(mission.config.algorithm)
        risk = way.problem.train.rows(slice(self.names.index(name), self.names.index(name) + 1))
        place = self.task().places[self.names.index(name)]
        setup = Setup(
            name=name, risk=risk, algorithm=way.algorithm, limits=Limits(1),
            reach=place.reach, sites=place.shape.sites,
        )  # fmt: skip
        found = store.image(partial(restored, setup=setup))
        assert found is not None
        return found

    def theta(self) -> Array:
        return np.concatenate([self.node(name).theta for name in self.names])

    def task(self) -> Ready:
        if not hasattr(self, "_task"):
            sites = replace(held(self.rows, self.parts, seed=SEED), names=tuple(self.names))
            terms = Terms(checked_settings(self.settings), self.rows.columns)
            self._task = agree(replace(sites, numbers=terms.numbers), self.graph, terms)
        return self._task

    def twin(self, rounds: int, tol: float | None = None) -> list[Record]:
        """The same in one process."""
        way = self.task().case("coke")
        return list(
            simulate(way.problem, self.graph, way.algorithm, rounds=rounds,
                     tol=None if tol is None else tol * way.spread, spent=way.spent,
                     reach=self.task().reach, scored=())
        )  # fmt: skip

    def ledger(self) -> Ledger:
        results = [self.result(name) for name in self.names]
        return Ledger(*(sum(r[key] for r in results) for key in Ledger._fields))

    def now(self) -> datetime:
        return datetime.now(UTC)


def antisymmetric(field: Field, names: Sequence[str]) -> None:
    """g_ij = −g_ji to the bit wherever both ends are at the same step."""
    nodes = {name: field.node(name) for name in names}
    for a, node in nodes.items():
        for b, end in ((b, end) for b, end in node.open.items() if b in nodes):
            other = nodes[b].ends[a]
            if (end.epoch, end.s) == (other.epoch, other.s):
                np.testing.assert_array_equal(end.g, -other.g)
                np.testing.assert_array_equal(end.own, other.cp)


def are_the_simulation(field: Field) -> None:
    """The model, its proof, rounds and bytes, to the bit."""
    algorithm = field.settings["algorithm"]
    whole = train(field.task(), algorithm)
    assert whole.theta is not None
    assert field.ledger() == whole.ended.ledger
    for name, theta in zip(field.names, whole.theta, strict=True):
        result = field.result(name)
        assert result["converged"]
        assert result["rounds"] == whole.ended.rounds
        assert result["certificate"] == whole.ended.proven()
        # Of a neighbour that has parted before this one died once more nothing is known.
        assert not result["largest_asymmetry"]
        assert result["predicted_shift"] == 0.0
        model = load_model(field.folder / "sites" / name / "state" / "model.coke")
        np.testing.assert_array_equal(model.theta[0], theta)


__all__ = ["Field", "Graph", "antisymmetric", "are_the_simulation", "made_rows"]
