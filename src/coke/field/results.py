"""What a site keeps once its agent has ended: its model, its history, and what there is to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from coke.data.files import atomically
from coke.engines.history import as_arrow
from coke.errors import ConvergenceError
from coke.field.agent import Agent, Learnt
from coke.field.mission import Mission
from coke.learning.assessing import assessed_here
from coke.learning.doubts import doubts, outdone
from coke.learning.model import Model
from coke.learning.ready import Ready
from coke.learning.targets import by_target
from coke.learning.verdict import Ended


def keep(agent: Agent) -> dict[str, Any]:
    """Model and history in the state folder; and what training came to."""
    ready, mission, folder = agent.agreed, agent.mission, agent.store.folder
    if ready is None:
        raise ConvergenceError(f"{mission.name!r} has not agreed with anybody: let it run")
    learnt = agent.outcome()
    model = mission.model(ready, learnt.theta, learnt.closed)
    model.save(folder / "model.coke")
    if ready.noised is not None:  # the owner may keep the better one, and need tell nobody
        ready.model(ready.noised.alone[0]).save(folder / "model-alone.coke")
    table = _table(agent.lines())
    atomically(folder / "history.parquet", lambda part: pa.parquet.write_table(table, part))
    judged = _assessed(mission, ready, learnt, model) | {"model": str(folder / "model.coke")}
    return _summary(agent, ready, learnt) | judged


def _table(lines: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A row a line, a column for each number of the first; what is None is null."""
    names = lines[0].keys() if lines else ()
    return pa.table({name: _column([line.get(name) for line in lines]) for name in names})


def _column(values: Sequence[Any]) -> pa.Array:
    known = np.array([x is not None for x in values])
    return as_arrow(np.array([0.0 if x is None else x for x in values]), known)


def _assessed(mission: Mission, ready: Ready, learnt: Learnt, model: Model) -> dict[str, Any]:
    """Whether joining paid here, and whether the agents have settled."""
    settled = True if learnt.converged else False if mission.case(ready).tol else None
    ended = Ended(learnt.rounds, settled, learnt.ledger, learnt.certificate)
    verdict = assessed_here(ready, model, ended)
    doubted = [*doubts(ready), *outdone(ready, model.theta.ravel())]
    return {
        "settled": settled,
        "certificate": ended.proven(),
        "verdict": None if verdict is None else verdict.document(),
        "warnings": [*_distrust(learnt), *filter(None, [ended.warning]), *doubted],
    }


def _distrust(learnt: Learnt) -> list[str]:
    """What an owner should know of the neighbours."""
    named = {who: f"{who} {why}" for who, why in learnt.suspects.items()}
    gone = {who: f"{who} was {why}" for who, why in learnt.lost.items() if who not in named}
    return [f"{line}; see docs/trust.md" for line in (*named.values(), *gone.values())]


def _summary(agent: Agent, ready: Ready, learnt: Learnt) -> dict[str, Any]:
    """For people and machines."""
    mission = agent.mission
    N = ready.agreement.N
    known = [a for a in learnt.asymmetry.values() if a is not None]
    return {
        "site": mission.name,
        "agents": N,
        "neighbours": len(mission.config.site.neighbours),
        "rounds": learnt.rounds,
        "converged": learnt.converged,
        **({} if learnt.lacking is None else {"lacking": learnt.lacking}),
        **_private(mission, ready),
        **learnt.ledger._asdict(),
        **_losses(mission, ready, learnt),
        **({} if agent.follow is None else {"stream": agent.follow.summary()}),
        "asymmetry": dict(learnt.asymmetry),
        "largest_asymmetry": max(known, default=None),
        "predicted_shift": learnt.pull / N,
        "lost": dict(learnt.lost),
        "suspects": dict(learnt.suspects),
    }


def _private(mission: Mission, ready: Ready) -> dict[str, Any]:
    config, noised = mission.config, ready.noised
    if noised is None:
        return {}
    spent = noised.budget.epsilon
    return {"epsilon": config.epsilon, "delta": config.delta, "epsilon_spent": spent}


def _losses(mission: Mission, ready: Ready, learnt: Learnt) -> dict[str, Any]:
    noised, theta = ready.noised, mission.theta(ready, learnt.theta)[None]
    train, test = ready.problem.train, ready.problem.test
    found = {"train": float((train.losses(theta) * ready.times)[0])}
    if test is not None:
        found["test"] = float(test.losses(theta)[0])
    if noised is not None and test is not None:
        found["alone_test"] = float(test.losses(noised.alone)[0])
    said: dict[str, Any] = {f"{key}_{train.metric}": value for key, value in found.items()}
    several = len(ready.agreement.terms.targets) > 1
    return said | {"targets": by_target(ready, theta[0]) if several else None}
