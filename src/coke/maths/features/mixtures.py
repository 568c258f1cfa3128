"""How a site describes its inputs in few bytes: a small mixture of Gaussians, coarsely coded.

A component is a weight, a mean and a covariance FᵀF + diag(s²) with few factors F. One Gaussian
will do for most sites; where the Gram matrix it predicts is far from the site's own (`misfit`), the
inputs are split by k-means into 2 or 16 clusters with fewer factors each.

    spreads and factors   sign(x) round(log(1 + |x|/(10 s₀)) / log 1.1)    steps of 10 %, s₀ near 0
    means                 round(m_j / max(sd_j/10, s₀))                    a tenth of the spread
    s₀ = 0.3 σ √(λ/N)     what the ridge hides anyway
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.errors import InputError
from coke.maths.algorithms.codecs import pack_integers, unpack_integers
from coke.maths.arrays import Array
from coke.maths.features.features import Features
from coke.maths.features.whitening import Gaussian, expected_gram, misfit, moments

RANKS = {1: 5, 2: 3, 16: 1}  # factors per component, by the largest number of components
ENOUGH = 1 << 17  # rows to find clusters in: the code's steps are a tenth of a spread
GROWTH = math.log(1.1)
MOST = 2.0**40  # of a decoded number: far beyond any input that could be scaled


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


def truncated(g: Gaussian, rank: int) -> Component:
    """The largest `rank` directions of the covariance, and what they leave of each variance."""
    values, vectors = np.linalg.eigh(g.cov)
    rank = min(rank, len(values))
    factors = np.sqrt(np.maximum(values[-rank:], 0))[:, None] * vectors[:, -rank:].T
    left = np.diag(g.cov) - np.sum(factors**2, axis=0)
    return Component(g.weight, g.mean, factors, np.sqrt(np.maximum(left, 0)))


def describe(X: Array, features: Features, A: Array, ridge: float, seed: int) -> list[Component]:
    """A mixture for the rows of X (T, d) whose predicted Gram matrix is near the site's own A."""
    one = truncated(moments(X), RANKS[1])
    far = misfit(expected_gram(features, [one.gaussian()]), A, ridge)
    K = 1 if far < 8 else 2 if far < 32 else 16
    if K == 1 or len(X) < 4 * K:
        return [one]
    from scipy.cluster.vq import kmeans2  # here, for few sites need it and it is slow to load

    some = X  # drawn, for every n-th might be the same of n sensors
    if len(X) > ENOUGH:
        some = X[np.sort(np.random.default_rng(seed).choice(len(X), ENOUGH, replace=False))]
    _, which = kmeans2(some, K, minit="++", seed=seed, missing="warn")
    clusters = [
        truncated(moments(part), RANKS[K]) for k in range(K) if len(part := some[which == k])
    ]
    return [one._replace(weight=one.weight * len(X) / len(some)) for one in clusters]


def kind_of(n: int) -> int:
    """1, 2 or 16: the most components that a description of n components may have."""
    return min(K for K in RANKS if n <= K)


def encode_mixture(parts: Sequence[Component], s0: float) -> bytes:
    """Head (kind, components, weights as float32), then all numbers as coded integers."""
    spread = [logs(part.spread, s0) for part in parts]
    factors = [logs(part.factors, s0) for part in parts]
    sds = [_sd(unlogs(f, s0), unlogs(s, s0)) for f, s in zip(factors, spread, strict=True)]
    means = [
        np.rint(part.mean / _step(sd, s0)).astype(np.int64)
        for part, sd in zip(parts, sds, strict=True)
    ]
    numbers = np.concatenate([x.ravel() for group in (spread, factors, means) for x in group])
    weights = np.array([part.weight for part in parts], dtype="<f4").tobytes()
    return bytes([kind_of(len(parts)), len(parts)]) + weights + pack_integers(numbers)


def decode_mixture(data: bytes, d: int, s0: float) -> list[Component]:
    """What such bytes say of inputs in R^d; `InputError` if they say nothing sensible."""
    if len(data) < 2 or data[0] not in RANKS or not 1 <= data[1] <= data[0]:
        raise InputError(f"{len(data)} bytes are no mixture: expected a kind and a number first")
    kind, n = data[0], data[1]
    rank, body = min(RANKS[kind], d), data[2 + 4 * n :]
    weights = np.frombuffer(data[2 : 2 + 4 * n], dtype="<f4").astype(np.float64)
    if len(weights) != n or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError("a mixture's weights are missing or not positive")
    numbers = unpack_integers(body, n * d * (rank + 2))
    spread = unlogs(numbers[: n * d].reshape(n, d), s0)
    factors = unlogs(numbers[n * d : n * d * (rank + 1)].reshape(n, rank, d), s0)
    sds = np.sqrt(np.sum(factors**2, axis=1) + spread**2)
    means = numbers[n * d * (rank + 1) :].reshape(n, d) * _step(sds, s0)
    if max(np.abs(part).max() for part in (spread, factors, means)) > MOST:
        raise InputError("a mixture's numbers are too large to be inputs")
    rows = zip(weights.tolist(), means, factors, spread, strict=True)
    return [Component(*row) for row in rows]


def logs(x: Array, s0: float) -> NDArray[np.int64]:
    """sign(x) round(log(1 + |x|/(10 s₀)) / log 1.1)."""
    return (np.sign(x) * np.rint(np.log1p(0.1 * np.abs(x) / s0) / GROWTH)).astype(np.int64)


def unlogs(n: NDArray[np.int64], s0: float) -> Array:
    """The x that `logs` takes to n, in the middle of all that it does; huge n saturate."""
    size = np.minimum(np.abs(n), 1000)
    return np.asarray(np.sign(n) * 10 * s0 * np.expm1(size * GROWTH))


def _sd(factors: Array, spread: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(factors**2, axis=0) + spread**2))


def _step(sd: Array, s0: float) -> Array:
    return np.maximum(0.1 * sd, s0)
