"""The sites learn the network, agree on units, draw the features and pass over their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from coke.data.files import make_folder
from coke.data.learning import checked_classes, learning_problem, numbers_of
from coke.data.private import (
    Network as AllSites,
)
from coke.data.private import (
    Release,
    Terms,
    private_risk,
    private_statistics,
    spread_for,
)
from coke.data.scaling import Columns, Scaling, columns_of, fit_scaling, scaled
from coke.data.sites import Sites
from coke.errors import DataError, InputError, MessageError
from coke.maths.arrays import Array
from coke.maths.features import Features, FeatureSettings, draw_features
from coke.maths.graph import Graph
from coke.maths.privacy import Budget
from coke.maths.problem import Problem, local_only
from coke.maths.quadratic import Quadratic
from coke.maths.risks import matrix
from coke.run.agree import Told, add_up, needed, tell
from coke.run.basis import Agreed, Common, common_basis
from coke.run.talk import (
    Network,
    Sweep,
    Talk,
    flood,
    given,
    network_of,
    noted,
    records_of,
    swept,
    together,
)
from coke.task import Task, spent_rows
from coke.threads import OneThread

R = TypeVar("R")
_EMPTY = np.empty(0)
NOTHING = Columns(0.0, _EMPTY, _EMPTY, _EMPTY, _EMPTY)


class Private(NamedTuple):
    """Differential privacy: every site's statistics are noised once."""

    budget: Budget
    folder: Path  # where the sites' releases are kept
    again: bool = False  # whether a new budget may be spent on what has changed

    def release(self, site: str, features: Features, X: Array, y: Array) -> Release:
        """The site's one release, with targets in [−1, 1]."""
        make_folder(self.folder)
        terms = Terms(features, 1.0, self.budget)
        return private_statistics(
            self.folder / f"private-{site}.coke", terms, X, y, again=self.again
        )


class Choices(NamedTuple):
    """How to learn: what all sites must have in common before they begin."""

    features: FeatureSettings
    loss: str
    lam: float
    scale: str
    auto_sigma: bool = False  # σ from the inputs' spread instead of the settings'
    whitening: str = "mixture"
    sample: Array | None = None  # public inputs, in their own units
    public: Scaling | None = None  # units that were known before any row, for scale = "public"
    private: Private | None = None


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
        net, told, thin = found[names[0]]
        task = _made(sites, columns, choices, net, (told, thin))
        _ = task.problem.optimum  # here, on one thread; it is kept
    return replace(task, graph=graph, spent=spent_rows(names, ledgers))


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
    net, all_told, thin = yield from _begin(name, neighbours, told, totals)
    with OneThread().limit():
        task = _made(rows, columns, choices, net, (all_told, thin))
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
        all_told, thin = _outcome(_numbers(sweep, told))
        task = _made(rows, columns, choices, net, (all_told, thin))
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
    sites: Sites,
    columns: tuple[str, ...],
    choices: Choices,
    net: Network,
    agreed: tuple[Told, float],
) -> Task:
    """The task of these sites once the units are known."""
    told, thin = agreed
    regression, d, N = choices.loss == "quadratic", sites.X[0].shape[1], len(net.names)
    classes = np.empty(0) if regression else checked_classes(told.labels)
    scaling = choices.public or fit_scaling(choices.scale, d, told.columns)
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
    task = Task(
        problem, features, scaling, choices.loss, classes, columns, sites.names, units,
        net.graph, net, nothing, common,
    )  # fmt: skip
    return task if choices.private is None else _noised(task, choices, thin)


def _noised(task: Task, choices: Choices, thin: float) -> Task:
    """The same task from noised statistics; the training rows are out of reach afterwards."""
    private, rows, raw = choices.private, task.rows, task.problem.train
    assert private is not None
    assert isinstance(raw, Quadratic)  # `check_private` refuses other losses
    releases = [
        private.release(name, task.features, X, y)
        for name, X, y in zip(task.sites, rows.X, rows.y, strict=True)
    ]
    everyone = AllSites(len(task.net.names), thin)
    risk = private_risk(releases, raw.yy, choices.lam, everyone)
    share = float(np.trace(matrix(risk.G, risk.size))) / risk.size
    nobody = rows._replace(X=tuple(X[:0] for X in rows.X), y=tuple(y[:0] for y in rows.y))
    return replace(
        task,
        problem=Problem(risk, task.problem.test),
        rows=nobody,
        common=task.common._replace(share=share, spread=spread_for(1.0)),
        alone=local_only(raw),
    )


def _told(sites: Sites, i: int, choices: Choices) -> Told | float | None:
    """What site i tells for scaling, σ and classes; nothing where nothing is to be agreed on.

    With privacy only 1/T_i²: how many rows a site has is public, nothing else is.
    """
    if choices.private is not None:
        return 1.0 / len(sites.y[i]) ** 2
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
    me: str,
    neighbours: Sequence[str],
    told: Told | float | None,
    totals: list[bytes] | None = None,
) -> Talk[tuple[Network, Told, float]]:
    """One site's part in learning the network and the common units."""
    net = yield from flood(me, neighbours)
    sweep = noted(partial(swept, net, me), [] if totals is None else totals)
    return net, *(yield from _numbers(sweep, told))


def _numbers(sweep: Sweep, told: Told | float | None) -> Talk[tuple[Told, float]]:
    """The common units; with privacy, Σ 1/T_i² instead, which is public."""
    if isinstance(told, float):
        return Told(NOTHING), float((yield from add_up(sweep, np.array([told])))[0])
    if told is None:
        return Told(NOTHING), 0.0
    return (yield from tell(sweep, told)), 0.0


def _sigma(scaling: Scaling, columns: Columns) -> float:
    """√(Σ_j var_j / 2) of the scaled inputs, as scikit-learn's gamma = "scale" would have it."""
    d = len(scaling.x_scale)
    total = float(np.sum((columns.sd[:d] / scaling.x_scale) ** 2))
    return math.sqrt(total / 2) if total > 0 else 1.0
