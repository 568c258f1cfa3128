"""Agents with disks of their own on one clock that a seed moves: what can go wrong to them does.

Whole agents take turns in one thread, over the network in memory; `Trouble` says what befalls them
and when. A kill comes between two frames, before, in the middle of or after a write to the disk, or
before or after a frame is sent. Everything follows from the seed, so a run that went wrong can be
looked at again.
"""

from __future__ import annotations

import errno
import heapq
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from unittest.mock import patch

from coke.data.files import write_file
from coke.errors import CokeError, FileError
from coke.field import journal
from coke.field.agent import Agent, Status
from coke.field.carriers.base import Allowance, Event
from coke.field.phases import Pace
from coke.field.store import Store
from kit.agents import Net
from kit.driven import Killed

TICK = 0.01  # seconds of the clock in which everybody has a turn
TURNS = 60_000  # ticks at most
AGAIN = 30.0  # seconds of the clock until a person looks after a site that finds nobody
PLENTY = Allowance(rate=1e9, burst=10**9)  # real time says nothing here
DOOMS = ("before a write", "in a write", "after a write", "before a frame", "after a frame")


class Weather(NamedTuple):
    """What happens to frames all the time."""

    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0  # seconds of delay, at most: frames overtake each other


class Shaken:
    """The agents of a net; who is down, frozen, out of space or cut off is in its fields."""

    def __init__(self, net: Net, weather: Weather, pace: Pace, seed: int):
        self.net, self.weather, self.pace, self.now = net, weather, pace, 0.0
        self.draw = random.Random(f"{seed} world")
        self.agents: dict[str, Agent] = {}
        self.done: set[str] = set()  # they have ended by themselves
        self.down: dict[str, float] = {}  # until when
        self.frozen: dict[str, float] = {}
        self.full: dict[str, float] = {}  # their disks
        self.deaf: dict[tuple[str, str], float] = {}  # frames vanish, one way; the link looks fine
        self.cuts: dict[tuple[str, str], float] = {}  # links that are known to be down
        self.absent: set[str] = set()  # they have not come yet, or have gone
        self.leaving: set[str] = set()  # started from now on, they leave
        self.liars: set[str] = set()  # nobody waits for their end
        self.hurt: set[str] = set()  # started with an old backup
        self._quiet = 0.0  # since when nobody has ended
        self.ahead: dict[str, float] = dict.fromkeys(net.names, 0.0)  # clocks that jumped
        self.doom: dict[str, str] = {}  # how a site dies at its next chance
        self.lies: Callable[[str, str, bytes], tuple[bytes, ...]] = lambda *frame: frame[2:]
        self.hit: Counter[str] = Counter()  # what has really happened
        self.events: list[tuple[str, Event]] = []
        self.errors: dict[str, CokeError] = {}  # that stopped a site for good
        self._turns: dict[str, Iterator[Status]] = {}
        self._held: dict[str, ExitStack] = {}
        self._flying: list[tuple[float, int, str, str, bytes]] = []
        self._sent = 0
        self._on: str | None = None  # whose turn it is
        net.memory.fault = self._carried

    # Time

    def run(self, trouble: Iterator[None]) -> bool:
        """Whether all end that are to: `trouble` is asked before every tick."""
        with _disks(self):
            for name in self.net.names:
                if name not in self.absent:
                    self.start(name)
            for _ in range(TURNS):
                next(trouble, None)
                self.tick()
                if self._over():
                    break
            for held in self._held.values():
                held.close()
        return self._over()

    def _over(self) -> bool:
        ended = self.done | self.errors.keys() | self.absent | self.liars
        return all(name in ended or self._stranded(name) for name in self.net.names)

    def _stranded(self, name: str) -> bool:
        """Whether no neighbour is left but a liar that has gone: a person must forget it."""
        node = self.agents[name].node if name in self.agents else None
        gone = self.liars & (self.done | self.errors.keys())
        return node is not None and bool(gone) and gone >= node.open.keys()

    def tick(self) -> None:
        """Everybody who is up and awake has a turn, in any order."""
        self.now += TICK
        self._deliver()
        self._ask_back()
        for name in [name for name, until in self.down.items() if until <= self.now]:
            self.start(name)
        for pair in [pair for pair, until in self.cuts.items() if until <= self.now]:
            del self.cuts[pair]
            self.net.memory.heal(*pair)
        awake = [n for n in self.net.names if n in self._turns and self.frozen.get(n, 0) < self.now]
        self.draw.shuffle(awake)
        for name in awake:
            self._turn(name)

    def _ask_back(self) -> None:
        """Whoever has lost what all had agreed on, and finds nobody left, needs the others again.

        A person then starts their agents once more: they answer, and end again.
        """
        lost = [
            name for name in self.hurt if name in self._turns and self.agents[name].node is None
        ]
        if lost and self.now > self._quiet + AGAIN:
            self._quiet = self.now
            for name in sorted(self.done):
                self.hit["started again after the end"] += 1
                self.done.discard(name)
                self.kill(name)

    def _turn(self, name: str) -> None:
        self._on = name
        try:
            status = next(self._turns[name], None)
        except Killed:
            self.kill(name)
        except FileError as error:
            if os.strerror(errno.ENOSPC) not in str(error):
                raise
            self.hit["stopped by a full disk"] += 1
            self.kill(name, self.draw.uniform(0, 1.5) * (self.full[name] - self.now))
        except CokeError as error:
            self.errors[name] = error
            self._end(name)
        else:
            if status is None and self.agents[name].stopped:
                self.kill(name)
            elif status is None:
                self.done.add(name)
                self._quiet = self.now
                self._end(name)
            else:
                self.events += [(name, event) for event in status.events]
        finally:
            self._on = None

    # Sites

    def start(self, name: str) -> None:
        """A new process, from what is on the disk."""
        self.down.pop(name, None)
        self.doom.pop(name, None)
        folder = self.net.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        carrier = self.net.memory.join(name, self.net.friends[name], PLENTY)
        store, held = Store(folder), ExitStack()
        held.enter_context(store.claimed())
        agent = Agent(self.net.mission(name), carrier, store, self.pace, lambda: self._time(name))
        if name in self.leaving:
            agent.leave()
        self.agents[name], self._turns[name], self._held[name] = agent, agent.run(), held

    def kill(self, name: str, away: float = 0.0) -> None:
        """At once; it is up again after a while."""
        self._end(name)
        self.down[name] = self.now + away

    def _end(self, name: str) -> None:
        if name in self._turns:
            self._turns.pop(name).close()  # type: ignore[attr-defined]
            self._held.pop(name).close()
            self.agents[name].carrier.close()

    def leave(self, name: str) -> None:
        """It leaves for good, and so it does if it is killed on the way."""
        self.leaving.add(name)
        self.agents[name].leave()

    def away(self, name: str) -> None:
        """Gone, until somebody starts it."""
        self.absent.add(name)
        self._end(name)
        self.down.pop(name, None)

    def arrive(self, name: str) -> None:
        """There, for the first time or again."""
        self.absent.discard(name)
        self.errors.pop(name, None)
        self.kill(name)

    def cut(self, name: str, other: str, until: float) -> None:
        """No frames either way, and both know that there is no link."""
        self.net.memory.cut(name, other)
        self.cuts[name, other] = until

    def at_work(self) -> list[str]:
        """Who has a process that has not ended."""
        return [name for name in self.net.names if name in self._turns]

    def backup(self, name: str, to: Path) -> None:
        """The site's folder as it is, which may be in the middle of anything but a write."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.net.folder / name, to)

    def restore(self, name: str, old: Path) -> None:
        """Killed, and up again with what a backup had."""
        self.hurt.add(name)
        self.kill(name)
        shutil.rmtree(self.net.folder / name)
        shutil.copytree(old, self.net.folder / name)

    def _time(self, name: str) -> float:
        return self.now + self.ahead[name]

    # Frames

    def _carried(self, sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        doom = self.doom.pop(sender) if self.doom.get(sender, "").endswith("frame") else ""
        if doom == "before a frame":
            self.hit[f"kill {doom}"] += 1
            raise Killed
        for said in self.lies(sender, receiver, frame):
            self._send(sender, receiver, said)
        if doom:
            self.hit[f"kill {doom}"] += 1
            raise Killed
        return ()

    def _send(self, sender: str, receiver: str, frame: bytes) -> None:
        loss, twice, late = self.weather
        if self.deaf.get((sender, receiver), 0) > self.now:
            self.hit["frames that vanished"] += 1
            return
        if self.draw.random() < loss:
            self.hit["frames lost"] += 1
            return
        copies = 1 + (self.draw.random() < twice)
        self.hit["frames twice"] += copies - 1
        for _ in range(copies):
            self._sent += 1
            arrives = self.now + self.draw.uniform(0, late)
            heapq.heappush(self._flying, (arrives, self._sent, sender, receiver, frame))

    def _deliver(self) -> None:
        while self._flying and self._flying[0][0] <= self.now:
            _, _, sender, receiver, frame = heapq.heappop(self._flying)
            there = self.net.memory.other(sender, receiver)
            if there is not None:
                there.arrived(sender, frame)

    # Disks

    def write(self, write: Callable[[], None], tear: Callable[[], None]) -> None:
        """A write of the site whose turn it is, which may be its last."""
        name = self._on
        doom = self.doom.get(name or "", "")
        if name is None or not doom.endswith("write"):
            write()
            return
        del self.doom[name]
        self.hit[f"kill {doom}"] += 1
        if doom == "in a write":
            tear()
        elif doom == "after a write":
            write()
        raise Killed

    def no_space(self) -> bool:
        """Whether the disk is full of the site whose turn it is."""
        return self._on is not None and self.full.get(self._on, 0) > self.now


class _Full:
    """A file on a disk that is full: some bytes, and no more."""

    def __init__(self, file: IO[bytes], draw: random.Random):
        self._file, self._draw, self.name = file, draw, file.name

    def write(self, data: bytes) -> int:
        """As much as there is room for."""
        self._file.write(data[: self._draw.randrange(len(data))])
        self._file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def _disks(world: Shaken) -> Iterator[None]:
    """Writes of agents go through the world. No power is cut here, so nothing is flushed."""
    put = journal.put

    def torn(file: IO[bytes], at: int, data: bytes) -> None:
        file.seek(at)
        file.write(data[: world.draw.randrange(len(data))])
        file.flush()

    def over(file: IO[bytes], at: int, data: bytes, *, flushed: bool) -> None:
        there = _Full(file, world.draw) if world.no_space() else file
        world.write(lambda: put(there, at, data, flushed=False), lambda: torn(file, at, data))  # type: ignore[arg-type]

    def whole(path: Path, data: bytes) -> None:
        world.write(lambda: write_file(path, data), lambda: None)

    def flush(_: int) -> None:
        if world.no_space():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ExitStack() as patched:
        for room in ("journal", "store"):
            patched.enter_context(patch(f"coke.field.{room}.put", over))
            patched.enter_context(patch(f"coke.field.{room}.write_file", whole))
        patched.enter_context(patch("coke.data.files.os.fsync", flush))
        yield
