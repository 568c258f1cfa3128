"""Mixtures of Gaussians (`coke.maths.features.whitening`) as bytes and back.

Their numbers become integers, coded as those of innovations are (`codecs`):

    spreads and factors   sign(x) round(log(1 + |x|/(10 s₀)) / log 1.1)    steps of 10 %, s₀ near 0
    means                 round(m_j / max(sd_j/10, s₀))                    a tenth of the spread
    s₀ = 0.3 σ √(λ/N)     what the ridge hides anyway

What is too large for that is told as the largest that can be: a basis may be any, and of inputs so
far beyond σ the features are rounding. So every mixture can be told, in `most_bytes` and a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coke.errors import InputError
from coke.maths.algorithms.integers import LARGEST, Integers, pack_integers, unpack_integers
from coke.maths.arrays import Array
from coke.maths.features.mixtures import RANKS, Component, kind_of

GROWTH = math.log(1.1)
MOST = 2.0**40  # of a mixture's number: far beyond any input that could be scaled
_TOLD = MOST / 4  # so that rounding, which may double it, does not lead beyond
_STEPS = 1000  # of a logarithm


def encode_mixture(parts: Sequence[Component], s0: float) -> bytes:
    """Head (kind, components, weights as float32), then all numbers as coded integers."""
    spread = [_logs(part.spread, s0) for part in parts]
    factors = [_logs(part.factors, s0) for part in parts]
    sds = [_sd(_unlogs(f, s0), _unlogs(s, s0)) for f, s in zip(factors, spread, strict=True)]
    means = [_steps(part.mean, _step(sd, s0)) for part, sd in zip(parts, sds, strict=True)]
    numbers = np.concatenate([x.ravel() for group in (spread, factors, means) for x in group])
    weights = np.array([part.weight for part in parts], dtype="<f4").tobytes()
    return bytes([kind_of(len(parts)), len(parts)]) + weights + pack_integers(numbers)


def decode_mixture(data: bytes, d: int, s0: float) -> list[Component]:
    """What such bytes say of inputs in R^d; `InputError` if they say nothing sensible."""
    if len(data) < 2 or data[0] not in RANKS or not 1 <= data[1] <= data[0]:
        raise InputError(f"{len(data)} bytes are no mixture: expected a kind and a number first")
    kind, n = data[0], data[1]
    rank, head, body = min(RANKS[kind], d), data[2 : 2 + 4 * n], data[2 + 4 * n :]
    weights = np.frombuffer(head, "<f4").astype(np.float64) if len(head) == 4 * n else np.empty(0)
    if len(weights) != n or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError("a mixture's weights are missing or not positive")
    numbers = unpack_integers(body, n * d * (rank + 2))
    spread = _unlogs(numbers[: n * d].reshape(n, d), s0)
    factors = _unlogs(numbers[n * d : n * d * (rank + 1)].reshape(n, rank, d), s0)
    sds = np.sqrt(np.sum(factors**2, axis=1) + spread**2)
    means = numbers[n * d * (rank + 1) :].reshape(n, d) * _step(sds, s0)
    if max(np.abs(part).max() for part in (spread, factors, means)) > MOST:
        raise InputError("a mixture's numbers are too large to be inputs")
    rows = zip(weights.tolist(), means, factors, spread, strict=True)
    return [Component(*row) for row in rows]


def _steps(mean: Array, step: Array) -> Integers:
    """round(m_j / step_j)."""
    n = np.rint(np.clip(mean, -_TOLD, _TOLD) / step)
    return np.clip(n, -LARGEST, LARGEST).astype(np.int64)


def _logs(x: Array, s0: float) -> Integers:
    """sign(x) round(log(1 + |x|/(10 s₀)) / log 1.1)."""
    n = np.rint(np.log1p(0.1 * np.minimum(np.abs(x), _TOLD) / s0) / GROWTH)
    return (np.sign(x) * np.minimum(n, _STEPS)).astype(np.int64)


def _unlogs(n: Integers, s0: float) -> Array:
    """The x that `_logs` takes to n, in the middle of all that it does; huge n saturate."""
    size = np.minimum(np.abs(n), _STEPS)
    return np.asarray(np.sign(n) * 10 * s0 * np.expm1(size * GROWTH))


def _sd(factors: Array, spread: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(factors**2, axis=0) + spread**2))


def _step(sd: Array, s0: float) -> Array:
    return np.maximum(0.1 * sd, s0)
