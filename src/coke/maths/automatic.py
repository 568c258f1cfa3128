"""Settings that follow from the graph and the whitened problem: nothing to tune.

In the whitened basis local Hessians are near κI, so ρ is dimensionless, ‖u − û‖ is nearly the root
mean square change of the predictions, and the entries of an innovation are alike in size.
"""

from __future__ import annotations

import math

import numpy as np

from coke.errors import InputError
from coke.maths.coke import COKE
from coke.maths.graph import Graph, adjacency, degrees
from coke.maths.quantise import Coarse
from coke.maths.thresholds import Shrinking

KAPPA = {"mse": 2.0, "logistic": 0.25, "hinge": 0.25}  # curvature of the loss


def step_size(metric: str, graph: Graph) -> float:
    """ρ = 0.7 κ / (2 √(λ₂ d̄)): λ₂ of the Laplacian, d̄ the mean degree; κ/2 for one agent alone."""
    if metric not in KAPPA:
        raise InputError(f"no curvature known for the metric {metric!r}: expected one of {KAPPA}")
    if len(graph) < 2:
        return KAPPA[metric] / 2
    A = adjacency(graph).toarray()
    second = float(np.linalg.eigvalsh(np.diag(A.sum(axis=1)) - A)[1])
    return 0.7 * KAPPA[metric] / (2.0 * math.sqrt(second * float(degrees(graph).mean())))


def automatic(metric: str, graph: Graph, spread: float) -> COKE:
    """COKE for a whitened problem whose target has this spread (its standard deviation)."""
    threshold = Shrinking(0.5 * spread)
    return COKE(step_size(metric, graph), threshold, Coarse(), warm=True)
