"""The model that the sites choose together: what it is, and in words why.

Of three it is the one that predicts best on rows that were left out:

    linear   a ridge on the inputs in standard units
    plain    the Gaussian kernel by the plain rule of bandwidths
    tuned    a bandwidth for each column, inputs as they are or by their quantiles, a linear part,
             the ridge by errors on rows left out, and, where it is clearly the best, of many drawn
             frequencies the useful ones
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array
from coke.maths.choice.quantiles import NO_KNOTS
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.losses import LOSSES
from coke.settings.declaration import AUTO, Settings

LINEAR, PLAIN, TUNED = "linear", "plain", "tuned"
SQRT2 = float(np.sqrt(2.0))
_LEAST, _LABELS = 3e-5, 0.1  # ridge of classes that is chosen, at least; and times all rows
FINE = 2.0**20  # whole numbers to one, in sums of shares
_ROOTS = [np.sqrt(2.0)]
for _ in range(3):
    _ROOTS.append(np.sqrt(_ROOTS[-1]))


class Candidate(NamedTuple):
    """A model to be had: everything but θ, and the same bits at every site."""

    name: str
    features: DrawnFeatures
    knots: Array  # (2, d, 17) of the columns' quantiles; (2, 0, 0): inputs in standard units
    ridge: float  # beside the average Gram matrix

    @property
    def quantiles(self) -> bool:
        """Whether the features are of quantiles."""
        return self.knots.shape[1] > 0


class Choice(NamedTuple):
    """What all sites chose, and what they know of it."""

    best: Candidate
    bandwidths: Array  # (d,) of the tuned model, in spreads of a column
    errors: dict[str, float]  # mean squared, over the target's variance; of rows left out
    judged: dict[str, float]  # the same of all sites' fits, after a few sweeps; empty if not needed
    lead: float  # over the next, in standard errors; below 0: plain, and as good
    apart: bool  # whether the sites' rows differ
    noise: float  # over the signal's variance

    @property
    def narrowest(self) -> float:
        """The least bandwidth, below which inputs need not be told apart."""
        return float(np.min(self.bandwidths, initial=np.inf)) if len(self.bandwidths) else 1.0

    def fewer(self, L: int) -> Choice:
        """With the first L frequencies of those that were drawn."""
        f = self.best.features
        some = DrawnFeatures(f.omega[:L], f.phase[:L], f.linear)
        return self._replace(best=self.best._replace(features=some))

    def words(self, columns: tuple[str, ...]) -> list[str]:
        """For people."""
        return [*self._said(columns), self._reason()]

    def _said(self, columns: tuple[str, ...]) -> list[str]:
        best, L = self.best, len(self.best.features.omega)
        if best.name != TUNED:
            return [f"chosen: {best.name}, ridge {best.ridge:.2g}"]
        inputs = "quantiles of the inputs" if best.quantiles else "inputs in standard units"
        line = ", with a linear part" if best.features.linear else ""
        order = np.argsort(self.bandwidths, kind="stable")[:5]
        widths = ", ".join(f"{columns[j]} {self.bandwidths[j]:.2g}" for j in order)
        return [
            f"chosen: tuned, {L} frequencies on {inputs}{line}, ridge {best.ridge:.2g}",
            f"bandwidths, in spreads, the narrowest first: {widths}",
        ]

    def _reason(self) -> str:
        errors = ", ".join(f"{k} {v:.3g}" for k, v in (self.judged or self.errors).items())
        if not self.judged:
            return f"why: no judge was needed; errors on rows left out are {errors}"
        differ = "the sites differ; " if self.apart else ""
        return f"why: {differ}{self._verdict()}; errors of the judge are {errors}"

    def _verdict(self) -> str:
        others = {name: error for name, error in self.judged.items() if name != self.best.name}
        near = min(others, key=others.__getitem__)
        if self.lead < 0:
            return f"within a standard error of {near}, and nothing fitted"
        return f"{self.lead:.1f} standard errors ahead of {near}"


def power(n: int) -> float:
    """2^(n/16), by roots and products alone: the same bits on every machine."""
    whole, part = divmod(n, 16)
    size = 1.0
    for bit, root in enumerate(_ROOTS):
        if part & (8 >> bit):
            size *= float(root)
    return float(np.ldexp(size, whole))


def linear(d: int, ridge: float) -> Candidate:
    """zᵀβ and a constant."""
    nothing = DrawnFeatures(np.empty((0, d)), np.empty(0), 1.0 / float(np.sqrt(float(d))))
    return Candidate(LINEAR, nothing, NO_KNOTS, ridge)


def plain(settings: FeatureSettings, d: int, ridge: float) -> Candidate:
    """The paper's features."""
    return Candidate(PLAIN, draw_features(settings, d), NO_KNOTS, ridge)


class Wish(NamedTuple):
    """What the settings leave to choose, and what they give."""

    plain: FeatureSettings  # of the plain model
    kernel: str  # of the tuned one
    drawn: str  # the same where its frequencies are not chosen
    inputs: tuple[bool, ...]  # whether by quantiles: one or both
    sigma: float | None = None  # instead of bandwidths
    linear: float | None = None  # weight of the linear part
    size: int | None = None  # number of frequencies
    most: int = 300  # the largest number that is chosen
    useful: bool = True  # whether to choose among frequencies
    ridge: float | None = None  # of all models
    least: float = 0.0  # ridge that is chosen
    doubt: float = 0.0  # standard errors, below which models are as good as each other

    @classmethod
    def of(
        cls, settings: Settings, plain: FeatureSettings, N: int, outputs: int, rows: float
    ) -> Wish:
        """Of N sites with so many rows, with the plain model's features."""
        f, loss = settings.features, LOSSES[settings.loss]
        kappa = loss.curvature(outputs)
        given = f.kernel != AUTO
        sigma, weight, lam = (_number(v) for v in (f.sigma, f.linear, settings.lam))
        return cls(
            plain=plain,
            kernel=f.kernel if given else "matern32",
            # Of the Matérn kernel's frequencies, drawn and not chosen, many are too high to serve.
            drawn=f.kernel if given else "gaussian",
            inputs={AUTO: (False, True), "scaled": (False,), "quantiles": (True,)}[f.inputs],
            sigma=sigma,
            linear=weight,
            size=None if f.n_features == AUTO else int(f.n_features),
            most=300 if loss.statistics else 100,  # else a round costs a pass each
            useful=f.frequencies == AUTO,
            ridge=None if lam is None else 2 * lam / (N * kappa),
            # Errors of least squares on classes that can be told apart ask for none, and then
            # margins grow for ever.
            least=0.0 if loss.statistics else least_ridge(rows),
            # Losses that only come near their optimum do so sooner with the linear part.
            doubt=1.0 if loss.statistics else 0.0,
        )

    def ridged(self, found: float) -> float:
        """The ridge that is given, which may be zero; else the one that was found."""
        return max(found, self.least) if self.ridge is None else self.ridge


def least_ridge(rows: float) -> float:
    """Of classes, where it is chosen: sites that hold two of many tell them apart without one."""
    return max(_LEAST, _LABELS / rows)


def usual_ridge(rows: float, classes: int) -> float:
    """Of the plain model of K classes: (2/K)^1.5 of a row's weight.

    Two classes' labels are off by about as much as they vary; where there are many, by less.
    """
    part = 2.0 / classes
    return part * float(np.sqrt(part)) / rows


def widened(d: int) -> float:
    """√(d/5), between 1 and 2: by which σ is wider for classes of d columns than the plain rule.

    Of many columns few rows are near each other in all, and classes differ along sums of columns.
    """
    return float(np.sqrt(np.clip(d / 5.0, 1.0, 4.0)))


def _number(given: float | str) -> float | None:
    return None if given == AUTO else float(given)


@dataclass(frozen=True)
class Samples:
    """Rows of a site in standard units, in random order; a fifth of them is kept back."""

    Z: Array  # (n, d)
    Y: Array  # (n, K)
    T: float  # rows that they stand for
    all: float  # rows of all sites
    N: int  # sites
    classes: bool = False  # whether Y are classes, ±1

    @property
    def fit(self) -> int:
        """Rows to fit with, the first ones."""
        return len(self.Z) - len(self.Z) // 5

    @property
    def able(self) -> bool:
        """Whether they say anything."""
        return self.fit >= 8

    @property
    def share(self) -> float:
        """Of all sites' rows."""
        return self.T / self.all

    @cached_property
    def few(self) -> Array:
        """(n, ≤ 3) targets: of many classes the low bits of their numbers.

        Of many numbers their mean and the first wave over them, all of the mean's size: each column
        weighs the same, and columns that say the same add up.
        """
        K = self.Y.shape[1]
        if K <= 3:
            return self.Y
        if self.classes:
            which = self.Y.argmax(axis=1)
            return np.array([1.0 - 2.0 * (which >> bit & 1) for bit in range(3)]).T
        angles = 2.0 * np.pi * np.arange(K) / K
        waves = np.column_stack([np.ones(K), SQRT2 * np.cos(angles), SQRT2 * np.sin(angles)])
        return np.asarray(self.Y @ waves / np.sqrt(float(K)))
