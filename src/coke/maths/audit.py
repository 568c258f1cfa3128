"""What honest sites can carry between them where all know the graph, and who carries more.

At the optimum the gradients c_s = ∇R_s(θ*) of N sites sum to zero, and the duals of the edges route
them: Σ_i γ_ij = −γ_j = c_j over the neighbours i of j. As ‖c_j‖² ≤ 4Λ R_j(θ*) ≤ 4Λ F(θ*), Λ half
of the largest curvature, and F(θ*) ≤ F(0) = Σ_s R_s(0),

    node   ‖Σ_i γ_ij‖ ≤ 2√(Λ F),          edge   ‖γ_ij‖ ≤ 2√(Λ F) ‖L⁺(e_i − e_j)‖,

the second by Cauchy–Schwarz (`coke.maths.guards`). An honest site passes on what it is told: its
edges may carry much, but they add up to no more than its own rows can ask for. So where a liar
pulls, every edge on the way is loaded, and the node where it begins is the liar: among honest sites
that are pulled the same way it has the largest sum, as all sums add up to zero.

Of an edge one end's word is enough. Sites that are silent and side by side have edges of which
nobody speaks: their own sums are not known, but that of the edges into all of them, S, is. Of
n honest sites that is X = Σ_S c_j = −Σ_{∉S} c_j. By Cauchy–Schwarz on either side X²/n + X²/(N − n)
≤ Σ_s ‖c_s‖² ≤ 4Λ F, so X ≤ √(n (N − n)/N) 2√(Λ F): √(n (N − n)/(N − 1)) times what one of them may.
No sum that counts misses an edge.

What sites say of themselves counts as far as one can believe one of them: a curvature up to four
times the median, a loss up to what all rows leave for it. Of y² over all rows v is the mean, and
Σ_s T_s R_s(0) = v Σ_s T_s where sites weigh the same: R_s(0) ≤ v Σ T / T_s, and the fewer rows a
site has the more it may be; a site has a quarter of the median at least. Where rows weigh the same,
all sites count as if they had as many, and N v is left.

A site's first word is the model it learns alone, and that has g‖θ‖² ≤ R_s(θ) ≤ R_s(0), with g the
least that the regulariser bends: what a site says of its size counts up to √(v Σ T / T_s g).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.guards import HEAVY, believed

_LEAST = 0.1  # of F(0): a model that fits all rows leaves no bound, but rounding


class Vouched(NamedTuple):
    """What a site says of itself before training, by name."""

    bend: float  # Λ_s, half of what its risk bends at most
    zero: float  # R_s(0)
    size: float  # ‖θ‖ of the model it would learn alone
    neighbours: tuple[str, ...]
    key: bytes = b""  # whose signature is on what it says later
    rows: float = 1.0  # that its loss is a mean of; the same of all where rows weigh the same


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


class Load(NamedTuple):
    """What edges into a site add up to, or into silent ones that are side by side."""

    who: tuple[str, ...]
    part: float  # of the bound on one site
    room: float  # parts that n honest sites may have: √(n (N − n)/(N − 1))


@dataclass(frozen=True)
class Flows:
    """The bounds of a network; sites that were found to lie are left out."""

    told: Mapping[str, Vouched]  # by name
    v: float  # the mean loss of predicting zero over all rows, in the units agreed on
    out: frozenset[str] = frozenset()

    def without(self, name: str) -> Flows:
        """Once that site is no part of it."""
        return replace(self, out=self.out | {name})

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self.told.keys() - self.out)

    @cached_property
    def _edges(self) -> dict[str, tuple[str, ...]]:
        """Of all that have vouched: an edge is what both ends say is one."""
        told = self.told
        return {
            n: tuple(m for m in one.neighbours if m in told and n in told[m].neighbours)
            for n, one in told.items()
        }

    def joined(self, i: str, j: str) -> bool:
        """Whether both say that they are neighbours."""
        return j in self._edges.get(i, ())

    @cached_property
    def near(self) -> dict[str, tuple[str, ...]]:
        """The neighbours of each that are left."""
        return {n: tuple(m for m in self._edges[n] if m not in self.out) for n in self._names}

    @cached_property
    def tree(self) -> dict[str, tuple[str, ...]]:
        """The neighbours of each on a tree that all know, of few steps: from who has most."""
        known, found = set[str](), dict[str, list[str]]()
        for root in sorted(self.near, key=lambda n: (-len(self.near[n]), n)):  # of each part
            found.setdefault(root, [])
            front = [] if root in known else [root]
            known.add(root)
            for n in front:  # it grows on the way
                new = [m for m in self.near[n] if m not in known]
                found[n] += new
                found |= {m: [n] for m in new}
                known.update(new)
                front += new
        return {n: tuple(near) for n, near in found.items()}

    def reach(self, start: str, without: str) -> int:
        """Steps from a site to the farthest that it can tell, not by way of one other."""
        found, front = {start, without}, [start]
        steps = 0
        while front := [m for n in front for m in self._edges[n] if m not in found]:
            found.update(front)
            steps += 1
        return steps

    @cached_property
    def _bend(self) -> float:
        return float(believed(max(self.told[n].bend, 0.0) for n in self._names).max())

    @cached_property
    def _most(self) -> dict[str, float]:
        """What R_s(0) of each can be: v Σ T / T_s."""
        here = self._names
        rows = believed(self.told[n].rows for n in here)
        v = max(self.v, float(np.median([self.told[n].zero for n in here])))
        most = v * rows.sum() / np.maximum(rows, np.median(rows) / HEAVY)
        return dict(zip(here, most.tolist(), strict=True))

    @cached_property
    def zero(self) -> float:
        """F(0), as far as one can believe: one site may have nearly all of it, but not more."""
        return float(sum(min(self.told[n].zero, most) for n, most in self._most.items()))

    @property
    def mean(self) -> float:
        """F(0)/N, of the sites that are left: where one has rows far from zero it is not v."""
        return self.zero / max(len(self._names), 1)

    def model(self, g: float) -> float:
        """‖θ‖ of the largest model that anybody would learn alone: few rows may ask for much."""
        parts = self._most.items()
        return max((min(self.told[n].size, math.sqrt(most / g)) for n, most in parts), default=0.0)

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

    def loads(self, stated: Mapping[str, Stated]) -> list[Load]:
        """‖Σ_i γ_ij‖ of every site j in parts of its bound, by what its neighbours state.

        Where the two ends of an edge state different things one of them lies: what speaks for j
        counts, as its neighbour has cut it if that is false. Of one that states nothing, its own.
        """
        here = [n for n in self._names if n in stated]
        F = sum(min(stated[n].loss, self._most[n]) for n in here)
        bound = self.node(F * len(self._names) / max(len(here), 1)) if here else 0.0
        if not bound > 0:
            return []
        units = [*((n,) for n in here), *self._silent(stated)]
        return [Load(S, self._sum(stated, S) / bound, self._room(S)) for S in units]

    def _silent(self, stated: Mapping[str, Stated]) -> list[tuple[str, ...]]:
        """Sites that state nothing, those side by side together; not where all were found out."""
        rest, found = sorted(self.told.keys() - stated.keys()), list[tuple[str, ...]]()
        while rest:
            group = [rest[0]]
            for n in group:  # it grows on the way
                group += [m for m in self._edges[n] if m in rest and m not in group]
            rest = [n for n in rest if n not in group]
            if not self.out.issuperset(group):
                found.append(tuple(sorted(group)))
        return found

    def _room(self, group: tuple[str, ...]) -> float:
        n, N = len(group), len(self.told)
        return math.sqrt(max(n * (N - n) / max(N - 1, 1), 1.0))

    def worse(self, stated: Mapping[str, Stated]) -> float:
        """The middle one of R_i(θ_i)/max(R_i(0), F(0)/N): above 1, most are worse than none."""
        here = [n for n in self._names if n in stated]
        least = {n: max(self.told[n].zero, self.mean) for n in here}
        found = [stated[n].loss / least[n] for n in here if least[n] > 0]
        return float(np.median(found)) if found else 0.0

    def _sum(self, stated: Mapping[str, Stated], group: tuple[str, ...]) -> float:
        """Over edges that somebody states: others are closed, as an end of them was heard."""
        sums: list[Array] = []
        disputed: list[tuple[Array, Array]] = []
        edges = [(n, m) for m in group for n in self._edges[m] if n not in group]
        for i, j in edges:
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
