"""A network of sites in one process, tick by tick: what can go wrong does, from a seed.

Frames take a tick and more, get lost, doubled and overtaken; sites sleep, are slow, are cut off,
are killed before their image is on disk, after it, and after sending; sites leave, join and come
back. Only `Node`'s own methods run. A sleeper's frames wait for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from coke.field.frames import Frame, decode, encode
from coke.field.moves import Setup
from coke.field.node import Advance, Node
from coke.field.state import image, restored
from coke.maths.algorithms.codecs import Coarse
from coke.maths.algorithms.coke import COKE, Geometric
from coke.maths.algorithms.stopping import NEVER, Limits
from coke.maths.arrays import Array
from coke.maths.graph import Graph, adjacency, build_graph
from coke.maths.losses.problem import Quadratic

GOAL = 1e-9
ENDLESS = Limits(rounds=10**9)
PAUSE, LONGEST = 2, 4  # ticks until the first resend, and between two at most: an answer takes 4


class Faults(NamedTuple):
    """What goes wrong, and how long a site waits for the missing."""

    patience: float = math.inf  # ticks
    late: int = 0  # extra latency, at most: letters overtake each other
    loss: float = 0.0
    double: float = 0.0
    kill: float = 0.0  # per site, tick and each of the three points
    awake: float = 1.0
    slow: int = 1  # site 0 acts in every so many ticks only


GOING_ON = Faults(patience=1)


class Problem(NamedTuple):
    """N quadratic risks on a graph, and who they are."""

    risk: Quadratic
    graph: Graph
    algorithm: Any  # an Algorithm; here mostly COKE, whose settings are asked for

    def setup(self, i: int, limits: Limits = ENDLESS, reach: int | None = None) -> Setup:
        """Site i's."""
        far, N = nx.eccentricity(self.graph, i) if reach is None else reach, len(self.graph)
        row = self.algorithm.weights(adjacency(self.graph))[[i]]
        weights = {name(n): float(w) for n, w in zip(row.indices, row.data, strict=True)}
        return Setup(
            name=name(i), risk=self.risk.rows(slice(i, i + 1)), algorithm=self.algorithm,
            limits=limits, reach=far, sites=N, weights=weights,
        )  # fmt: skip

    def optimum(self, present: Iterable[int]) -> Array:
        """What the sites that are present agree on: λ/N₀ is each site's own share."""
        who = list(present)
        A, b = self.risk.A[who].sum(axis=0), self.risk.b[who].sum(axis=0)
        return np.asarray(np.linalg.solve(A + len(who) * float(self.risk.G) * np.eye(len(b)), b))


def name(i: int) -> str:
    """Sorted as the numbers are."""
    return f"site{i:03}"


def whitened(N: int = 10, L: int = 40, edges: int = 19, seed: int = 0) -> Problem:
    """Local Hessians with eigenvalues from 1.2 to 4.8, and minima that differ."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(N, L, L)))[0]
    H = (Q * rng.uniform(1.2, 4.8, (N, 1, L))) @ Q.swapaxes(1, 2)
    b = 3 * rng.normal(size=(N, L)) / math.sqrt(L)
    risk = Quadratic(H / 2, b / 2, np.ones(N), np.full(N, 100.0), 1e-3)
    algorithm = COKE(N / (2 * edges), Geometric(0.3, 0.9), Coarse())
    return Problem(risk, build_graph("random", N, edges=edges, seed=seed), algorithm)


class Timer(NamedTuple):
    """When the word of one edge's step is sent again."""

    at: tuple[int, int]
    rings: int
    pause: int


RINGS = Timer((-1, -1), 0, PAUSE)  # after a new start


class Agent:
    """One process: what it knows, and what a kill leaves of it."""

    def __init__(self, node: Node):
        self.node, self.disk = node, node
        self.acted, self.gone = 0, False
        self.timers: dict[str, Timer] = {}

    def killed(self) -> None:
        """kill -9 and a new start, from the bytes of the last image."""
        self.node = restored(image(self.disk), self.node.setup)
        self.timers = dict.fromkeys(self.node.open, RINGS)  # nothing is known to have been sent

    def late(self, t: int) -> list[str]:
        """The neighbours whose timer rings; it starts with a word, and its pauses double."""
        found = []
        for n, end in self.node.open.items():
            at, old = (end.epoch, end.s), self.timers.get(n)
            if old is RINGS or (old is not None and old.at == at and t >= old.rings):
                pause = min(2 * old.pause, LONGEST)
                self.timers[n] = Timer(at, t + pause, pause)
                found.append(n)
            elif old is None or old.at != at:
                self.timers[n] = Timer(at, t + PAUSE, PAUSE)
        return found


class World:
    """All sites and the frames between them."""

    def __init__(
        self,
        problem: Problem,
        faults: Faults,
        seed: int = 0,
        tol: float | None = None,
        absent: Iterable[int] = (),
        **limits: int,
    ):
        self.problem, self.faults, self.rng = problem, faults, np.random.default_rng(seed)
        self.t, self.kills, self.sent = 0, 0, 0
        self.frames: Counter[str] = Counter()
        self.mail: dict[str, list[tuple[int, str, bytes]]] = {}
        self.agents: dict[str, Agent] = {}
        self.cut: Callable[[str, str], bool] = lambda a, b: False
        self.limits = ENDLESS._replace(tol=tol, **limits)  # type: ignore[arg-type]
        missing = set(absent)
        for i in sorted(set(problem.graph) - missing):
            self.add(i, sorted(set(problem.graph[i]) - missing))

    def add(self, i: int, neighbours: Iterable[int]) -> None:
        """A site with an empty disk."""
        setup = self.problem.setup(i, self.limits)
        node = Node(setup, setup.ends(map(name, neighbours)), setup.start())
        self.agents[name(i)] = Agent(node)
        self.mail[name(i)] = []

    @property
    def nodes(self) -> dict[str, Node]:
        """As they are in memory."""
        return {n: a.node for n, a in self.agents.items() if not a.gone}

    def send(self, sender: str, frames: Iterable[tuple[str, Frame]]) -> None:
        """Each frame on its way, or lost, or twice."""
        f, rng = self.faults, self.rng
        for to, frame in frames:
            data = encode(frame)
            self.sent += len(data)
            if to not in self.mail or self.cut(sender, to) or rng.random() < f.loss:
                continue
            for _ in range(1 + (rng.random() < f.double)):
                due = self.t + 1 + (int(rng.integers(f.late + 1)) if f.late else 0)
                self.mail[to].append((due, sender, data))

    def take(self, me: str, after: Advance, mortal: bool = False) -> None:
        """Image, then frames; mortals may be killed before, between and after."""
        agent = self.agents[me]
        if mortal and self.strikes(agent):
            return
        agent.node = after.node
        if after.durable:
            agent.disk = after.node
        if mortal and self.strikes(agent):
            return
        self.send(me, after.frames)
        if mortal:
            self.strikes(agent)

    def strikes(self, agent: Agent) -> bool:
        """Whether the agent is killed here."""
        hit = self.faults.kill > 0 and self.rng.random() < self.faults.kill
        if hit:
            self.kills += 1
            agent.killed()
        return hit

    def tick(self) -> None:
        """One latency of the network."""
        self.t += 1
        for i, (me, agent) in enumerate(list(self.agents.items())):
            sleeps = self.faults.awake < 1 and self.rng.random() >= self.faults.awake
            slow = i == 0 and self.t % self.faults.slow != 0
            if not (agent.gone or sleeps or slow):
                self.act(me, agent)

    def act(self, me: str, agent: Agent) -> None:
        """Hear what has come, do a round if it is time, resend if the timer says so."""
        due = [frame for frame in self.mail[me] if frame[0] <= self.t]
        self.mail[me] = [frame for frame in self.mail[me] if frame[0] > self.t]
        for _, sender, data in due:
            self.take(me, agent.node.hear(sender, decode(data, agent.node.setup.moves.width)))
        if self.due(agent):
            agent.acted = self.t
            self.take(me, agent.node.round(force=True), mortal=True)
        late = agent.late(self.t)
        self.send(me, agent.node.resend(*late) if late else ())

    def due(self, agent: Agent) -> bool:
        """Whether all words are here, or patience is over and there is something to do."""
        node, ends = agent.node, agent.node.open.values()
        if node.done or not node.missing():
            return not node.done
        known = node.countdown < NEVER or any(end.last is not None for end in ends)
        busy = any(end.due for end in ends) or known or node.k >= self.limits.rounds
        return busy and self.t - agent.acted >= self.faults.patience

    def distance(self) -> float:
        """max_i ‖θ_i − θ*‖/‖θ*‖ over the sites that are present."""
        best = self.problem.optimum(int(n[4:]) for n in self.nodes)
        away = max(float(np.linalg.norm(s.theta[0] - best)) for s in self.nodes.values())
        return away / float(np.linalg.norm(best))

    def steps(self) -> float:
        """The median over open edge ends of their steps."""
        return float(np.median([e.s for s in self.nodes.values() for e in s.open.values()]))

    def until(self, goal: float, most: int, check: Callable[[World], None] | None = None) -> int:
        """Ticks from now until the distance is at most `goal`; −1 if these are more than `most`."""
        for t in range(1, most + 1):
            self.tick()
            if check is not None:
                check(self)
            if self.distance() <= goal:
                return t
        return -1


def invariants(world: World) -> None:
    """I1: ends at one step agree to the last bit. I2: steps differ by one at most. I6: 4 words."""
    for me, node in world.nodes.items():
        for n, end in node.ends.items():
            assert sum(w is not None for w in (end.out, end.prev, *end.box)) <= 4
            assert end.out or end.closed or node.done or not node.k, "an open end says nothing"
            other = world.nodes.get(n)
            if other is None or me not in other.ends or me > n:
                continue
            his = other.ends[me]
            if end.standing != his.standing:
                continue
            assert abs(end.s - his.s) <= 1, (me, n, end.s, his.s)
            if end.s == his.s:
                assert end.tag == his.tag
                assert end.own.tobytes() == his.cp.tobytes()
                assert (end.g == -his.g).all()


def forgotten(world: World, i: int = 0) -> None:
    """Whoever had an edge with site i closes it."""
    for n, node in world.nodes.items():
        if name(i) in node.ends:
            world.take(n, node.close(name(i)))


SMALL = whitened(6, 12, 8, seed=1)


@cache
def lockstep(*absent: int) -> tuple[int, float]:
    """Ticks and steps that the undisturbed network needs."""
    world = World(SMALL, Faults(), absent=absent)
    return world.until(GOAL, 1000), world.steps()


_round = Node.round


def eager(self: Node, force: bool = False) -> Advance:
    """A mutant of `Node.round`: g moves in every own round, not with completed steps only."""
    after = _round(self, force)
    ends = {
        n: end if end.due else end._replace(g=end.g + (end.own - end.cp))
        for n, end in after.node.ends.items()
    }
    return after._replace(node=after.node._replace(ends=ends))
