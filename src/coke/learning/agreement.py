"""What all sites know alike, to the last bit, before they train: network, units, classes, features.

`numbers` is one site's part of the conversation, whoever drives it: a simulation, ranks, or an
agent in the field. The second half, where an algorithm needs it, is `coke.learning.basis`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from coke.data.coding import Coding
from coke.data.site import Site
from coke.data.tables import Labels
from coke.data.units import Columns, Making, Scaling, checked_classes, fit_scaling, numbers_of
from coke.errors import MessageError
from coke.learning.choice import FINE, Choice, least_ridge
from coke.learning.kernels import Bank, feature_settings, kernel_features
from coke.learning.picking import chosen, weighed
from coke.learning.public import public_classes, public_units
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures, draw_features
from coke.maths.graph import Shape
from coke.maths.losses import LOSSES, NUMBERS, OF_CLASSES, Loss, losses_of
from coke.maths.losses.codes import coded, corners
from coke.privacy.noise import Budget
from coke.privacy.private import Private, Public
from coke.privacy.share import Signing
from coke.settings.declaration import AUTO, BALANCED, HASHED, PUBLIC, Settings
from coke.settings.kernels import Kernel, kernels_of
from coke.talk.columns import agree_coding
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_integers
from coke.talk.told import Told, tell
from coke.threads import OneThread

_ENOUGH = 5  # rows for each feature, for least squares of two classes
_NOTHING = Told(Columns(0.0, *[np.empty(0)] * 4))
_Known = tuple[Site, "Terms", Coding | None, Told]


class Terms(NamedTuple):
    """How to learn: the settings, and what they name that is more than a word."""

    settings: Settings
    columns: tuple[str, ...]  # names of the inputs
    sample: Array | None = None  # public inputs, in their own units
    releases: Path | None = None  # where private sites keep their noised statistics; None: nowhere
    streams: bool = False  # whether rows go on coming: then kernels are compared as they come
    signing: Signing | None = None  # of keys in a secure sum, where sites have identities

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the columns to predict; of .npy files, theirs."""
        names = self.settings.data.targets
        return tuple(Path(name).stem if name.endswith(".npy") else name for name in names)

    @property
    def loss(self) -> Loss:
        """What is declared of it."""
        return LOSSES[self.settings.loss]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Several to learn with, where they were given."""
        return kernels_of(self.settings.features)

    @property
    def numbers(self) -> bool:
        """Whether targets are numbers."""
        return self.loss.kind == NUMBERS

    @property
    def needed(self) -> tuple[bool, bool]:
        """Whether units, or a choice, follow from moments of the columns; and from their ranges."""
        s = self.settings
        known = self.streams and self.kernels and all(one.widths for one in self.kernels)
        sigma = s.features.sigma == AUTO and not known
        moments = s.data.scale == "standard" or sigma or s.model == AUTO
        return moments, s.data.scale == "minmax"

    @property
    def tells(self) -> bool:
        """Whether sites tell each other anything of their columns."""
        return not self.numbers or any(self.needed)

    def with_kind(self) -> Terms:
        """Rows that came without a file, and without a loss, have targets that are numbers."""
        return self._with(losses_of(NUMBERS)[0])

    def with_loss(self, told: Told) -> Terms:
        """With the loss of classes that is chosen, where that was left open.

        It is least squares, which needs a pass over the rows and sums alone. But it has λ as it is:
        of two classes and few rows for each feature it fits their noise, and the logistic loss,
        on which the same λ weighs eight times as much or more, does better.
        """
        settings, f = self.settings, feature_settings(self.settings)
        D = f.n_features * (2 if f.mapping == "cos-sin" else 1)
        few = len(told.labels) == 2 and told.columns.T < _ENOUGH * D
        sums = settings.model == AUTO or settings.fast or settings.data.out_of_core
        logistic = few and not sums and settings.lam != 0
        return self._with("logistic" if logistic else "least-squares")

    def _with(self, loss: str) -> Terms:
        return self._replace(settings=msgspec.structs.replace(self.settings, loss=loss))

    @property
    def private(self) -> Private | None:
        """How sites noise their statistics, where they do."""
        s = self.settings
        if s.epsilon is None:
            return None
        assert self.releases is not None  # whoever reads private settings finds a place for them
        colluding = s.colluding if s.secure_sum else None
        return Private(
            budget=Budget(s.epsilon, s.delta),
            folder=self.releases,
            again=s.new_budget,
            colluding=colluding,
            classes=len(s.classes),
            signing=self.signing,
        )

    @property
    def public(self) -> Scaling | None:
        """Units that were known before any row, where these are wanted."""
        wanted = self.settings.data.scale == PUBLIC
        return public_units(self.settings, self.columns) if wanted else None


@dataclass(frozen=True)
class Agreement:
    """The same at every site, once `numbers` has come to its end."""

    terms: Terms
    shape: Shape  # of the network
    units: Scaling  # of inputs and target
    told: Told  # moments or ranges of all columns, and all classes
    public: Public | None = None  # what private sites tell instead
    spread: float | None = None  # of the target, where no row is needed to know it
    choice: Choice | None = None  # of the model, where that is left to the sites
    balance: Array | None = None  # (K,) weights of the classes, where they are to be
    coding: Coding | None = None  # of raw columns, where any site has text, dates or gaps
    bank: Bank | None = None  # of several kernels, where some were given

    @property
    def N(self) -> int:
        """How many sites there are."""
        return self.shape.sites

    @cached_property
    def sigma(self) -> float:
        """σ, or √(Σ_j var_j / 2) of the scaled inputs, as scikit-learn's gamma = "scale" has it."""
        wanted = self.terms.settings.features.sigma
        if self.choice is not None:
            return self.choice.narrowest
        if self.bank is not None and self.bank.leader.widths:
            return min(self.bank.leader.widths)
        if wanted != AUTO:
            return float(wanted)
        d = len(self.units.x_scale)
        total = float(np.sum((self.told.columns.sd[:d] / self.units.x_scale) ** 2))
        return math.sqrt(total / 2) if total > 0 else 1.0

    @cached_property
    def features(self) -> DrawnFeatures:
        """The random features that all sites draw alike."""
        if self.choice is not None:
            return self.choice.best.features
        if self.bank is not None:
            return self.of_kernel(self.bank.leader)
        settings = feature_settings(self.terms.settings)._replace(sigma=self.sigma)
        return draw_features(settings, len(self.terms.columns))

    def of_kernel(self, kernel: Kernel) -> DrawnFeatures:
        """φ_j of one of several kernels."""
        return kernel_features(self.terms.settings, kernel, self.sigma, len(self.terms.columns))

    @cached_property
    def classes(self) -> Labels:
        """The sorted labels of all sites; none where the target is a number."""
        return np.empty(0) if self.terms.numbers else checked_classes(self.told.labels)

    @property
    def outputs(self) -> int:
        """K, the vectors in θ."""
        return self.terms.loss.outputs(len(self.terms.targets), len(self.classes))

    @property
    def kappa(self) -> float:
        """κ, the curvature of the loss."""
        return self.terms.loss.curvature(self.outputs)

    @property
    def making(self) -> Making:
        """How rows in the common units become risks, with λ/N at each site."""
        settings, classes = self.terms.settings, self.classes
        share, precision = self.lam / self.N, settings.data.precision
        how = Making(self.features, self.units, settings.loss, classes, share, precision)
        return how if self.balance is None else how._replace(balance=self.balance)

    @property
    def lam(self) -> float:
        """λ, given or chosen: its share at a site is a ridge beside a Gram matrix times κ/2."""
        if self.choice is None:
            return float(self.terms.settings.lam)
        ridge, given = self.choice.best.ridge, self.terms.settings.lam != AUTO
        if self.terms.loss.codes and not given:
            ridge = max(ridge, least_ridge(self.told.columns.T))
        return self.N * ridge * self.kappa / 2


def numbers(sweep: Sweep, shape: Shape, site: Site, terms: Terms) -> Talk[Agreement]:
    """What the units follow from, by sums over all sites; with privacy, what is public instead."""
    private, units, auto = terms.private, terms.public, terms.settings.loss == OF_CLASSES
    if private is not None and units is not None:
        X, y = site.rows()
        features = draw_features(feature_settings(terms.settings), X.shape[1])
        terms, known = terms.with_loss(_NOTHING) if auto else terms, public_classes(terms.settings)
        y = numbers_of(y) if terms.numbers else coded(y, checked_classes(known))
        mine = (site.name, features, units.inputs(X), units.targets(y))
        public = yield from private.agree(sweep, shape.sites, *mine)
        return Agreement(terms, shape, units, Told(_NOTHING.columns, known), public, private.spread)
    how, outputs = terms.settings.data.scale, len(terms.targets)
    site, terms, coding, everyones = yield from _known(sweep, site, terms, shape.sites)
    if units is None:
        units = fit_scaling(how, len(terms.columns), everyones.columns, outputs)
    terms = terms.with_loss(everyones) if auto else terms
    balance = None
    if terms.loss.codes or terms.settings.class_weight == BALANCED:
        shares = yield from _shares(sweep, site, checked_classes(everyones.labels))
        if terms.settings.class_weight == BALANCED:
            balance = 1.0 / (len(shares) * np.maximum(shares, 1.0 / FINE))
            shares = np.full(len(shares), 1.0 / len(shares))
        units = _centred(units, shares) if terms.loss.codes else units
    agreed = Agreement(terms, shape, units, everyones, balance=balance, coding=coding)
    if not (terms.numbers or terms.loss.codes):  # margins are about one, of every output
        agreed = replace(agreed, spread=math.sqrt(agreed.outputs))
    if terms.kernels and not terms.streams:
        return replace(agreed, bank=(yield from weighed(sweep, site, agreed)))
    if terms.settings.model != AUTO:
        return agreed
    choice, units = yield from chosen(sweep, site, agreed)
    return replace(agreed, units=units, choice=choice)


def _known(sweep: Sweep, site: Site, terms: Terms, sites: int) -> Talk[_Known]:
    """What all sites tell of their columns; where these are raw, once a coding is agreed on."""
    if not terms.tells:
        return site, terms, None, _NOTHING
    name = site.name if terms.settings.guard else None
    own = _told(site, terms) if not site.here.kinds or site.here.plain(site.i) else None
    if (everyones := (yield from tell(sweep, own, name, sites))) is not None:
        return site, terms, None, everyones
    hashed, seed = terms.settings.data.levels == HASHED, terms.settings.seed
    coding = yield from agree_coding(sweep, site, terms.columns, hashed=hashed, seed=seed)
    site, terms = site.coded(coding), terms._replace(columns=coding.names)
    if (everyones := (yield from tell(sweep, _told(site, terms), name, sites))) is None:
        raise MessageError("raw columns, where a coding was agreed on before")
    return site, terms, coding, everyones


def _shares(sweep: Sweep, site: Site, classes: Labels) -> Talk[Array]:
    """Of the classes (K,), the mean over the sites' shares of them."""
    own = site.here.shares(site.i, classes)
    total = (yield from add_integers(sweep, FINE * own)).astype(np.float64)
    if not ((total >= 0).all() and total.sum() > 0):
        raise MessageError("shares of classes that cannot be: expected none below zero")
    return np.asarray(total / total.sum())


def _centred(units: Scaling, shares: Array) -> Scaling:
    """With the mean of the classes' codes."""
    centre = np.cumsum(shares[:, None] * corners(len(shares)), axis=0)[-1]
    return units._replace(y_shift=centre, y_scale=np.ones_like(centre))


def _told(site: Site, terms: Terms) -> Told:
    """Of the rows as little as is needed."""
    moments, ranges = terms.needed
    with OneThread().limit():
        labels, columns = site.here.labels(site.i), site.here.columns(site.i)
    return Told(columns.needed(moments=moments, ranges=ranges), labels)
