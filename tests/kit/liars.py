"""Networks of nodes with liars among them, in lockstep: what one does to the honest sites.

A liar keeps to the edge protocol, or it would be struck out; what it says is up to it. `LIES` maps
a name to how a liar's θ of a round comes about, for each of its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from coke.errors import ConvergenceError
from coke.field.auditing import CONVICTS, NodeAudit
from coke.field.edge import End
from coke.field.guarding import Watch
from coke.field.moves import Setup, Tellings, _Elastic
from coke.field.node import Node
from coke.field.signing import Signer
from coke.learning.ready import Ready
from coke.learning.vouching import vouching
from coke.maths.algorithms.codecs import LIMIT
from coke.maths.algorithms.coke import COKE
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.audit import Flows, Vouched
from coke.maths.guards import ALARMS, WARNS, HonestBounds
from coke.talk.claiming import vouch
from coke.talk.conversation import together
from coke.talk.place import Place
from coke.talk.sums import swept


class View(NamedTuple):
    """What a liar knows in a round: as much as there is to know."""

    k: int
    best: Array  # (D,) θ*, which it may have found out
    own: Array  # (D,) what an honest site would say
    end: End  # of the edge in question
    victim: int  # which of its neighbours this is
    rho: float
    bound: float  # what no test sees on this edge: of a node, shared by its edges, and of an edge
    rng: np.random.Generator  # its own, the same in every run


Lie = Callable[[View], Array]


def _sized(x: Array, size: float) -> Array:
    return x * (size / max(float(np.sqrt(x @ x)), 1e-12))


def _direction(at: View) -> Array:
    rng = np.random.default_rng(7)
    return _sized(rng.normal(size=len(at.best)), float(np.sqrt(at.best @ at.best)))


def _below(part: float, wish: Callable[[View], Array]) -> Lie:
    """What pulls towards a wish, as hard as a part of the bound allows: it knows the guard."""

    def lie(at: View) -> Array:
        x = wish(at)
        ahead = at.end.g + at.end.cp - x  # his dual, were this the next word
        room = part * at.bound / at.rho
        size = float(np.sqrt(ahead @ ahead))
        return x if size <= room else at.end.cp - _sized(ahead, room) + at.end.g

    return lie


def _against(at: View) -> Array:
    return -at.best


LIES: dict[str, Lie] = {
    "-θ*": _against,
    "-10 θ*": lambda at: -10 * at.best,
    "-100 θ*": lambda at: -100 * at.best,
    "0": lambda at: 0 * at.best,
    "10 θ*": lambda at: 10 * at.best,
    "a direction": _direction,
    "10 directions": lambda at: 10 * _direction(at),
    "one entry": lambda at: at.own + 20 * np.eye(len(at.own))[0] * np.abs(at.best).max(),
    "minus what it should": lambda at: -at.own,
    "twice what it should": lambda at: 2 * at.own,
    "noise": lambda at: at.own + _sized(at.rng.normal(size=len(at.own)), 1.0),
    "much noise": lambda at: _sized(at.rng.normal(size=len(at.own)), 10.0),
    "to and fro": lambda at: at.best * (5 if at.k % 2 else -5),
    "a ramp": lambda at: at.own + 0.02 * at.k * _direction(at),
    "late": lambda at: at.own if at.k < 60 else -at.best,
    "two faces": lambda at: at.best + (-1) ** at.victim * _direction(at),
    "to one only": lambda at: -3 * at.best if at.victim == 0 else at.own,
    "the neighbour's, turned": lambda at: -at.end.cp,
    "the neighbour's, and more": lambda at: at.end.cp + 0.3 * _direction(at),
    "within the bound, -θ*": _below(0.95, _against),
    "within the bound, a direction": _below(0.95, lambda at: 3 * _direction(at)),
    "unsuspicious": _below(0.5, _against),
    "slowly, within the bound": _below(0.95, lambda at: at.own - min(at.k / 100, 1) * at.best),
    "vouches for much, then -θ*": lambda at: -at.best,
    "vouches for much, then -10 θ*": lambda at: -10 * at.best,
    "vouches for much, then within the bound": _below(0.95, _against),
}
_BOASTS = {lie for name, lie in LIES.items() if name.startswith("vouches")}


class _Lying(_Elastic):
    """Says to each neighbour what the lie makes of it."""

    def __init__(self, setup: LyingSetup):
        super().__init__(setup)
        self._lie, self._best, self._bound = setup.lie, setup.best, setup.bound
        self._rng, self._k = np.random.default_rng(11), 0

    def step(self, s: Any, ends: Mapping[str, End], k: int | None) -> tuple[Any, Tellings]:
        """The honest θ, and other words."""
        try:
            after, _ = super().step(s, ends, k)
        except ConvergenceError:
            after = s
        self._k += k is not None
        told: Tellings = {}
        for victim, name in enumerate(sorted(ends)):
            at = View(
                k=self._k, best=self._best, own=after.theta[0], end=ends[name], victim=victim,
                rho=self.rho, bound=self._bound, rng=self._rng,
            )  # fmt: skip
            x = np.clip(self._lie(at), -0.4 * LIMIT, 0.4 * LIMIT)
            told |= super().step(s._replace(theta=x[None]), {name: ends[name]}, None)[1]
        return after, told


@dataclass(frozen=True, kw_only=True)
class LyingSetup(Setup):
    """A setup whose site lies, and watches nobody."""

    lie: Lie
    best: Array
    bound: float

    @cached_property
    def moves(self) -> _Elastic:
        """Of a liar."""
        return _Lying(self)


def lying(setup: Setup, lie: Lie, best: Array, bound: float) -> Setup:
    """The same site, but it lies."""
    fields = {f: getattr(setup, f) for f in Setup.__dataclass_fields__ if f != "_edges"}
    return LyingSetup(**{**fields, "watch": None, "lie": lie, "best": best, "bound": bound})


class Told(NamedTuple):
    """What became of a network."""

    harm: float  # mean loss of the honest sites' models on honest rows, by that of their optimum
    alone: float  # the same of models that were learnt alone
    parted: float  # of the optima of the parts that are left without liars: their absence alone
    lost: frozenset[tuple[str, str]]  # who has cut whom
    warned: frozenset[tuple[str, str]]  # who suspects whom
    guarded: int = 0  # bytes of claims before training and of audits
    wire: int = 0  # bytes of rounds


def vouched(
    task: Ready, boasting: Collection[str] = ()
) -> tuple[dict[str, Vouched], dict[str, Signer], int]:
    """What all sites say of themselves, some of them as much as counts; their keys; the bytes."""
    train, signers = task.case("coke").problem.train, {n: Signer.drawn() for n in task.names}
    talks = {}
    for i, place in enumerate(task.places):
        near, key = tuple(sorted(place.degrees)), signers[place.name].public
        rows = 1.0 if task.agreement.terms.by_rows else float(train.T[i])
        own = vouching(train.rows(slice(i, i + 1)), near, key, rows)
        if place.name in boasting:
            own = own._replace(bend=1e9, zero=1e9, size=1e9, rows=1.0)
        talks[place.name] = vouch(partial(swept, place, []), place, own)
    found, ledgers = together(talks)
    return found[task.names[0]], signers, sum(one.wire_bytes for one in ledgers.values())


class Network:
    """Nodes in lockstep, some of which lie; each honest one watches its edges.

    A liar states nothing in audits; a `frank` one states its edges as they are, and a loss that is
    far more than counts. It passes nothing on.
    """

    def __init__(self, task: Ready, guard: bool, liars: Mapping[str, Lie], frank: bool = False):
        self.task, self.cuts, self.nodes = task, set[tuple[str, str]](), dict[str, Node]()
        self.watches, N = dict[str, Watch](), len(task.names)
        boasting = {name for name, lie in liars.items() if lie in _BOASTS}
        way = task.case("coke")
        self.told, self.signers, self.vouched = vouched(task, boasting) if guard else ({}, {}, 0)
        self.frank = dict[str, NodeAudit]()
        self.usual = min((N - 1) / task.graph.number_of_edges(), 1.0)
        assert isinstance(way.algorithm, COKE)
        self.honest = np.array([name not in liars for name in task.names])
        self.flows, best = Flows(self.told, way.spread**2), way.problem.optimum
        for i, name in enumerate(task.names):
            risk = way.problem.train.rows(slice(i, i + 1))
            setup = Setup(
                name=name, risk=risk, algorithm=way.algorithm, limits=Limits(10**9, way.tol),
                reach=task.places[i].reach, sites=N,
            )  # fmt: skip
            near = [task.names[n] for n in task.graph[i]]
            if name in liars:
                bound = self._unseen(task.places[i], HonestBounds.of(risk, N, way.spread**2))
                setup = lying(setup, liars[name], best, bound)
                if guard and frank:
                    self.frank[name] = NodeAudit(name, self.flows, self.signers[name], risk.size)
            else:
                watch = Watch(risk, N, way.spread**2, self.usual, task.places[i].parted)
                if guard:
                    watch.audit = NodeAudit(name, self.flows, self.signers[name], risk.size)
                self.watches[name], setup = watch, replace(setup, watch=watch)
            self.nodes[name] = Node(setup, setup.ends(near), setup.start())

    def _unseen(self, place: Place, own: HonestBounds) -> float:
        """What a liar can pull with on each of its edges unseen."""
        near = place.degrees
        if not self.told:
            usual = own.edge * WARNS[0] * self.usual
            return min(usual, own.leaf * ALARMS) if place.parted else usual
        edges = min(self.flows.edge(place.name, n) for n in near)
        return min(edges, CONVICTS * self.flows.node() / len(near))

    def run(self, rounds: int) -> Told:
        """What became of it after so many rounds, or up to twice as many until all have settled."""
        for k in range(2 * rounds):
            if k >= rounds and self._settled():
                break
            self._round()
            self._flood()
        warned = ((n, who) for n, watch in self.watches.items() for who in watch.suspects)
        harm = _harm(self.task, self.nodes, self.honest)
        wire = sum(node.spent.wire_bytes for node in self.nodes.values())
        return Told(
            *harm, frozenset(self.cuts), frozenset(warned), self.vouched + self.audited, wire
        )

    def _settled(self) -> bool:
        """Whether no honest site that has neighbours moves, or differs from them."""
        nodes = [self.nodes[name] for name in self.watches]
        return all(node.away <= 1.0 for node in nodes if node.open)

    @property
    def audited(self) -> int:
        """Bytes of audits."""
        return sum(w.audit.spent for w in self.watches.values() if w.audit is not None)

    def _flood(self) -> None:
        """Statements go one edge further; liars pass none on."""
        posted = []
        for name, watch in self.watches.items():
            if watch.audit is not None:
                found = watch.audit.posts(self.nodes[name].open)
                posted += [(name, to, data) for to, data in found]
        for name, audit in self.frank.items():
            node = self.nodes[name]
            audit.look(node.k, node.open, node.setup.moves.rho, math.inf)
            said = audit.posts(node.open)
            posted += [
                (name, *post) for post in said if post[1] == audit._heard.get(name, (None,))[0]
            ]
        audits = {n: w.audit for n, w in self.watches.items() if w.audit is not None} | self.frank
        for sender, to, data in posted:
            if to in audits:
                audits[to].hear(sender, data, self.nodes[to].k)

    def _round(self) -> None:
        nodes, posted = self.nodes, []
        for name, node in nodes.items():
            if not node.open:
                continue
            after = node.round(force=True)
            shut = node.open.keys() - after.node.open.keys()
            self.cuts |= {(name, who) for who in shut}
            nodes[name] = after.node._replace(wide=after.node.wide or bool(shut))
            posted += [(name, to, frame) for to, frame in after.frames]
        for _ in range(3):
            answers = []
            for sender, to, frame in posted:
                heard = nodes[to].hear(sender, frame)
                nodes[to] = heard.node._replace(
                    wide=heard.node.wide or len(heard.node.open) < len(nodes[to].open)
                )
                answers += [(to, who, answer) for who, answer in heard.frames]
            posted = answers


def network(
    task: Ready, guard: bool, liars: Mapping[str, Lie], rounds: int = 200, *, frank: bool = False
) -> Told:
    """So many rounds of all sites, some of which lie."""
    return Network(task, guard, liars, frank).run(rounds)


def _harm(task: Ready, nodes: Mapping[str, Node], honest: Any) -> tuple[float, float, float]:
    """Of the honest sites' models on honest rows, of those learnt alone, of parts without liars."""
    risk, N = task.case("coke").problem.train, len(honest)
    who = np.flatnonzero(honest).tolist()

    def loss(theta: Array) -> float:
        return float(risk.losses(np.tile(theta, (N, 1)))[who].mean())

    def best(sites: Any) -> float:
        total = risk.total(np.isin(np.arange(N), sites).astype(np.float64))
        assert total is not None
        return loss(total.alone()[0])

    alone = {i: loss(theta) for i, theta in enumerate(risk.alone())}
    # A site without neighbours stops, and has what it learns alone.
    at = {i: nodes[task.names[i]] for i in who}
    theirs = [loss(node.theta[0]) if node.open else alone[i] for i, node in at.items()]
    parts = [[*part] for part in nx.connected_components(task.graph.subgraph(who))]
    parted = sum(len(part) * best(part) for part in parts) / len(who)
    found = float(np.mean(theirs)), float(np.mean([alone[i] for i in who])), parted
    harm, own, least = (x / best(who) for x in found)
    return harm, own, least
