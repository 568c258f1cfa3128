"""What befalls the sites of a world, and when: blows at random, and a network that changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

from coke.field.agent import Agent
from coke.maths.algorithms.stopping import NEVER
from kit.agents import Net
from kit.shaken import DOOMS, Shaken

HARMLESS = ("kill", "stop", "freeze", "cut", "silence", "clock", "full disk")  # to every bit
LEAVES, JOINS, RETURNS = "leaves", "joins", "is forgotten and comes back"
BETWEEN = 0.4  # seconds of the world's clock from one blow to the next, on average
LONGEST = 3.0  # that a site is down, frozen or cut off
JUMPS = (-3.0, -0.5, 0.5, 3.0, 3600.0)  # of a site's clock


class Troubles:
    """One after the other, from a seed."""

    def __init__(self, world: Shaken, seed: int, blows: int, backups: int, member: str):
        self.world, self.blows, self.backups, self.member = world, blows, backups, member
        self.draw = random.Random(f"{seed} troubles")
        self.old: dict[str, Path] = {}
        self.late = False  # the network was to change, but had ended by then
        self.whole = dict(world.net.friends)
        self.who = _spare(world.net) if member else ""
        if member == JOINS:
            self._without()
            world.absent.add(self.who)

    def __iter__(self) -> Iterator[None]:
        """A step a tick, until nothing more is to happen."""
        changes, then = self._changes(), 0.0
        left: Iterator[None] | None = changes
        while self.blows or left is not None:
            yield
            if left is not None and next(left, changes) is changes:
                left = None
            self._save()
            if self.blows and self.world.now >= then and (here := self.world.at_work()):
                self.blows -= 1
                then = self.world.now + self.draw.expovariate(1 / BETWEEN)
                self._blow(self.draw.choice(here))

    def _save(self) -> None:
        """A backup of somebody, now and then."""
        world = self.world
        here = [name for name in world.at_work() if name not in self.old]
        if self.member or world.liars:  # an agreement cannot go on without a neighbour that is gone
            here = [name for name in here if _trains(world.agents[name])]
        if self.backups and here and self.draw.random() < 0.05:
            name = self.draw.choice(here)
            self.old[name] = self.world.net.folder / f"backup of {name}"
            self.world.backup(name, self.old[name])

    def _blow(self, name: str) -> None:
        """Something happens to that site."""
        if self.backups and name in self.old and self.draw.random() < 0.5:
            self.backups -= 1
            self.world.restore(name, self.old[name])
            self.world.hit["restart with an old backup"] += 1
            return
        kind = self.draw.choice(HARMLESS)
        if kind == "kill" and self.draw.random() < 0.7:
            self.world.doom[name] = self.draw.choice(DOOMS)  # counted when it comes
        else:
            self._happens(kind, name, self.draw.uniform(0.05, LONGEST))
            self.world.hit[kind] += 1

    def _happens(self, kind: str, name: str, long: float) -> None:
        world, until = self.world, self.world.now + long
        friends = sorted(world.net.friends[name])
        match kind:
            case "kill":
                world.kill(name, long)
            case "stop":
                world.agents[name].stop()
            case "freeze":
                world.frozen[name] = until
            case "cut":
                for friend in self.draw.sample(friends, self.draw.randint(1, len(friends))):
                    world.cut(name, friend, until)
            case "silence":
                other = self.draw.choice(friends)
                both = self.draw.random() < 0.5
                world.deaf |= {(name, other): until} | ({(other, name): until} if both else {})
            case "clock":
                world.ahead[name] += self.draw.choice(JUMPS)
            case "full disk":
                world.full[name] = until

    # Sites come and go

    def _changes(self) -> Iterator[None]:
        """The steps of the network's change, a tick each."""
        if not self.member:
            return
        yield from self._until_all_train()
        if self.late:
            return
        if self.member == LEAVES:
            self.world.leave(self.who)
        elif self.member == JOINS:
            self._back()
        else:
            self.world.away(self.who)
            self._without()
            self._restart()
            until = self.world.now + self.draw.uniform(0.1, LONGEST)
            while self.world.now < until:
                yield
            yield from self._until_all_train()
            if self.late:
                return
            self._back()
        self.world.hit[f"a site {self.member}"] += 1

    def _until_all_train(self) -> Iterator[None]:
        """Or until it is too late."""
        world = self.world
        while True:
            here = [name for name in world.net.names if name not in world.absent]
            self.late = self.late or any(map(_ending, world.agents.values()))
            if self.late or all(n in world.at_work() and _trains(world.agents[n]) for n in here):
                return
            yield

    def _without(self) -> None:
        """In nobody's file."""
        net = self.world.net
        net.friends = {name: friends - {self.who} for name, friends in self.whole.items()}

    def _restart(self) -> None:
        """Its neighbours, whose files have changed."""
        for name in sorted(self.whole[self.who]):
            self.world.kill(name)

    def _back(self) -> None:
        """In everybody's file, and there."""
        net = self.world.net
        net.friends, net.table[self.who] = self.whole, {"joins": True}
        self._restart()
        self.world.arrive(self.who)


def _spare(net: Net) -> str:
    """Somebody without whom the others are still connected."""
    graph = nx.Graph([(a, b) for a in net.names for b in net.friends[a]])
    return next(name for name in net.names if name not in set(nx.articulation_points(graph)))


def _trains(agent: Agent) -> bool:
    descent = agent._descend.descent
    return agent.node is not None or (descent is not None and descent.k > 0)


def _ending(agent: Agent) -> bool:
    """Whether a site knows of the end."""
    node, descent = agent.node, agent._descend.descent
    return (node is not None and (node.done or node.countdown < NEVER)) or (
        descent is not None and descent.done
    )
