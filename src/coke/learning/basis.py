"""The second half of an agreement: a basis near the average Gram matrix, the same at all sites.

P is near the average Gram matrix plus the ridge. Five ways, from saying little to saying all:

    sample    the Gram matrix of a public sample of inputs: no message about the data
    moments   pooled mean and covariance of the inputs, one Gaussian
    mixture   a Gaussian mixture where one Gaussian describes a site badly (the default)
    range     inputs uniform in the ranges that were public before: no message at all
    gram      the exact average (1/N) Σ_i A_i, in float32
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from coke.data.units import Columns
from coke.errors import ConfigError
from coke.learning.agreement import Agreement
from coke.maths.alike import alike
from coke.maths.arrays import Array
from coke.maths.features.merging import Detail
from coke.maths.features.mixtures import RANKS, Gaussian, describe, expected_gram
from coke.maths.features.whitening import Whitening, mixture_basis
from coke.maths.losses.streamed import Streamed
from coke.settings.declaration import LOOKING
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_grams, add_targets, describe_inputs

_LEAST = 1e-7  # of the ridge: below it P would amplify what is rounding in φ, whose norm is one


class Own(NamedTuple):
    """What a site knows of its own rows."""

    X: Array  # (T, d) scaled inputs; none where they are out of reach
    gram: Callable[[], Array]  # ↦ their Gram matrix (D, D), made when it is needed
    y: Columns  # of its scaled target
    G: float  # its regulariser, λ/N
    most: int = max(RANKS)  # components of its mixture


def streamed_own(X: Array, s: Streamed, i: int, G: float) -> Own:
    """Of site i of a stream, with these rows and statistics; of nothing, a row of zeros."""
    w = max(float(s.w[i]), 1.0)
    y = Columns.of_moments(w, np.zeros(s.yy.shape[1]), np.sqrt(s.yy[i] / w))
    X = X if len(X) else np.zeros((1, X.shape[1]))
    return Own(X, partial(np.divide, s.S[i], w), y, G)


class Basis(NamedTuple):
    """The same at every site, to the last bit."""

    whitening: Whitening
    spread: float  # of the target: the unit of thresholds and tolerances
    inputs: tuple[Gaussian, ...] = ()  # what the sites told of theirs, merged


def common_basis(sweep: Sweep, agreement: Agreement, own: Own) -> Talk[Basis]:
    """One site's part in agreeing on P and the spread."""
    mixture, total = list[Gaussian](), np.empty(0)
    f, how, spread = agreement.features, agreement.terms.settings.whitening, agreement.spread
    ridge = _ridge(agreement, own.G)
    if how == "sample" and agreement.terms.sample is None:
        raise ConfigError('whitening = "sample" without a sample: name a file of public inputs')
    if how in ("sample", "range"):
        if spread is None:
            spread = yield from add_targets(sweep, own.y)
    elif how == "gram":
        total, spread = yield from add_grams(sweep, own.gram(), own.y)
    else:
        detail = Detail(0.3 * agreement.sigma * math.sqrt(ridge))
        if how == "mixture":
            told = describe(own.X, f, own.gram, ridge, agreement.terms.settings.seed, own.most)
            detail = detail._replace(features=f, ridge=ridge)
        else:
            told = [Gaussian.of(own.X).truncated(RANKS[1])]
        mixture, spread = yield from describe_inputs(sweep, told, own.y, detail)
        whitening = mixture_basis(f, mixture, ridge)
    if how not in LOOKING:
        P = total / agreement.N if how == "gram" else _public_gram(agreement)
        whitening = _whitening(P + ridge * np.eye(len(P)))
    known = agreement.spread
    return Basis(whitening, spread if known is None else known, tuple(mixture))


def basis_of(told: Basis, agreement: Agreement, G: float) -> Basis:
    """For other features, from what was told of the inputs for some."""
    ridge = _ridge(agreement, G)
    return told._replace(whitening=mixture_basis(agreement.features, told.inputs, ridge))


def _ridge(agreement: Agreement, G: float) -> float:
    """Beside the average Gram matrix."""
    return max(2.0 * G / agreement.kappa, _LEAST)


_whitening = alike(Whitening.of)


def _public_gram(agreement: Agreement) -> Array:
    """From what was public before: a sample of inputs, or their ranges [−1, 1]ᵈ.

    Uniform inputs by their moments alone: the noise of private sites asks for a λ so large that a
    better P hardly helps.
    """
    f, sample, d = agreement.features, agreement.terms.sample, len(agreement.terms.columns)
    if agreement.terms.settings.whitening == "range":
        return expected_gram(f, [Gaussian(1.0, np.zeros(d), np.eye(d) / 3)])
    assert sample is not None  # or it was refused before
    Phi = f(agreement.units.inputs(sample))
    return np.asarray(Phi.T @ Phi / len(sample))
