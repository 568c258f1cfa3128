"""What a site can see of the agreement by its own rows: units that are not of rows like these.

Where units are moments of all rows, Σ_s T_s (m_s² + sd_s²) = T in every scaled column: a site's
m² + sd² is at most T/T_i. And where one site has claimed means, deviations or rows out of all
proportion, the others' rows lie on one spot of every scale, or count for nothing.
"""

from __future__ import annotations

import numpy as np

from coke.data.units import Columns, Scaling, numbers_of
from coke.learning.ready import Ready
from coke.maths.arrays import Array, side_by_side
from coke.maths.choice.errors import ROWS, left_out
from coke.maths.choice.evidence import fitted, lines
from coke.maths.features.features import own_gram

_ROUNDED = 1.1  # numbers are told to a part in 2⁸, and merged along the tree
_SPOT = 1e-3  # of a scale: all columns of a site within that are on one spot
_NOTHING = 1e-6  # of all rows
_FEW = 20  # rows that say something of each other
_UNFIT, _WORSE = 1.75, 1.5  # errors of what was agreed on, and of the model, by theirs …
_MORE = 0.02  # … and of the variance more: what little noise leaves is nobody's lie


def doubts(ready: Ready, i: int = 0) -> list[str]:
    """In words, of site i of those here; nothing where units are public or rows out of reach."""
    agreement = ready.agreement
    if ready.noised is not None or agreement.terms.settings.data.scale != "standard":
        return []
    total = agreement.told.columns.T
    return doubted(ready.sites.columns(i), agreement.units, total, agreement.terms.settings.guard)


def doubted(own: Columns, units: Scaling, total: float, clipped: bool = False) -> list[str]:
    """Of its columns in these units; claims may have been clipped."""
    found, d = [], len(units.x_scale)
    moved = (own.mean[:d] - units.x_shift) / units.x_scale
    spread = own.sd[:d] / units.x_scale
    if own.T / total < _NOTHING:
        found.append(
            f"{total:.3g} rows are said to be at all sites, of which this one's {own.T:.0f} count "
            "for nothing: ask who has so many"
        )
    varies = own.sd[:d] > 0
    if varies.any() and (spread[varies] < _SPOT).all():
        found.append(
            "the units agreed on are far too coarse for this site's rows: one site may have "
            "claimed means or deviations that it does not have; see docs/trust.md, guard"
        )
    most = _ROUNDED * np.sqrt(max(total / own.T, 1.0))
    if not clipped and (np.hypot(moved, spread) > most).any():
        found.append(
            "the units agreed on cannot be those of all rows, this site's included: one of the "
            "sites has changed what others told; see docs/trust.md"
        )
    return found


def outdone(ready: Ready, theta: Array, i: int = 0) -> list[str]:
    """Whether site i's rows predict each other much better than what was agreed on; in words.

    By a line and two kernels in the site's own units, each row left out: nothing that others say
    has a part in that. Once against the features and the ridge agreed on, where they were chosen,
    by the site's own rows again, and once against the model θ (D,). Not of classes, or where rows
    are few or out of reach.
    """
    agreement = ready.agreement
    if ready.noised is not None or agreement.terms.streams or not agreement.terms.numbers:
        return []
    X, y = ready.sites.sample(i, agreement.terms.settings.seed)
    X, Y = X[:ROWS], side_by_side(numbers_of(y[:ROWS]))
    sd = Y.std(axis=0)
    if len(X) < _FEW or not (sd > 0).all():
        return []
    Phi, units = agreement.features(agreement.units.inputs(X)), agreement.units
    f = side_by_side(units.predictions(Phi @ theta.reshape(agreement.outputs, -1).T))
    error, Y = float(np.mean(((f - Y) / sd) ** 2)), (Y - Y.mean(axis=0)) / sd
    own = _own_error(X, Y)
    noise = 2.0 * agreement.making.G / agreement.kappa * max(agreement.told.columns.T, len(X))
    told = [(error, _WORSE, "the common model misses")]
    if agreement.choice is not None:
        agreed = float(left_out(Phi @ Phi.T + 1.0, Y, (noise,))[0])
        told = [(agreed, _UNFIT, "the kind of model agreed on misses"), *told]
    return [
        f"{what} this site's own rows by {found:.2g} of their variance, where they predict each "
        f"other to {own:.2g}: sites differ much, or one has lied; see docs/trust.md"
        for found, most, what in told
        if found > most * own + _MORE
    ]


def _own_error(X: Array, Y: Array) -> float:
    """Of the best of a line, a plain kernel and a tuned one, on rows left out."""
    sd = X.std(axis=0)
    Z = ((X - X.mean(axis=0)) / np.where(sd > 0, sd, 1.0))[:, sd > 0]
    d = max(Z.shape[1], 1)
    line = lines(Z) if Z.shape[1] else np.ones((len(Z), len(Z)))
    p, _, parts = fitted(Z, Y)
    scaled = Z * (np.sqrt(2.0 / d) * np.exp(p / 2.0))
    tuned = own_gram("matern32", scaled) + np.exp(parts[1] - parts[0]) * line
    kernels = (line, own_gram("gaussian", Z / float(np.sqrt(d / 2))) + line, tuned)
    return float(min(left_out(K, Y).min() for K in kernels))
