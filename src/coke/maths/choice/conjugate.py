"""Ridge regression on all sites' rows by conjugate gradients whose products are coarse sums.

min_u  ½ uᵀ(Σ_i A_i + R)u − bᵀu  in a basis where Σ_i A_i + R is near the identity. All sites keep
the same u; a sweep adds up what they make of a direction, Σ_i A_i p, in whole numbers of a step
that follows from p. After a few sweeps that is enough to tell a good model from a bad one.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from coke.maths.arrays import Array

_COARSE = 0.06  # of a direction's root mean square
_NEAR = 0.03  # of b: what is below is left


class Conjugate(NamedTuple):
    """How far it has come, for all outputs (D, K): the same at every site."""

    R: Array  # (D, D)  the regulariser
    u: Array
    g: Array  # what is left of b
    p: Array  # the direction; zero once little is left
    size: Array  # (K,)  ‖b‖²

    @classmethod
    def start(cls, R: Array, b: Array) -> Self:
        """At u = 0."""
        return cls(R, np.zeros_like(b), b, b, np.sum(b**2, axis=0))

    @property
    def step(self) -> Array:
        """(K,) of the whole numbers in which Σ_i A_i p is told."""
        usual = np.maximum(np.sqrt(np.mean(self.p**2, axis=0)), 1e-12)
        return np.asarray(_fine(len(self.p)) * usual)

    def after(self, total: Array) -> Self:
        """With all sites' products known, in such steps: a step along p, and the next direction."""
        q = total * self.step + self.R @ self.p
        before, along = np.sum(self.g**2, axis=0), np.sum(self.p * q, axis=0)
        length = np.where(along > 0, before / np.where(along > 0, along, 1.0), 0.0)
        g = self.g - length * q
        left = np.sum(g**2, axis=0)
        share = left / np.where(before > 0, before, 1.0)
        going = left > _NEAR**2 * self.size
        p = np.where(going, g + share * self.p, 0.0)
        return self._replace(u=self.u + length * self.p, g=g, p=p)


def first_step(D: int) -> float:
    """Of the whole numbers in which b is told: targets have spread one, so ‖b‖ is at most that."""
    return _fine(D) / float(np.sqrt(D))


def _fine(D: int) -> float:
    """Of a root mean square: finer for few numbers, whose errors do not average out."""
    return _COARSE * float(np.sqrt(min(D, 100) / 100))
