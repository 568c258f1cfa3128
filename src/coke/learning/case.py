"""An algorithm on a problem, and what it needs of the agreement beside units and features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from coke.learning.basis import Basis
from coke.maths.algorithms import ALGORITHMS, Entry
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.coke import COKE
from coke.maths.algorithms.nearness import Nearness
from coke.maths.algorithms.tree_newton import Aim
from coke.maths.arrays import Array
from coke.maths.audit import Vouched
from coke.maths.features.whitening import Whitening
from coke.maths.ledger import Spent
from coke.maths.losses import Loss
from coke.maths.losses.problem import Problem
from coke.settings.declaration import AUTO, BROADCAST, Settings
from coke.settings.rules import against_descent
from coke.talk.place import SITES
from coke.threads import OneThread

_APART = 10  # times finer for each of several targets


class Case(NamedTuple):
    """An algorithm on a problem: in which basis it learns, and what was sent before it begins."""

    problem: Problem
    algorithm: Algorithm
    spread: float  # of the target, the unit of thresholds and tolerances
    spent: Spent  # (n, 3)
    tol: float | None = None  # in the norm of θ, once nobody moves by more
    basis: Whitening | None = None  # of the problem; None: the plain features
    goal: Aim | None = None  # what is to be proven of it at the end
    descends: bool = False  # whether by sums over the tree, and not by rounds of the algorithm
    thin: bool = False  # whether on fewer links than there are: see `coke.talk.thinning`
    ends: bool = False  # once it is near enough for that, whatever still moves
    closes: bool = False  # whether anything is added up afterwards: see `coke.learning.closing`

    @property
    def near(self) -> Nearness | None:
        """When its rounds are near enough for the proof; None: by the tolerance alone."""
        if self.goal is None or not (self.ends and isinstance(self.algorithm, COKE)):
            return None
        return Nearness(self.problem.train, self.goal, self.algorithm.rho)

    def theta(self, u: Array) -> Array:
        """In the plain features, of what was learnt (…, K·D), class by class."""
        if self.basis is None:
            return u
        with OneThread().limit():
            return self.basis.theta(u.reshape(-1, len(self.basis.C))).reshape(u.shape)


def resolved(settings: Settings) -> tuple[str, str]:
    """The algorithm that "auto" stands for, and why."""
    if settings.algorithm != AUTO:
        return settings.algorithm, ""
    asked = {
        "a tolerance of movement is of rounds": settings.tol is not None,
        "compiled rounds are COKE's": settings.fast,
    }
    why = "; ".join([*against_descent(settings), *(one for one, holds in asked.items() if holds)])
    least = f"sums over a tree take the fewest bytes on {settings.links} links"
    return ("coke", why) if why else ("tree-newton", least)


def is_thin(settings: Settings, entry: Entry) -> bool:
    """Whether its rounds go along fewer links than there are.

    Not where one message reaches all neighbours, nor where a guard compares what all edges do; and
    rounds that take the place of a descent do so because something is missing.
    """
    rounds = entry.basis and not entry.descends
    return rounds and settings.links != BROADCAST and not settings.guard


def tol_of(settings: Settings, entry: Entry, loss: Loss) -> float | None:
    """In spreads of the target; of a descent, for those who go on by rounds of COKE."""
    usual = ALGORITHMS["coke"].tol if entry.descends else entry.tol
    if settings.tol is not None or usual is None:
        return settings.tol
    return loss.rough * usual


def goal_of(settings: Settings, loss: Loss) -> Aim | None:
    """What is to be proven at the end; nothing without λ, of noise, or beyond a budget.

    Of several targets each is to be near its optimum, however small its part of the sum.
    """
    if settings.max_bytes or settings.max_transmissions or settings.lam == 0:
        return None
    if settings.privacy != "none":
        return None
    targets = len(settings.data.targets)
    finer = _APART * targets if targets > 1 else 1
    return Aim(
        accuracy=settings.accuracy / finer, sweeps=settings.rounds, sums=loss.statistics,
        bend=loss.bend or loss.kappa,
        further=settings.sums and loss.smooth and not settings.guard,
        broadcast=settings.links == BROADCAST,
    )  # fmt: skip


class Wanted(NamedTuple):
    """What an algorithm needs of the agreement beside units and features."""

    basis: bool
    spread: bool  # of the target, for a tolerance
    most: int = SITES  # sites that the network may have
    key: bytes = b""  # of this site, that all others are to know


class Second(NamedTuple):
    """What a site in the field has agreed on beyond units and features."""

    basis: Basis | None
    spread: float | None
    totals: tuple[bytes, ...]  # of all sums of the agreement
    told: Mapping[str, Vouched] = {}  # what every site says of itself, under a guard
