"""Networks that go down the tree, held where one likes, and the simulation they must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.testing import assert_array_equal

from coke.engines.process import Checkpoint, Record, simulate
from coke.field.agent import Agent
from coke.field.carriers.memory import Fault
from coke.field.frames import TALK
from coke.learning.ready import Ready
from coke.learning.train import Effects, train
from coke.maths.algorithms.coke import COKE, State
from coke.maths.algorithms.stopping import at_first
from coke.maths.ledger import Ledger, Spent
from coke.talk.descent import Descent
from kit.agents import Net

TREE: dict[str, Any] = {
    "algorithm": "tree-newton", "tol": None, "rounds": 400,
    "features": {"n_features": 6, "sigma": 2.0},
}  # fmt: skip


def descent(net: Net, name: str) -> Descent | None:
    """How far that site's has come, if it has begun."""
    return net.agents[name]._descend.descent


def held(net: Net, k: int) -> Fault:
    """From its k-th order on nobody tells anything of a descent."""

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        return () if frame[0] == TALK and swept(net, k)(sender) else (frame,)

    return fault


def swept(net: Net, k: int) -> Callable[[str], bool]:
    """Whether a site has come to the k-th order."""

    def there(name: str) -> bool:
        found = descent(net, name) if name in net.agents else None
        return found is not None and found.k >= k

    return there


def root_of(net: Net) -> str:
    """Of the tree that all agree on."""
    return next(place.name for place in net.task().places if place.parent is None)


def are_the_simulation(net: Net, agents: Iterable[Agent]) -> None:
    """The model, its proof, sweeps, bytes, how far it was, to the bit; but for rounds in vain."""
    away = list[float]()
    effects = Effects(watch=lambda _, record: away.append(record.away), handled=False)
    trained = train(net.task(), net.settings["algorithm"], effects)
    assert trained.theta is not None
    assert trained.certificate is not None
    assert trained.certificate.holds
    spent, told = np.zeros(3, np.int64), list[list[float]]()
    for agent, theta in zip(agents, trained.theta, strict=True):
        assert agent.agreed is not None
        end = agent.outcome()
        assert_array_equal(agent.mission.theta(agent.agreed, end.theta), theta)
        assert end.certificate == trained.certificate
        assert end.converged
        assert end.rounds == trained.ended.rounds == len(agent.lines())
        assert agent.node is not None
        vain = agent.node.ledger if agent._descend.done else Ledger()
        spent += np.subtract(end.ledger, vain)
        told.append([line["away"] for line in agent.lines()])
    assert_array_equal(spent, trained.ended.ledger)
    root = np.min if trained.name == "tree-newton" else np.max  # who foresees it, or the farthest
    assert_array_equal(root(told, axis=0), away)


def started(ready: Ready, sites: Mapping[str, Descent]) -> State:
    """What rounds of all sites begin with in one process, each after the same order."""
    algorithm, risk = ready.case("tree-newton").algorithm, ready.case("tree-newton").problem.train
    assert isinstance(algorithm, COKE)
    near = [[ready.names[n] for n in sorted(ready.graph[i])] for i in range(len(ready.names))]
    given = [sites[name].handed(near[i], algorithm.rho) for i, name in enumerate(ready.names)]
    (at,) = {one.at for one in given}
    assert at
    ends = [[one.bases[n][at] for n in near[i]] for i, one in enumerate(given)]
    theta = np.array([sites[name].u for name in ready.names])
    h = [[min(mine[0].h, algorithm.threshold.start)] for mine in ends]
    return State(
        theta=theta, hat=np.array([mine[0].x for mine in ends]),
        heard=np.array([sum(end.x for end in mine) for mine in ends]),
        g=np.array([sum(end.g for end in mine) for mine in ends]),
        h=np.array(h), loss=risk.losses(theta),
    )  # fmt: skip


def rounds_after(ready: Ready, sites: Mapping[str, Descent], spent: Spent) -> list[Record]:
    """The rounds that take the place of these descents, in one process."""
    case, N = ready.case("tree-newton"), len(ready.names)
    assert isinstance(case.algorithm, COKE)
    begin = Checkpoint(0, spent, at_first(N), started(ready, sites)._asdict())
    return list(
        simulate(
            case.problem, ready.graph, replace(case.algorithm, warm=False),
            rounds=ready.agreement.terms.settings.rounds, tol=case.tol, reach=ready.reach,
            scored=(), resume=begin,
        )
    )  # fmt: skip
