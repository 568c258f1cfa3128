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
from pathlib import Path
from typing import NamedTuple

from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.phases import Pace
from coke.learning.ready import Ready
from coke.maths.guards import HonestBounds
from coke.maths.ledger import Ledger
from kit.aftermath import Aftermath
from kit.agents import Net
from kit.liars import LIES, lying
from kit.plans import Plan, made, planned
from kit.shaken import Shaken
from kit.troubles import Troubles
from kit.untrue import UNTRUE, Untrue

PACE = Pace(tick=0.0, again=0.05, longest=0.4, linger=12.0)


class Found(NamedTuple):
    """What became of a run."""

    plan: Plan
    hit: Counter[str]  # what happened
    held: list[str]  # what held
    broken: list[str]  # what did not
    harm: float = math.nan  # of a liar


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
    after = Aftermath(plan, net, world, troubles, liar)
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
