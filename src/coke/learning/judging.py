"""The judge of a choice: which of three models predicts best, by all rows that the sites look at.

It is asked where errors on a site's own rows decide nothing: where sites differ, are small, or
simpler models come near. A few sweeps of conjugate gradients on four fifths of the rows for all
three at once; then their errors on the rest, which were kept back, and on the rows of the fit as if
each had been left out of it. These count the less the more a row had its way in one of the fits,
(1 − h)²: of many rows nearly all count, of few those that were kept back.

Linear or plain: the one with less error. Tuned, if it is ahead of that by more than one standard
error of the difference on rows by which its frequencies were not chosen: on others it flatters
itself. So does the linear model's second ridge, which has to be ahead by as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from coke.data.units import Columns
from coke.errors import MessageError
from coke.learning.choice import FINE, LINEAR, PLAIN, Candidate, Choice, Samples
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

_SWEEPS, _FEW = 8, 50  # and the frequencies that are looked at
_REST, _WORST = 1e-3, 1e3  # least of what is left of a row; largest error that counts
_DETAIL = 1e-3  # of inputs in standard units, for the basis


class Contest(NamedTuple):
    """Who is judged, and by which rows."""

    models: Sequence[Candidate]  # the tuned one last
    Z: Array  # (n, d) a site's rows as the tuned model takes them
    rows: float  # to fit with, of all sites
    used: int  # of them here, the first ones, by which the tuned one's frequencies were chosen


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

    def errors(self, u: Array, own: Samples, rows: float) -> tuple[Array, Array]:
        """(n,) squared, of rows left out; and what is left of each beside its own part, 1 − h."""
        rest = np.ones(len(own.Z))
        rest[: own.fit] -= heights(self.Phi[: own.fit], self.R, own.share, rows)
        rest = np.maximum(rest, _REST)
        return np.mean(((self.Phi @ u - own.few) / rest[:, None]) ** 2, axis=1), rest


@alike
def _ridge(basis: Whitening, ridge: float) -> Array:
    """In that basis, the same at all sites."""
    return basis.regulariser(ridge * np.eye(len(basis.C)))


def judged(sweep: Sweep, own: Samples, choice: Choice, contest: Contest) -> Talk[Choice]:
    """The best of linear, plain and tuned."""
    models, Z, rows, used = contest
    kinds, inputs = {False: own.Z, models[-1].quantiles: Z}, {}
    for by, X in kinds.items():
        anything = Columns.of_moments(1.0, np.zeros(1), np.ones(1))
        told = clustered(X, 2, 0)
        inputs[by], _ = yield from describe_inputs(sweep, told, anything, Detail(_DETAIL))
    judging = [
        _Judging.of(one, own.all / rows, kinds[one.quantiles], inputs[one.quantiles])
        for one in models
    ]
    fits = yield from _fits(sweep, own, judging)
    parts = [one.errors(u, own, rows) for one, u in zip(judging, fits, strict=True)]
    errors = np.minimum([part[0] for part in parts], _WORST)
    says = np.tile(np.min([part[1] for part in parts], axis=0) ** 2, (2, 1))
    says[1, :used] = 0.0
    return _won(choice, models, *(yield from _compared(sweep, own, errors, says)))


def raced(sweep: Sweep, own: Samples, models: Sequence[Candidate]) -> Talk[tuple[Array, float]]:
    """Errors (J,) of models that were given, in the target's variance; and how many rows say so."""
    rows = float((yield from add_integers(sweep, np.array([own.fit])))[0])
    if not own.N <= rows <= own.all:
        raise MessageError(f"{rows:g} rows of {own.N} sites with {own.all:g} in all: cannot be")
    anything = Columns.of_moments(1.0, np.zeros(1), np.ones(1))
    detail = Detail(_DETAIL * min(_narrow(one.features) for one in models))
    inputs, _ = yield from describe_inputs(sweep, clustered(own.Z, 2, 0), anything, detail)
    judging = [_Judging.of(one, own.all / rows, own.Z, inputs) for one in models]
    fits = yield from _fits(sweep, own, judging)
    parts = [one.errors(u, own, rows) for one, u in zip(judging, fits, strict=True)]
    errors = np.minimum([part[0] for part in parts], _WORST)
    says = np.min([part[1] for part in parts], axis=0)[None] ** 2
    (verdict,) = yield from _compared(sweep, own, errors, says)
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


def _won(choice: Choice, models: Sequence[Candidate], all_: _Verdict, other: _Verdict) -> Choice:
    """By all rows linear or plain; by rows that the tuned one did not know, that or the tuned."""
    names, last = [one.name for one in models], len(models) - 1
    best = min(names.index(LINEAR), names.index(PLAIN), key=all_.mean.__getitem__)
    for i in range(best + 1, last):
        if names[i] == LINEAR and all_.lead(i, best) > 1:
            best = i
    best = last if other.lead(last, best) > 1 else best
    judged = {name: float(other.mean[names.index(name)]) for name in names}
    judged[names[best]] = float(other.mean[best])
    near = min((i for i, n in enumerate(names) if n != names[best]), key=other.mean.__getitem__)
    return choice._replace(best=models[best], judged=judged, lead=other.lead(best, near))


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


def _compared(sweep: Sweep, own: Samples, errors: Array, says: Array) -> Talk[list[_Verdict]]:
    """Of the errors (m, n) of all sites' rows, for each way (k, n) to weigh what they say."""
    m, n = errors.shape
    W, apart = own.share / n * says, (errors[:, None] - errors[None]) ** 2
    mine = [
        np.concatenate([[w.sum(), FINE * np.sum(w**2)], errors @ w, (apart @ w).ravel()]) for w in W
    ]
    total = (yield from add_integers(sweep, FINE * np.concatenate(mine))) / FINE
    return [_verdict(part, m) for part in np.split(total, len(says))]


def _verdict(total: Array, m: int) -> _Verdict:
    weight, squares = max(float(total[0]), 1.0 / FINE), max(float(total[1]) / FINE, 0.0)
    mean, apart = np.split(total[2:] / weight, [m])
    variance = np.maximum(apart.reshape(m, m) - (mean[:, None] - mean[None]) ** 2, 0.0)
    return _Verdict(mean, np.sqrt(variance * squares) / weight)
