"""What honest sites can carry between them where all know the graph, and who carries more.

At the optimum the gradients c_s = ∇R_s(θ*) of N sites sum to zero, and the duals of the edges route
them: Σ_i γ_ij = −γ_j = c_j over the neighbours i of j. As ‖c_j‖² ≤ 4Λ R_j(θ*) ≤ 4Λ F(θ*), Λ half
of the largest curvature, and F(θ*) ≤ F(0) = Σ_s R_s(0),

    node   ‖Σ_i γ_ij‖ ≤ 2√(Λ F),          edge   ‖γ_ij‖ ≤ 2√(Λ F) ‖L⁺(e_i − e_j)‖,

the second by Cauchy–Schwarz (`coke.maths.guards`). An honest site passes on what it is told: its
edges may carry much, but they add up to no more than its own rows can ask for. So where a liar
pulls, every edge on the way is loaded, and the node where it begins is the liar: among honest sites
that are pulled the same way it has the largest sum, as all sums add up to zero.

What sites say of themselves counts as far as one can believe one of them: up to four times the
median of curvatures and of losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.guards import HEAVY

_FAR = 100.0  # times the median, that a site's own model may be in size
_LEAST = 0.1  # of F(0): a model that fits all rows leaves no bound, but rounding


class Vouched(NamedTuple):
    """What a site says of itself before training, by name."""

    bend: float  # Λ_s, half of what its risk bends at most
    zero: float  # R_s(0)
    size: float  # ‖θ‖ of the model it would learn alone
    neighbours: tuple[str, ...]
    key: bytes = b""  # whose signature is on what it says later


class Dual(NamedTuple):
    """γ_ij of an edge, as its end i states it: coarsely, but both ends alike."""

    epoch: int
    step: int
    gamma: Array  # (K·D,)

    def same(self, other: Dual) -> bool:
        """Whether both are of one moment."""
        return (self.epoch, self.step) == (other.epoch, other.step)


class Stated(NamedTuple):
    """What one site states of a round."""

    loss: float  # R_i(θ_i)
    duals: Mapping[str, Dual]  # by neighbour


def believed(values: Iterable[float]) -> Array:
    """(n,) each at most four times their median."""
    told = np.array([*values])
    return np.minimum(told, HEAVY * np.median(told))


@dataclass(frozen=True)
class Flows:
    """The bounds of a network; sites that were found to lie are left out."""

    told: Mapping[str, Vouched]  # by name
    most: float  # that R_s(0) of a site can be: N v, in the units agreed on
    out: frozenset[str] = frozenset()

    def without(self, name: str) -> Flows:
        """Once that site is no part of it."""
        return replace(self, out=self.out | {name})

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self.told.keys() - self.out)

    @cached_property
    def near(self) -> dict[str, tuple[str, ...]]:
        """The neighbours of each: an edge is what both ends say is one."""
        told, here = self.told, set(self._names)
        return {
            n: tuple(m for m in told[n].neighbours if m in here and n in told[m].neighbours)
            for n in self._names
        }

    @cached_property
    def _bend(self) -> float:
        return float(believed(max(self.told[n].bend, 0.0) for n in self._names).max())

    @cached_property
    def zero(self) -> float:
        """F(0), as far as one can believe: one site may have nearly all of it, but not more."""
        return float(sum(min(self.told[n].zero, self.most) for n in self._names))

    @cached_property
    def model(self) -> float:
        """‖θ‖ of the largest model that anybody would learn alone: few rows may ask for much."""
        sizes = np.array([self.told[n].size for n in self._names])
        return float(min(sizes.max(initial=0.0), _FAR * np.median(sizes))) if len(sizes) else 0.0

    def node(self, F: float = math.inf) -> float:
        """2√(Λ F), with F(0) where F(θ) is more."""
        return 2.0 * math.sqrt(self._bend * min(max(F, _LEAST * self.zero), self.zero))

    @cached_property
    def _apart(self) -> Array:
        """L⁺."""
        names, L = self._names, np.zeros((len(self._names),) * 2)
        at = {name: i for i, name in enumerate(names)}
        for n, near in self.near.items():
            L[at[n], at[n]] = len(near)
            L[at[n], [at[m] for m in near]] = -1.0
        return np.asarray(np.linalg.pinv(L, hermitian=True))

    def edge(self, i: str, j: str) -> float:
        """2√(Λ F(0)) ‖L⁺(e_i − e_j)‖; of an edge that nobody knows, the most there can be."""
        if j not in self.near.get(i, ()):
            return self.node() * math.sqrt(len(self._names)) / 2.0
        a, b = (self._apart[:, self._names.index(n)] for n in (i, j))
        return self.node() * float(np.linalg.norm(a - b))

    def parts(self, stated: Mapping[str, Stated]) -> dict[str, float]:
        """‖Σ_i γ_ij‖ of every site j in parts of its bound, by what its neighbours state.

        Where the two ends of an edge state different things one of them lies: what speaks for j
        counts, as its neighbour has cut it if that is false. Of one that states nothing, its own.
        """
        here = {n: stated[n] for n in self._names if n in stated}
        if not here:
            return {}
        F = sum(min(one.loss, self.most) for one in here.values()) * len(self._names) / len(here)
        bound = self.node(F)
        return {j: self._sum(here, j) / bound for j in self._names} if bound > 0 else {}

    def worse(self, stated: Mapping[str, Stated]) -> float:
        """The middle one of R_i(θ_i)/max(R_i(0), v): above 1, most had better predict nothing."""
        v, here = self.zero / max(len(self._names), 1), [n for n in self._names if n in stated]
        least = {n: max(self.told[n].zero, v) for n in here}
        found = [stated[n].loss / least[n] for n in here if least[n] > 0]
        return float(np.median(found)) if found else 0.0

    def _sum(self, stated: Mapping[str, Stated], j: str) -> float:
        sums: list[Array] = []
        disputed: list[tuple[Array, Array]] = []
        for i in self.near[j]:
            theirs = stated[i].duals.get(j) if i in stated else None
            own = stated[j].duals.get(i) if j in stated else None
            if theirs is not None and own is not None and contradict(theirs, own):
                disputed.append((theirs.gamma, -own.gamma))
            elif theirs is not None:
                sums.append(theirs.gamma)
            elif own is not None:
                sums.append(-own.gamma)
        size = max((len(x) for x in sums), default=0)
        total = sum((x for x in sums if len(x) == size), np.zeros(size))
        for a, b in disputed:
            if len(a) == len(total) == len(b) or not size:
                total = min((total + x if size else x for x in (a, b)), key=_norm)
        return _norm(total)


def contradict(one: Dual, other: Dual) -> bool:
    """Whether two ends of an edge state, of one moment, what cannot both be: g_ij = −g_ji."""
    return one.same(other) and not np.array_equal(one.gamma, -other.gamma)


def _norm(x: Array) -> float:
    return float(np.sqrt(x @ x))
