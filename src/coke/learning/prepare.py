"""The sites learn the network, agree on units, draw the features and pass over their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from coke.data.learning import Phi, checked_classes, learning_problem, numbers_of
from coke.data.parts import Held, Streams, Watch
from coke.data.scaling import Columns, Scaling, columns_of, fit_scaling, scaled
from coke.data.sites import Sites
from coke.engines.engine import ALONE, Engine
from coke.errors import CokeError, DataError, InputError, MessageError
from coke.learning.basis import Agreed, Common, common_basis
from coke.learning.noising import Private, Public, agree_privately, noised
from coke.learning.task import Task, spent_rows, target_columns
from coke.maths.arrays import Array, Room
from coke.maths.features.features import Features, FeatureSettings, draw_features
from coke.maths.graph import Graph
from coke.maths.losses.problem import Problem
from coke.maths.losses.quadratic import Quadratic
from coke.privacy.share import Share
from coke.talk.conversation import Talk
from coke.talk.network import Network, flood, network_of
from coke.talk.sums import Sweep, Told, given, needed, noted, swept, tell
from coke.threads import OneThread

R = TypeVar("R")
_EMPTY = np.empty(0)
NOTHING = Columns(0.0, _EMPTY, _EMPTY, _EMPTY, _EMPTY)
Own = Told | Share | float | None  # what a site tells before it trains


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
    fast: bool = False  # rounds compiled by Numba: other last bits
    room: Room = np.empty  # for rows with class labels and their features
    watch: Watch | None = None  # told of the rows whose features are made


def prepare(
    sites: Held,
    columns: tuple[str, ...],
    graph: Graph,
    choices: Choices,
    engine: Engine = ALONE,
) -> Task:
    """The sites learn the network, agree on units, draw the features and pass over their rows.

    `graph` is of all sites, in their order; `sites` are those that the engine has here.
    """
    names = engine.names(sites.names)
    if len(set(names)) != len(names):
        raise DataError(f"sites {names[:8]}: expected every site to have its own name")
    with OneThread().limit():  # else the last bits of a Gram matrix depend on the machine's cores
        here = range(len(sites.names))
        told = engine.guarded(lambda: [_told(sites, i, choices) for i in here])
        talks = {
            names[i]: _begin(names[i], [names[n] for n in sorted(graph[i])], own)
            for i, own in zip(engine.agents(len(names)), told, strict=True)
        }
        found, ledgers = engine.together(talks)
        net, *agreed = found[sites.names[0]]
        task = engine.guarded(lambda: _made(sites, columns, choices, net, agreed))
        spent = spent_rows(sites.names, ledgers)
        task = replace(task, sites=names, graph=graph, spent=spent, engine=engine)
        if task.everybody is not None:
            _ = task.everybody.problem.optimum  # here, on one thread; it is kept
    return task


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
    net, *common = yield from _begin(name, neighbours, told, totals)
    with OneThread().limit():
        task = _made(rows, columns, choices, net, common)
    sweep = noted(partial(swept, net, name), totals)
    agreed = yield from common_basis(sweep, task.common, task.own(0))
    return Ready(task, agreed, (net.records(), *totals))


def joining(
    rows: Sites, columns: tuple[str, ...], totals: Sequence[bytes], choices: Choices
) -> Ready:
    """The same for a site that comes later, from what a neighbour says was agreed on."""
    if not totals:
        raise MessageError("nothing that was agreed on: expected the network's records first")
    if choices.private is not None and choices.private.colluding is not None:
        raise CokeError("secure_sum: the sum was made without this site; begin a new run with it")
    told, sweep, net = _told(rows, 0, choices), given(totals[1:]), network_of(totals[0])
    with OneThread().limit():
        common = _outcome(_numbers(sweep, net.names, told))
        task = _made(rows, columns, choices, net, common)
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
    sites: Held,
    columns: tuple[str, ...],
    choices: Choices,
    net: Network,
    agreed: Sequence[Any],
) -> Task:
    """The task of these sites once the units are known."""
    told, public = agreed
    regression, d, N = choices.loss == "quadratic", len(columns), len(net.names)
    classes = np.empty(0) if regression else checked_classes(told.labels)
    scaling = choices.public or fit_scaling(choices.scale, d, told.columns)
    settings = choices.features
    if choices.auto_sigma:
        settings = settings._replace(sigma=_sigma(scaling, told.columns))
    features, share = draw_features(settings, d), choices.lam / N
    if not 0 <= choices.lam < math.inf:
        raise InputError(f"lambda={choices.lam}: expected λ ≥ 0; the paper uses 1e-5 … 1e-3")
    if isinstance(sites, Streams):
        problem, units = sites.problem(features, scaling, share), sites.empty()
        targets = sites.targets(scaling)
    else:
        units = scaled(sites, scaling, scale_target=regression, room=choices.room)
        phi = features if choices.watch is None else _watched(features, units, choices.watch)
        problem = learning_problem(
            units, phi, loss=choices.loss, G=share, classes=classes, room=choices.room
        )
        targets = tuple(target_columns(y, choices.loss) for y in units.y)
    sample = None if choices.sample is None else scaling.inputs(choices.sample)
    common = Common(
        features, settings.sigma, N, share, problem.train.kappa,
        choices.whitening, sample, settings.seed,
    )  # fmt: skip
    nothing = np.zeros((len(sites.names), 3), np.int64)
    task = Task(
        problem, features, scaling, choices.loss, classes, columns, sites.names, units, targets,
        net.graph, net, nothing, common,
    )  # fmt: skip
    if choices.private is not None:
        assert public is not None
        task = noised(task, choices.private, choices.lam, public)
    return _compiled(task) if choices.fast else task


def _watched(features: Features, rows: Sites, watch: Watch) -> Phi:
    total, done = sum(map(len, (*rows.y, *rows.y_test))), 0

    def phi(X: Array) -> Array:
        nonlocal done
        found, done = features(X), min(done + len(X), total)
        watch("features", done, total)
        return found

    return phi


def _compiled(task: Task) -> Task:
    train, test = task.problem.train, task.problem.test
    assert isinstance(train, Quadratic)  # other losses are refused with the configuration
    return replace(task, problem=Problem(replace(train, fast=True), test))


def _told(sites: Held, i: int, choices: Choices) -> Own:
    """What site i tells for scaling, σ and classes; nothing where nothing is to be agreed on.

    With privacy only 1/T_i², for how many rows a site has is public; or a share in a secure sum.
    """
    moments = choices.scale == "standard" or choices.auto_sigma
    ranges = choices.scale == "minmax"
    if isinstance(sites, Streams):
        own = needed(sites.columns[i], moments=moments, ranges=ranges)
        return Told(own) if moments or ranges else None
    if choices.private is not None:
        if choices.private.colluding is None:
            return 1.0 / len(sites.y[i]) ** 2
        assert choices.public is not None  # other units are refused
        X, y = choices.public.inputs(sites.X[i]), numbers_of(sites.y[i])
        features = draw_features(choices.features, X.shape[1])
        return choices.private.share(sites.names[i], features, X, choices.public.targets(y))
    regression = choices.loss == "quadratic"
    everything = np.concatenate([sites.y[i], sites.y_test[i]])
    if regression:
        numbers_of(everything)
        if not (moments or ranges):
            return None
    Z = np.column_stack([sites.X[i], sites.y[i].astype(np.float64)]) if regression else sites.X[i]
    labels = () if regression else tuple(sorted(set(everything.tolist())))
    return Told(needed(columns_of(Z), moments=moments, ranges=ranges), labels)


def _begin(
    me: str,
    neighbours: Sequence[str],
    told: Own,
    totals: list[bytes] | None = None,
) -> Talk[tuple[Network, Told, Public | None]]:
    """One site's part in learning the network and the common units."""
    net = yield from flood(me, neighbours)
    sweep = noted(partial(swept, net, me), [] if totals is None else totals)
    return net, *(yield from _numbers(sweep, net.names, told))


def _numbers(sweep: Sweep, names: Sequence[str], told: Own) -> Talk[tuple[Told, Public | None]]:
    """The common units; with privacy, what is public instead."""
    if isinstance(told, float | Share):
        return Told(NOTHING), (yield from agree_privately(sweep, names, told))
    if told is None:
        return Told(NOTHING), None
    return (yield from tell(sweep, told)), None


def _sigma(scaling: Scaling, columns: Columns) -> float:
    """√(Σ_j var_j / 2) of the scaled inputs, as scikit-learn's gamma = "scale" would have it."""
    d = len(scaling.x_scale)
    total = float(np.sum((columns.sd[:d] / scaling.x_scale) ** 2))
    return math.sqrt(total / 2) if total > 0 else 1.0
