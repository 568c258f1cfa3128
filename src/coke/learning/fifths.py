"""All rows left out: a fifth of each site's at a time, and all models fitted without it.

Sites' own models, the optimum and the line are solved for again. The common model, which took many
rounds, moves as the optimum does: θ + θ*₋ − θ*, which is θ*₋ where it has settled. What the sites
agreed on, units and features, stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from coke.data.site import Kept
from coke.learning.model import Model
from coke.learning.ready import Ready
from coke.learning.rivals import Index, Rivals, best, rivals
from coke.learning.tally import HeldOut, Seat
from coke.threads import OneThread

_PARTS = 5


def fifths(ready: Ready, model: Model) -> Iterator[Seat]:
    """A seat each; none where no site has two rows. All processes ask together."""
    sites, here = ready.sites, ready.engine.agents(len(ready.names))
    assert isinstance(sites, Kept)  # whoever passes over rows is not asked
    if not ready.engine.everyones(np.array([float(len(y) > 1) for y in sites.y])).any():
        return
    whole, seed = best(ready), ready.agreement.terms.settings.seed
    dealt = [_dealt(len(y), int(i), seed) for y, i in zip(sites.y, here, strict=True)]
    for k in range(_PARTS):
        rest, held = sites.without([mine == k for mine in dealt])
        found, beside = _without(ready, rest, model), replace(ready, sites=held)
        moved = model.theta + (found.pooled - whole).reshape(model.theta.shape)
        yield Seat(beside, found._replace(model=model._replace(theta=moved)), HeldOut(beside))


def _without(ready: Ready, rest: Kept, model: Model) -> Rivals:
    how = ready.agreement.making
    if how.rows is not None:
        T = ready.engine.everyones(np.array([float(len(y)) for y in rest.y]))
        how = how._replace(rows=float(T.mean()))
    with OneThread().limit():
        problem = rest.problem(how)
    return rivals(replace(ready, sites=rest, problem=problem), model)


def _dealt(T: int, i: int, seed: int) -> Index:
    """The fifth (T,) that each row of site i is in; −1, none, of a row that is the only one.

    Drawn, for rows may lie in some order; sites begin with different fifths, for many may have few.
    """
    if T < 2:
        return np.full(T, -1)
    return (np.random.default_rng([seed, i]).permutation(T) + i) % _PARTS
