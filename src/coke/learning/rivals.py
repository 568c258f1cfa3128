"""What the common model is compared with: sites' own models, the pooled optimum, a plain line.

All are in the units that the sites agreed on; own models and optimum have the common features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.data.units import Making
from coke.engines.ranks.engine import Ranks
from coke.learning.choice import linear
from coke.learning.model import Closed, Model
from coke.learning.ready import Ready
from coke.maths.arrays import Array
from coke.maths.choice.quantiles import NO_KNOTS
from coke.maths.losses import LOSSES
from coke.maths.losses.codes import explained
from coke.maths.losses.problem import across
from coke.maths.losses.risk import Risk
from coke.threads import OneThread

_AWAY = 2_000_000  # sites' own models times sites: of more sites some models go around

Index = NDArray[np.int64]


class Line(NamedTuple):
    """A linear model of all sites' rows, by the same loss."""

    how: Making
    train: Risk  # of all sites, at the first process
    model: Model


class Rivals(NamedTuple):
    """The common model, and who is scored beside it."""

    model: Model
    pooled: Array  # (K·D,)  θ*
    own: Array  # (n, K·D)  of the sites here
    whose: Index  # (M,)  the sites whose own models go to all
    away: Array  # (M, K·D)
    line: Line | None  # None with privacy: it would be one more look at raw rows
    sharpness: tuple[Array, Array]  # (n,) of `own`, (M,) of `away`


def rivals(ready: Ready, model: Model) -> Rivals:
    """Of that common model. All processes ask together."""
    N, everyones = len(ready.names), ready.engine.everyones
    whose = np.unique(np.linspace(0, N - 1, min(N, max(10, _AWAY // N))).astype(np.int64))
    own, sharp = _own(ready, model)
    return Rivals(
        model=model,
        pooled=best(ready),
        own=own,
        whose=whose,
        away=everyones(own)[whose],
        line=None if ready.noised is not None else _line(ready, model),
        sharpness=(sharp, everyones(sharp)[whose]),
    )


def best(ready: Ready) -> Array:
    """θ* (K·D,) of all sites' rows. All processes ask together."""
    everybody = ready.everybody
    return _told(ready, None if everybody is None else everybody.optimum, ready.problem.train.size)


def rival(ready: Ready, model: Model) -> Rivals:
    """What a site in the field knows: its own model, which takes the place of the optimum."""
    own, sharp = _own(ready, model)
    return Rivals(model, own[0], own, np.zeros(1, np.int64), own[:1], None, (sharp, sharp[:1]))


def _own(ready: Ready, model: Model) -> tuple[Array, Array]:
    """θ_i (n, K·D) that the sites here would learn without a message, and its sharpness (n,)."""
    own = ready.alone
    if not LOSSES[model.loss].codes:
        return own, np.ones(len(own))
    risks = (ready.problem.train.rows(slice(i, i + 1)) for i in range(len(own)))
    return own, np.array([_sharpness(*pair, model) for pair in zip(risks, own, strict=True)])


def _told(ready: Ready, first: Array | None, size: int) -> Array:
    """What the first process knows (size,), at all of them."""
    mine = np.zeros((len(ready.sites.names), size))
    if first is not None:
        mine[0] = first
    return np.asarray(ready.engine.everyones(mine).sum(axis=0))


def line_making(ready: Ready) -> Making:
    """How rows become risks of θᵀ[z, 1], z in standard units, with a ridge of one row's weight."""
    agreed, T = ready.agreement, ready.engine.everyones(ready.problem.train.T)
    features = linear(len(agreed.units.x_scale), 0.0).features
    units = agreed.units._replace(knots=NO_KNOTS)
    rows = None if agreed.rows is None else float(T.mean())
    ridge = features.linear**2 / float(T.sum())
    return agreed.making._replace(features=features, units=units, G=ridge, rows=rows)


def _line(ready: Ready, model: Model) -> Line:
    """By the same loss from all sites' rows."""
    agreed, how = ready.agreement, line_making(ready)
    features, units = how.features, how.units
    with OneThread().limit():
        here = ready.sites.problem(how)
        whole = ready.engine.whole(here) if isinstance(ready.engine, Ranks) else here
        first = None
        if whole is not None:
            theta = whole.optimum
            codes = LOSSES[model.loss].codes
            first = np.append(theta, _sharpness(whole.train, theta, model) if codes else 1.0)
    *found, s = _told(ready, first, agreed.outputs * features.size + 1)
    line = model._replace(
        theta=np.reshape(found, (agreed.outputs, -1)), features=features, scaling=units,
        closed=Closed(sharpness=float(s)),
    )  # fmt: skip
    return Line(how, (whole or here).train, line)


def _sharpness(risk: Risk, theta: Array, model: Model) -> float:
    """By how much its scores are to be multiplied, from its own rows' sums; of codes."""
    total = risk.total(np.full(len(risk.T), 1.0 / len(risk.T)))
    assert total is not None  # sums say all of least squares
    vf, ff = total.b[0] @ theta, across(theta[None], total.A)[0] @ theta
    return explained(float(vf), float(ff), len(model.classes), total=True)
