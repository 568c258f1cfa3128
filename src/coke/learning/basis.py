"""The common basis: how sites that know the network come to the same P and the same spread.

P is near the average Gram matrix plus the ridge. Five ways, from saying little to saying all:

    sample    the Gram matrix of a public sample of inputs: no message about the data
    moments   pooled mean and covariance of the inputs, one Gaussian
    mixture   a Gaussian mixture where one Gaussian describes a site badly (the default)
    range     inputs uniform in the ranges that were public before: no message at all
    gram      the exact average (1/N) Σ_i A_i, in float32
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coke.data.scaling import Columns
from coke.errors import ConfigError, unknown
from coke.maths.arrays import Array
from coke.maths.features.features import Features
from coke.maths.features.mixtures import RANKS, describe, truncated
from coke.maths.features.whitening import Whitening, expected_gram, moments, whitening
from coke.privacy.release import range_inputs
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_grams, add_targets, describe_inputs

LEAST = 1e-7  # of the ridge: below it P would amplify what is rounding in φ, whose norm is one
WHITENINGS = ("mixture", "moments", "gram", "sample", "range")


class Common(NamedTuple):
    """What all sites know before they say anything of their inputs."""

    features: Features
    sigma: float
    N: int
    share: float  # λ/N
    kappa: float  # curvature of the loss
    whitening: str
    sample: Array | None  # (n, d) public inputs, scaled
    seed: int
    spread: float | None = None  # of the target, where it is public

    @property
    def ridge(self) -> float:
        """What P needs beside the Gram matrix: 2λ/N over the loss's curvature κ; some, if λ = 0."""
        return max(2.0 * self.share / self.kappa, LEAST)


class Own(NamedTuple):
    """What a site knows of its own rows."""

    X: Array  # (T, d) scaled inputs
    A: Array  # (D, D) their Gram matrix
    y: Columns  # of its scaled target


class Agreed(NamedTuple):
    """The same at every site, to the last bit."""

    basis: Whitening
    spread: float  # of the target: the unit of thresholds and tolerances


def _public_gram(common: Common) -> Array:
    f = common.features
    if common.whitening == "range":
        return expected_gram(f, range_inputs(f.omega.shape[1]))
    if common.sample is None:
        raise ConfigError('whitening = "sample" without a sample: name a file of public inputs')
    return np.asarray(f(common.sample).T @ f(common.sample) / len(common.sample))


def common_basis(sweep: Sweep, common: Common, own: Own) -> Talk[Agreed]:
    """One site's part in agreeing on P and the spread."""
    f, ridge = common.features, common.ridge
    if common.whitening not in WHITENINGS:
        raise ConfigError(unknown("whitening", common.whitening, WHITENINGS))
    if common.whitening in ("sample", "range"):
        G = _public_gram(common)
        spread = common.spread
        if spread is None:
            spread = yield from add_targets(sweep, own.y)
    elif common.whitening == "gram":
        total, spread = yield from add_grams(sweep, own.A, own.y)
        G = total / common.N
    else:
        told = [truncated(moments(own.X), RANKS[1])]
        if common.whitening == "mixture":
            told = describe(own.X, f, own.A, ridge, common.seed)
        s0 = 0.3 * common.sigma * math.sqrt(ridge)
        mixture, spread = yield from describe_inputs(sweep, told, own.y, s0)
        G = expected_gram(f, mixture)
    return Agreed(whitening(G + ridge * np.eye(len(G))), spread)
