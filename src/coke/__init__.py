"""One nonlinear model from data that stay where they are: COKE, DKLA and CTA on random features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coke.engines.history import History
from coke.engines.process import Record, simulate
from coke.errors import CokeError
from coke.learning.model import Model, load_model
from coke.maths.algorithms.coke import COKE, Geometric, Sequential, dkla
from coke.maths.algorithms.cta import CTA
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.graph import build_graph
from coke.maths.losses.problem import Problem

if TYPE_CHECKING:
    from coke.estimators import COKEClassifier, COKERegressor
    from coke.transformer import RandomFeatures

__version__ = "0.1.0"

__all__ = [
    "COKE",
    "CTA",
    "COKEClassifier",
    "COKERegressor",
    "CokeError",
    "FeatureSettings",
    "Geometric",
    "History",
    "Model",
    "Problem",
    "RandomFeatures",
    "Record",
    "Sequential",
    "build_graph",
    "dkla",
    "draw_features",
    "load_model",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """The estimators on first use: scikit-learn takes a second to import, which commands save."""
    if name == "RandomFeatures":
        from coke.transformer import RandomFeatures

        return RandomFeatures
    if name in ("COKEClassifier", "COKERegressor"):
        from coke import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'coke' has no attribute {name!r}")
