"""What risks come to where all have the same model: found for all in this process once one asks."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from coke.maths.alike import alike
from coke.maths.arrays import Array
from coke.maths.losses.excess import values
from coke.maths.losses.risk import Risk

_PLACES = 2  # that are kept: zero, and where all are


class Joint:
    """Of some agents, at a common u (K·D,)."""

    def __init__(self, risk: Risk):
        self.losses = alike(partial(_losses, risk), _PLACES)
        self.values = alike(partial(_values, risk), _PLACES)
        self.gradients = alike(partial(_gradients, risk), _PLACES)


class OneOf(NamedTuple):
    """One of these agents."""

    all: Joint
    i: int

    def loss(self, u: Array) -> float:
        """Its mean loss."""
        return float(self.all.losses(u)[self.i])

    def value(self, u: Array) -> float:
        """R_i(u)."""
        return float(self.all.values(u)[self.i])

    def gradient(self, u: Array) -> Array:
        """∇R_i(u) (K·D,)."""
        return np.asarray(self.all.gradients(u)[self.i])


def _everywhere(risk: Risk, u: Array) -> Array:
    return np.broadcast_to(u, (len(risk.T), len(u)))


def _losses(risk: Risk, u: Array) -> Array:
    return risk.losses(_everywhere(risk, u))


def _values(risk: Risk, u: Array) -> Array:
    return values(risk, _everywhere(risk, u))


def _gradients(risk: Risk, u: Array) -> Array:
    return risk.gradient(_everywhere(risk, u))
