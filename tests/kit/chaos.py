"""Runs from seeds in which everything goes wrong, and what must hold of them all the same.

A seed says which sites there are, how they train, what befalls them, and, for every other one,
which lie one of them tells. Honest sites that lost no memory come to the bits of the simulation;
after an old backup, or where sites came, went or were not waited for, to the optimum of those who
are there. In all of them duals cancel to the bit, nobody is lost and no row counts twice. With a
liar honest sites end, with a harm of at most what docs/trust.md says.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from coke.errors import ConvergenceError
from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.phases import Pace
from coke.learning.ready import Ready
from coke.learning.train import Trained, train
from coke.maths.arrays import Array
from coke.maths.graph import build_graph
from coke.maths.guards import HonestBounds
from coke.maths.ledger import Ledger
from kit.agents import Net
from kit.liars import LIES, lying
from kit.shaken import Shaken, Weather
from kit.troubles import JOINS, LEAVES, RETURNS, Troubles
from kit.untrue import UNTRUE, Untrue

TOL = 1e-6
NEAR = 10 * TOL  # of the optimum, once all are within the tolerance
WORST = 17.5  # harm with the guard, as docs/trust.md has it
WAITS, GOES_ON = math.inf, 0.5  # patience in seconds of the world's clock
PACE = Pace(tick=0.0, again=0.05, longest=0.4, linger=12.0)
COKE = "coke"
METHODS: dict[str, dict[str, Any]] = {
    COKE: {"algorithm": "coke", "tol": TOL},
    "coke, roughly": {"algorithm": "coke", "tol": 1e-3},
    "tree-newton": {"algorithm": "tree-newton", "tol": None},
    "auto": {"algorithm": "auto", "tol": None},
    "coke, logistic": {"algorithm": "coke", "loss": "logistic", "tol": 1e-3},
    "a chosen model": {
        "algorithm": "auto", "tol": None, "model": "auto", "lambda": "auto",
        "features": {"n_features": 6},
    },
    "tree-newton, logistic": {"algorithm": "tree-newton", "loss": "logistic", "tol": None},
}
GRAPHS: dict[str, Callable[[int, int, int], Any]] = {
    "random": lambda n, edges, seed: build_graph("random", n, edges=edges, seed=seed),
    "ring": lambda n, *_: nx.cycle_graph(n),
    "path": lambda n, *_: nx.path_graph(n),
    "star": lambda n, *_: nx.star_graph(n - 1),
}
NEAR_ONLY = (COKE, "tree-newton")  # whose answer is known also where it is not the simulation's
LYING = 150  # rounds with a liar


class Plan(NamedTuple):
    """What a seed means."""

    seed: int
    sites: int
    graph: str
    method: str
    patience: float
    weather: Weather
    blows: int  # how often something happens
    backups: int  # of these, restarts with old ones, at most
    member: str  # how the network changes; nothing where it does not
    lie: str  # what one of them tells; nothing where all are honest

    def __str__(self) -> str:
        waits = "waits" if self.patience == WAITS else "goes on"
        loss, twice, late = self.weather
        more = [f"one {self.member}" if self.member else "", f"a liar: {self.lie}"]
        return ", ".join([
            f"seed {self.seed}: {self.sites} sites, {self.graph}, {self.method}, {waits}",
            f"{loss:.0%} lost, {twice:.0%} twice, up to {late:.2f} s late",
            *filter(None, more[: 1 + bool(self.lie)]),
        ])  # fmt: skip


def planned(seed: int) -> Plan:
    """Every other one has a liar."""
    draw = random.Random(f"{seed} plan")
    lie = draw.choice([*LIES, *UNTRUE]) if seed % 2 else ""
    member = "" if lie or draw.random() < 0.7 else draw.choice([LEAVES, JOINS, RETURNS])
    method = COKE if lie else draw.choice(NEAR_ONLY if member else list(METHODS))
    near = method in NEAR_ONLY
    return Plan(
        seed=seed, method=method, lie=lie, member=member,
        sites=draw.randint(6, 8) if lie else draw.randint(3, 6),
        graph=draw.choice(["random", "ring"] if lie or member else list(GRAPHS)),
        patience=GOES_ON if lie or member else draw.choice([WAITS, GOES_ON]) if near else WAITS,
        weather=Weather(
            draw.choice([0, 0.05, 0.2]), draw.choice([0, 0.1]), draw.choice([0.01, 0.03, 0.2])
        ),
        blows=draw.randint(3, 20), backups=draw.choice([0, 1, 2]) if near else 0,
    )  # fmt: skip


class Found(NamedTuple):
    """What became of a run."""

    plan: Plan
    hit: Counter[str]  # what happened
    held: list[str]  # what held
    broken: list[str]  # what did not
    harm: float = math.nan  # of a liar


def made(plan: Plan, folder: Path) -> Net:
    """The sites."""
    edges = min(plan.sites * (plan.sites - 1) // 2, plan.sites + 1 + plan.seed % 3)
    settings: dict[str, Any] = {
        "rounds": 3000, "features": {"n_features": 8, "sigma": 2.0},
        "data": {"file": "rows", "target": "y", "test": 0.0, "scale": "standard"},
        **METHODS[plan.method],
    }  # fmt: skip
    if plan.member or plan.method == "tree-newton" and plan.patience != WAITS:
        settings["tol"] = TOL
    if plan.lie:
        settings |= {"guard": True, "rounds": LYING, "tol": 1e-3}
    net = Net(folder, plan.sites, plan.sites, rows=80 * plan.sites, **settings)
    if settings.get("loss") == "logistic":
        net.rows = net.rows._replace(y=(net.rows.y > 0).astype(float))
    net.graph = GRAPHS[plan.graph](plan.sites, edges, plan.seed)
    net.friends = {n: {net.names[j] for j in net.graph[i]} for i, n in enumerate(net.names)}
    return net


def shaken(seed: int, folder: Path) -> Found:
    """One run, and what held."""
    plan = planned(seed)
    net = made(plan, folder)
    pace = PACE._replace(patience=plan.patience)
    world = Shaken(net, plan.weather, pace, seed)
    liar = _liar(plan, net, world) if plan.lie else ""
    troubles = Troubles(world, seed, plan.blows, plan.backups, plan.member)
    ended = world.run(iter(troubles))
    net.agents = world.agents
    after = _After(plan, net, world, troubles, liar)
    if not ended:
        where = {n: (a._train.node and a._train.node.k) for n, a in world.agents.items()}
        return Found(plan, world.hit, [], [f"they wait for each other for ever: {where}"])
    found = Found(plan, world.hit, [], [], after.harm() if liar else math.nan)
    for name, holds in after.checks().items():
        try:
            why = holds()
        except AssertionError as error:
            why = f"{type(error).__name__} {error}"
        (found.broken if why else found.held).append(f"{name}: {why}" if why else name)
    return found


def _liar(plan: Plan, net: Net, world: Shaken) -> str:
    """One of them tells that lie; its name."""
    liar = random.Random(f"{plan.seed} liar").choice(net.names)
    world.liars = {liar}
    if plan.lie in UNTRUE:
        world.lies = Untrue(liar, plan.lie, plan.seed)
        return liar
    best = net.task().case("coke").problem.optimum

    class Lying(Mission):
        def setup(self, ready: Ready, spent: Ledger) -> Setup:
            """Of a site that lies, if it is this one."""
            own = super().setup(ready, spent)
            if self.name != liar:
                return own
            edge = HonestBounds.of(own.risk, own.sites, self.case(ready).spread ** 2).edge
            return lying(own, LIES[plan.lie], best, edge)

    net.kind = Lying
    return liar


class _After:
    """What can be known of a run once it is over."""

    def __init__(
        self, plan: Plan, net: Net, world: Shaken, troubles: Troubles, liar: str
    ):  # fmt: skip
        self.plan, self.net, self.world, self.troubles, self.liar = plan, net, world, troubles, liar
        gone = world.absent | (world.leaving if not self._proven else set())
        self.here = [n for n in net.names if n not in gone and n != liar]

    def checks(self) -> dict[str, Callable[[], str]]:
        """By name; each gives what is wrong, or nothing."""
        found = {
            "nobody is lost": self._all_ended,
            "duals cancel to the bit": self._cancel,
            "one agreement, no row twice": self._one_agreement,
        }
        if self.liar:
            return found | {f"harm at most {WORST:g}": self._harmless}
        if self._exact:
            return found | {"the simulation's bits": self._simulation}
        return found | {"the optimum of those who are there": self._optimum}

    @property
    def _proven(self) -> bool:
        """Whether sums over the tree led to the end."""
        return any(agent._descend.done for agent in self.net.agents.values())

    @property
    def _exact(self) -> bool:
        """Whether nothing happened that bits may follow from."""
        plan = self.plan
        calm = plan.patience == WAITS and not (plan.member and not self.troubles.late)
        return self._proven or (calm and not self.troubles.hurt)

    def _all_ended(self) -> str:
        wrong = {n: e for n, e in self.world.errors.items() if n in self.here}
        if self.liar:  # cut, a liar may leave a site without neighbours
            wrong = {n: e for n, e in wrong.items() if not self._alone(n)}
        short = [n for n in self._nodes if not (self.liar or self.net.agents[n].outcome().converged)]
        return f"{wrong} {short}" if wrong or short else ""

    def _alone(self, name: str) -> bool:
        return isinstance(self.world.errors.get(name), ConvergenceError) and not self.net.node(
            name
        ).open

    @property
    def _nodes(self) -> list[str]:
        return [n for n in self.here if self.net.agents[n].node is not None]

    def _cancel(self) -> str:
        """Wherever both ends are known and stand in the same epoch."""
        nodes, wrong = {n: self.net.node(n) for n in self._nodes}, list[str]()
        for a, b in ((a, b) for a in nodes for b in nodes[a].open if b in nodes):
            mine, his = nodes[a].ends[b], nodes[b].ends[a]
            if his.closed or mine.epoch != his.epoch or mine.s < his.s:
                if not self.liar and (his.closed or mine.epoch != his.epoch):
                    wrong.append(f"{a} and {b} stand apart")
                continue
            apart = mine.g - (mine.own - mine.cp) * (mine.s - his.s) + his.g
            if mine.s - his.s > 1 or apart.any():
                wrong.append(f"{a} and {b} by {np.abs(apart).max():.2g}")
        told = {x for n in self._ended for x in self.net.agents[n].outcome().asymmetry.values()}
        honest = not self.liar and not told <= {0.0, None}
        return ", ".join(wrong) + (f" told {told}" if honest else "")

    @property
    def _ended(self) -> list[str]:
        return [n for n in self._nodes if n in self.world.done]

    def _one_agreement(self) -> str:
        """All agree on the same, to the bit: each row of the first sites was counted once."""
        known = {_agreed(self.net.agents[name].agreed) for name in self._nodes}
        first = [n for n in self.net.names if (self.plan.member, n) != (JOINS, self.troubles.who)]
        rows = sum(len(self.net.parts[self.net.names.index(name)]) for name in first)
        if self.plan.member != JOINS:
            known.add(_agreed(self.task))
        ((sites, T, *_), *more) = known
        wrong = more or (sites, T) != (len(first), rows)
        return f"{len(known)} agreements, {T} rows of {sites} sites for {rows}" if wrong else ""

    @cached_property
    def task(self) -> Ready:
        """The same sites in one process."""
        return self.net.task()

    @cached_property
    def _trained(self) -> Trained:
        return train(self.task, self.net.settings["algorithm"])

    def _simulation(self) -> str:
        """θ, rounds, proof and bytes."""
        whole, wrong = self._trained, list[str]()
        assert whole.theta is not None
        spent = np.zeros(3, np.int64)
        for name, theta in zip(self.net.names, whole.theta, strict=True):
            agent = self.net.agents[name]
            end, ready, node = agent.outcome(), agent.agreed, agent.node
            assert ready is not None
            assert node is not None
            spent += np.subtract(end.ledger, node.ledger if agent._descend.done else Ledger())
            if not (agent.mission.theta(ready, end.theta) == theta).all():
                wrong.append(f"θ of {name}")
            if (end.rounds, end.certificate) != (whole.ended.rounds, whole.certificate):
                wrong.append(f"{name}: {end.rounds} rounds for {whole.ended.rounds}")
        if tuple(spent) != whole.ended.ledger:
            wrong.append(f"{spent} sent, {whole.ended.ledger} expected")
        return ", ".join(wrong)

    def _optimum(self) -> str:
        away = self.net.distance(*self.here)
        return "" if away <= NEAR else f"{away:.2g} away"

    def harm(self) -> float:
        """Mean loss of the honest sites' models on honest rows, by that of their optimum."""
        names = [n for n in self._nodes]
        risks = [self.net.node(n).setup.risk for n in names]

        def loss(theta: Array) -> float:
            return float(np.mean([risk.losses(theta[None])[0] for risk in risks]))

        theirs = [
            loss(risk.alone()[0] if self._alone(n) else self.net.node(n).theta[0])
            for n, risk in zip(names, risks, strict=True)
        ]
        return float(np.mean(theirs)) / loss(self.net.optimum(names))

    def _harmless(self) -> str:
        harm = self.harm()
        return "" if harm <= WORST else f"{harm:.3g}"


def _agreed(ready: Ready | None) -> tuple[Any, ...]:
    """What all sites must know alike: sites, rows, units and basis."""
    assert ready is not None
    told, basis = ready.agreement.told.columns, ready.whitened[1].whitening
    return ready.agreement.N, float(told.T), told.mean.tobytes(), told.sd.tobytes(), basis.C.tobytes()


def many(seeds: Sequence[int], folder: Path) -> list[Found]:
    """A run for each."""
    return [shaken(seed, folder / str(seed)) for seed in seeds]
