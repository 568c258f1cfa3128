"""One nonlinear model from data that stay where they are: COKE, DKLA and CTA on random features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coke.errors import CokeError
from coke.maths.coke import COKE, dkla
from coke.maths.cta import CTA
from coke.maths.features import FeatureSettings, draw_features
from coke.maths.graph import build_graph
from coke.maths.problem import Problem
from coke.maths.thresholds import Geometric, Sequential
from coke.model import Model, load_model
from coke.run.history import History
from coke.run.simulate import Record, simulate

if TYPE_CHECKING:
    from coke.estimator import COKEClassifier, COKERegressor
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
        from coke import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'coke' has no attribute {name!r}")
