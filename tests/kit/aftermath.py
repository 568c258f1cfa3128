"""What must hold of a network after trouble, whatever it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from coke.errors import ConvergenceError
from coke.learning.ready import Ready
from coke.learning.train import Trained, train
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from kit.agents import Net
from kit.plans import TOL, WAITS, Plan
from kit.shaken import Shaken
from kit.troubles import JOINS, Troubles

NEAR = 10 * TOL  # of the optimum, once all are within the tolerance
WORST = 17.5  # harm with the guard, as docs/trust.md has it of networks in trouble


class Aftermath:
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
        return self._proven or (calm and not self.world.hurt)

    def _all_ended(self) -> str:
        wrong = {n: e for n, e in self.world.errors.items() if n in self.here}
        if self.liar:  # cut, a liar may leave a site without neighbours
            wrong = {n: e for n, e in wrong.items() if not self._alone(n)}
        short = [
            n for n in self._nodes if not (self.liar or self.net.agents[n].outcome().converged)
        ]
        return f"{wrong} {short}" if wrong or short else ""

    def _alone(self, name: str) -> bool:
        return (
            isinstance(self.world.errors.get(name), ConvergenceError)
            and not self.net.node(name).open
        )

    @property
    def _nodes(self) -> list[str]:
        return [n for n in self.here if self.net.agents[n].node is not None]

    def _cancel(self) -> str:
        """Wherever both ends are known and stand in the same epoch."""
        nodes, wrong = {n: self.net.node(n) for n in self._nodes}, list[str]()
        for a, b in [(a, b) for a, node in nodes.items() for b in node.open if b in nodes]:
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
        if (spent != whole.ended.ledger).any():
            wrong.append(f"{spent} sent, {whole.ended.ledger} expected")
        return ", ".join(wrong)

    def _optimum(self) -> str:
        away = self.net.distance(*self.here)
        return "" if away <= NEAR else f"{away:.2g} away"

    def harm(self) -> float:
        """Mean loss of the honest sites' models on honest rows, by that of their optimum."""
        names = self._nodes
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
    return (
        ready.agreement.N,
        float(told.T),
        told.mean.tobytes(),
        told.sd.tobytes(),
        basis.C.tobytes(),
    )
