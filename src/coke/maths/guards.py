"""What honest sites cannot do: bounds on an edge's dual and on a site's own loss.

At the optimum θ* the gradients c_s = ∇R_s(θ*) of N sites sum to zero, and with duals that begin at
zero each edge carries ρ g_ij = (L⁺b)ᵀc, b = e_i − e_j, L the graph's Laplacian. By Cauchy–Schwarz,

    ρ‖g_ij‖ ≤ ‖L⁺b‖ √(Σ_s ‖c_s‖²),   Σ_s ‖c_s‖² ≤ 4Λ Σ_s R_s(θ*) ≤ 4Λ N v,

as ‖∇R‖² ≤ 4Λ (R − min R) where no curvature exceeds 2Λ, and F(θ*) ≤ F(0) = N v. No site knows the
graph. But L⁺b are the potentials of a unit current from i to j, which lie between those of its
ends, at most 1 apart as they share an edge, and have mean zero: so ‖L⁺b‖² ≤ N/4 on any graph, with
equality where the edge parts it in two halves. Hence

    ρ‖g_ij‖ ≤ N √(Λ v).

Of Λ, the largest of all sites, a site knows its own, and takes that. That is for the worst edge of
the worst graph: an edge's resistance is at most 1, and (N − 1)/|E| on average, which a site takes
for its own. A leaf's edge parts one site from the rest, so its potentials are known, ‖L⁺b‖² =
(N − 1)/N: where an end of an edge is a leaf

    ρ‖g_ij‖ ≤ 2√((N − 1) Λ v),

and a site is suspicious from as much of that as where all know the graph.

Joining should not leave a site with a model that is worse for its own rows than none at all, by
much: R_i(θ_i) ≤ 2 max(R_i(0), v), or F(0)/N for v where all know it by name, as one site's rows may
be far from zero. Honest runs on tables came to 0.14 of the first bound (one of 24 to 0.32), and to
1.02 of max(R_i(0), v) in the second; liars that did harm above 2 to 0.2 of the first at least: so
sites are suspicious from 0.17 and 1.2 on. Where all know the graph (`coke.maths.audit`) bounds are
tighter, and edges are closed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from coke.maths.algorithms.integers import Integers
from coke.maths.arrays import Array
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Risk

FIRST = 20  # the round from which a site looks closely: before, models still swing
FADES = 20  # rounds in which what a liar has done fades once it is cut; in both …
LOOSE = 4.0  # … only what is so many times beyond a bound counts
WARNS = (0.17, 1.2)  # parts of the bounds on an edge and on the own loss: from there on suspicious
ALARMS = 0.2  # part of the bound on an edge of a known graph from which on an audit is called for
LOUDER = 1.25  # times as loud as when an audit found nobody, before the next is called for
FALLS_BACK = (2.0, 6.0)  # parts from which on an edge is closed that no audit has explained
WORDS = 3.0  # times the largest model learnt alone, or √v, that a neighbour's may be in size …
AHEAD = 1.5  # … where it is so many times the site's own

FAR, HEAVY = 3.0, 4.0  # spreads from the middle, and median sites in rows, that a claim counts for


class _Counted(Protocol):
    """What stands for some rows."""

    @property
    def T(self) -> float:
        """How many."""
        ...

    def _replace(self, *, T: float) -> Self: ...


_Part = TypeVar("_Part", bound=_Counted)


class Claims(NamedTuple):
    """What n sites say of their rows and of c columns of them."""

    T: Array  # (n,)
    mean: Array  # (n, c)
    sd: Array  # (n, c)

    def bounded(self) -> Claims:
        """As far as one can believe a single site, by what most of them say.

        M₀ is the median of the means, S₀ that of √(sd² + (mean − M₀)²), or half its upper quartile:
        means count within M₀ ± 3 S₀, deviations up to 3 S₀, rows up to 4 times their median. So
        where all are much alike nothing changes.
        """
        middle = np.median(self.mean, axis=0)
        apart = np.sqrt(self.sd**2 + (self.mean - middle) ** 2)
        far = FAR * _typical(apart)
        mean = np.clip(self.mean, middle - far, middle + far)
        return Claims(believed(self.T), mean, np.minimum(self.sd, far))


def believed(values: Iterable[float]) -> Array:
    """(n,) each at most four times their median."""
    told = np.array([*values])
    return np.minimum(told, HEAVY * np.median(told))


def capped(parts: Sequence[_Part]) -> list[_Part]:
    """What stands for T rows each, none for more than four times the median."""
    rows = believed(one.T for one in parts).tolist()
    return [one if one.T <= T else one._replace(T=T) for one, T in zip(parts, rows, strict=True)]


def added(told: Integers) -> Integers:
    """(k,) sums of numbers (n, k) of n sites, each within what most of them bear out.

    That is M₀ ± 3 S₀ as of `Claims`, and anything between it and zero: who has nothing to say, or
    less than others, says no more by it.
    """
    middle = np.median(told, axis=0)
    far = FAR * _typical(np.abs(told - middle))
    low, high = np.minimum(middle - far, 0.0), np.maximum(middle + far, 0.0)
    return np.rint(np.clip(told, low, high)).astype(np.int64).sum(axis=0)


def leaning(weights: Integers, told: Integers) -> tuple[Integers, Integers]:
    """Σ w and Σ w x of what n sites find, x (n, c), and how sure they are, w (n, c) or (n, 1).

    `told` is w x. A weight counts up to four times the median of those above zero, and x is the
    weighted median of sites that have one: one site moves it to the next site's.
    """
    sure = np.broadcast_to(weights > 0, told.shape)
    x, w = told / np.maximum(weights, 1), np.where(sure, weights, 0.0)
    middle = np.zeros(told.shape[1])
    for j, here in enumerate(sure.T):
        if here.any():
            w[here, j] = believed(w[here, j])
            middle[j] = _middle(x[here, j], w[here, j])
    total = w.sum(axis=0)
    leans = np.rint(total * middle).astype(np.int64)
    return np.rint(total[: weights.shape[1]]).astype(np.int64), leans


def _middle(x: Array, w: Array) -> float:
    """The weighted median: half of the weight is on either side, between two where it is even."""
    order = np.argsort(x, kind="stable")
    upto = np.cumsum(w[order])
    low, high = (int(np.searchsorted(upto, upto[-1] / 2, side)) for side in ("left", "right"))
    return float(x[order[low]] + x[order[min(high, len(x) - 1)]]) / 2


def weighed(told: Integers) -> Integers:
    """(k,) sums of numbers (n, k) that are none below zero, of which a site may have any.

    What a site says counts for as much in all as four times the middle one does.
    """
    size = np.maximum(told, 0).sum(axis=1).astype(np.float64)
    part = believed(size) / np.maximum(size, 1.0)
    return np.rint(part[:, None] * np.maximum(told, 0)).astype(np.int64).sum(axis=0)


def _typical(apart: Array) -> Array:
    """(c,) of distances (n, c): their median, or half of their upper quartile."""
    upper = np.quantile(apart, 0.75, axis=0, method="lower")  # of three sites, the middle one
    return np.maximum(np.median(apart, axis=0), 0.5 * upper)


@dataclass(frozen=True)
class HonestBounds:
    """Of one site: what its edges and its own loss cannot exceed while all are honest."""

    H: Array  # (D, D) half of what its risk bends at most
    edge: float  # N √(Λ v), on ρ‖g‖ of any edge …
    leaf: float  # … and 2√((N − 1) Λ v), of a leaf's
    loss: float  # max(R_i(0), v)
    bend: float = 0.0  # Λ, by its own rows
    zero: float = 0.0  # R_i(0)
    least: float = 1e-300  # that its regulariser bends, over two

    @classmethod
    def of(cls, risk: Risk, N: int, v: float = 0.0) -> HonestBounds:
        """From the site's own risk, and the mean loss of predicting zero where it is known."""
        A, zero = risk.gram(0), float(risk.losses(np.zeros((1, risk.size)))[0])
        G = matrix(risk.G, len(A))
        H = 0.5 * risk.kappa * A + G
        v, last = max(zero, v), len(H) - 1
        top = max(float(eigh(H, eigvals_only=True, subset_by_index=(last, last))[0]), 0.0)
        least = max(float(eigh(G, eigvals_only=True, subset_by_index=(0, 0))[0]), 1e-300)
        edge, leaf = N * math.sqrt(top * v), 2.0 * math.sqrt((N - 1) * top * v)
        return cls(H, edge, leaf, v, top, zero, least)

    @cached_property
    def _root(self) -> tuple[Array, bool]:
        ridge = 1e-9 * float(np.trace(self.H)) * np.eye(len(self.H))
        found: tuple[Array, bool] = cho_factor(self.H + ridge)
        return found

    def harms(self, gamma: Array) -> float:
        """γᵀH_i⁻¹γ: what the edge costs this site, if nothing else moves."""
        parts = gamma.reshape(-1, len(self.H))
        return float(np.sum(parts * cho_solve(self._root, parts.T).T))

    def suffers(self, loss: float) -> float:
        """The own loss, in parts of what no model at all would cost."""
        return loss / self.loss if self.loss > 0 else 0.0
