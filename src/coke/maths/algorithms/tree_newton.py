"""Newton's method on a tree: what its root makes of the gradients that it is told.

F(u) = (1/N) Σ_i R_i(u) in the common basis. Where to go next, and what the Hessian may be, M, the
gradients seen so far tell (`trail`). Numbers may be coarse: a step of u is rounded so that this
costs a small part of what the step gains, and gradients so that the next step loses as little.
What a proof (`coke.maths.losses.excess`) would come to is foreseen with the root's own Hessian; the
sites are asked for it once that is enough. Where nothing is gained for a while, numbers are finer,
and at last the Gram matrices are asked for: H follows from them if sums say all, else what it is at
most.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coke.maths.algorithms.steps import BITS, rms
from coke.maths.algorithms.trail import Guess, Trail
from coke.maths.algorithms.visited import Visited
from coke.maths.arrays import Array
from coke.maths.graph import Shape
from coke.maths.losses.excess import Certificate

BEGIN, STEP, SHIFT, HESSIAN, COMMON, END = range(6)  # what the root orders
_FIRST = 0.6  # step of the first place, in root mean squares
_DOWN, _ROUND = 0.05, 0.08  # parts of a step's gain that rounding it may cost; with gradients
_LONG = 15  # sweeps, after which it is less: what is lost adds up on a long way
_ENOUGH = 0.9  # of what may be left: a proof is then likely
_ROUNDED, _SHIFTED = 0.125, 0.05  # of it, for the rounding of gradients, and of their mean
_NEAR = 4.0  # times what may be left: the next place may do
_SURE = 1.2  # times as far below, at least, after a proof was refused
_MOST = 1e6  # times more than was foreseen that a proof may come to
_STALE, _RETREATS = 8, 3  # sweeps without gain, and how often numbers are finer then
_FINER = 0.25  # of their steps
_EXPLODED = 100.0  # times the least objective: steps are far too long


class Aim(NamedTuple):
    """When to end."""

    accuracy: float
    sweeps: int  # at most
    sums: bool  # whether sums over the rows say all: Hessians stay as they are
    bend: float  # the loss's second derivative at most
    further: bool = True  # whether to go on where a proof of what others have found is refused
    slack: float = 1e-6
    broadcast: bool = False  # whether one message reaches all children at once


class Order(NamedTuple):
    """What the root tells all sites."""

    kind: int
    x: Array | None = None  # a step of u, or a shift of the gradients
    step: float = 0.0  # to round it to
    up: float = 0.0  # and the gradients that are told next
    again: bytes = b""  # beside x: parts of the last moves


class Root:
    """Where the root has come to, and what it wants next."""

    def __init__(self, own: Array, c: float, goal: Aim, shape: Shape):
        """`own` is the root's Hessian in units of c (D, D)."""
        found = Guess.of(own)
        self._own, self._goal, self._N, self.k = found.like(c * found.values), goal, shape.sites, 0
        self._trail = Trail.between(found, c, shared=goal.sums)
        self._visited = Visited(c, shape.sites)
        self._best, self._place, self._least = math.inf, np.empty(0), math.inf
        self._stale, self._tries, self._exploded, self._told = 0, 0, False, False
        # The less often a step is told than gradients are, the finer it may be.
        told = shape.inner / max(1, shape.sites - 1) if goal.broadcast else 1.0
        self._down = _DOWN * told
        self._finer, self._short = 1.0, 1.0  # steps of numbers; proofs, over what was foreseen
        self.away = math.inf  # what a proof would come to, in parts of what may be left
        self._foreseen = self._may = self._gain = 0.0
        self._p = np.zeros(len(own))

    def began(self, from_here: Array | None) -> Order:
        """From the root's own minimum, or from where all are already."""
        if from_here is None:
            return Order(BEGIN)
        alone = 2.0**-BITS if self._N == 1 else 1.0  # nobody is told
        return Order(BEGIN, from_here, _FIRST * rms(from_here) * alone)

    def knows(self, H: Array, u: Array) -> Order:
        """Once the mean Hessian is told, or what it is at most; back to the best place."""
        self._trail, self._told = Trail([Guess.of(H)], shared=self._goal.sums), True
        return self._on(self._place - u)

    def after(self, u: Array, g: Array, loss: float, zero: float, noise: float) -> Order:
        """What is wanted after the mean gradient and objective at u."""
        goal, own, self.k = self._goal, self._own, self.k + 1
        self._visited.add(u, noise)
        self._p = self._trail.step(u, g, noise)
        self._gain, self._may = abs(float(g @ self._p)), goal.accuracy * loss + goal.slack * zero
        rounding = 0.5 * self._N * noise * own.inverse / len(own.values)
        self._foreseen = 0.5 * float(g @ own.solved(g)) + rounding
        likely = self._short * self._foreseen
        self.away = likely / self._may if self._may > 0 else math.inf if likely > 0 else 0.0
        self._count(u, loss)
        if self._over or self.away <= _ENOUGH:
            return Order(SHIFT, -g, self._fine(_SHIFTED / self._N))
        if self._exploded or self._stale > max(_STALE, len(u) // 4):
            return self._stuck(u)
        return self._on(self._p)

    def judged(self, found: Certificate) -> Order:
        """After a proof; where it is refused, too little was foreseen."""
        if found.holds or self._over:
            return Order(END)
        seen = found.gap / (self._N * self._foreseen) if self._foreseen > 0 else 1.0
        self._short = min(max(seen, _SURE * self._short), _MOST)
        return self._on(self._p)

    def _on(self, p: Array) -> Order:
        """By p; and how finely that and the next gradients are told."""
        M, part = self._trail.M, self._finer**2 * min(1.0, _LONG / max(1, self.k))
        gain = 12.0 * part * self._gain / self._outputs
        down = math.sqrt(self._down * gain / float(M.values.sum()))
        up = math.sqrt((_ROUND - self._down) * gain * self._N / M.inverse)
        if self.away <= _NEAR:
            up = min(up, self._fine(_ROUNDED / self._short))
        again, rest = self._visited.parts(p)
        return Order(STEP, rest, down, up, again)

    @property
    def _outputs(self) -> float:
        return len(self._p) / len(self._own.values)

    def _fine(self, part: float) -> float:
        """A step of numbers whose rounding costs a proof that part of what may be left."""
        return math.sqrt(24.0 * part * self._may / (self._own.inverse * self._outputs))

    @property
    def _over(self) -> bool:
        """Whether enough was tried."""
        return self.k >= self._goal.sweeps or self._tries > 2 * _RETREATS

    def _count(self, u: Array, loss: float) -> None:
        """Sweeps since what is left was clearly less than ever."""
        if loss < self._least:
            self._least, self._place = loss, u
        self._exploded, self._stale = loss > _EXPLODED * self._least, self._stale + 1
        if self._gain < 0.5 * self._best:
            self._best, self._stale = self._gain, 0

    def _stuck(self, u: Array) -> Order:
        """Finer numbers, back to the best place, and smaller steps; at last the Hessians."""
        self._stale, self._tries, self._finer = 0, self._tries + 1, _FINER * self._finer
        if self._tries > _RETREATS and not self._told:
            return Order(HESSIAN)
        if self._exploded or not self._goal.sums:
            self._trail.damped()
        return self._on(self._place - u)


def curvature(secant: float, kappa: float) -> float:
    """c as a power of two, so that products with it are exact; κ where nothing better is known."""
    c = secant if secant > 1e-6 * kappa else kappa
    return 2.0 ** round(math.log2(c))
