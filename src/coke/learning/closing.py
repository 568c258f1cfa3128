"""After training, one more sum over all sites: how far numbers miss, how sharp classes are.

Every site looks at a sample of its own rows once more, as if each had been left out. Of numbers it
tells a histogram of its errors (`coke.maths.choice.misses`), for intervals around predictions; of
classes that least squares has learnt their log loss for a range of sharpnesses
(`coke.maths.losses.codes`), for probabilities. Private sites look at no row: they tell two numbers
that follow from their noised statistics.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from coke.data.units import numbers_of
from coke.errors import MessageError
from coke.learning.case import Case
from coke.learning.choice import FINE
from coke.learning.model import Closed
from coke.learning.ready import Ready
from coke.maths.alike import alike
from coke.maths.arrays import Array, side_by_side
from coke.maths.choice.misses import BINS, Misses, left_out
from coke.maths.features.whitening import Whitening
from coke.maths.ledger import Ledger
from coke.maths.losses.codes import coded, explained, sharpest, surprises, votes, which
from coke.maths.losses.problem import Quadratic, across, matrix
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_integers, swept
from coke.threads import OneThread

_WORST = 1e3  # log loss of a row at most, so that one site cannot be heard alone


def closing(sweep: Sweep, ready: Ready, case: Case, i: int, theta: Array) -> Talk[Closed]:
    """One site's part; θ (K·D,) is its own, in the plain features."""
    if ready.noised is not None:
        return (yield from _explained(sweep, ready, ready.noised.risk.rows(slice(i, i + 1)), theta))
    looked = _Looked(ready, case, i, theta)
    if not ready.agreement.terms.numbers:
        return (yield from _sharpened(sweep, looked))
    with OneThread().limit():
        told = looked.misses()
    total = yield from add_integers(sweep, np.append(told.counts, told.seen))
    counts = total[:-1].reshape(-1, BINS).astype(np.float64)
    try:
        return Closed(misses=Misses(counts, float(total[-1]), told.unit).checked())
    except ValueError as error:
        raise MessageError(str(error)) from error


def _sharpened(sweep: Sweep, looked: _Looked) -> Talk[Closed]:
    """From the mean log loss over all sites' rows."""
    with OneThread().limit():
        told = looked.surprises()
    rows = float(looked.ready.targets[looked.i].T) / looked.ready.agreement.told.columns.T
    mine = FINE * rows * np.append(told, 1.0)
    total = (yield from add_integers(sweep, mine)).astype(np.float64)
    if not total[-1] > 0:
        raise MessageError("log losses of no rows: expected those of all sites")
    return Closed(sharpness=sharpest(total[:-1] / total[-1]))


def _explained(sweep: Sweep, ready: Ready, own: Quadratic, theta: Array) -> Talk[Closed]:
    """From the sites' noised statistics alone: post-processing, which costs no privacy."""
    vf, ff = own.b[0] @ theta, across(theta[None], own.A)[0] @ theta
    total = (yield from add_integers(sweep, FINE * np.array([vf, ff]))).astype(np.float64)
    vf, ff = total / (FINE * ready.agreement.N)
    K, public = len(ready.agreement.classes), ready.agreement.public
    total_known = public is not None and public.release is not None
    return Closed(sharpness=explained(vf, ff, K, total=total_known))


def closed(ready: Ready, case: Case, theta: Array) -> tuple[Closed, Ledger]:
    """What all sites add up to, given θ (N, K·D) of all, and what it cost."""
    own = dict(zip(ready.names, theta, strict=True))
    talks = {
        place.name: closing(partial(swept, place, []), ready, case, i, own[place.name])
        for i, place in enumerate(ready.places)
    }
    found, spent = ready.engine.converse(talks)
    return found[ready.places[0].name], Ledger.of(ready.engine.everyones(spent))


class _Looked:
    """A sample of a site's rows, seen once more with what was learnt."""

    def __init__(self, ready: Ready, case: Case, i: int, theta: Array):
        self.ready, self.case, self.i = ready, case, i
        agreement = ready.agreement
        X, self.y = ready.sites.sample(i, agreement.terms.settings.seed)
        self._Phi = agreement.features(agreement.units.inputs(X))
        self._f = self._Phi @ theta.reshape(agreement.outputs, -1).T

    def misses(self) -> Misses:
        """In the targets' own units."""
        agreement = self.ready.agreement
        y = side_by_side(numbers_of(self.y))
        whole = self._left_out(y - agreement.units.predictions(self._f))
        sd = agreement.told.columns.sd[-y.shape[1] :]  # all told it, for the choice
        return Misses.of(whole, self.ready.targets[self.i].T, np.where(sd > 0, sd, 1.0))

    def surprises(self) -> Array:
        """Mean log loss for each sharpness."""
        agreement = self.ready.agreement
        y = coded(self.y, agreement.classes)
        off = self._left_out(y - agreement.units.predictions(self._f))
        given = votes(y - off)
        return np.minimum(surprises(given, which(self.y, agreement.classes)), _WORST)

    def _left_out(self, errors: Array) -> Array:
        """As if each row had been left out; as they are where there is no basis to tell by."""
        basis, agreement = self.case.basis, self.ready.agreement
        if basis is None:
            return errors
        rows, freedom = (
            agreement.N * float(self.ready.problem.train.T[self.i]),
            _freedom(basis, agreement.making.G),
        )
        return left_out(errors, basis.features(self._Phi), rows, freedom)


@alike
def _freedom(basis: Whitening, G: float) -> float:
    """The model's degrees of freedom, D − tr C⁻¹GC⁻ᵀ: the same at all sites."""
    D = len(basis.C)
    return D - float(np.trace(basis.regulariser(matrix(G, D))))
