"""What all sites know alike, to the last bit, before they train: network, units, classes, features.

`numbers` is one site's part of the conversation, whoever drives it: a simulation, ranks, or an
agent in the field. The second half, where an algorithm needs it, is `coke.learning.basis`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coke.data.coding import Coding
from coke.data.site import Site
from coke.data.tables import Labels
from coke.data.units import Columns, Making, Scaling, checked_classes, fit_scaling, numbers_of
from coke.errors import MessageError
from coke.learning.choice import FINE, Choice, least_ridge, usual_ridge, widened
from coke.learning.kernels import Bank, feature_settings, kernel_features
from coke.learning.model import Model
from coke.learning.picking import chosen, kernels_weighed
from coke.learning.terms import Terms, public_classes
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures, draw_features
from coke.maths.graph import Shape
from coke.maths.guards import weighed
from coke.maths.losses import CLASSES, OF_CLASSES
from coke.maths.losses.codes import coded, corners
from coke.privacy.private import Public
from coke.settings.declaration import AUTO, BALANCED, HASHED, PLAIN_LAMBDA
from coke.settings.kernels import Kernel
from coke.talk.claiming import ByName
from coke.talk.columns import agree_coding
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_integers
from coke.talk.told import Told, tell
from coke.threads import OneThread

_NOTHING = Told(Columns(0.0, *[np.empty(0)] * 4))
_Known = tuple[Site, Terms, Coding | None, Told]


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
        """σ, or √(Σ_j var_j / 2) of the scaled inputs, as scikit-learn's gamma = "scale" has it.

        Classes of many columns have it wider, see `widened`.
        """
        wanted = self.terms.settings.features.sigma
        if self.choice is not None:
            return self.choice.narrowest
        if self.bank is not None and self.bank.leader.widths:
            return min(self.bank.leader.widths)
        if wanted != AUTO:
            return float(wanted)
        if self.terms.width is not None:  # of one kernel after the other: nobody was asked
            return self.terms.width
        d = len(self.units.x_scale)
        spreads = self.told.columns.sd[:d] / self.units.x_scale
        total = float(np.sum(spreads**2))
        wider = 1.0 if self.terms.numbers else widened(int(np.count_nonzero(spreads)))
        return wider * math.sqrt(total / 2) if total > 0 else 1.0

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
        return how._replace(balance=self.balance, rows=self.rows)

    @property
    def rows(self) -> float | None:
        """(1/N) Σ_i T_i, that every site counts as, where rows weigh the same."""
        by_rows = self.terms.by_rows and self.public is None  # whose noised sums are counted later
        return self.told.columns.T / self.N if by_rows else None

    def model(self, theta: Array) -> Model:
        """The model of one θ (K·D,)."""
        standard, coding = self.terms.settings.data.scale == "standard", self.coding
        return Model(
            theta=theta.reshape(-1, self.features.size),
            features=self.features,
            scaling=self.units,
            loss=self.terms.settings.loss,
            classes=self.classes,
            columns=self.terms.columns if coding is None else coding.columns,
            coding=coding,
            targets=self.terms.targets,
            centred=standard or self.choice is not None,  # whose units always are
            kernels=() if self.bank is None else self.bank.shares,
        )

    @property
    def lam(self) -> float:
        """λ, given or chosen: its share at a site is a ridge beside a Gram matrix times κ/2."""
        given = self.terms.settings.lam != AUTO
        if self.choice is None:
            return float(self.terms.settings.lam) if given else self._usual
        ridge = self.choice.best.ridge
        if self.terms.loss.codes and not given:
            ridge = max(ridge, least_ridge(self.told.columns.T))
        return self.N * ridge * self.kappa / 2

    @property
    def _usual(self) -> float:
        """λ of the plain model where none is given; of codes by `usual_ridge`."""
        codes, T = self.terms.loss.codes, self.told.columns.T
        return self.N * usual_ridge(T, len(self.classes)) if codes else PLAIN_LAMBDA


def numbers(sweep: Sweep, shape: Shape, site: Site, terms: Terms) -> Talk[Agreement]:
    """What the units follow from, by sums over all sites; with privacy, what is public instead."""
    private, units, auto = terms.private, terms.public, terms.settings.loss == OF_CLASSES
    if private is not None and units is not None:
        X, y = site.rows()
        features = draw_features(feature_settings(terms.settings), X.shape[1])
        terms, known = terms.with_kind(CLASSES) if auto else terms, public_classes(terms.settings)
        y = numbers_of(y) if terms.numbers else coded(y, checked_classes(known))
        mine = (site.name, features, units.inputs(X), units.targets(y))
        public = yield from private.agree(sweep, shape.sites, *mine)
        return Agreement(terms, shape, units, Told(_NOTHING.columns, known), public, private.spread)
    if terms.settings.guard:
        sweep = ByName(sweep, site.name, shape.sites)
    how, outputs = terms.settings.data.scale, len(terms.targets)
    site, terms, coding, everyones = yield from _known(sweep, site, terms, shape.sites)
    if units is None:
        units = fit_scaling(how, len(terms.columns), everyones.columns, outputs)
    terms = terms.with_kind(CLASSES) if auto else terms
    balance = None
    if terms.loss.codes or terms.settings.class_weight == BALANCED:
        part = site.here.columns(site.i).T / everyones.columns.T if terms.by_rows else 1.0
        shares = yield from _shares(sweep, site, checked_classes(everyones.labels), part)
        if terms.settings.class_weight == BALANCED:
            balance = 1.0 / (len(shares) * np.maximum(shares, 1.0 / FINE))
            shares = np.full(len(shares), 1.0 / len(shares))
        units = _centred(units, shares) if terms.loss.codes else units
    agreed = Agreement(terms, shape, units, everyones, balance=balance, coding=coding)
    if not (terms.numbers or terms.loss.codes):  # margins are about one, of every output
        agreed = replace(agreed, spread=math.sqrt(agreed.outputs))
    if terms.kernels and not terms.streams:
        return replace(agreed, bank=(yield from kernels_weighed(sweep, site, agreed)))
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


def _shares(sweep: Sweep, site: Site, classes: Labels, part: float) -> Talk[Array]:
    """Of the classes (K,), the mean over the sites' shares of them, each times its part."""
    own = part * site.here.shares(site.i, classes)
    total = (yield from add_integers(sweep, FINE * own, believed=weighed)).astype(np.float64)
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
