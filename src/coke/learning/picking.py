"""What is left to the sites to find, by sums over all: a model, or the best of several kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coke.data.site import Site
from coke.data.tables import Labels
from coke.data.units import Scaling, checked_classes, fit_scaling, numbers_of
from coke.learning.choice import Candidate, Choice, Samples, Wish, widened
from coke.learning.choosing import choose
from coke.learning.judging import raced
from coke.learning.kernels import Bank, feature_settings
from coke.maths.algorithms.hedge import settled
from coke.maths.arrays import Array, side_by_side
from coke.maths.choice.quantiles import NO_KNOTS
from coke.maths.losses.one_vs_rest import signs
from coke.settings.declaration import AUTO
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep

if TYPE_CHECKING:
    from coke.learning.agreement import Agreement
    from coke.learning.terms import Terms


def kernels_weighed(sweep: Sweep, site: Site, agreed: Agreement) -> Talk[Bank]:
    """Several kernels, by errors on rows left out."""
    kernels = agreed.terms.kernels
    ridge = 2.0 * agreed.lam / (agreed.N * agreed.kappa)
    models = [Candidate(str(one), agreed.of_kernel(one), NO_KNOTS, ridge) for one in kernels]
    errors, rows = yield from raced(sweep, _samples(site, agreed, agreed.units), models)
    weights = tuple(settled(rows * errors / max(float(errors.min()), 1e-12)).tolist())
    return Bank(kernels, weights)


def _samples(site: Site, agreed: Agreement, units: Scaling) -> Samples:
    """Some rows of a site, inputs in such units and targets in standard ones."""
    terms, told, d = agreed.terms, agreed.told.columns, len(agreed.terms.columns)
    standard = fit_scaling("standard", d, told, len(terms.targets))
    X, y = site.here.sample(site.i, terms.settings.seed)
    Y = _targets(terms, standard, y, agreed.told.labels)
    T = site.here.columns(site.i).T
    return Samples(units.inputs(X), Y, T, told.T, agreed.N, classes=not terms.numbers)


def chosen(sweep: Sweep, site: Site, agreed: Agreement) -> Talk[tuple[Choice, Scaling]]:
    """A model, and its units; inputs are in standard units or quantiles, whatever the scale."""
    terms, told, N, d = agreed.terms, agreed.told.columns, agreed.N, len(agreed.terms.columns)
    standard = fit_scaling("standard", d, told, len(terms.targets))
    own = _samples(site, agreed, standard)
    plain = feature_settings(terms.settings)
    if terms.settings.features.sigma == AUTO:
        wider = 1.0 if terms.numbers else widened(d)
        plain = plain._replace(sigma=wider * float(np.sqrt(d / 2)))
    wish = Wish.of(terms.settings, plain, N, agreed.outputs, told.T)
    choice = yield from choose(sweep, own, wish)
    x = standard._replace(knots=choice.best.knots)
    units = x._replace(y_shift=agreed.units.y_shift, y_scale=agreed.units.y_scale)
    return choice, units


def _targets(terms: Terms, standard: Scaling, y: Labels, labels: tuple[Any, ...]) -> Array:
    """(n, K): numbers in standard units, classes as ±1."""
    if terms.numbers:
        return side_by_side(standard.targets(numbers_of(y)))
    return np.column_stack(signs(y, checked_classes(labels)))
