"""Agents on streams that take turns in one thread, on a clock that only they move.

Whatever dies, dies at the same frame in every run: what hangs once, hangs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from coke.field.agent import Agent, Status
from coke.field.phases import Pace
from kit.followers import Followers

PACE = Pace(tick=0.0, again=0.05, longest=0.4, patience=2.0, linger=5.0)
TURN = 0.002  # seconds


class Killed(Exception):  # noqa: N818  it is no error
    """The process ends here: only what is on the disk is left."""


class Roamers(Followers):
    """The agents of a net; each turn of one takes as long."""

    def __init__(
        self, folder: Path, rows: pd.DataFrame, *, pace: Pace = PACE, turn: float = TURN,
        **more: Any,
    ):  # fmt: skip
        super().__init__(folder, rows, pace=pace, **more)
        self.now, self.turn = 0.0, turn
        self.turns: dict[str, Iterator[Status]] = {}
        self.doomed: set[str] = set()  # who die with the next frame that they send

    def __enter__(self) -> Roamers:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(*self.agents)

    def start(self, *names: str, finishing: bool = True) -> None:
        for name in names or self.names:
            self.agents[name] = agent = self._agent(name, finishing)
            agent.clock = lambda: self.now
            self.turns[name] = agent.run()

    def kill(self, *names: str) -> None:
        for name in names:
            self.turns.pop(name, None)
            self.agents[name].store.close()
            self.agents[name].carrier.close()

    def go_on(self, done: Callable[[], bool], most: float) -> None:
        """Until then, or as long as that."""
        until = self.now + most
        while not done():
            assert self.now < until, (self.ticks(), self.phase)
            for name in list(self.turns):
                self._turn(name)

    def together(self) -> bool:
        """Whether no edge rests."""
        return all(agent.follow.stream.live.all() for agent in self.agents.values())  # type: ignore[union-attr]

    def _turn(self, name: str) -> None:
        self.now += self.turn
        try:
            status = next(self.turns[name], None)
        except Killed:
            self.kill(name)
            return
        if status is None:
            self.agents[name].store.close()
            self.agents[name].carrier.close()
            del self.turns[name]
            return
        at = f" at {self.now:.2f} s"
        self.events[name] += [e._replace(why=e.why + at) for e in status.events if e.kind != "up"]
        self.phase[name] = status.phase
