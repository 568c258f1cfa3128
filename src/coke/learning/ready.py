"""Sites that have agreed and can begin to train: all of a simulation, a rank's, or one in a field.

`agree` holds the conversation for all sites here, `site_talk` is an agent's own, and `joining` that
of a site which comes later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np

from coke.data.site import Kept, Site, Sites
from coke.data.units import Columns, size_of
from coke.engines.process import ALONE, Engine
from coke.engines.ranks.engine import Ranks
from coke.errors import CokeError, DataError, MessageError
from coke.learning.agreement import Agreement, numbers
from coke.learning.basis import Basis, Own, common_basis
from coke.learning.case import Case, Second, Wanted, goal_of, is_thin, resolved, tol_of
from coke.learning.model import NOTHING_CLOSED, Closed, Model
from coke.learning.terms import Terms, check_labels
from coke.learning.vouching import vouched
from coke.maths.algorithms import ALGORITHMS, Seen
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.graph import Graph, Steps
from coke.maths.ledger import Spent
from coke.maths.losses.problem import Problem
from coke.privacy.private import Noised, Private
from coke.settings.declaration import AUTO
from coke.talk.conversation import Talk, outcome
from coke.talk.place import Place, shape_of
from coke.talk.sums import Sweep, add_targets, given, swept
from coke.talk.thinning import thinned
from coke.talk.wave import wave, waves
from coke.threads import OneThread


@dataclass(frozen=True)
class Ready:
    """The sites here, their problem, and what was agreed on."""

    agreement: Agreement
    problem: Problem
    targets: tuple[Columns, ...]  # what the sites here may tell of their scaled targets
    sites: Sites  # those here
    names: tuple[str, ...]  # of all sites, in the order of the run's rows
    graph: Graph  # on these positions; None at an agent, which does not know it
    places: tuple[Place, ...]  # of the sites here, in the network
    spent: Spent  # (n, 3) by the sites here, on agreeing
    noised: Noised | None = None  # with privacy
    engine: Engine = ALONE  # who else has a part of the sites
    second: Second | None = None  # what a site in the field has agreed on beyond

    @property
    def totals(self) -> tuple[bytes, ...]:
        """Of the agreement of a site in the field, for sites that join later."""
        told = msgspec.msgpack.encode(self.agreement.shape)
        return () if self.second is None else (told, *self.second.totals)

    def own(self, i: int) -> Own:
        """What site i of those here knows of its own rows."""
        rows = None if self.noised else self.sites.of([i]).units(self.agreement.units)
        X = np.empty((0, len(self.agreement.terms.columns))) if rows is None else rows.X[0]
        G = self.agreement.making.G if self.noised is None else float(self.noised.risk.G)
        return Own(X, partial(self.problem.train.gram, i), self.targets[i], G)

    @cached_property
    def rows(self) -> Kept | None:
        """In the common units; None where they are out of reach."""
        return None if self.noised else self.sites.units(self.agreement.units)

    @cached_property
    def times(self) -> Array:
        """(n,) by which a site's loss is its rows' mean: where rows weigh the same, T̄/T_i."""
        return self.problem.train.T / np.array([one.T for one in self.targets])

    @property
    def reach(self) -> Steps:
        """Steps from each of the sites here (n,) to the farthest of all, at most."""
        return np.array([place.reach for place in self.places])

    @cached_property
    def spread(self) -> float:
        """Of the scaled target; of several, and of codes, the joint one."""
        if self.second is not None:
            return self.second.spread or 1.0
        if self.agreement.spread is not None:
            return self.agreement.spread
        return reduce(Columns.merged, self._everyones()).spread

    def _everyones(self) -> Iterator[Columns]:
        """The targets of all sites. All processes ask together."""
        told = np.array([(y.T, *y.mean, *y.sd) for y in self.targets])
        for row in self.engine.everyones(told):
            yield Columns.of_moments(row[0], *np.split(row[1:], 2))

    @cached_property
    def optimum(self) -> Array:
        """θ* (D,); on one thread, for the last bits of a solution depend on how many there are."""
        with OneThread().limit():
            return self.problem.optimum

    @cached_property
    def alone(self) -> Array:
        """θ_i (n, D) that the sites here would learn without a message; private ones from noise."""
        if self.noised is not None:
            return self.noised.alone
        with OneThread().limit():
            return self.problem.train.alone()

    @cached_property
    def everybody(self) -> Ready | None:
        """All sites, at the first process that has a part of them; None elsewhere."""
        if not isinstance(self.engine, Ranks):
            return self
        problem, noised = self.engine.whole(self.problem), self.noised
        if noised is not None:
            alone = self.engine.gather(noised.alone)
            noised = None if alone is None else noised._replace(alone=alone)
        targets = tuple(self._everyones())
        if problem is None:
            return None
        return replace(self, problem=problem, noised=noised, targets=targets)

    @cached_property
    def whitened(self) -> tuple[Problem, Basis, Spent]:
        """The problem in the basis that the sites agree on, and what agreeing cost in all."""
        with OneThread().limit():
            basis, spent = self._basis()
            return self.problem.whitened(basis.whitening), basis, spent

    def _basis(self) -> tuple[Basis, Spent]:
        if self.second is not None:
            assert self.second.basis is not None  # it was wanted, or the site would not ask for it
            return self.second.basis, self.spent
        talks = {
            place.name: common_basis(partial(swept, place, []), self.agreement, self.own(i))
            for i, place in enumerate(self.places)
        }
        agreed, spent = self.engine.converse(talks)
        return agreed[self.places[0].name], self.spent + spent

    def model(self, theta: Array, closed: Closed = NOTHING_CLOSED) -> Model:
        """The model of one θ (D,), such as an agent's own or the agents' mean."""
        basis = None if self.second is None else self.second.basis
        if "whitened" in vars(self):
            basis = self.whitened[1]
        like = () if basis is None else basis.inputs
        return self.agreement.model(theta)._replace(inputs_like=like, closed=closed)

    def case(self, algorithm: str | Algorithm) -> Case:
        """How to run that algorithm, of the house or an own one."""
        settings = self.agreement.terms.settings
        if isinstance(algorithm, Algorithm):
            nothing, tol = np.zeros_like(self.spent), settings.tol
            limit = None if tol is None else tol * self.spread
            return Case(
                problem=self.problem, algorithm=algorithm, spread=self.spread, spent=nothing,
                tol=limit, closes=self._closes(basis=False),
            )  # fmt: skip
        algorithm = resolved(settings)[0] if algorithm == AUTO else algorithm
        entry, loss = ALGORITHMS[algorithm], self.agreement.terms.loss
        problem, whitening, spread, spent = self.problem, None, 0.0, np.zeros_like(self.spent)
        if entry.basis:
            problem, (whitening, spread, _), spent = self.whitened
        else:
            spread = self.spread
        thin, shape = is_thin(settings, entry), self.agreement.shape
        seen = Seen(self.agreement.kappa, thinned(shape) if thin else shape, spread)
        built = entry.build(msgspec.structs.asdict(settings), seen)
        tol = tol_of(settings, entry, loss)
        return Case(
            problem=problem, algorithm=built, spread=spread, spent=spent,
            tol=None if tol is None else tol * spread, basis=whitening,
            closes=self._closes(basis=entry.basis), descends=entry.descends,
            goal=goal_of(settings, loss) if entry.basis else None, ends=settings.tol is None,
            thin=thin,
        )  # fmt: skip

    def _closes(self, *, basis: bool) -> bool:
        """Errors are added up with a model chosen and a basis agreed on, sharpness is of codes."""
        terms = self.agreement.terms
        errors = terms.settings.model == AUTO and terms.numbers and basis
        return errors or terms.loss.codes


def agree(
    sites: Sites, graph: Graph, terms: Terms, engine: Engine = ALONE, names: tuple[str, ...] = ()
) -> Ready:
    """The sites learn the network, agree on units, draw the features and pass over their rows.

    `graph` is of all sites, in the order of their `names`; `sites` are those that the engine has
    here: all, where no names are given.
    """
    if terms.settings.epsilon is not None and terms.releases is None:
        with TemporaryDirectory(prefix="coke-") as forgotten:  # with the run: nobody named a place
            return agree(sites, graph, terms._replace(releases=Path(forgotten)), engine, names)
    names, here = names or sites.names, sites.names
    if terms.settings.loss == AUTO:
        terms = terms.with_kind()
    if len(set(names)) != len(names):
        raise DataError(f"sites {names[:8]}: expected every site to have its own name")
    if terms.settings.classes:
        engine.guarded(lambda: check_labels(terms.settings, sites))
    with OneThread().limit():  # else the last bits of a Gram matrix depend on the machine's cores
        found, spent = engine.converse(waves(names, graph, here))
        places = tuple(found[name] for name in here)
        talks = {
            place.name: numbers(
                partial(swept, place, []), place.shape, Site(sites, i, place.name), terms
            )
            for i, place in enumerate(places)
        }
        agreed, added = engine.converse(talks)
        ready = engine.guarded(partial(_made, sites, places, agreed[here[0]], spent + added))
    return replace(ready, names=names, graph=graph, engine=engine)


def site_talk(sites: Sites, neighbours: Sequence[str], terms: Terms, want: Wanted) -> Talk[Ready]:
    """One site's conversation until it can train; `sites` holds this one."""
    totals, (name,) = list[bytes](), sites.names
    place = yield from wave(name, neighbours, want.most)
    sweep = partial(swept, place, totals)
    agreed = yield from numbers(sweep, place.shape, Site(sites, 0, name), terms)
    ready, second = yield from _finished(sweep, sites, place, agreed, want, totals)
    return replace(ready, second=second._replace(totals=tuple(totals)))


def joining(sites: Sites, terms: Terms, totals: Sequence[bytes], want: Wanted) -> Ready:
    """The same for a site that comes later, from what a neighbour says was agreed on."""
    if not totals:
        raise MessageError("nothing that was agreed on: expected the network's shape first")
    if terms.private is not None and terms.private.colluding is not None:
        raise CokeError("secure_sum: the sum was made without this site; begin a new run with it")
    (name,), sweep = sites.names, given(totals[1:])
    place = Place.later(name, shape_of(totals[0], want.most))
    with OneThread().limit():
        agreed = outcome(numbers(sweep, place.shape, Site(sites, 0, name), terms))
        ready, second = outcome(_finished(sweep, sites, place, agreed, want, totals))
    return replace(ready, second=second._replace(totals=tuple(totals[1:])))


def _finished(
    sweep: Sweep, sites: Sites, place: Place, agreement: Agreement, want: Wanted,
    totals: Sequence[bytes],
) -> Talk[tuple[Ready, Second]]:  # fmt: skip
    """The second half: the site's risk, and a basis or the spread where they are wanted."""
    with OneThread().limit():
        ready = _made(sites, (place,), agreement, np.zeros((1, 3), np.int64))  # see its ledger
        own = ready.own(0)
    if want.basis:
        basis = yield from common_basis(sweep, agreement, own)
        return ready, (yield from vouched(sweep, ready, basis, want.key, totals))
    asked, spread = want.spread and agreement.spread is None, agreement.spread
    return ready, Second(None, (yield from add_targets(sweep, own.y)) if asked else spread, ())


def _made(sites: Sites, places: tuple[Place, ...], agreement: Agreement, spent: Spent) -> Ready:
    """The problem of these sites once the units are known."""
    terms, how = agreement.terms, agreement.making
    if agreement.coding is not None:
        sites = sites.coded(agreement.coding)
    targets = tuple(sites.targets(i, how) for i in range(len(sites.names)))
    ready = Ready(
        agreement=agreement, problem=sites.problem(how), targets=targets, sites=sites,
        names=sites.names, graph=None, places=places, spent=spent,
    )  # fmt: skip
    if terms.private is not None:
        ready = _noised(ready, terms.private)
    if terms.settings.fast:
        train = ready.problem.train.sums
        assert train is not None  # other losses are refused with the settings
        ready = replace(ready, problem=Problem(replace(train, fast=True), ready.problem.test))
    return ready


def _noised(ready: Ready, private: Private) -> Ready:
    """From noised statistics; the training rows are out of reach afterwards."""
    raw, public, agreement = ready.problem.train.sums, ready.agreement.public, ready.agreement
    assert raw is not None  # other losses are refused with the settings
    assert public is not None
    rows = ready.sites.units(agreement.units)
    assert rows is not None  # settings that keep none are refused
    rows = replace(rows, y=tuple(map(agreement.making.coded, rows.y)))
    found = private.noised(rows, raw, agreement.features, agreement.lam, public)
    return replace(
        ready,
        problem=Problem(found.risk, ready.problem.test),
        targets=tuple(size_of(float(T), private.spread**2) for T in found.risk.T),
        noised=found,
    )
