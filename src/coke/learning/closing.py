"""After training: how far the model misses, added up over all sites, for intervals around it.

Every site looks at a sample of its own rows once more, as if each had been left out, and tells a
histogram of its errors (`coke.maths.choice.misses`). It is one more sum over the tree.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from coke.data.site import numbers_of
from coke.errors import MessageError
from coke.learning.ready import Case, Ready, spent_by
from coke.maths.arrays import Array
from coke.maths.choice.misses import Misses, left_out
from coke.maths.ledger import Spent
from coke.settings.declaration import AUTO
from coke.talk.conversation import Talk, together
from coke.talk.sums import Sweep, add_integers, swept
from coke.threads import OneThread


def closes(ready: Ready, case: Case) -> bool:
    """Whether errors are added up: of numbers, with a model chosen and a basis agreed on."""
    terms = ready.agreement.terms
    return terms.settings.model == AUTO and terms.numbers and case.basis is not None


def closing(
    sweep: Sweep, ready: Ready, case: Case, i: int, theta: Array, freedom: float
) -> Talk[Misses]:
    """One site's part; θ (D,) is its own, in the plain features."""
    with OneThread().limit():
        told = _misses(ready, case, i, theta, freedom)
    total = yield from add_integers(sweep, np.append(told.counts, told.seen))
    found = Misses(total[:-1].astype(np.float64), float(total[-1]), told.unit)
    try:
        return found.checked()
    except ValueError as error:
        raise MessageError(str(error)) from error


def closed(ready: Ready, case: Case, theta: Array) -> tuple[Misses, Spent]:
    """All sites of this process; θ (n, D) of those here. And what it cost them."""
    net, here, engine = ready.agreement.net, ready.here, ready.engine
    freedom = freedom_of(ready, case)
    talks = {
        name: closing(partial(swept, net, name, []), ready, case, i, theta[i], freedom)
        for i, name in enumerate(here)
    }
    found, ledgers = engine.guarded(partial(together, talks, engine.post))
    return found[here[0]], spent_by(here, ledgers)


def freedom_of(ready: Ready, case: Case) -> float:
    """The model's degrees of freedom, D − tr C⁻¹GC⁻ᵀ: the same at all sites."""
    assert case.basis is not None
    share = ready.agreement.making.G
    with OneThread().limit():
        return len(case.basis.C) - float(np.trace(case.basis.regulariser(share)))


def _misses(ready: Ready, case: Case, i: int, theta: Array, freedom: float) -> Misses:
    """Of site i's sample."""
    agreement = ready.agreement
    assert ready.sites is not None  # whoever agreed has them
    assert case.basis is not None
    X, y = ready.sites.sample(i, agreement.terms.settings.seed)
    Phi, T = agreement.features(agreement.units.inputs(X)), ready.targets[i].T
    errors = numbers_of(y) - agreement.units.predictions(Phi @ theta)
    whole = left_out(errors, case.basis.features(Phi), agreement.N * T, freedom)
    unit = (case.spread or 1.0) * agreement.units.y_scale
    return Misses.of(whole, T, unit)
