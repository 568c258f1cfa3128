"""From sums over the tree to rounds of COKE and back: no dual is lost, and Σγ = 0 to the bit.

Both ends of a tree's edge know the same of the gradient below it, the edge's *known*, bit for bit,
once the order that it belongs to is answered. Rounds go on from there, on every edge with

    own = cp = u,   γ = −known at the child's end, known at the parent's, 0 on all other edges,

on the grid after one division by ρ, so that both ends of every edge hold the same and cancel. A
site that has heard order j + 1 knows that all sites have answered order j, and begins with that; a
neighbour that has not heard it begins one order earlier, and takes over the later one. Where the
next step of u is still a large part of u, duals of the place before it are worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from coke.maths.algorithms.codecs import GRID, LIMIT
from coke.maths.arrays import Array
from coke.talk.place import Place

_NEAR = 0.25  # of u, that the next step may be


class Settled(NamedTuple):
    """What a consensus has come to, at one site."""

    hat: Array  # (D,) what it said last,
    said: Mapping[str, Array]  # to each of its children on the tree,
    above: Array | None  # (D,) and what its parent did
    gamma: Array  # (D,) its dual


class Stage(NamedTuple):
    """What a site knew when it had answered an order."""

    u: Array  # (D,)
    above: Array  # (D,) known, of the edge to its parent,
    below: Mapping[str, Array]  # and of those to its children


class Base(NamedTuple):
    """What an end of an edge begins with."""

    x: Array  # (D,) own and cp
    g: Array  # (D,) γ/ρ
    h: float  # the threshold at most


class Handed(NamedTuple):
    """What a site's rounds begin with."""

    at: int  # orders after which its edges begin; 0: with nothing
    bases: Mapping[str, Mapping[int, Base]]  # by neighbour and order


NOT_HANDED = Handed(0, {})


def handed(
    place: Place, stages: Mapping[int, Stage], at: int, change: Array,
    neighbours: Iterable[str], rho: float,
) -> Handed:  # fmt: skip
    """After an order that all have answered, and before a `change` of u; or after those near it."""
    step = float(np.sqrt(change @ change))
    near = at in stages and step <= _NEAR * float(np.sqrt(stages[at].u @ stages[at].u))
    bases = {
        n: {j: Base(_grid(s.u), _grid(_dual(place, s, n) / rho), step) for j, s in stages.items()}
        for n in neighbours
    }
    return Handed(at if near else 0, bases)


def _dual(place: Place, stage: Stage, neighbour: str) -> Array:
    """γ of the edge at this end (D,)."""
    if neighbour == place.parent:
        return -stage.above
    return stage.below.get(neighbour, 0.0 * stage.u)


def _grid(x: Array) -> Array:
    """The nearest numbers that edges bear."""
    return np.clip(np.rint(x / GRID) * GRID, -LIMIT, LIMIT) + 0.0  # −0 + 0 = 0
