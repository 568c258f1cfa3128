"""From rows at sites to a problem, and from θ back to a model: what every way to run shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np

from coke.data.scaling import Columns, Scaling, columns_of
from coke.data.sites import Sites
from coke.data.tables import Labels
from coke.errors import InputError, unknown
from coke.maths.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.automatic import automatic
from coke.maths.coke import COKE, dkla
from coke.maths.cta import CTA
from coke.maths.features import Features
from coke.maths.graph import Graph
from coke.maths.problem import Problem
from coke.maths.thresholds import Geometric
from coke.maths.whitening import Whitening
from coke.model import Model
from coke.run.basis import Common, Own, common_basis
from coke.run.compare import Case
from coke.run.ledger import Ledger, Spent
from coke.run.talk import (
    Network,
    swept,
    together,
)
from coke.threads import OneThread

R = TypeVar("R")
_EMPTY = np.empty(0)
NOTHING = Columns(0.0, _EMPTY, _EMPTY, _EMPTY, _EMPTY)
ALGORITHMS = ("coke", "coke-paper", "dkla", "cta")


class Way(NamedTuple):
    """An algorithm on a task: in which basis it learns, and what was sent before it begins."""

    problem: Problem
    algorithm: Algorithm
    spread: float  # the unit of its tolerance
    spent: Spent  # (N, 3)
    theta: Callable[[Array], Array]  # back to the plain features

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
    sites: tuple[str, ...]
    rows: Sites  # in the common units
    graph: Graph
    net: Network
    spent: Spent  # (N, 3) on the network and the scaling
    common: Common
    alone: Array | None = None  # (N, D) with privacy, the sites' own models, for their owners only

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
        if self.common.spread is not None:
            return self.common.spread
        return float(target_columns(np.concatenate(self.rows.y), self.loss).sd[0])

    def own(self, i: int) -> Own:
        """What site i knows of its own rows."""
        if self.common.spread is None:
            y = target_columns(self.rows.y[i], self.loss)
        else:  # public, as the number of rows is
            y = public_columns(float(self.problem.train.T[i]), self.common.spread)
        return Own(self.rows.X[i], self.problem.train.gram(i), y)

    @cached_property
    def whitened(self) -> Whitened:
        """The problem in the basis that the sites agree on, and what agreeing costs."""
        with OneThread().limit():
            talks = {
                name: common_basis(partial(swept, self.net, name), self.common, self.own(i))
                for i, name in enumerate(self.sites)
            }
            agreed, ledgers = together(talks)
            basis, spread = agreed[self.sites[0]]
            return Whitened(
                self.problem.whitened(basis),
                basis,
                spread,
                self.spent + spent_rows(self.sites, ledgers),
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
        chosen = automatic(problem.train.metric, self.net.graph, spread)
        return Way(problem, chosen, spread, spent, partial(plain_theta, basis, self.outputs))


def target_columns(y: Labels, loss: str) -> Columns:
    """The moments of a scaled target; of class labels, whose margins are about one, 0 and 1."""
    if loss == "quadratic":
        return columns_of(y[:, None])
    return public_columns(float(len(y)), 1.0)


def public_columns(T: float, spread: float) -> Columns:
    """What may be told of a target whose spread is public."""
    zero = np.zeros(1)
    return Columns(T, zero, np.array([spread]), zero, zero)


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
        "coke-paper": COKE(rho, Geometric(v, mu)),
        "dkla": dkla(rho),
        "cta": CTA(eta),
    }
    if name not in known:
        raise InputError(unknown("algorithm", name, ALGORITHMS))
    return known[name]
