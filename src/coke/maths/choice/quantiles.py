"""Quantiles of columns in a few bytes, and the map that takes a column to normal scores.

Of each column in standard units a site tells its median, and how far its values at 17 normal
scores, −3 … 3, are from it, as small floats with six bits after the leading one. The smallest
distance sets the unit: where a few values far away make the standard unit, the others differ by
little in it, and are told apart all the same. Two such sketches merge into that of all their rows:
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
_MIDDLE = len(SCORES) // 2
_STEPS = 64  # between powers of two
_MOST, _LEAST, _RANGE = 64, -120, 40  # exponents: largest, smallest, and how far apart they may be
_TOP = _STEPS * (_RANGE + 2)
_ROUNDED = 2.0**-22  # of the median: distances that float32 leaves of it
_LARGEST = 1e150  # beyond it numbers cannot be scaled
NO_KNOTS = np.empty((2, 0, 0))

Codes = NDArray[np.int64]  # (d, 17)


class Sketch(NamedTuple):
    """The values of some rows' columns at the normal scores."""

    T: float  # rows
    centre: Array  # (d,) medians, in float32
    low: Codes  # (d,) exponents of the smallest distances from them
    codes: Codes  # (d, 17)

    @classmethod
    def of(cls, X: Array, T: float) -> Sketch:
        """Of the rows X (n, d) in standard units, which stand for T."""
        even = np.full(len(X), T / len(X))
        return cls(T, *_coded([_at_scores(x, even) for x in X.T]))

    def merged(self, others: Sequence[Sketch]) -> Sketch:
        """Of all rows together."""
        if not others:
            return self
        parts = (self, *others)
        values = np.concatenate([part.values for part in parts], axis=1)
        weights = _weights([part.T for part in parts])
        coded = _coded([_at_scores(column, weights) for column in values])
        return Sketch(sum(part.T for part in parts), *coded)

    @property
    def values(self) -> Array:
        """(d, 17) rising along a row."""
        e, m = np.divmod(np.abs(self.codes) - 1, _STEPS)
        far = np.sign(self.codes) * np.ldexp(1.0 + m / _STEPS, e + self.low[:, None])
        return np.asarray(self.centre[:, None] + far)

    def encode(self) -> bytes:
        """Rows, medians, exponents, and the steps from each value up to the next."""
        steps = np.diff(self.codes, axis=1).ravel()
        signed = np.where(steps % 2, (steps + 1) // 2, -(steps // 2))  # as short as they can be
        head = (np.array(self.T, "<f8"), self.centre.astype("<f4"), self.low.astype("i1"))
        return b"".join(part.tobytes() for part in head) + pack_integers(signed)

    @classmethod
    def decode(cls, data: bytes, d: int) -> Sketch:
        """What such bytes say of d columns, if that can be."""
        if len(data) < 8 + 5 * d:
            raise MessageError(
                f"{len(data)} bytes are no sketch: expected rows, medians and exponents first"
            )
        T, centre = float(np.frombuffer(data[:8], "<f8")[0]), np.frombuffer(data, "<f4", d, 8)
        low = np.frombuffer(data, "i1", d, 8 + 4 * d).astype(np.int64)
        signed = unpack_integers(data[8 + 5 * d :], d * (len(SCORES) - 1)).reshape(d, -1)
        steps = np.where(signed > 0, 2 * signed - 1, -2 * signed)
        upto = np.cumsum(np.pad(steps, ((0, 0), (1, 0))), axis=1)
        codes = upto - upto[:, _MIDDLE : _MIDDLE + 1]
        good = 0 < T < 2**53 and (np.abs(centre) <= 2.0**_MOST).all()
        good = good and ((low >= _LEAST) & (low <= _MOST + 1)).all()
        if not (good and (np.abs(codes) <= _TOP).all()):
            raise MessageError("a sketch of columns that cannot be")
        return cls(T, centre.astype(np.float64), low, codes)

    def knots(self) -> Array:
        """(2, d, 17): values of each column, rising, and their scores with mean 0 and spread 1."""
        values = self.values
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


def _coded(columns: Sequence[Array]) -> tuple[Array, Codes, Codes]:
    """Medians, exponents, and codes sign · (1 + 64(log₂|distance| − exponent)), 0 for none.

    The logarithm is linear between powers of two. What is 2⁻⁴⁰ of the largest distance is none.
    """
    x = np.clip(np.array(columns).reshape(-1, len(SCORES)), -(2.0**_MOST), 2.0**_MOST)
    centre = x[:, _MIDDLE].astype(np.float32).astype(np.float64)
    far, rounded = x - centre[:, None], _ROUNDED * np.abs(centre)[:, None]
    far[:, : _MIDDLE + 1] = np.minimum(far[:, : _MIDDLE + 1], 0.0)
    far[:, _MIDDLE:] = np.maximum(far[:, _MIDDLE:], 0.0)
    m, e = np.frexp(np.abs(far))
    least = np.maximum(e.max(axis=1, initial=_LEAST, where=far != 0) - 1 - _RANGE, _LEAST)
    told = (np.abs(far) > rounded) & (e - 1 >= least[:, None])
    low = (e - 1).min(axis=1, initial=_MOST + 1, where=told)
    n = np.rint(_STEPS * (2 * m - 1)) + _STEPS * (e - 1.0 - low[:, None]) + 1
    return centre, low, np.where(told, np.sign(far) * n, 0).astype(np.int64)
