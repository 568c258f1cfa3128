"""Agents that take turns in one thread, on a clock that only they move: crashes where one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coke.field.agent import Agent, Status
from coke.field.carriers.base import Event
from coke.field.frames import TALK, Said, decode_letter
from coke.field.phases import Pace
from coke.field.store import Store
from kit.agents import Net

TURNS = 100_000
PACE = Pace(tick=0.0, again=0.05, longest=0.4, patience=float("inf"), linger=5.0)
Message = tuple[str, str, object]  # sender, receiver, and what tells it from others


def agreement(frame: bytes) -> object:
    """Which message of the agreement a frame is, if it is one."""
    letter = decode_letter(frame) if frame[0] == TALK else None
    return letter.which if isinstance(letter, Said) else None


class Killed(Exception):  # noqa: N818  it is no error
    """The process ends here: only what is on the disk is left."""


class Driven:
    """The agents of a net; `crash` says whom a frame kills that `which` knows, the first time."""

    def __init__(
        self,
        net: Net,
        crash: Callable[[str, str], str | None],
        which: Callable[[bytes], object] = agreement,
        pace: Pace = PACE,
    ):
        self.net, self.crash, self.kills, self.now = net, crash, 0, 0.0
        self.which, self.pace, self.events = which, pace, list[Event]()
        self.met: set[Message] = set()
        self.agents: dict[str, Agent] = {}
        self._turns: dict[str, Iterator[Status]] = {}
        self._dead: set[str] = set()
        net.memory.fault = self._carried
        for name in net.names:
            self._start(name)

    def run(self) -> None:
        """Until all are done; one that has gone for good hangs up."""
        left = dict.fromkeys(self.net.names)
        for _ in range(TURNS):
            for name in list(left):
                if not self._turn(name):
                    self.agents[name].carrier.close()
                    del left[name]
            if not left:
                break
        for agent in self.agents.values():
            agent.store.close()
        assert not left, "they wait for each other for ever"

    def _turn(self, name: str) -> bool:
        """Whether it has more to do."""
        self.now += 0.01
        try:
            status = next(self._turns[name], None)
            going = status is not None
            self.events += status.events if status is not None else ()
        except Killed:
            going = True
        for dead in self._dead:
            self.agents[dead].store.close()
            self._start(dead)
        self._dead.clear()
        return going

    def _start(self, name: str) -> None:
        folder = self.net.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        carrier = self.net.memory.join(name, self.net.friends[name])
        agent = Agent(self.net.mission(name), carrier, Store(folder), self.pace, lambda: self.now)
        self.agents[name], self._turns[name] = agent, agent.run()

    def _carried(self, sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        which = self.which(frame)
        if which is None or (sender, receiver, which) in self.met:
            return (frame,)
        self.met.add((sender, receiver, which))
        who = self.crash(sender, receiver)
        if who is None:
            return (frame,)
        self._dead.add(who)
        self.kills += 1
        if who != sender:
            return ()  # it is lost with the receiver's memory
        there = self.net.memory.other(sender, receiver)
        assert there is not None
        there.arrived(sender, frame)
        raise Killed
