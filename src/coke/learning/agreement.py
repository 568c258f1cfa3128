"""What all sites know alike, to the last bit, before they train: network, units, classes, features.

`begin` is one site's part of the conversation, whoever drives it: a simulation of all sites, ranks,
or an agent in the field.
The second half, where an algorithm needs it, is `coke.learning.basis`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coke.data.site import Columns, Making, Scaling, Site, checked_classes, fit_scaling, numbers_of
from coke.data.tables import Labels
from coke.errors import ConfigError
from coke.learning.choice import Choice, Samples, Wish
from coke.learning.choosing import choose
from coke.learning.model import Model
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.features.whitening import Whitening
from coke.maths.losses import LOSSES, NUMBERS
from coke.maths.losses.one_vs_rest import signs
from coke.privacy.noise import Budget
from coke.privacy.private import SPREAD, Private, Public
from coke.privacy.release import public_scaling
from coke.settings.declaration import AUTO, PLAIN, PLAIN_LAMBDA, PUBLIC, Settings
from coke.talk.conversation import Network, Talk, flood
from coke.talk.sums import (
    Sweep,
    Told,
    swept,
    tell,
)
from coke.threads import OneThread

_NONE = np.empty(0)
_NOTHING = Told(Columns(0.0, _NONE, _NONE, _NONE, _NONE))


class Terms(NamedTuple):
    """How to learn: the settings, and what they name that is more than a word."""

    settings: Settings
    columns: tuple[str, ...]  # names of the inputs
    sample: Array | None = None  # public inputs, in their own units
    releases: Path | None = None  # where private sites keep their noised statistics

    @property
    def numbers(self) -> bool:
        """Whether the target is a number."""
        return LOSSES[self.settings.loss].kind == "numbers"

    @property
    def private(self) -> Private | None:
        """How sites noise their statistics, where they do."""
        s = self.settings
        if s.epsilon is None:
            return None
        assert self.releases is not None  # whoever reads private settings finds a place for them
        colluding = s.colluding if s.secure_sum else None
        return Private(Budget(s.epsilon, s.delta), self.releases, s.new_budget, colluding)

    @property
    def public(self) -> Scaling | None:
        """Inputs and target to [−1, 1], from ranges that were known before any row."""
        data = self.settings.data
        if data.scale != PUBLIC:
            return None
        target = data.target or "y"
        lacking = [c for c in (*self.columns, *[target] * self.numbers) if c not in data.ranges]
        if lacking:
            raise ConfigError(
                f'scale = "public" without ranges of {", ".join(lacking[:8])}: give [low, high] '
                "for each in data.ranges, known before any row was looked at"
            )
        low, high = zip(*(data.ranges[name] for name in self.columns), strict=True)
        ends = data.ranges[target] if self.numbers else (-1.0, 1.0)
        return public_scaling(np.array(low), np.array(high), ends)


def feature_settings(settings: Settings) -> FeatureSettings:
    """The features of the plain model; σ = 1 where the inputs' spread will say."""
    f = settings.features
    L = PLAIN["n_features"] if f.n_features == AUTO else f.n_features
    kernel = PLAIN["kernel"] if f.kernel == AUTO else f.kernel
    sigma = 1.0 if isinstance(f.sigma, str) else f.sigma
    return FeatureSettings(int(L), kernel, sigma, f.mapping, f.sampling, settings.seed)


def wished(settings: Settings, d: int, N: int) -> Wish:
    """What the settings leave to choose."""
    f, kappa = settings.features, LOSSES[settings.loss].kappa
    usual = feature_settings(settings)
    if f.sigma == AUTO:
        usual = usual._replace(sigma=float(np.sqrt(d / 2)))
    sigma, weight, lam = (_number(v) for v in (f.sigma, f.linear, settings.lam))
    return Wish(
        plain=usual,
        kernel="matern32" if f.kernel == AUTO else f.kernel,
        inputs={AUTO: (False, True), "scaled": (False,), "quantiles": (True,)}[f.inputs],
        sigma=sigma,
        linear=weight,
        size=None if f.n_features == AUTO else int(f.n_features),
        most=300 if LOSSES[settings.loss].statistics else 100,  # else a round costs a pass each
        useful=f.frequencies == AUTO,
        ridge=None if lam is None else 2 * lam / (N * kappa),
        usual=2 * PLAIN_LAMBDA / (N * kappa),
        # Errors of least squares on classes that can be told apart ask for none, and then margins
        # grow for ever.
        least=0.0 if LOSSES[settings.loss].kind == NUMBERS else 3e-5,
    )


def _number(given: float | str) -> float | None:
    return None if given == AUTO else float(given)


class _Begun(NamedTuple):
    """The first half of an agreement: what the rest follows from."""

    net: Network
    units: Scaling  # of inputs and target
    told: Told  # moments or ranges of all columns, and all classes
    public: Public | None  # what private sites tell instead
    choice: Choice | None = None  # of the model, where that is left to the sites


def begin(site: Site, neighbours: Sequence[str], terms: Terms, totals: list[bytes]) -> Talk[_Begun]:
    """One site learns the network, then what the units follow from; totals are for newcomers."""
    net = yield from flood(site.name, neighbours)
    sweep = partial(swept, net, site.name, totals)
    return (yield from numbers(sweep, net, site, terms))


def numbers(sweep: Sweep, net: Network, site: Site, terms: Terms) -> Talk[_Begun]:
    """What the units follow from, by sums over all sites; with privacy, what is public instead."""
    private, units = terms.private, terms.public
    if private is not None and units is not None:
        X, y = site.rows()
        features = draw_features(feature_settings(terms.settings), X.shape[1])
        mine = (site.name, features, units.inputs(X), units.targets(numbers_of(y)))
        return _Begun(net, units, _NOTHING, (yield from private.agree(sweep, net.names, *mine)))
    with OneThread().limit():
        told = _told(site, terms)
    everyones = _NOTHING if told is None else (yield from tell(sweep, told))
    if units is None:
        units = fit_scaling(terms.settings.data.scale, len(terms.columns), everyones.columns)
    begun = _Begun(net, units, everyones, None)
    if terms.settings.model != AUTO:
        return begun
    return (yield from _choosing(sweep, site, terms, begun))


def _choosing(sweep: Sweep, site: Site, terms: Terms, begun: _Begun) -> Talk[_Begun]:
    """With a model chosen; its inputs are in standard units or quantiles, whatever the scale."""
    told, d, N = begun.told.columns, len(terms.columns), len(begun.net.names)
    standard = fit_scaling("standard", d, told)
    X, y = site.here.sample(site.i, terms.settings.seed)
    Y = _targets(terms, standard, y, begun.told.labels)
    T = site.here.columns(site.i).T
    own = Samples(standard.inputs(X), Y, T, told.T, N)
    choice = yield from choose(sweep, own, wished(terms.settings, d, N))
    x = standard._replace(knots=choice.best.knots)
    units = x._replace(y_shift=begun.units.y_shift, y_scale=begun.units.y_scale)
    return begun._replace(units=units, choice=choice)


def _targets(terms: Terms, standard: Scaling, y: Labels, labels: tuple[Any, ...]) -> Array:
    """(n, K): numbers in standard units, classes as ±1."""
    if terms.numbers:
        return standard.targets(numbers_of(y))[:, None]
    return np.column_stack(signs(y, checked_classes(labels)))


def _told(site: Site, terms: Terms) -> Told | None:
    """Of the rows as little as is needed; nothing where nothing is to be agreed on."""
    scale = terms.settings.data.scale
    chosen, sigma = terms.settings.model == AUTO, terms.settings.features.sigma
    moments = scale == "standard" or sigma == AUTO or chosen
    ranges = scale == "minmax"
    if terms.numbers and not (moments or ranges):
        return None
    labels, columns = site.here.labels(site.i), site.here.columns(site.i)
    return Told(columns.needed(moments=moments, ranges=ranges), labels)


@dataclass(frozen=True)
class Agreement:
    """The same at every site, once `begin` has come to its end."""

    terms: Terms
    begun: _Begun
    bases: dict[bytes, Whitening] = field(default_factory=dict, repr=False, compare=False)
    """Those made so far, by what was said of them: one, unless sites were told different things."""

    @property
    def net(self) -> Network:
        """Who knows whom."""
        return self.begun.net

    @property
    def N(self) -> int:
        """How many sites there are."""
        return len(self.net.names)

    @property
    def units(self) -> Scaling:
        """Of inputs and target."""
        return self.begun.units

    @cached_property
    def sigma(self) -> float:
        """σ, or √(Σ_j var_j / 2) of the scaled inputs, as scikit-learn's gamma = "scale" has it."""
        wanted = self.terms.settings.features.sigma
        if self.begun.choice is not None:
            return self.begun.choice.narrowest
        if wanted != AUTO:
            return float(wanted)
        d = len(self.units.x_scale)
        total = float(np.sum((self.begun.told.columns.sd[:d] / self.units.x_scale) ** 2))
        return math.sqrt(total / 2) if total > 0 else 1.0

    @cached_property
    def features(self) -> DrawnFeatures:
        """The random features that all sites draw alike."""
        if self.begun.choice is not None:
            return self.begun.choice.best.features
        settings = feature_settings(self.terms.settings)._replace(sigma=self.sigma)
        return draw_features(settings, len(self.terms.columns))

    @cached_property
    def classes(self) -> Labels:
        """The sorted labels of all sites; none where the target is a number."""
        return _NONE if self.terms.numbers else checked_classes(self.begun.told.labels)

    @property
    def outputs(self) -> int:
        """Vectors in θ: one, or one a class."""
        return len(self.classes) if len(self.classes) > 2 else 1

    @property
    def making(self) -> Making:
        """How rows in the common units become risks, with λ/N at each site."""
        share, settings = self.lam / self.N, self.terms.settings
        precision = settings.data.precision
        return Making(self.features, self.units, settings.loss, self.classes, share, precision)

    @property
    def lam(self) -> float:
        """λ, given or chosen: its share at a site is a ridge beside a Gram matrix times κ/2."""
        if self.begun.choice is None:
            return float(self.terms.settings.lam)
        return self.N * self.begun.choice.best.ridge * LOSSES[self.terms.settings.loss].kappa / 2

    @property
    def spread(self) -> float | None:
        """Of the target, where that is public."""
        return None if self.begun.public is None else SPREAD

    def model(self, theta: Array) -> Model:
        """The model of one θ (D,), such as an agent's own or the agents' mean."""
        return Model(
            theta=theta.reshape(self.outputs, -1),
            features=self.features,
            scaling=self.units,
            loss=self.terms.settings.loss,
            classes=self.classes,
            columns=self.terms.columns,
        )
