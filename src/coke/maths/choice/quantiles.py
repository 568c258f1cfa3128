"""Quantiles of columns in a few bytes, and the map that takes a column to normal scores.

Of each column in standard units a site tells its values at 17 normal scores, −3 … 3, as small
floats with six bits after the leading one. Two such sketches merge into that of all their rows:
every value stands for the rows between the middles to its neighbours. The knots need not be evenly
spaced in the column, which is why they find the logarithm in a column of counts.

`Quantiles` are the same of one column in its own units, to the last bit, for medians.

Decoded values are exact, and the knots' scores are sums, quotients and roots in a fixed order: all
sites have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from coke.errors import MessageError
from coke.maths.algorithms.integers import pack_integers, unpack_integers
from coke.maths.arrays import Array

SCORES = np.linspace(-3.0, 3.0, 17)
_BELOW = np.rint(2.0**30 * ndtr(SCORES)) / 2.0**30  # rounded: a library's last bit is its own
_MASS = np.diff(
    np.rint(2.0**30 * ndtr((SCORES[1:] + SCORES[:-1]) / 2)) / 2.0**30, prepend=0, append=1
)
_LEAST, _STEPS, _MOST = -10, 64, 64  # smallest exponent, steps between powers of two, largest
_LARGEST = 1e150  # beyond it numbers cannot be scaled
NO_KNOTS = np.empty((2, 0, 0))

Codes = NDArray[np.int64]  # (d, 17)


class Sketch(NamedTuple):
    """The values of some rows' columns at the normal scores."""

    T: float  # rows
    codes: Codes

    @classmethod
    def of(cls, X: Array, T: float) -> Sketch:
        """Of the rows X (n, d) in standard units, which stand for T."""
        even = np.full(len(X), T / len(X))
        return cls(T, np.array([_coded(_at_scores(x, even)) for x in X.T]).reshape(-1, len(SCORES)))

    def merged(self, others: Sequence[Sketch]) -> Sketch:
        """Of all rows together."""
        if not others:
            return self
        parts = (self, *others)
        values = np.concatenate([_values(part.codes) for part in parts], axis=1)
        weights = _weights([part.T for part in parts])
        codes = [_coded(_at_scores(column, weights)) for column in values]
        return Sketch(sum(part.T for part in parts), np.array(codes).reshape(self.codes.shape))

    def encode(self) -> bytes:
        """Each column's first value, then the steps up to the next."""
        steps = np.diff(self.codes, axis=1, prepend=0)
        return np.array(self.T, "<f8").tobytes() + pack_integers(steps.ravel())

    @classmethod
    def decode(cls, data: bytes, d: int) -> Sketch:
        """What such bytes say of d columns, if that can be."""
        if len(data) < 8:
            raise MessageError(
                f"{len(data)} bytes are no sketch: expected the number of rows first"
            )
        T = float(np.frombuffer(data[:8], "<f8")[0])
        steps = unpack_integers(data[8:], d * len(SCORES)).reshape(d, -1)
        codes = np.cumsum(steps, axis=1)
        top = _STEPS * (_MOST - _LEAST)
        good = 0 < T < 2**53 and (steps[:, 1:] >= 0).all() and (np.abs(codes) <= top).all()
        if not (good and (np.abs(steps) <= 2 * top).all()):
            raise MessageError("a sketch of columns that cannot be")
        return cls(T, codes)

    def knots(self) -> Array:
        """(2, d, 17): values of each column, rising, and their scores with mean 0 and spread 1."""
        values = _values(self.codes)
        scores = np.array([_scored(column) for column in values]).reshape(values.shape)
        return np.stack([values, scores])


class Quantiles(NamedTuple):
    """The values of one column at the normal scores, as they are."""

    T: float  # rows
    values: Array  # (17,)

    @classmethod
    def of(cls, x: Array, T: float) -> Quantiles:
        """Of the values x (n,), which stand for T."""
        return cls(T, _at_scores(x, np.full(len(x), T / len(x))))

    def merged(self, others: Sequence[Quantiles]) -> Quantiles:
        """Of all rows together."""
        if not others:
            return self
        parts = (self, *others)
        values = np.concatenate([part.values for part in parts])
        weights = _weights([part.T for part in parts])
        return Quantiles(float(sum(part.T for part in parts)), _at_scores(values, weights))

    @property
    def median(self) -> float:
        """About it: between the values of rows near the middle."""
        return float(self.values[len(SCORES) // 2])

    def encode(self) -> bytes:
        """In float64: columns come in all units."""
        return np.array([self.T, *self.values], "<f8").tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Quantiles:
        """What such bytes say of a column, if that can be."""
        if len(data) != 8 * (1 + len(SCORES)):
            raise MessageError(f"{len(data)} bytes are no quantiles of a column")
        T, *values = np.frombuffer(data, "<f8").tolist()
        x = np.array(values)
        if not (0 < T < 2**53 and (np.abs(x) < _LARGEST).all() and (np.diff(x) >= 0).all()):
            raise MessageError("quantiles of a column that cannot be")
        return cls(T, x)


def scored(knots: Array, X: Array) -> Array:
    """The normal scores (T, d) of rows X, linear between the knots, level beyond them."""
    columns = [np.interp(X[:, j], *knots[:, j]) for j in range(X.shape[1])]
    return np.column_stack(columns) if columns else X


def _weights(T: Sequence[float]) -> Array:
    """Of the values at all scores, of parts that stand for so many rows."""
    return np.concatenate([rows * _MASS for rows in T])


def _at_scores(x: Array, weights: Array) -> Array:
    """The values below which the share Φ(score) of the weight lies."""
    order = np.argsort(x, kind="stable")
    w = weights[order]
    upto = np.cumsum(w)
    return np.interp(_BELOW, (upto - w / 2) / upto[-1], x[order])


def _scored(values: Array) -> Array:
    """Knots of one value share the mean of their scores; then mean 0 and spread 1."""
    _, which = np.unique(values, return_inverse=True)
    scores = (np.bincount(which, SCORES * _MASS) / np.bincount(which, _MASS))[which]
    scores = scores - np.cumsum(_MASS * scores)[-1]
    spread = np.sqrt(np.cumsum(_MASS * scores**2)[-1])
    return scores / spread if spread > 0 else scores


def _coded(x: Array) -> Codes:
    """sign(x) · 64(log₂|x| + 10), the logarithm linear between powers of two; 0 below 2⁻¹⁰."""
    m, e = np.frexp(np.abs(x))
    n = np.rint(_STEPS * (2 * m - 1)) + _STEPS * (e - 1.0 - _LEAST)
    return (np.sign(x) * np.clip(n, 0, _STEPS * (_MOST - _LEAST))).astype(np.int64)


def _values(codes: Codes) -> Array:
    """The numbers that `_coded` takes to these."""
    e, m = np.divmod(np.abs(codes), _STEPS)
    size = np.ldexp(1.0 + m / _STEPS, e + _LEAST)
    return np.asarray(np.where(codes, np.sign(codes) * size, 0.0))
