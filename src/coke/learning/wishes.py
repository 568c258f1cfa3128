"""What the settings say of the model, and what they leave to the sites to choose."""

from __future__ import annotations

import numpy as np

from coke.learning.choice import Wish
from coke.maths.features.features import FeatureSettings
from coke.maths.losses import LOSSES
from coke.settings.declaration import AUTO, PLAIN, PLAIN_LAMBDA, Settings

LEAST = 3e-5  # ridge of classes that is chosen


def feature_settings(settings: Settings) -> FeatureSettings:
    """The features of the plain model; σ = 1 where the inputs' spread will say."""
    f = settings.features
    L = PLAIN["n_features"] if f.n_features == AUTO else f.n_features
    kernel = PLAIN["kernel"] if f.kernel == AUTO else f.kernel
    sigma = 1.0 if isinstance(f.sigma, str) else f.sigma
    return FeatureSettings(int(L), kernel, sigma, f.mapping, f.sampling, settings.seed)


def wished(settings: Settings, d: int, N: int, outputs: int) -> Wish:
    """What the settings leave to choose."""
    f, loss = settings.features, LOSSES[settings.loss]
    kappa = loss.curvature(outputs)
    usual = feature_settings(settings)
    if f.sigma == AUTO:
        usual = usual._replace(sigma=float(np.sqrt(d / 2)))
    sigma, weight, lam = (_number(v) for v in (f.sigma, f.linear, settings.lam))
    return Wish(
        plain=usual,
        kernel="matern32" if f.kernel == AUTO else f.kernel,
        inputs={AUTO: (False, True), "scaled": (False,), "quantiles": (True,)}[f.inputs],
        sigma=sigma,
        linear=weight,
        size=None if f.n_features == AUTO else int(f.n_features),
        most=300 if loss.statistics else 100,  # else a round costs a pass each
        useful=f.frequencies == AUTO,
        ridge=None if lam is None else 2 * lam / (N * kappa),
        usual=2 * PLAIN_LAMBDA / (N * kappa),
        # Errors of least squares on classes that can be told apart ask for none, and then margins
        # grow for ever.
        least=0.0 if loss.statistics else LEAST,
    )


def _number(given: float | str) -> float | None:
    return None if given == AUTO else float(given)
