"""Ridge regression on all sites' rows, for several ridges at once, from few coarse sums.

min_u  ½ uᵀ(A + mR)u − bᵀu  for some m, in a basis where A + R is near the identity; A = Σ_i A_i.
All sites keep the same directions Q, orthonormal, and AQ, and have for every m the best u along
them, Q(Qᵀ(A + mR)Q)⁻¹Qᵀb. A sweep adds one direction for each output: of the m that is farthest
from solved, what is left of b, times (I + (m − 1)R)⁻¹, which would solve it if A were I − R; and
what the sites make of it, Σ_i A_i p, in whole numbers of a step. For a single m these are conjugate
gradients. After a few sweeps that is enough to tell a good model from a bad one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from coke.maths.alike import alike
from coke.maths.arrays import Array

_COARSE = 0.06  # of a direction's root mean square
_NEAR = 0.03  # of b: what is below is left
_NEW = 1e-6  # least of a direction that is none of those before


class Conjugate(NamedTuple):
    """How far it has come, for all outputs (D, K): the same at every site."""

    R: Array  # (D, D)  the regulariser
    b: Array  # (D, K)
    times: Sequence[float]  # m
    Q: Array  # (D, k)
    AQ: Array  # (D, k)
    p: Array  # (D, K)  the next direction of each output; zero once little is left

    @classmethod
    def start(cls, R: Array, b: Array, times: Sequence[float] = (1.0,)) -> Self:
        """At u = 0."""
        none = np.empty((len(b), 0))
        return cls(R, b, times, none, none, np.zeros_like(b))._next()

    @property
    def step(self) -> float:
        """Of the whole numbers in which Σ_i A_i p is told."""
        return first_step(len(self.b))

    def u(self, many: float) -> Array:
        """(D, K) with so many times the ridge."""
        if not self.Q.shape[1]:
            return np.zeros_like(self.b)
        A, Q = self.Q.T @ self.AQ, self.Q
        c = np.linalg.lstsq((A + A.T) / 2 + many * Q.T @ self.R @ Q, Q.T @ self.b)[0]
        return np.asarray(Q @ c)

    def after(self, total: Array) -> Self:
        """With all sites' products known, in such steps, and the next directions."""
        new = self.p.any(axis=0)
        Q = np.hstack([self.Q, self.p[:, new]])
        AQ = np.hstack([self.AQ, self.step * total[:, new]])
        return self._replace(Q=Q, AQ=AQ)._next()

    def _next(self) -> Self:
        return self._replace(p=_directions(self))

    def left(self, many: float) -> tuple[Array, Array]:
        """(I + (m − 1)R)⁻¹ of what is left of b, and its share (K,) in that norm, squared."""
        u, (values, V) = self.u(many), _parts(self.R)
        left = self.b - self.AQ @ (self.Q.T @ u) - many * self.R @ u
        solved = V.T @ np.hstack([left, self.b]) / (1.0 + (many - 1.0) * values)[:, None]
        z, whole = np.split(V @ solved, 2, axis=1)
        size = np.sum(whole * self.b, axis=0)
        return z, np.sum(z * left, axis=0) / np.where(size > 0, size, 1.0)


@alike
def _directions(at: Conjugate) -> Array:
    """Of what is left for the m that is farthest from solved, where that is anything (D, K)."""
    found = [at.left(many) for many in at.times]
    shares = np.array([share for _, share in found])
    z = found[int(np.argmax(shares.sum(axis=1)))][0]
    z = np.where(shares.max(axis=0) > _NEAR**2, z, 0.0)
    return _beside(at.Q, z)


@alike
def _parts(R: Array) -> tuple[Array, Array]:
    """Eigenvalues, none below zero, and eigenvectors."""
    values, vectors = np.linalg.eigh(R)
    return np.maximum(values, 0.0), vectors


def first_step(D: int) -> float:
    """Of the whole numbers in which b is told: targets have spread one, so ‖b‖ is at most that.

    Finer for few numbers, whose errors do not average out.
    """
    return _COARSE * float(np.sqrt(min(D, 100) / 100 / D))


def _beside(Q: Array, X: Array) -> Array:
    """The columns of X, orthonormal and orthogonal to Q; zero where nothing new is in them."""
    known, found = list(Q.T), np.zeros_like(X)
    for k, whole in enumerate(X.T):
        x = whole
        for q in 2 * known:  # twice: the first time leaves rounding
            x = x - q * (q @ x)
        size = float(np.linalg.norm(x))
        if size > _NEW * float(np.linalg.norm(whole)):
            found[:, k] = x / size
            known.append(found[:, k])
    return found
