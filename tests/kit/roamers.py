"""Agents on streams that take turns in one thread, on a clock that only they move.

Whoever dies, dies at the same frame in every run: what hangs once, hangs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coke.field.agent import Status
from coke.field.phases import Pace
from kit.followers import Followers

PACE = Pace(tick=0.0, again=0.05, longest=0.4, patience=2.0, linger=5.0)
TURN = 0.001  # seconds
WAITS = 120.0  # seconds, in which whatever can go on has gone on
STEP, NEAR = 3, 6  # ticks that are fed at a time; by which those that are there may lag


class Killed(Exception):  # noqa: N818  it is no error
    """The process ends here: only what is on the disk is left."""


class Roamers(Followers):
    """The agents of a net; each turn of one takes as long."""

    def __init__(self, folder: Path, rows: pd.DataFrame, *, pace: Pace = PACE, **more: Any):
        super().__init__(folder, rows, pace=pace, **more)
        self.now, self.fault, self.memory.fault = 0.0, self.memory.fault, self._carried
        self.turns: dict[str, Iterator[Status]] = {}
        self.doomed: dict[str, int] = {}  # who die, and how many frames they send before
        self.deaths = 0  # of those so far

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

    def revive(self, away: dict[str, int]) -> None:
        """Starts whoever has died and is not away."""
        dead = [name for name in self.names if name not in self.turns and name not in away]
        if dead:
            self.start(*dead, finishing=False)

    def go_on(self, done: Callable[[], bool], most: float = WAITS) -> None:
        """Until then, or as long as that."""
        until = self.now + most
        while not done():
            assert self.now < until, (self.ticks(), self.phase)
            for name in list(self.turns):
                self._turn(name)

    def caught_up(self, tick: int) -> bool:
        """Whether all that run have come so far."""
        return all(self.ticks()[name] >= tick for name in self.turns)

    def revived_upto(self, tick: int) -> bool:
        """Whether all have come so far, whoever dies being started at once."""
        self.revive({})
        return self.caught_up(tick)

    def together(self) -> bool:
        """Whether no edge rests."""
        return all(agent.follow.stream.live.all() for agent in self.agents.values())  # type: ignore[union-attr]

    def suffers(self, rng: np.random.Generator, T: int) -> None:
        """Deaths and absences at random from where it has been fed to, up to row T and beyond."""
        fed, away = self.fed - 1, dict[str, int]()
        while fed < T or away:
            self.go_on(partial(self.caught_up, min(fed, T) - NEAR))
            self.revive(away)
            fed += STEP
            if fed - STEP < T:
                self.feed(min(fed, T))
            here = list(self.turns)
            if rng.random() < 0.25:
                self.doomed[str(rng.choice(here))] = 0
            if rng.random() < 0.08 and len(away) < len(self.names) / 2:
                who = str(rng.choice(here))
                self.kill(who)
                away[who] = fed + int(rng.integers(3, 80))
            for who in [name for name, until in away.items() if until <= fed]:
                del away[who]
        self.doomed.clear()
        self.revive(away)

    def _turn(self, name: str) -> None:
        self.now += TURN
        try:
            status = next(self.turns[name], None)
        except Killed:
            self.deaths, status = self.deaths + 1, None
        if status is None:
            self.kill(name)
            return
        at = f" at {self.now:.2f} s"
        self.events[name] += [e._replace(why=e.why + at) for e in status.events if e.kind != "up"]
        self.phase[name] = status.phase

    def _carried(self, sender: str, receiver: str, frame: bytes) -> Any:
        left = self.doomed.get(sender)
        if left == 0:
            del self.doomed[sender]
            raise Killed
        if left is not None:
            self.doomed[sender] = left - 1
        return self.fault(sender, receiver, frame)
