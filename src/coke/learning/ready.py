"""Sites that have agreed and can begin to train: all of a simulation, a rank's, or one in a field.

`agree` holds the conversation for all sites that the engine has here, `site_talk` is an agent's
own, and `joining` that of a site which comes later, from what a neighbour says was agreed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import starmap
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from coke.data.site import Columns, Kept, Site, Sites
from coke.engines.process import ALONE, Engine
from coke.errors import CokeError, DataError, MessageError
from coke.learning.agreement import Agreement, Terms, begin, numbers
from coke.learning.basis import Basis, Own, common_basis
from coke.learning.model import Model
from coke.maths.algorithms import ALGORITHMS, Seen
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.choice.misses import Misses
from coke.maths.features.whitening import Whitening
from coke.maths.graph import Graph
from coke.maths.ledger import Ledger, Spent
from coke.maths.losses import LOSSES
from coke.maths.losses.problem import Problem
from coke.privacy.private import SPREAD, Noised, Private
from coke.talk.conversation import Talk, network, network_of, together
from coke.talk.flooded import flooded
from coke.talk.sums import Sweep, add_targets, given, swept
from coke.threads import OneThread

R = TypeVar("R")


class Case(NamedTuple):
    """An algorithm on a problem: in which basis it learns, and what was sent before it begins."""

    problem: Problem
    algorithm: Algorithm
    spread: float  # of the target, the unit of thresholds and tolerances
    spent: Spent  # (n, 3)
    tol: float | None = None  # in the norm of θ, once nobody moves by more
    basis: Whitening | None = None  # of the problem; None: the plain features
    outputs: int = 1

    def theta(self, u: Array) -> Array:
        """In the plain features, of what was learnt (…, K·D), class by class."""
        if self.basis is None:
            return u
        with OneThread().limit():
            return self.basis.theta(u.reshape(*u.shape[:-1], self.outputs, -1)).reshape(u.shape)


@dataclass(frozen=True)
class Ready:
    """The sites here, their problem, and what was agreed on."""

    agreement: Agreement
    problem: Problem
    rows: Kept | None  # in the common units; None where they are out of reach
    targets: tuple[Columns, ...]  # what the sites here may tell of their scaled targets
    names: tuple[str, ...]  # of all sites, in the order of the run's rows
    graph: Graph  # on these positions
    noised: Noised | None = None  # with privacy
    spent: Spent = field(default_factory=lambda: np.zeros((1, 3), np.int64))
    engine: Engine = ALONE  # who else has a part of the sites
    second: _Second | None = None  # what a site in the field has agreed on beyond
    sites: Sites | None = None  # the sites themselves, for those who look at rows again

    @property
    def totals(self) -> tuple[bytes, ...]:
        """Of the agreement of a site in the field, for sites that join later."""
        return () if self.second is None else self.second.totals

    def own(self, i: int) -> Own:
        """What site i of those here knows of its own rows."""
        train = self.problem.train
        X = (
            np.empty((0, len(self.agreement.terms.columns)))
            if self.rows is None
            else self.rows.X[i]
        )
        share = self._share
        return Own(X, partial(train.gram, i), self.targets[i], share)

    @property
    def _share(self) -> float:
        """λ/N; private sites may have raised it."""
        return self.agreement.making.G if self.noised is None else float(self.noised.risk.G)

    @cached_property
    def spread(self) -> float:
        """Of the scaled target; 1 for class labels, whose margins are about one."""
        if self.second is not None:
            return self.second.spread or 1.0
        if self.agreement.spread is not None or not self.agreement.terms.numbers:
            return self.agreement.spread or 1.0
        told = np.array([(y.T, y.mean[0], y.sd[0]) for y in self.targets])
        everyone = starmap(Columns.of_number, self.engine.everyones(told))
        return float(reduce(Columns.merged, everyone).sd[0])

    @cached_property
    def everybody(self) -> Ready | None:
        """All sites, at the first process that has a part of them; None elsewhere."""
        problem, noised = self.engine.whole(self.problem), self.noised
        if noised is not None:
            alone = self.engine.gather(noised.alone)
            noised = None if alone is None else noised._replace(alone=alone)
        return None if problem is None else replace(self, problem=problem, noised=noised)

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
        net, here = self.agreement.net, self.here
        talks = {
            name: common_basis(partial(swept, net, name, []), self.agreement, self.own(i))
            for i, name in enumerate(here)
        }
        engine = self.engine
        agreed, ledgers = engine.guarded(partial(together, talks, engine.post))
        return agreed[here[0]], self.spent + spent_by(here, ledgers)

    def model(self, theta: Array, misses: Misses | None = None) -> Model:
        """The model of one θ (D,), such as an agent's own or the agents' mean."""
        basis = None if self.second is None else self.second.basis
        if "whitened" in vars(self):
            basis = self.whitened[1]
        inputs = () if basis is None else basis.inputs
        return self.agreement.model(theta)._replace(inputs_like=inputs, misses=misses)

    @property
    def here(self) -> list[str]:
        """The names of the sites in this process."""
        return [self.names[i] for i in self.engine.agents(len(self.names))]

    def case(self, algorithm: str | Algorithm) -> Case:
        """How to run that algorithm, of the house or an own one."""
        settings = self.agreement.terms.settings
        outputs = self.problem.train.size // self.agreement.features.size
        if isinstance(algorithm, Algorithm):
            nothing, tol = np.zeros_like(self.spent), settings.tol
            limit = None if tol is None else tol * self.spread
            return Case(self.problem, algorithm, self.spread, nothing, limit, outputs=outputs)
        entry, kappa = ALGORITHMS[algorithm], LOSSES[settings.loss].kappa
        problem, whitening, spread, spent = self.problem, None, 0.0, np.zeros_like(self.spent)
        if entry.basis:
            problem, (whitening, spread, _), spent = self.whitened
        else:
            spread = self.spread
        seen = Seen(kappa, self.agreement.net.graph, spread)
        built = entry.build(msgspec.structs.asdict(settings), seen)
        tol = entry.tol if settings.tol is None else settings.tol
        limit = None if tol is None else tol * spread
        return Case(problem, built, spread, spent, limit, whitening, outputs)


def agree(
    sites: Sites, graph: Graph, terms: Terms, engine: Engine = ALONE, names: tuple[str, ...] = ()
) -> Ready:
    """The sites learn the network, agree on units, draw the features and pass over their rows.

    `graph` is of all sites, in the order of their `names`; `sites` are those that the engine has
    here: all, where no names are given.
    """
    names = names or sites.names
    if len(set(names)) != len(names):
        raise DataError(f"sites {names[:8]}: expected every site to have its own name")
    with OneThread().limit():  # else the last bits of a Gram matrix depend on the machine's cores
        net, here = network(names, graph), sites.names
        talks = {
            name: numbers(partial(swept, net, name, []), net, Site(sites, at, name), terms)
            for at, name in enumerate(here)
        }
        found, ledgers = engine.guarded(partial(together, talks, engine.post))
        flood = dict(zip(net.names, flooded(net), strict=True))
        begun, spent = found[here[0]], spent_by(here, flood) + spent_by(here, ledgers)
        ready = engine.guarded(lambda: _made(sites, Agreement(terms, begun)))
        ready = replace(ready, names=names, graph=graph, spent=spent, engine=engine)
        if ready.everybody is not None:
            _ = ready.everybody.problem.optimum  # here, on one thread; it is kept
    return ready


class Wanted(NamedTuple):
    """What an algorithm needs of the agreement beside units and features."""

    basis: bool
    spread: bool  # of the target, for a tolerance or a cap


class _Second(NamedTuple):
    """What a site in the field has agreed on beyond units and features."""

    basis: Basis | None
    spread: float | None
    totals: tuple[bytes, ...]  # of the whole agreement, for sites that join later


def site_talk(sites: Sites, neighbours: Sequence[str], terms: Terms, want: Wanted) -> Talk[Ready]:
    """One site's conversation until it can train; `sites` holds this one."""
    totals = list[bytes]()
    begun = yield from begin(Site(sites, 0, sites.names[0]), neighbours, terms, totals)
    sweep = partial(swept, begun.net, sites.names[0], totals)
    ready, second = yield from _finished(sweep, sites, Agreement(terms, begun), want)
    return replace(ready, second=second._replace(totals=(begun.net.records(), *totals)))


def joining(sites: Sites, terms: Terms, totals: Sequence[bytes], want: Wanted) -> Ready:
    """The same for a site that comes later, from what a neighbour says was agreed on."""
    if not totals:
        raise MessageError("nothing that was agreed on: expected the network's records first")
    if terms.private is not None and terms.private.colluding is not None:
        raise CokeError("secure_sum: the sum was made without this site; begin a new run with it")
    sweep, net = given(totals[1:]), network_of(totals[0])
    with OneThread().limit():
        begun = _outcome(numbers(sweep, net, Site(sites, 0, sites.names[0]), terms))
        ready, second = _outcome(_finished(sweep, sites, Agreement(terms, begun), want))
    return replace(ready, second=second._replace(totals=tuple(totals)))


def _finished(
    sweep: Sweep, sites: Sites, agreement: Agreement, want: Wanted
) -> Talk[tuple[Ready, _Second]]:
    """The second half: the site's risk, and a basis or the spread where they are wanted."""
    with OneThread().limit():
        ready = _made(sites, agreement)
        own = ready.own(0)
    if want.basis:
        basis = yield from common_basis(sweep, agreement, own)
        return ready, _Second(basis, basis.spread, ())
    spread = agreement.spread
    if want.spread and spread is None and agreement.terms.numbers:
        spread = yield from add_targets(sweep, own.y)
    return ready, _Second(None, spread, ())


def _made(sites: Sites, agreement: Agreement) -> Ready:
    """The problem of these sites once the units are known."""
    terms, how = agreement.terms, agreement.making
    targets = tuple(sites.targets(i, how.units) for i in range(len(sites.names)))
    rows, private = sites.units(how.units), terms.private
    problem = (sites if rows is None else rows).problem(how)
    names, graph = sites.names, agreement.net.graph
    ready = Ready(agreement, problem, rows, targets, names, graph, sites=sites)
    if private is not None:
        ready = _noised(ready, private)
    if terms.settings.fast:
        train = ready.problem.train.sums
        assert train is not None  # other losses are refused with the settings
        ready = replace(ready, problem=Problem(replace(train, fast=True), ready.problem.test))
    return ready


def _noised(ready: Ready, private: Private) -> Ready:
    """From noised statistics; the training rows are out of reach afterwards."""
    raw, public, agreement = ready.problem.train.sums, ready.agreement.begun.public, ready.agreement
    assert raw is not None  # other losses are refused with the settings
    assert ready.rows is not None
    assert public is not None
    found = private.noised(ready.rows, raw, agreement.features, agreement.lam, public)
    return replace(
        ready,
        problem=Problem(found.risk, ready.problem.test),
        rows=None,
        targets=tuple(Columns.of_number(float(T), 0.0, SPREAD) for T in found.risk.T),
        noised=found,
    )


def _outcome(talk: Talk[R]) -> R:
    """What a conversation comes to that needs nobody else."""
    try:
        next(talk)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a conversation that was to need nobody else")


def spent_by(names: Sequence[str], ledgers: Mapping[str, Ledger | Spent]) -> Spent:
    """The sites' ledgers, a row for each."""
    return np.array([ledgers[name] for name in names], dtype=np.int64)
