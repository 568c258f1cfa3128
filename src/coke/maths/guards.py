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
for its own. And joining should not leave a site with a model that is worse for its own rows than
none at all, by much: R_i(θ_i) ≤ 2 max(R_i(0), v). Honest runs on tables came to 0.14 of the first
bound (one of 24 to 0.32), and to 1.02 of max(R_i(0), v) in the second; liars that did harm above 2
to 0.2 of the first at least: so sites are suspicious from 0.17 and 1.2 on. Where all know the graph
(`coke.maths.audit`) bounds are tighter, and edges are closed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

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
        upper = np.quantile(apart, 0.75, axis=0, method="lower")  # of three sites, the middle one
        typical = np.maximum(np.median(apart, axis=0), 0.5 * upper)
        mean = np.clip(self.mean, middle - FAR * typical, middle + FAR * typical)
        T = np.minimum(self.T, HEAVY * np.median(self.T))
        return Claims(T, mean, np.minimum(self.sd, FAR * typical))


@dataclass(frozen=True)
class HonestBounds:
    """Of one site: what its edges and its own loss cannot exceed while all are honest."""

    H: Array  # (D, D) half of what its risk bends at most
    edge: float  # N √(Λ v), on ρ‖g‖
    loss: float  # max(R_i(0), v)
    bend: float = 0.0  # Λ, by its own rows
    zero: float = 0.0  # R_i(0)

    @classmethod
    def of(cls, risk: Risk, N: int, v: float = 0.0) -> HonestBounds:
        """From the site's own risk, and the mean loss of predicting zero where it is known."""
        A, zero = risk.gram(0), float(risk.losses(np.zeros((1, risk.size)))[0])
        H = 0.5 * risk.kappa * A + matrix(risk.G, len(A))
        v, last = max(zero, v), len(H) - 1
        top = max(float(eigh(H, eigvals_only=True, subset_by_index=(last, last))[0]), 0.0)
        return cls(H, N * math.sqrt(top * v), v, top, zero)

    @cached_property
    def _root(self) -> tuple[Array, bool]:
        ridge = 1e-9 * float(np.trace(self.H)) * np.eye(len(self.H))
        found: tuple[Array, bool] = cho_factor(self.H + ridge)
        return found

    def pulls(self, gamma: Array) -> float:
        """‖γ_ij‖ of an edge (K·D,), in parts of what is possible."""
        return float(np.sqrt(gamma @ gamma)) / self.edge if self.edge > 0 else 0.0

    def harms(self, gamma: Array) -> float:
        """γᵀH_i⁻¹γ: what the edge costs this site, if nothing else moves."""
        parts = gamma.reshape(-1, len(self.H))
        return float(np.sum(parts * cho_solve(self._root, parts.T).T))

    def suffers(self, loss: float) -> float:
        """The own loss, in parts of what no model at all would cost."""
        return loss / self.loss if self.loss > 0 else 0.0
