"""From rows at sites to a problem, and from θ back to a model: what every way to run shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np

from coke.data.learning import checked_classes, learning_problem, numbers_of
from coke.data.scaling import Columns, Scaling, columns_of, fit_scaling, scaled
from coke.data.sites import Sites
from coke.data.tables import Labels
from coke.errors import DataError, InputError, MessageError, unknown
from coke.maths.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.automatic import automatic
from coke.maths.coke import COKE, dkla
from coke.maths.cta import CTA
from coke.maths.features import Features, FeatureSettings, draw_features
from coke.maths.graph import Graph
from coke.maths.problem import Problem
from coke.maths.thresholds import Geometric
from coke.maths.whitening import Whitening
from coke.model import Model
from coke.run.agree import Told, needed, tell
from coke.run.basis import Agreed, Common, Own, common_basis
from coke.run.compare import Case
from coke.run.ledger import Ledger, Spent
from coke.run.talk import (
    Network,
    Talk,
    flood,
    given,
    network_of,
    noted,
    records_of,
    swept,
    together,
)
from coke.threads import OneThread

R = TypeVar("R")
_EMPTY = np.empty(0)
NOTHING = Columns(0.0, _EMPTY, _EMPTY, _EMPTY, _EMPTY)
ALGORITHMS = ("coke", "coke-paper", "dkla", "cta")


class Choices(NamedTuple):
    """How to learn: what all sites must have in common before they begin."""

    features: FeatureSettings
    loss: str
    lam: float
    scale: str
    auto_sigma: bool = False  # σ from the inputs' spread instead of the settings'
    whitening: str = "mixture"
    sample: Array | None = None  # public inputs, in their own units


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
        return float(_target(np.concatenate(self.rows.y), self.loss).sd[0])

    def own(self, i: int) -> Own:
        """What site i knows of its own rows."""
        y = _target(self.rows.y[i], self.loss)
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
                self.problem.whitened(basis), basis, spread, self.spent + _rows(self.sites, ledgers)
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


def prepare(sites: Sites, columns: tuple[str, ...], graph: Graph, choices: Choices) -> Task:
    """The sites learn the network, agree on units, draw the features and pass over their rows."""
    names = sites.names
    if len(set(names)) != len(names):
        raise DataError(f"sites {names[:8]}: expected every site to have its own name")
    with OneThread().limit():  # else the last bits of a Gram matrix depend on the machine's cores
        talks = {
            name: _begin(name, [names[n] for n in sorted(graph[i])], _told(sites, i, choices))
            for i, name in enumerate(names)
        }
        found, ledgers = together(talks)
        net, told = found[names[0]]
        task = _made(sites, columns, choices, net, told)
        _ = task.problem.optimum  # here, on one thread; it is kept
    return replace(task, graph=graph, spent=_rows(names, ledgers))


class Ready(NamedTuple):
    """One site in the field that has agreed with the others and can begin to train."""

    task: Task  # of this site alone
    agreed: Agreed
    totals: tuple[bytes, ...]  # for sites that join later


def site_talk(
    rows: Sites, columns: tuple[str, ...], neighbours: Sequence[str], choices: Choices
) -> Talk[Ready]:
    """One site's conversation until it can train; `rows` holds this one site."""
    (name,), totals = rows.names, list[bytes]()
    with OneThread().limit():
        told = _told(rows, 0, choices)
    net, all_told = yield from _begin(name, neighbours, told, totals)
    with OneThread().limit():
        task = _made(rows, columns, choices, net, all_told)
    sweep = noted(partial(swept, net, name), totals)
    agreed = yield from common_basis(sweep, task.common, task.own(0))
    return Ready(task, agreed, (records_of(net), *totals))


def joining(
    rows: Sites, columns: tuple[str, ...], totals: Sequence[bytes], choices: Choices
) -> Ready:
    """The same for a site that comes later, from what a neighbour says was agreed on."""
    if not totals:
        raise MessageError("nothing that was agreed on: expected the network's records first")
    told, sweep, net = _told(rows, 0, choices), given(totals[1:]), network_of(totals[0])
    with OneThread().limit():
        all_told = Told(NOTHING) if told is None else _outcome(tell(sweep, told))
        task = _made(rows, columns, choices, net, all_told)
        agreed = _outcome(common_basis(sweep, task.common, task.own(0)))
    return Ready(task, agreed, tuple(totals))


def _outcome(talk: Talk[R]) -> R:
    """What a conversation comes to that needs nobody else."""
    try:
        next(talk)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a conversation that was to need nobody else")


def _made(
    sites: Sites, columns: tuple[str, ...], choices: Choices, net: Network, told: Told
) -> Task:
    """The task of these sites once the units are known."""
    regression, d, N = choices.loss == "quadratic", sites.X[0].shape[1], len(net.names)
    classes = np.empty(0) if regression else checked_classes(told.labels)
    scaling = fit_scaling(choices.scale, d, told.columns)
    units = scaled(sites, scaling, scale_target=regression)
    settings = choices.features
    if choices.auto_sigma:
        settings = settings._replace(sigma=_sigma(scaling, told.columns))
    features, share = draw_features(settings, d), choices.lam / N
    if not 0 <= choices.lam < math.inf:
        raise InputError(f"lambda={choices.lam}: expected λ ≥ 0; the paper uses 1e-5 … 1e-3")
    problem = learning_problem(units, features, loss=choices.loss, G=share, classes=classes)
    sample = None if choices.sample is None else scaling.inputs(choices.sample)
    common = Common(
        features, settings.sigma, N, share, problem.train.metric,
        choices.whitening, sample, settings.seed,
    )  # fmt: skip
    nothing = np.zeros((len(sites.X), 3), np.int64)
    return Task(
        problem, features, scaling, choices.loss, classes, columns, sites.names, units,
        net.graph, net, nothing, common,
    )  # fmt: skip


def _told(sites: Sites, i: int, choices: Choices) -> Told | None:
    """What site i tells for scaling, σ and classes; nothing where nothing is to be agreed on."""
    regression = choices.loss == "quadratic"
    moments = choices.scale == "standard" or choices.auto_sigma
    ranges = choices.scale == "minmax"
    everything = np.concatenate([sites.y[i], sites.y_test[i]])
    if regression:
        numbers_of(everything)
        if not (moments or ranges):
            return None
    Z = np.column_stack([sites.X[i], sites.y[i].astype(np.float64)]) if regression else sites.X[i]
    labels = () if regression else tuple(np.unique(everything).tolist())
    return Told(needed(columns_of(Z), moments=moments, ranges=ranges), labels)


def _begin(
    me: str, neighbours: Sequence[str], told: Told | None, totals: list[bytes] | None = None
) -> Talk[tuple[Network, Told]]:
    """One site's part in learning the network and the common units."""
    net = yield from flood(me, neighbours)
    if told is None:
        return net, Told(NOTHING)
    sweep = noted(partial(swept, net, me), [] if totals is None else totals)
    return net, (yield from tell(sweep, told))


def _sigma(scaling: Scaling, columns: Columns) -> float:
    """√(Σ_j var_j / 2) of the scaled inputs, as scikit-learn's gamma = "scale" would have it."""
    d = len(scaling.x_scale)
    total = float(np.sum((columns.sd[:d] / scaling.x_scale) ** 2))
    return math.sqrt(total / 2) if total > 0 else 1.0


def _target(y: Labels, loss: str) -> Columns:
    """The moments of a scaled target; of class labels, whose margins are about one, 0 and 1."""
    if loss == "quadratic":
        return columns_of(y[:, None])
    return Columns(float(len(y)), np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1))


def _rows(names: tuple[str, ...], ledgers: dict[str, Ledger]) -> Spent:
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
