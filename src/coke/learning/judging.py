"""The judge of a choice: which of some models predicts best, by all rows that the sites look at.

It is asked where errors on a site's own rows decide nothing: where sites differ, are small, or
simpler models come near. A few sweeps on four fifths of the rows for all models at once, and for
several ridges each; then their errors on the rest, which were kept back, and on the rows of the fit
as if each had been left out of it. These count the less the more a row had its way in one of the
fits, (1 − h)²: of many rows nearly all count, of few those that were kept back.

Each model has the ridge with the least error. Of the models that are less than a standard error
behind the best, the first in this order is chosen: the plain one, where it is judged, which with a
large ridge is nearly linear; a line; the tuned one, whose bandwidths were fitted to targets, as
nothing of the others was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from coke.data.units import Columns
from coke.errors import MessageError
from coke.learning.choice import FINE, LINEAR, PLAIN, TUNED, Candidate, Choice, Samples
from coke.maths.algorithms.integers import Integers
from coke.maths.alike import alike
from coke.maths.arrays import Array
from coke.maths.choice.conjugate import Conjugate, first_step
from coke.maths.choice.errors import heights
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.merging import Detail
from coke.maths.features.mixtures import Gaussian, clustered
from coke.maths.features.whitening import Whitening, mixture_basis
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_integers, describe_inputs

_FIRST = (PLAIN, LINEAR, TUNED)  # in doubt
_SWEEPS, _FEW = 8, 50  # and the frequencies that are looked at
_REST, _WORST = 1e-3, 1e3  # least of what is left of a row; largest error that counts
_DETAIL = 1e-3  # of inputs in standard units, for the basis
_FINE = 2.0**14  # whole numbers to one, in sums that tell ridges apart


class Contest(NamedTuple):
    """Who is judged, and by which rows."""

    models: Sequence[Candidate]  # the tuned one last
    Z: Array  # (n, d) a site's rows as the tuned model takes them
    rows: float  # to fit with, of all sites
    times: Sequence[float]  # of each model's ridge, to be tried
    doubt: float = 0.0  # standard errors, below which models are as good as each other


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
        ridge = more * one.ridge
        basis = mixture_basis(features, inputs, max(ridge, 1e-7))
        return cls(basis.features(features(Z)), _ridge(basis, ridge))

    def missed(self, at: Conjugate, own: Samples, rows: float, times: Sequence[float]) -> _Missed:
        """For so many times the ridge."""
        rest = np.ones((len(times), len(own.Z)))
        rest[:, : own.fit] -= heights(self.Phi[: own.fit], self.R, own.share, rows, times)
        off = [np.mean((self.Phi @ at.u(many) - own.few) ** 2, axis=1) for many in times]
        return _Missed(np.array(off), np.maximum(rest, _REST))


class _Missed(NamedTuple):
    """What a site's rows say of a model, for each ridge."""

    off: Array  # (r, n) squared errors of the fit
    rest: Array  # (r, n) what is left of each row beside its own part, 1 − h; one if kept back

    @property
    def errors(self) -> Array:
        """(r, n) squared, of rows left out."""
        return np.minimum(self.off / self.rest**2, _WORST)

    @property
    def told(self) -> Array:
        """(2r,) sums whose quotient is the error for each ridge, rows counting as (1 − h)²."""
        counts = self.rest**2
        return np.concatenate([np.sum(self.errors * counts, axis=1), np.sum(counts, axis=1)])

    def at(self, i: int) -> _Missed:
        """With one ridge."""
        return _Missed(self.off[i : i + 1], self.rest[i : i + 1])


@alike
def _ridge(basis: Whitening, ridge: float) -> Array:
    """In that basis, the same at all sites."""
    return basis.regulariser(ridge * np.eye(len(basis.C)))


def judged(sweep: Sweep, own: Samples, choice: Choice, contest: Contest) -> Talk[Choice]:
    """The best of them."""
    models, Z, rows, times, doubt = contest
    kinds, inputs = {False: own.Z, models[-1].quantiles: Z}, {}
    for by, X in kinds.items():
        anything = Columns.of_moments(1.0, np.zeros(1), np.ones(1))
        told = clustered(X, 2, 0)
        inputs[by], _ = yield from describe_inputs(sweep, told, anything, Detail(_DETAIL))
    judging = [
        _Judging.of(one, own.all / rows, kinds[one.quantiles], inputs[one.quantiles])
        for one in models
    ]
    fits = yield from _fits(sweep, own, judging, times)
    parts = [one.missed(at, own, rows, times) for one, at in zip(judging, fits, strict=True)]
    which = yield from _ridges(sweep, own, parts)
    models = [
        one._replace(ridge=one.ridge * times[i]) for one, i in zip(models, which, strict=True)
    ]
    parts = [part.at(i) for part, i in zip(parts, which, strict=True)]
    return _won(choice, models, (yield from _compared(sweep, own, parts)), doubt)


def _ridges(sweep: Sweep, own: Samples, parts: Sequence[_Missed]) -> Talk[list[int]]:
    """For each model the ridge with the least error."""
    weight = _FINE * own.share / len(own.Z)
    told = np.array([weight * part.told for part in parts])
    total = yield from add_integers(sweep, told.ravel())
    off, rest = np.split(total.reshape(told.shape), 2, axis=1)
    return [int(i) for i in np.argmin(off / np.maximum(rest, 1), axis=1)]


def raced(sweep: Sweep, own: Samples, models: Sequence[Candidate]) -> Talk[tuple[Array, float]]:
    """Errors (J,) of models that were given, in the target's variance; and how many rows say so."""
    rows = float((yield from add_integers(sweep, np.array([own.fit])))[0])
    if not own.N <= rows <= own.all:
        raise MessageError(f"{rows:g} rows of {own.N} sites with {own.all:g} in all: cannot be")
    anything = Columns.of_moments(1.0, np.zeros(1), np.ones(1))
    detail = Detail(_DETAIL * min(_narrow(one.features) for one in models))
    inputs, _ = yield from describe_inputs(sweep, clustered(own.Z, 2, 0), anything, detail)
    judging = [_Judging.of(one, own.all / rows, own.Z, inputs) for one in models]
    fits = yield from _fits(sweep, own, judging, (1.0,))
    parts = [one.missed(at, own, rows, (1.0,)) for one, at in zip(judging, fits, strict=True)]
    verdict = yield from _compared(sweep, own, parts)
    return np.maximum(verdict.mean, 0.0), rows


def _narrow(features: DrawnFeatures) -> float:
    """About its bandwidth."""
    return float(1.0 / max(np.median(np.abs(features.omega)), 1e-100))


class _Verdict(NamedTuple):
    """What some rows say."""

    mean: Array  # (m,) errors
    deviations: Array  # (m, m) standard errors of their differences

    def lead(self, i: int, over: int) -> float:
        """Of model i, in standard errors."""
        least = max(float(self.deviations[i, over]), 1e-12)
        return float(self.mean[over] - self.mean[i]) / least


def _won(choice: Choice, models: Sequence[Candidate], said: _Verdict, doubt: float) -> Choice:
    """The one with the least error, or the first that is hardly behind it."""
    names = [one.name for one in models]
    best, *others = np.argsort(said.mean, kind="stable").tolist()
    near = [i for i in others if said.lead(best, i) < doubt]
    won = min([best, *near], key=lambda i: _FIRST.index(names[i]))
    judged = {name: float(error) for name, error in zip(names, said.mean, strict=True)}
    lead = said.lead(won, others[0] if won == best else best)
    return choice._replace(best=models[won], judged=judged, lead=lead)


def _fits(
    sweep: Sweep, own: Samples, judging: Sequence[_Judging], times: Sequence[float]
) -> Talk[list[Conjugate]]:
    """Of each, on all sites' rows to fit with."""
    weight, n = own.share / own.fit, own.fit
    Phis, Y = [one.Phi[:n] for one in judging], own.few[:n]
    ends = np.cumsum([Phi.shape[1] for Phi in Phis])[:-1]
    steps = [first_step(Phi.shape[1]) for Phi in Phis]
    told = [weight * (Phi.T @ Y) / step for Phi, step in zip(Phis, steps, strict=True)]
    total = yield from _added(sweep, told, ends)
    states = [
        Conjugate.start(one.R, b * step, times)
        for one, b, step in zip(judging, total, steps, strict=True)
    ]
    for _ in range(_SWEEPS):
        told = [
            weight * (Phi.T @ (Phi @ at.p)) / at.step for Phi, at in zip(Phis, states, strict=True)
        ]
        total = yield from _added(sweep, told, ends)
        states = [at.after(part) for at, part in zip(states, total, strict=True)]
    return states


def _added(sweep: Sweep, told: Sequence[Array], ends: Integers) -> Talk[list[Array]]:
    """Sums over all sites of some matrices with as many columns."""
    together = np.concatenate(told)
    total = yield from add_integers(sweep, together.ravel())
    return np.split(total.reshape(together.shape), ends)


def _compared(sweep: Sweep, own: Samples, parts: Sequence[_Missed]) -> Talk[_Verdict]:
    """Of models with one ridge each; a row counts as little as for any of them."""
    errors = np.concatenate([part.errors for part in parts])
    w = own.share / len(own.Z) * np.min([part.rest[0] for part in parts], axis=0) ** 2
    apart = (errors[:, None] - errors[None]) ** 2
    mine = np.concatenate([[w.sum(), FINE * np.sum(w**2)], errors @ w, (apart @ w).ravel()])
    return _verdict((yield from add_integers(sweep, FINE * mine)) / FINE, len(errors))


def _verdict(total: Array, m: int) -> _Verdict:
    weight, squares = max(float(total[0]), 1.0 / FINE), max(float(total[1]) / FINE, 0.0)
    mean, apart = np.split(total[2:] / weight, [m])
    variance = np.maximum(apart.reshape(m, m) - (mean[:, None] - mean[None]) ** 2, 0.0)
    return _Verdict(mean, np.sqrt(variance * squares) / weight)
