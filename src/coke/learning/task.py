"""From rows at sites to a problem, and from θ back to a model: what every way to run shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import starmap
from typing import NamedTuple

import numpy as np

from coke.data.scaling import Columns, Scaling, columns_of
from coke.data.sites import Sites
from coke.data.tables import Labels
from coke.engines.engine import ALONE, Engine
from coke.errors import InputError, unknown
from coke.learning.basis import Common, Own, common_basis
from coke.learning.model import Model
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.coke import automatic, dkla, paper
from coke.maths.algorithms.cta import CTA
from coke.maths.arrays import Array
from coke.maths.features.features import Features
from coke.maths.features.whitening import Whitening
from coke.maths.graph import Graph
from coke.maths.ledger import Ledger, Spent
from coke.maths.losses.problem import Problem
from coke.privacy.noise import Budget
from coke.studies.compare.compare import Case
from coke.talk.network import Network
from coke.talk.sums import swept
from coke.threads import OneThread

ALGORITHMS = ("coke", "coke-paper", "dkla", "cta")


class Way(NamedTuple):
    """An algorithm on a task: in which basis it learns, and what was sent before it begins."""

    problem: Problem
    algorithm: Algorithm
    spread: float  # the unit of its tolerance
    spent: Spent  # (N, 3)
    theta: Callable[[Array], Array]  # back to the plain features
    basis: Whitening | None = None  # that of the problem, if not the plain features'

    def tolerance(self, tol: float | None) -> float | None:
        """In the norm of θ, from one in units of the spread."""
        return None if tol is None else tol * self.spread


class Whitened(NamedTuple):
    """The problem in the agreed basis."""

    problem: Problem
    basis: Whitening
    spread: float
    spent: Spent  # by the whole agreement


@dataclass(frozen=True)
class Task:
    """A problem and what it takes to turn its θ into predictions."""

    problem: Problem
    features: Features
    scaling: Scaling
    loss: str
    classes: Labels
    columns: tuple[str, ...]
    sites: tuple[str, ...]  # all of them
    rows: Sites  # those here, in the common units
    targets: tuple[Columns, ...]  # what the sites here may tell of their scaled targets
    graph: Graph
    net: Network
    spent: Spent  # (N, 3) on the network and the scaling
    common: Common
    alone: Array | None = None  # (N, D) with privacy, the sites' own models, for their owners only
    budget: Budget | None = None  # with privacy, all that a row was exposed to so far, at most
    engine: Engine = ALONE  # who else has a part of the sites

    def model(self, theta: Array) -> Model:
        """The model of one θ (D,), such as an agent's own or the agents' mean."""
        vectors = theta.reshape(self.outputs, -1)
        return Model(vectors, self.features, self.scaling, self.loss, self.classes, self.columns)

    @property
    def outputs(self) -> int:
        """Vectors in θ: one, or one a class."""
        return len(self.classes) if len(self.classes) > 2 else 1

    @cached_property
    def spread(self) -> float:
        """Of the scaled target; 1 for class labels, whose margins are about one."""
        if self.common.spread is not None or self.loss != "quadratic":
            return self.common.spread or 1.0
        told = np.array([(y.T, y.mean[0], y.sd[0]) for y in self.targets])
        return float(
            reduce(Columns.merged, starmap(number_columns, self.engine.everyones(told))).sd[0]
        )

    def own(self, i: int) -> Own:
        """What site i knows of its own rows."""
        return Own(self.rows.X[i], self.problem.train.gram(i), self.targets[i])

    @cached_property
    def everybody(self) -> Task | None:
        """The task of all sites, at the first process that has a part of them; None elsewhere."""
        problem, alone = self.engine.whole(self.problem), self.alone
        if alone is not None:
            alone = self.engine.gather(alone)
        return None if problem is None else replace(self, problem=problem, alone=alone)

    @cached_property
    def whitened(self) -> Whitened:
        """The problem in the basis that the sites agree on, and what agreeing costs."""
        with OneThread().limit():
            talks = {
                name: common_basis(partial(swept, self.net, name), self.common, self.own(i))
                for i, name in enumerate(self.rows.names)
            }
            agreed, ledgers = self.engine.together(talks)
            basis, spread = agreed[self.rows.names[0]]
            return Whitened(
                self.problem.whitened(basis),
                basis,
                spread,
                self.spent + spent_rows(self.rows.names, ledgers),
            )

    def case(self) -> Case:
        """What all methods can be compared on."""
        way = self.way(None)
        d = self.features.omega.shape[1]
        ours = (way.problem, way.algorithm, way.spent, way.theta, self.whitened.basis, d)
        return Case(self.problem, self.graph, *ours)

    def way(self, algorithm: Algorithm | None) -> Way:
        """How to run that algorithm; None stands for the automatic one."""
        if algorithm is not None:
            nothing = np.zeros_like(self.spent)
            return Way(self.problem, algorithm, self.spread, nothing, lambda theta: theta)
        problem, basis, spread, spent = self.whitened
        chosen = automatic(problem.train.kappa, self.net.graph, spread)
        plain = partial(plain_theta, basis, self.outputs)
        return Way(problem, chosen, spread, spent, plain, basis)


def target_columns(y: Labels, loss: str) -> Columns:
    """The moments of a scaled target; of class labels, whose margins are about one, 0 and 1."""
    if loss == "quadratic":
        return columns_of(y[:, None])
    return number_columns(float(len(y)), 0.0, 1.0)


def number_columns(T: float, mean: float, sd: float) -> Columns:
    """Of T numbers with that mean and standard deviation."""
    at = np.array([mean])
    return Columns(T, at, np.array([sd]), at, at)


def spent_rows(names: tuple[str, ...], ledgers: dict[str, Ledger]) -> Spent:
    """The sites' ledgers, a row for each."""
    return np.array([ledgers[name] for name in names], dtype=np.int64)


def plain_theta(basis: Whitening, outputs: int, u: Array) -> Array:
    """θ in the plain features of u (…, K·D), class by class."""
    with OneThread().limit():
        return basis.theta(u.reshape(*u.shape[:-1], outputs, -1)).reshape(u.shape)


def build_algorithm(name: str, *, rho: float, v: float, mu: float, eta: float) -> Algorithm | None:
    """The algorithm of that name, None for the automatic one, which needs to see the network first.

    All settings are checked, also those it does not use.
    """
    known: dict[str, Algorithm | None] = {
        "coke": None,
        "coke-paper": paper(rho, v, mu),
        "dkla": dkla(rho),
        "cta": CTA(eta),
    }
    if name not in known:
        raise InputError(unknown("algorithm", name, ALGORITHMS))
    return known[name]
