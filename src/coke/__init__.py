"""One nonlinear model from data that stay where they are: COKE, DKLA and CTA on random features."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coke.engines.history import History as History
    from coke.engines.process import Record as Record
    from coke.engines.process import simulate as simulate
    from coke.errors import CokeError as CokeError
    from coke.estimators.classifier import COKEClassifier as COKEClassifier
    from coke.estimators.regressor import COKERegressor as COKERegressor
    from coke.estimators.transformer import RandomFeatures as RandomFeatures
    from coke.export.onnx import export_onnx as export_onnx
    from coke.learning.model import Model as Model
    from coke.learning.model import load_model as load_model
    from coke.maths.algorithms.algorithm import Algorithm as Algorithm
    from coke.maths.algorithms.algorithm import Spoken as Spoken
    from coke.maths.algorithms.codecs import Coarse as Coarse
    from coke.maths.algorithms.codecs import Codec as Codec
    from coke.maths.algorithms.codecs import Float64 as Float64
    from coke.maths.algorithms.coke import COKE as COKE
    from coke.maths.algorithms.coke import Geometric as Geometric
    from coke.maths.algorithms.coke import Schedule as Schedule
    from coke.maths.algorithms.coke import Sequential as Sequential
    from coke.maths.algorithms.coke import Shrinking as Shrinking
    from coke.maths.algorithms.coke import Threshold as Threshold
    from coke.maths.algorithms.coke import dkla as dkla
    from coke.maths.algorithms.coke import say as say
    from coke.maths.algorithms.cta import CTA as CTA
    from coke.maths.features.features import FeatureSettings as FeatureSettings
    from coke.maths.features.features import draw_features as draw_features
    from coke.maths.graph import adjacency as adjacency
    from coke.maths.graph import build_graph as build_graph
    from coke.maths.graph import metropolis as metropolis
    from coke.maths.losses.problem import Problem as Problem
    from coke.maths.losses.problem import Quadratic as Quadratic
    from coke.maths.losses.risk import Risk as Risk
    from coke.maths.losses.risk import local_only as local_only
    from coke.maths.losses.risk import one_shot_average as one_shot_average
    from coke.report.plots import plot as plot
    from coke.settings.declaration import Features as Features
    from coke.settings.groups import DKLA as DKLA
    from coke.settings.groups import DP as DP
    from coke.settings.groups import Agents as Agents
    from coke.settings.groups import Auto as Auto
    from coke.settings.groups import Coke as Coke
    from coke.settings.groups import CokePaper as CokePaper
    from coke.settings.groups import Diffusion as Diffusion
    from coke.settings.groups import TreeNewton as TreeNewton
    from coke.settings.groups import Until as Until

__version__ = "0.1.0"

_NAMES = {  # module ↦ what it gives the world, when it is first asked for
    "engines.history": ("History",),
    "engines.process": ("Record", "simulate"),
    "errors": ("CokeError",),
    "estimators.classifier": ("COKEClassifier",),
    "estimators.regressor": ("COKERegressor",),
    "estimators.transformer": ("RandomFeatures",),
    "export.onnx": ("export_onnx",),
    "learning.model": ("Model", "load_model"),
    "maths.algorithms.algorithm": ("Algorithm", "Spoken"),
    "maths.algorithms.codecs": ("Coarse", "Codec", "Float64"),
    "maths.algorithms.coke": (
        "COKE", "Geometric", "Schedule", "Sequential", "Shrinking", "Threshold", "dkla", "say",
    ),
    "maths.algorithms.cta": ("CTA",),
    "maths.features.features": ("FeatureSettings", "draw_features"),
    "maths.graph": ("adjacency", "build_graph", "metropolis"),
    "maths.losses.problem": ("Problem", "Quadratic"),
    "maths.losses.risk": ("Risk", "local_only", "one_shot_average"),
    "report.plots": ("plot",),
    "settings.declaration": ("Features",),
    "settings.groups": (
        *("DKLA", "DP", "Agents", "Auto", "Coke", "CokePaper", "Diffusion", "TreeNewton", "Until"),
    ),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """A public name from its module: to import all of them takes a second, which commands save."""
    if name not in _HOMES:
        raise AttributeError(f"module 'coke' has no attribute {name!r}")
    return getattr(import_module(f"coke.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted((*_HOMES, "__version__"))
