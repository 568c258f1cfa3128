"""From rows at sites to a problem, and from θ back to a model: what every way to run shares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.data.learning import classes_of, learning_problem, numbers_of
from coke.data.scaling import Scaling, fit_scaling, scaled
from coke.data.sites import Sites
from coke.data.tables import Labels
from coke.errors import InputError, unknown
from coke.maths.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.coke import COKE, dkla
from coke.maths.cta import CTA
from coke.maths.features import Features, FeatureSettings, draw_features
from coke.maths.problem import Problem
from coke.maths.thresholds import Geometric
from coke.model import Model
from coke.threads import OneThread

ALGORITHMS = ("coke", "dkla", "cta")


class Task(NamedTuple):
    """A problem and what it takes to turn its θ into predictions."""

    problem: Problem
    features: Features
    scaling: Scaling
    loss: str
    classes: Labels
    columns: tuple[str, ...]
    sites: tuple[str, ...]

    def model(self, theta: Array) -> Model:
        """The model of one θ (D,), such as an agent's own or the agents' mean."""
        outputs = len(self.classes) if len(self.classes) > 2 else 1
        vectors = theta.reshape(outputs, -1)
        return Model(vectors, self.features, self.scaling, self.loss, self.classes, self.columns)


def prepare(
    sites: Sites,
    columns: tuple[str, ...],
    settings: FeatureSettings,
    *,
    loss: str,
    lam: float,
    scale: str,
) -> Task:
    """Scales, draws the features, makes one pass over the rows."""
    regression = loss == "quadratic"
    everything = np.concatenate([*sites.y, *sites.y_test])
    if regression:
        numbers_of(everything)
    classes = np.empty(0) if regression else classes_of(everything)
    scaling = fit_scaling(scale, sites, scale_target=regression)
    units = scaled(sites, scaling, scale_target=regression)
    features = draw_features(settings, sites.X[0].shape[1])
    with OneThread().limit():  # else the last bits of a Gram matrix depend on the machine's cores
        problem = learning_problem(units, features, loss=loss, lam=lam, classes=classes)
    return Task(problem, features, scaling, loss, classes, columns, sites.names)


def build_algorithm(name: str, *, rho: float, v: float, mu: float, eta: float) -> Algorithm:
    """The algorithm of that name; all settings are checked, also those it does not use."""
    known: dict[str, Algorithm] = {
        "coke": COKE(rho, Geometric(v, mu)),
        "dkla": dkla(rho),
        "cta": CTA(eta),
    }
    if name not in known:
        raise InputError(unknown("algorithm", name, ALGORITHMS))
    return known[name]
