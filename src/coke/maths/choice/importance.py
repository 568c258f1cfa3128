"""What a model makes of its inputs, without rows: under the mixture that the sites told of them.

f(z) = θᵀφ(z) is waves and perhaps a linear part, and so is its gradient. With the waves' expected
Gram matrix G = E ψψᵀ, which is known in closed form (`coke.maths.features.whitening`),

    ∇f(z) = Kᵀψ(z) + c,    M = E ∇f ∇fᵀ = KᵀGK + c mᵀ + m cᵀ + c cᵀ,    m = KᵀEψ.

Of several outputs it is the sum. A column's importance is √M_jj times its spread s_j, for a slope
along a column that hardly moves matters little; eigenvectors of (s_i M_ij s_j) are the directions
along which f changes most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, Self

import numpy as np

from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.mixtures import Gaussian, expected_gram, expected_waves


class Importance(NamedTuple):
    """Of columns and directions, all in spreads of the scaled inputs."""

    columns: tuple[str, ...]
    shares: Array  # (d,) of the columns, sum one; zero where f is constant
    directions: Array  # (d, d) a row each over the inputs, of length one, the most important first
    weights: Array  # (d,) of the directions, sum one, falling
    linear: float  # variance of the linear part over that of f; above one where waves cancel some

    def of(self, columns: tuple[str, ...], owners: Sequence[int]) -> Importance:
        """Of the columns that the inputs were made of, as `owners` says.

        Slopes of one column's inputs add up as the length of a gradient does, √Σ share²: a sum
        would make a column matter more, the more levels it has.
        """
        squares = np.zeros(len(columns))
        np.add.at(squares, owners, self.shares**2)
        return self._replace(columns=columns, shares=_shared(np.sqrt(squares)))

    @property
    def ranked(self) -> dict[str, float]:
        """Column ↦ share, falling."""
        order = np.argsort(-self.shares, kind="stable")
        return {self.columns[j]: float(self.shares[j]) for j in order}

    @property
    def words(self) -> list[str]:
        """For people; nothing of a constant."""
        (first, most), *others = self.ranked.items()
        if not most:
            return []
        then = ", ".join(f"{name} {_percent(x)}" for name, x in others[:4] if x >= 0.01)
        then = f"; then {then}" if then else ""
        return [f"importance: {first} matters most, {_percent(most)}{then}", *self._line_words]

    @property
    def _line_words(self) -> list[str]:
        """Nothing where all is linear, or nothing is."""
        if self.linear == 0 or abs(self.linear - 1.0) < 1e-9:
            return []
        if self.linear > 1:
            return ["a linear part carries all of the variance and more, which waves take back"]
        return [f"a linear part carries {_percent(self.linear)} of the variance"]


class Surface(NamedTuple):
    """f = θᵀφ for each output, in cosines and sines; and how its inputs are spread."""

    theta: Array  # (K, D)
    features: DrawnFeatures  # without phases
    inputs: tuple[Gaussian, ...]

    @classmethod
    def of(cls, theta: Array, features: DrawnFeatures, inputs: tuple[Gaussian, ...]) -> Self:
        """Of any features: √2 a cos(ωᵀz + b) = √2 a (cos b cos ωᵀz − sin b sin ωᵀz)."""
        bare = DrawnFeatures(features.omega, np.empty(0), features.linear)
        if len(features.phase):
            a, rest = np.split(np.sqrt(2.0) * theta, [features.waves], axis=1)
            turned = [a * np.cos(features.phase), -a * np.sin(features.phase)]
            theta = np.concatenate([*turned, rest / np.sqrt(2.0)], axis=1)
        return cls(theta, bare, inputs)

    @property
    def moments(self) -> Gaussian:
        """Of the inputs."""
        return reduce(Gaussian.merged, self.inputs)

    def importance(self, columns: tuple[str, ...]) -> Importance:
        """From one Gram matrix of all features."""
        G, mean, cov = expected_gram(self.features, self.inputs), self._expected, self.moments.cov
        spread = np.sqrt(np.maximum(np.diag(cov), 0.0))
        M = self._slopes(G[: len(mean), : len(mean)], mean) * np.outer(spread, spread)
        shares = np.sqrt(np.maximum(np.diag(M), 0.0))
        values, vectors = np.linalg.eigh(M)
        values, rows = np.maximum(values[::-1], 0.0), vectors.T[::-1]
        largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
        directions = rows * np.where(largest < 0, -1.0, 1.0)[:, None]
        line = self._line
        waves = self.theta[:, : len(mean)] @ mean + line @ self.moments.mean + self._constant
        whole = float(np.sum(self.theta @ G * self.theta) - np.sum(waves**2))
        linear = _over(float(np.sum(line @ cov * line)), whole)
        return Importance(columns, _shared(shares), directions, _shared(values), linear)

    def curve(self, j: int, at: Array) -> Array:
        """E f (V, K) with column j at each of these values, the others as they are spread."""
        fixed = [_fixed(part, j) for part in self.inputs]
        cosine, sine = np.split(self._replace(inputs=tuple(fixed))._expected, 2)
        angle = np.outer(at, self.features.omega[:, j])
        c, s = np.cos(angle), np.sin(angle)
        waves = np.concatenate([cosine * c - sine * s, sine * c + cosine * s], axis=1)
        others = self._line @ reduce(Gaussian.merged, fixed).mean + self._constant
        bent = waves @ self.theta[:, : self.features.waves].T
        return np.asarray(bent + np.outer(at, self._line[:, j]) + others)

    @property
    def _line(self) -> Array:
        """(K, d) slopes of the linear part."""
        L = self.features.waves
        if not self.features.linear:
            return np.zeros((len(self.theta), self.features.omega.shape[1]))
        return self.features.linear * self.theta[:, L:-1]

    @property
    def _constant(self) -> Array:
        """(K,)"""
        linear = self.features.linear
        return linear * self.theta[:, -1] if linear else np.zeros(len(self.theta))

    @property
    def _expected(self) -> Array:
        """E ψ (2L,)"""
        total = sum(part.weight for part in self.inputs)
        found = np.zeros(self.features.waves)
        for part in self.inputs:
            found += part.weight / total * np.concatenate(expected_waves(self.features, part))
        return self.features.height * found

    def _slopes(self, G: Array, mean: Array) -> Array:
        """M (d, d)"""
        omega = self.features.omega
        M = np.zeros((omega.shape[1],) * 2)
        for theta, c in zip(self.theta, self._line, strict=True):
            a, b = np.split(theta[: self.features.waves, None], 2)
            K = np.concatenate([b * omega, -a * omega])  # of a cosine's slope and of a sine's
            across = np.outer(c, mean @ K)
            M += K.T @ (G @ K) + across + across.T + np.outer(c, c)
        return M


def _fixed(part: Gaussian, j: int) -> Gaussian:
    """Column j at zero, the others as they are."""
    keep = np.ones(len(part.mean))
    keep[j] = 0.0
    return Gaussian(part.weight, part.mean * keep, part.cov * np.outer(keep, keep))


def _shared(x: Array) -> Array:
    """Over their sum, where that is anything."""
    total = float(x.sum())
    return x / total if total > 0 else np.zeros_like(x)


def _over(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _percent(x: float) -> str:
    return f"{100 * x:.0f} %"
