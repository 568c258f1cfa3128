"""The judge of a choice: which of three models predicts best on rows that all sites kept back.

It is asked where errors on a site's own rows decide nothing: where sites differ, are small, or
simpler models come near. A few sweeps of conjugate gradients on four fifths of the rows for all
three at once, then their errors on the rest. The simpler model is kept unless the next is better
by more than one standard error of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from coke.data.site import Columns
from coke.learning.choice import FINE, Candidate, Choice, Samples
from coke.maths.alike import alike
from coke.maths.arrays import Array
from coke.maths.choice.conjugate import Conjugate, first_step
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.whitening import Gaussian, Whitening, clustered, mixture_basis
from coke.talk.conversation import Talk
from coke.talk.sums import Integers, Sweep, add_integers, describe_inputs

_KEPT = 20  # rows kept back by all sites together, without which nothing can be judged
_SWEEPS, _FEW = 8, 50  # and the frequencies that are looked at
_DETAIL = 1e-3  # of inputs in standard units, for the basis


class _Judging(NamedTuple):
    """A candidate on a site's rows, in the basis that all sites' inputs give."""

    Phi: Array  # (n, D) features in that basis
    R: Array  # (D, D) the ridge in it

    @classmethod
    def of(cls, one: Candidate, Z: Array, inputs: Sequence[Gaussian]) -> Self:
        """With few frequencies: what is judged is which kind of model is better."""
        features = DrawnFeatures(
            one.features.omega[:_FEW], one.features.phase[:_FEW], one.features.linear
        )
        basis = mixture_basis(features, inputs, max(one.ridge, 1e-7))
        return cls(basis.features(features(Z)), _ridge(basis, one.ridge))


@alike
def _ridge(basis: Whitening, ridge: float) -> Array:
    return basis.regulariser(ridge)


def judged(
    sweep: Sweep, own: Samples, choice: Choice, models: Sequence[Candidate], Z: Array
) -> Talk[Choice]:
    """The best of linear, plain and tuned on rows kept back: the later only if clearly better."""
    rows, inputs = {False: own.Z, models[-1].quantiles: Z}, {}
    for by, X in rows.items():
        anything = Columns.of_number(1.0, 0.0, 1.0)
        told = clustered(X, 2, 0)
        inputs[by], _ = yield from describe_inputs(sweep, told, anything, _DETAIL)
    judging = [_Judging.of(one, rows[one.quantiles], inputs[one.quantiles]) for one in models]
    fits = yield from _fits(sweep, own, judging)
    kept = [
        one.Phi[own.fit :] @ u - own.few[own.fit :] for one, u in zip(judging, fits, strict=True)
    ]
    errors = np.minimum([np.mean(part**2, axis=1) for part in kept], 1e3)
    mean, deviations, n = yield from _compared(sweep, own, errors)
    if n < _KEPT:
        return choice._replace(best=models[-2], errors={})
    best, lead = 0, 0.0
    for i, one in enumerate(models):
        ahead = (mean[best] - mean[i]) / max(deviations[best, i], 1e-12)
        if ahead > 1:
            lead = lead if one.name == models[best].name else ahead
            best = i
    judged: dict[str, float] = {}
    for one, error in zip(models, mean.tolist(), strict=True):
        judged.setdefault(one.name, error)
    judged[models[best].name] = float(mean[best])
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


def _compared(sweep: Sweep, own: Samples, errors: Array) -> Talk[tuple[Array, Array, int]]:
    """Means (m,) of the errors (m, n), standard errors of their differences (m, m), and n."""
    m, n = errors.shape
    weight, apart = own.share / max(n, 1), errors[:, None] - errors[None]
    sums = [errors.sum(axis=1), apart.sum(axis=2).ravel(), (apart**2).sum(axis=2).ravel()]
    told = np.concatenate(
        [[n], FINE * np.concatenate([[own.share * (n > 0)], *(weight * s for s in sums)])]
    )
    total = (yield from add_integers(sweep, told)).astype(np.float64)
    mean, apart, squared = np.split(total[2:] / max(total[1], 1.0), [m, m + m * m])
    variance = np.maximum(squared - apart**2, 0.0).reshape(m, m)
    return mean, np.sqrt(variance / max(total[0], 1.0)), int(total[0])
