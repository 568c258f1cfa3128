"""Mixtures of Gaussians: what a site tells of its inputs, in few numbers, and how two are merged.

A component is a weight, a mean and a covariance FᵀF + diag(s²) with few factors F.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.maths.arrays import PART, Array

RANKS = {1: 5, 2: 3, 16: 1}  # factors per component, by the largest number of components
ENOUGH = 1 << 17  # rows to find clusters in: the code's steps are a tenth of a spread


class Gaussian(NamedTuple):
    """A component of a mixture: weight, mean and covariance of some inputs."""

    weight: float
    mean: Array  # (d,)
    cov: Array  # (d, d)

    @classmethod
    def of(cls, X: Array) -> Gaussian:
        """One Gaussian for the rows of X (T, d): their number, mean and covariance.

        Of very many a part at a time, for it takes a copy of them.
        """
        firsts = range(0, max(1, len(X)), PART)
        return reduce(Gaussian.merged, (_moments(X[first : first + PART]) for first in firsts))

    def merged(self, other: Gaussian) -> Gaussian:
        """The Gaussian with the moments of both: exact, whatever they are."""
        weight = self.weight + other.weight
        apart = (other.mean - self.mean)[:, None]
        mean = (self.weight * self.mean + other.weight * other.mean) / weight
        between = self.weight * other.weight / weight**2 * (apart @ apart.T)
        cov = (self.weight * self.cov + other.weight * other.cov) / weight + between
        return Gaussian(weight, mean, cov)

    def truncated(self, rank: int) -> Component:
        """The largest `rank` directions of the covariance, and what they leave of each variance."""
        values, vectors = np.linalg.eigh(self.cov)
        rank = min(rank, len(values))
        factors = np.sqrt(np.maximum(values[-rank:], 0))[:, None] * vectors[:, -rank:].T
        left = np.diag(self.cov) - np.sum(factors**2, axis=0)
        return Component(self.weight, self.mean, factors, np.sqrt(np.maximum(left, 0)))


def _moments(X: Array) -> Gaussian:
    mean = X.mean(axis=0)
    centred = X - mean
    return Gaussian(float(len(X)), mean, centred.T @ centred / len(X))


class Component(NamedTuple):
    """A Gaussian in few numbers."""

    weight: float
    mean: Array  # (d,)
    factors: Array  # (r, d)
    spread: Array  # (d,)  s

    def gaussian(self) -> Gaussian:
        """With its covariance FᵀF + diag(s²)."""
        cov = self.factors.T @ self.factors + np.diag(self.spread**2)
        return Gaussian(self.weight, self.mean, cov)


def clustered(X: Array, K: int, seed: int) -> list[Component]:
    """A mixture of K components, 1, 2 or 16, for the rows of X (T, d); of few rows one."""
    if K == 1 or len(X) < 4 * K:
        return [Gaussian.of(X).truncated(RANKS[1])]
    from scipy.cluster.vq import kmeans2  # here, for few sites need it and it is slow to load

    some = X  # drawn, for every n-th might be the same of n sensors
    if len(X) > ENOUGH:
        some = X[np.sort(np.random.default_rng(seed).choice(len(X), ENOUGH, replace=False))]
    which = _points(some, K)
    if which is None:
        _, which = kmeans2(some, K, minit="++", seed=seed, missing="warn")
    clusters = [
        Gaussian.of(part).truncated(RANKS[K]) for k in range(K) if len(part := some[which == k])
    ]
    return [one._replace(weight=one.weight * len(X) / len(some)) for one in clusters]


def _points(X: Array, K: int) -> NDArray[np.int64] | None:
    """Of rows with fewer than K different ones, which of these each is: there is nothing to find.

    None where there are more, which a few rows tell as a rule.
    """
    if len(np.unique(X[: 4 * K], axis=0)) >= K:
        return None
    points, which = np.unique(X, axis=0, return_inverse=True)
    return which.reshape(-1) if len(points) < K else None


def kind_of(n: int) -> int:
    """1, 2 or 16: the most components that a description of n components may have."""
    return min(K for K in RANKS if n <= K)
