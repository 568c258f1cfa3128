"""What a run came to, in the documented keys, beside what sites reach without COKE."""

from __future__ import annotations

from typing import Any

import numpy as np

from coke.engines.history import GAPS, LOSSES
from coke.errors import InputError
from coke.learning.case import resolved
from coke.learning.choice import Choice
from coke.learning.model import Model
from coke.learning.ready import Ready
from coke.learning.targets import by_target
from coke.learning.train import Trained
from coke.maths.algorithms.coke import FLOAT
from coke.maths.arrays import side_by_side

HELD = 0.9  # the share of new rows that intervals are to hold
_FEW = 20  # test rows of a site, below which their share says little


def summary(ready: Ready, trained: Trained) -> dict[str, Any]:
    """The last round in the documented keys; losses carry the metric's name, such as mse."""
    problem, metric = ready.problem, ready.problem.train.metric
    best = problem.score(problem.everywhere(ready.optimum))
    last, model = trained.history.last(), trained.model
    several = len(ready.agreement.terms.targets) > 1
    own, why = resolved(ready.agreement.terms.settings)
    return {
        "algorithm": trained.name,
        "why": why if trained.name == own else "",
        "agents": len(ready.names),
        "edges": ready.graph.number_of_edges(),
        "rounds": last["round"],
        "settled": trained.settled,
        **{key: last[key] for key in trained.history.names if key not in ("round", *GAPS)},
        **{key: last[key] + more for key, more in trained.after._asdict().items()},
        f"optimum_train_{metric}": best.train,
        f"optimum_test_{metric}": None if np.isnan(best.test) else best.test,
        "targets": by_target(ready, model.theta.ravel()) if model and several else None,
        "consensus_gap": last["consensus_gap"],
        "optimality_gap": last["optimality_gap"],
        "seconds": round(trained.seconds, 3),
    }


def yardsticks(ready: Ready) -> list[dict[str, Any]]:
    """What sites reach without COKE: each alone, averaged once, and the centralised optimum."""
    problem = ready.problem
    size = problem.train.size * FLOAT
    alone = ready.alone
    everyone = {
        "local-only": (alone, 0),
        "one-shot-average": (
            problem.everywhere(alone.mean(axis=0)),
            ready.agreement.shape.messages,
        ),
        "optimum": (problem.everywhere(ready.optimum), 0),
    }
    rows = []
    for name, (theta, messages) in everyone.items():
        losses = dict(zip(LOSSES, problem.score(theta), strict=True))
        rows.append(
            {
                "algorithm": name,
                "transmissions": messages,
                "bytes": messages * size,
                **{
                    f"{key}_{problem.train.metric}": None if np.isnan(value) else value
                    for key, value in losses.items()
                },
            }
        )
    return rows


def accuracy(ready: Ready, model: Model) -> dict[str, float | None]:
    """Share of right labels among all sites' training and test rows. All processes ask."""
    counts = np.zeros((len(ready.sites.names), 2, 2), np.int64)
    for i, held, X, y, _ in ready.sites.parts():
        counts[i, int(held)] += np.count_nonzero(model.labels(model.decision(X)) == y), len(y)
    train, test = ready.engine.everyones(counts).sum(axis=0).tolist()
    return {
        "train_accuracy": train[0] / train[1],
        "test_accuracy": test[0] / test[1] if test[1] else None,
    }


def chosen(ready: Ready, model: Model, choice: Choice) -> dict[str, Any]:
    """What the sites chose, what matters to it, and what its intervals hold. All processes ask."""
    best, found = choice.best, model.importance()
    *said, why = choice.words(model.made)
    about = {
        "name": best.name,
        "words": [*said, *found.words, why],
        "inputs": "quantiles" if best.quantiles else "scaled",
        "frequencies": len(best.features.omega),
        "ridge": best.ridge,
        "errors": choice.errors,
        "judged": choice.judged,
        "lead": choice.lead,
        "bytes": int(ready.engine.everyones(ready.spent)[:, 1].sum()),
    }
    return {"choice": about, "importance": found.ranked, "coverage": _coverage(ready, model)}


def _coverage(ready: Ready, model: Model) -> dict[str, float | None] | None:
    """Share of each site's test rows that their 90 % intervals hold; None of too few rows.

    None of all where nobody added up errors, or no rows are kept. All processes ask together.
    """
    rows, misses = ready.rows, model.closed.misses
    if misses is None or rows is None:
        return None
    try:
        reach = misses.reach(HELD) / model.scaling.y_scale
    except InputError:  # so few rows in all that no interval can be given
        return None
    counts = []
    for X, y in zip(rows.X_test, rows.y_test, strict=True):
        off = np.abs(side_by_side(y) - model.features(X) @ model.theta.T)
        counts.append([np.count_nonzero(off <= reach), y.size])
    everyones = ready.engine.everyones(np.array(counts)).tolist()
    return {
        name: hits / T if T >= _FEW else None
        for name, (hits, T) in zip(ready.names, everyones, strict=True)
    }
