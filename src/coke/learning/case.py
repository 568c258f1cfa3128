"""An algorithm on a problem, and what it needs of the agreement beside units and features."""

from __future__ import annotations

from typing import NamedTuple

from coke.learning.basis import Basis
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.features.whitening import Whitening
from coke.maths.ledger import Spent
from coke.maths.losses.problem import Problem
from coke.threads import OneThread


class Case(NamedTuple):
    """An algorithm on a problem: in which basis it learns, and what was sent before it begins."""

    problem: Problem
    algorithm: Algorithm
    spread: float  # of the target, the unit of thresholds and tolerances
    spent: Spent  # (n, 3)
    tol: float | None = None  # in the norm of θ, once nobody moves by more
    basis: Whitening | None = None  # of the problem; None: the plain features
    closes: bool = False  # whether anything is added up afterwards: see `coke.learning.closing`

    def theta(self, u: Array) -> Array:
        """In the plain features, of what was learnt (…, K·D), class by class."""
        if self.basis is None:
            return u
        with OneThread().limit():
            return self.basis.theta(u.reshape(-1, len(self.basis.C))).reshape(u.shape)


class Wanted(NamedTuple):
    """What an algorithm needs of the agreement beside units and features."""

    basis: bool
    spread: bool  # of the target, for a tolerance or a cap


class Second(NamedTuple):
    """What a site in the field has agreed on beyond units and features."""

    basis: Basis | None
    spread: float | None
    totals: tuple[bytes, ...]  # of all sums of the agreement
