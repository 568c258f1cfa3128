"""Agents on streams, in threads over a network in memory: quick to break, and their simulation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coke.data.reading import PLAINLY
from coke.field.agent import Agent
from coke.field.carriers.base import Event
from coke.field.carriers.memory import Fault, Memory, faithful
from coke.field.phases import Pace
from coke.field.store import Store
from coke.field.streams import StreamMission, first_of, opened
from coke.learning.near import Arrived
from coke.learning.online import Replay, open_online
from coke.maths.graph import build_graph
from coke.settings.reading import checked_settings
from coke.settings.sites import checked_site
from kit.problems import Array

LONG = 300.0
PACE = Pace(tick=0.002, again=0.01, longest=0.05, patience=float("inf"), linger=2)
SETTINGS: dict[str, Any] = {
    "model": "plain", "lambda": 1e-3, "loss": "quadratic", "rounds": 200,
    "features": {"n_features": 10, "sigma": 2.0},
}  # fmt: skip
STREAM = {"time": "t", "first": 10, "wait": 0.1}


def rows_of(T: int, N: int, seed: int = 0) -> pd.DataFrame:
    """One row a tick and site."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, N, 2)) + 0.3 * np.arange(N)[:, None]
    y = np.sin(X.sum(axis=2)) + 0.1 * rng.normal(size=(T, N))
    return pd.DataFrame({
        "t": np.repeat(np.arange(T), N), "site": [f"s{n}" for _ in range(T) for n in range(N)],
        "a": X[..., 0].ravel(), "b": X[..., 1].ravel(), "y": y.ravel(),
    })  # fmt: skip


class Followers:
    """Sites by name; whoever has no thread is away."""

    def __init__(
        self, folder: Path, rows: pd.DataFrame, *, fault: Fault = faithful, pace: Pace = PACE,
        stream: dict[str, Any] | None = None, upto: int | None = None, **settings: Any,
    ):  # fmt: skip
        self.folder, self.memory, self.pace, self.rows = folder, Memory(fault), pace, rows
        self.names = sorted(set(rows["site"]))
        self.graph = build_graph("random", len(self.names), seed=0)
        self.settings, self.stream = SETTINGS | settings, STREAM | (stream or {})
        self.agents: dict[str, Agent] = {}
        self.errors: dict[str, BaseException] = {}
        self.events: dict[str, list[Event]] = {name: [] for name in self.names}
        self.phase: dict[str, str] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.lines: dict[str, list[str]] = {}
        self.fed = 0
        for name in self.names:
            (folder / name).mkdir(parents=True)
            own = rows[rows["site"] == name].drop(columns="site")
            self.lines[name] = own.to_csv(index=False).splitlines(keepends=True)
        self.feed(upto)

    def feed(self, upto: int | None = None) -> None:
        """So many rows of each site in all: the tick of its last has not ended there."""
        for name, lines in self.lines.items():
            with (self.folder / name / "rows.csv").open("a") as file:
                file.writelines(lines[self.fed : None if upto is None else 1 + upto])
        self.fed = 1 + (upto or 0)

    def start(self, *names: str, finishing: bool = True) -> None:
        for name in names or self.names:
            self.errors.pop(name, None)
            self.agents[name] = agent = self._agent(name, finishing)
            live = threading.Thread(target=self._live, args=(name, agent), daemon=True)
            self.threads[name] = live
        for name in names or self.names:
            self.threads[name].start()

    def finish(self) -> None:
        """The streams end with their sources; until then a pause is none."""
        for agent in self.agents.values():
            assert agent.follow is not None
            agent.follow.finishing = True

    def _agent(self, name: str, finishing: bool) -> Agent:
        at = self.names.index(name)
        friends = {self.names[n]: "" for n in sorted(self.graph[at])}
        file = str(self.folder / name / "rows.csv")
        config = checked_site({
            **self.settings, "data": {"file": file, "target": "y", "scale": "standard"},
            "stream": self.stream, "site": {"name": name, "network": "n", "neighbours": friends},
        })  # fmt: skip
        inflow, state = opened(config), self.folder / name / "state"
        state.mkdir(exist_ok=True)
        first = first_of(config, inflow, state, lambda: False)
        assert first is not None
        carrier, store = self.memory.join(name, set(friends)), Store(state, flushed=False)
        mission = StreamMission(config, first, inflow)
        return Agent(mission, carrier, store, self.pace, finishing=finishing)

    def _live(self, name: str, agent: Agent) -> None:
        try:
            with agent.store.claimed():
                for status in agent.run():
                    self.events[name] += [e for e in status.events if e.kind != "up"]
                    self.phase[name] = status.phase
        except Exception as error:  # whatever stopped it is the test's to judge
            self.errors[name] = error
        finally:
            agent.carrier.close()

    def kill(self, *names: str) -> None:
        """As kill -9: what is on disk is what is left, and nobody is told."""
        for name in names:
            self.agents[name].follow.goodbye = lambda: None  # type: ignore[union-attr,method-assign]
        self.stop(*names)

    def stop(self, *names: str) -> None:
        for name in names or tuple(self.threads):
            self.agents[name].stop()
        for name in names or tuple(self.threads):
            self.threads.pop(name).join(LONG)

    def wait(self) -> None:
        until = time.monotonic() + LONG
        for name, thread in self.threads.items():
            thread.join(max(0.0, until - time.monotonic()))
            if self.errors:
                raise next(iter(self.errors.values()))
            assert not thread.is_alive(), (name, self.ticks(), self.phase, self.events)

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + LONG
        while not done():
            if self.errors:
                raise next(iter(self.errors.values()))
            assert time.monotonic() < end, self.ticks()
            time.sleep(0.001)

    def beyond(self, tick: int) -> bool:
        return min(self.ticks().values()) >= tick

    def ticks(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, agent in self.agents.items():
            follow = agent.follow
            begun = follow is not None and follow.begun
            found[name] = follow.stream.ticks if begun else -1  # type: ignore[union-attr]
        return found

    def undisturbed(self) -> dict[str, float]:
        """Every site's squared error of a row, in the target's units, with nobody away."""
        replay, paid = self.opened_replay(), np.zeros((len(self.names), 2))
        stream, tick, model = replay.feed.stream, replay.feed.stream.tick, replay.feed._scores

        def seen(rows: Sequence[Arrived]) -> list[Array]:
            told = tick(rows)
            for own, f, one in zip(paid, told, rows, strict=True):
                off = model.scaling.predictions(f) - model.scaling.predictions(one.y)
                own += float((off**2).sum()), len(one.y)
            return told

        stream.tick = seen  # type: ignore[method-assign]
        for _ in replay.run():
            pass
        return dict(zip(self.names, (paid[:, 0] / paid[:, 1]).tolist(), strict=True))

    def replay(self) -> Replay:
        """The same in one process."""
        replay = self.opened_replay()
        for _ in replay.run():
            pass
        return replay

    def opened_replay(self) -> Replay:
        """Before its first row."""
        self.rows.to_csv(self.folder / "all.csv", index=False)
        settings = checked_settings({
            **self.settings, "graph": {"kind": "random"},
            "data": {"file": str(self.folder / "all.csv"), "target": "y", "site": "site"},
            "stream": {k: v for k, v in self.stream.items() if k != "wait"},
        })  # fmt: skip
        return open_online(settings, None, PLAINLY.say)

    def theta(self) -> Array:
        """What the sites have come to (N, K·D), in the last basis."""
        return np.array([agent.outcome().theta for agent in self.agents.values()])


def are_even(net: Followers, rows: int) -> None:
    """Duals cancel on every edge to the bit, no row is lost or counted twice; all have a basis."""
    for name in net.names:
        follow, learnt = net.agents[name].follow, net.agents[name].outcome()
        assert follow is not None
        assert follow.pending.counts.taken == rows
        assert set(learnt.asymmetry.values()) == {0.0}
        assert follow.stream.live.all()
    assert len({agent.follow.stream.mark for agent in net.agents.values()}) == 1  # type: ignore[union-attr]
