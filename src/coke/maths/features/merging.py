"""Mixtures of Gaussians on their way through the tree: components merge, while little is lost.

One Gaussian of all sites describes sites that are alike. Of sites that are not, such as those of
one row or with a column of their own, it fills the space between them: the Gram matrix P that it
predicts is then far above the true one, A, in some directions. λ_max(P⁻¹A) does not show it, λ_min
does; and consensus in a basis from P is slow there. So a site that merges looks at both ends of
the spectrum, with the first few frequencies, and tells 2 or 16 components where one would not do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.mixtures import RANKS, Component, Gaussian, expected_gram, fits

_WITHIN = 32.0  # by which a merger may change the Gram matrix in any direction; sites alike: 2
_FEW = 16  # frequencies to look with: parts of a spectrum are within the whole one


class Detail(NamedTuple):
    """How finely inputs are told."""

    s0: float  # steps near zero
    features: DrawnFeatures | None = None  # that must tell apart what a merger joins; None: nothing
    ridge: float = 0.0  # beside their Gram matrix

    def merged(self, parts: Sequence[Gaussian], kind: int) -> list[Component]:
        """As few components as will do, of this kind or the next ones."""
        told = list[Component]()
        for most in (K for K in RANKS if kind <= K):
            told = [part.truncated(RANKS[most]) for part in reduced(parts, most)]
            if len(parts) <= most or self._alike(parts, told):
                break
        return told

    def _alike(self, parts: Sequence[Gaussian], told: Sequence[Component]) -> bool:
        """Whether both predict nearly the same Gram matrix, at both ends of the spectrum."""
        if self.features is None or not len(self.features.omega):  # lines: moments say all
            return True
        omega, phase = self.features.omega, self.features.phase
        few = DrawnFeatures(omega[:_FEW], phase[:_FEW])
        ridge = self.ridge * len(omega) / len(few.omega)  # as beside a part of all entries
        P = expected_gram(few, [part.gaussian() for part in told])
        A = expected_gram(few, parts)
        return fits(P, A, ridge, _WITHIN) and fits(A, P, ridge, _WITHIN)


def reduced(mixture: Sequence[Gaussian], most: int) -> list[Gaussian]:
    """At most so many components: the pair nearest by Ward's cost is merged, again and again.

    w₁w₂/(w₁ + w₂) ‖m₁ − m₂‖² is what a merger adds to the spread within components. The order
    of the components decides ties, so that every site merges alike.
    """
    parts, gone = list(mixture), set[int]()
    if len(parts) <= most:
        return parts
    ward = _Ward(parts)
    while len(parts) - len(gone) > most:
        i, j = ward.nearest()
        parts[i] = parts[i].merged(parts[j])
        ward.merge(i, j, parts[i])
        gone.add(j)
    return [part for i, part in enumerate(parts) if i not in gone]


class _Ward:
    """Of each component the nearest one after it, kept up while pairs merge: O(n²) in all."""

    def __init__(self, mixture: Sequence[Gaussian]):
        self._weight = np.array([part.weight for part in mixture])
        self._mean = np.stack([part.mean for part in mixture])
        self._here = np.ones(len(mixture), np.bool_)
        self._cost, self._at = np.full(len(mixture), np.inf), np.zeros(len(mixture), np.int64)
        for i in range(len(mixture)):
            self._look(i)

    def nearest(self) -> tuple[int, int]:
        """The pair of least cost; of several the first."""
        i = int(self._cost.argmin())
        return i, int(self._at[i])

    def merge(self, i: int, j: int, both: Gaussian) -> None:
        """Component i is both now, and j is none."""
        self._weight[i], self._mean[i] = both.weight, both.mean
        self._here[j], self._cost[j] = False, np.inf
        new = self._costs(i, slice(0, i))
        # Ward's cost is reducible: a merger comes nearer to nobody, but for rounding.
        nearer = (new < self._cost[:i]) | ((new == self._cost[:i]) & (i < self._at[:i]))
        lost = self._here & np.isin(self._at, (i, j))
        self._cost[:i][nearer], self._at[:i][nearer] = new[nearer], i
        lost[:i] &= ~nearer
        for k in {i, *np.flatnonzero(lost).tolist()}:
            self._look(k)

    def _look(self, i: int) -> None:
        costs = self._costs(i, slice(i + 1, None))
        if costs.size:
            j = int(costs.argmin())
            self._cost[i], self._at[i] = costs[j], i + 1 + j

    def _costs(self, i: int, others: slice) -> Array:
        """Of merging component i with each of those; ∞ where there is none any more."""
        apart, w = self._mean[others] - self._mean[i], self._weight[others]
        costs = w * self._weight[i] / (w + self._weight[i]) * np.vecdot(apart, apart)
        return np.where(self._here[others], costs, np.inf)
