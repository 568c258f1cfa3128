"""The judge of a choice: which of three models predicts best, by all rows that the sites look at.

It is asked where errors on a site's own rows decide nothing: where sites differ, are small, or
simpler models come near. A few sweeps of conjugate gradients on four fifths of the rows for all
three at once; then their errors on the rest, which were kept back, and on the rows of the fit as if
each had been left out of it. These count the less the more a row had its way in one of the fits,
(1 − h)²: of many rows nearly all count, of few those that were kept back. The least error wins, but
what was itself chosen by these rows, the tuned model and the linear one's other ridge, has to be
ahead by more than one standard error of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from coke.data.units import Columns
from coke.learning.choice import FINE, LINEAR, PLAIN, Candidate, Choice, Samples
from coke.maths.arrays import Array
from coke.maths.choice.conjugate import Conjugate, first_step
from coke.maths.choice.errors import heights
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.whitening import Gaussian, Whitening, clustered, expected_gram
from coke.talk.conversation import Talk
from coke.talk.sums import Integers, Sweep, add_integers, describe_inputs

_SWEEPS, _FEW = 8, 50  # and the frequencies that are looked at
_REST, _WORST = 1e-3, 1e3  # least of what is left of a row; largest error that counts
_DETAIL = 1e-3  # of inputs in standard units, for the basis


class Contest(NamedTuple):
    """Who is judged, and by which rows."""

    models: Sequence[Candidate]  # the tuned one last
    Z: Array  # (n, d) a site's rows as the tuned model takes them
    rows: float  # to fit with, of all sites


class _Judging(NamedTuple):
    """A candidate on a site's rows, in the basis that all sites' inputs give."""

    Phi: Array  # (n, D) features in that basis
    R: Array  # (D, D) the ridge in it

    @classmethod
    def of(cls, one: Candidate, more: float, Z: Array, inputs: Sequence[Gaussian]) -> Self:
        """With few frequencies: what is judged is which kind of model is better.

        And with so many times the ridge, as fewer rows ask for.
        """
        features = DrawnFeatures(
            one.features.omega[:_FEW], one.features.phase[:_FEW], one.features.linear
        )
        G, ridge = expected_gram(features, inputs), more * one.ridge
        basis = Whitening.of(G + max(ridge, 1e-7) * np.eye(len(G)))
        return cls(basis.features(features(Z)), basis.regulariser(ridge * np.eye(len(G))))

    def errors(self, u: Array, own: Samples, rows: float) -> tuple[Array, Array]:
        """(n,) squared, of rows left out; and what is left of each beside its own part, 1 − h."""
        rest = np.ones(len(own.Z))
        rest[: own.fit] -= heights(self.Phi[: own.fit], self.R, own.share, rows)
        rest = np.maximum(rest, _REST)
        return np.mean(((self.Phi @ u - own.few) / rest[:, None]) ** 2, axis=1), rest


def judged(sweep: Sweep, own: Samples, choice: Choice, contest: Contest) -> Talk[Choice]:
    """The best of linear, plain and tuned."""
    models, Z, rows = contest
    kinds, inputs = {False: own.Z, models[-1].quantiles: Z}, {}
    for by, X in kinds.items():
        anything = Columns.of_moments(1.0, np.zeros(1), np.ones(1))
        told = clustered(X, 2, 0)
        inputs[by], _ = yield from describe_inputs(sweep, told, anything, _DETAIL)
    judging = [
        _Judging.of(one, own.all / rows, kinds[one.quantiles], inputs[one.quantiles])
        for one in models
    ]
    fits = yield from _fits(sweep, own, judging)
    parts = [one.errors(u, own, rows) for one, u in zip(judging, fits, strict=True)]
    errors = np.minimum([part[0] for part in parts], _WORST)
    says = np.min([part[1] for part in parts], axis=0) ** 2
    mean, deviations = yield from _compared(sweep, own, errors, says)
    return _won(choice, models, mean, deviations)


def _won(choice: Choice, models: Sequence[Candidate], mean: Array, deviations: Array) -> Choice:
    """Linear with the usual ridge or plain, whichever is better, if nothing is so clearly."""
    names = [one.name for one in models]
    best = min(names.index(LINEAR), names.index(PLAIN), key=mean.__getitem__)
    leads = (mean[best] - mean) / np.maximum(deviations[best], 1e-12)
    ahead = [i for i in range(len(models)) if leads[i] > 1]
    best = min(ahead, key=mean.__getitem__, default=best)
    others = [i for i, name in enumerate(names) if name != names[best]]
    near = min(others, key=mean.__getitem__)
    lead = (mean[near] - mean[best]) / max(float(deviations[best, near]), 1e-12)
    judged = {name: float(mean[names.index(name)]) for name in names}
    judged[names[best]] = float(mean[best])
    return choice._replace(best=models[best], judged=judged, lead=float(lead))


def _fits(sweep: Sweep, own: Samples, judging: Sequence[_Judging]) -> Talk[list[Array]]:
    """u (D, K) of each, by conjugate gradients on all sites' rows to fit with."""
    weight, n = own.share / own.fit, own.fit
    Phis, Y = [one.Phi[:n] for one in judging], own.few[:n]
    ends = np.cumsum([Phi.shape[1] for Phi in Phis])[:-1]
    steps = [np.full((Phi.shape[1], 1), first_step(Phi.shape[1])) for Phi in Phis]
    told = [weight * (Phi.T @ Y) / step for Phi, step in zip(Phis, steps, strict=True)]
    total = yield from _added(sweep, told, ends)
    states = [
        Conjugate.start(one.R, b * step) for one, b, step in zip(judging, total, steps, strict=True)
    ]
    for _ in range(_SWEEPS):
        told = [
            weight * (Phi.T @ (Phi @ at.p)) / at.step for Phi, at in zip(Phis, states, strict=True)
        ]
        total = yield from _added(sweep, told, ends)
        states = [at.after(part) for at, part in zip(states, total, strict=True)]
    return [at.u for at in states]


def _added(sweep: Sweep, told: Sequence[Array], ends: Integers) -> Talk[list[Array]]:
    """Sums over all sites of some matrices with as many columns."""
    together = np.concatenate(told)
    total = yield from add_integers(sweep, together.ravel())
    return np.split(total.reshape(together.shape), ends)


def _compared(sweep: Sweep, own: Samples, errors: Array, says: Array) -> Talk[tuple[Array, Array]]:
    """Means (m,) of the errors (m, n), rows weighed by what they say; and standard errors (m, m).

    These are of the differences of two.
    """
    m, n = errors.shape
    w = own.share / n * says
    apart = (errors[:, None] - errors[None]) ** 2 @ w
    mine = np.concatenate([[w.sum(), FINE * np.sum(w**2)], errors @ w, apart.ravel()])
    total = (yield from add_integers(sweep, FINE * mine)) / FINE
    weight, squares = max(float(total[0]), 1.0 / FINE), float(total[1]) / FINE
    mean, apart = np.split(total[2:] / weight, [m])
    variance = np.maximum(apart.reshape(m, m) - (mean[:, None] - mean[None]) ** 2, 0.0)
    return mean, np.sqrt(variance * max(squares, 0.0)) / weight
