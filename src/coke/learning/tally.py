"""Models on rows that they were not trained on: sums of errors over each site's rows.

The rows are those that the sites hold out. Where there are none, it is a sample of the training
rows, each as if it had been left out: y − f ↦ (y − f)/(1 − h), exact for least squares, with

    h = φᵀ(Σ_i A_i + N G)⁻¹φ / T_i  of a model of all sites' rows,
    h = φᵀ(A_i + G)⁻¹φ / T_i        of a site's own;

or, where sums do not say all, a fifth of them that was left out of all fits, the sums over the
five added up (`fifths`).

A row's errors are (y − f)² of each target in the common units; of classes, whether the label is
wrong, and −log p of the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from coke.data.blocks import decisions
from coke.data.tables import Labels
from coke.learning.model import Model
from coke.learning.ready import Ready
from coke.learning.rivals import Index, Line, Rivals
from coke.maths.arrays import Array, side_by_side
from coke.maths.losses import LOSSES
from coke.maths.losses.codes import which
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Risk
from coke.maths.symmetric import inverse, positive
from coke.threads import OneThread

TOGETHER, POOLED, HOME, LINEAR = range(4)  # the common model, the optimum, a site's own, a line
_WORK = 4e9  # multiplications for own models at all sites; else one row of so many is looked at
_MOST = 0.999  # of h
POINTS = 1500  # of all sites, in a picture
_SUMS = ("rows", "errors", "ahead", "reached", "away")


class Tally(NamedTuple):
    """Sums over the rows of every site; q numbers of a model, J of targets (none for classes)."""

    rows: Array  # (N, 1 + 2J)  Σ w, Σ w y, Σ w y²
    errors: Array  # (N, 4, q)  of TOGETHER, POOLED, HOME, LINEAR
    ahead: Array  # (N, 2)  Σ w d, Σ w d² of d, by how much a row's error of LINEAR is less
    whose: Index  # (M,)  the sites whose own models went to all
    reached: Array  # (N, 1 + 2J)  as `rows`, of those they went to
    away: Array  # (N, M, q)

    def plus(self, other: Tally) -> Tally:
        """Of both sums' rows, of models of the same sites."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        return self._replace(**sums)


class Shown(NamedTuple):
    """Predictions to look at: of the common model, and of one site's own at all sites."""

    whose: str
    confusion: Array | None  # (2, C, C)  rows of class c taken for c′; None: numbers
    points: Array | None  # (P, 3)  some rows' targets and both predictions, in the target's units

    def plus(self, other: Shown) -> Shown:
        """Of both."""
        if self.confusion is not None and other.confusion is not None:
            return self._replace(confusion=self.confusion + other.confusion)
        assert self.points is not None  # of numbers, then
        assert other.points is not None
        return self._replace(points=np.concatenate([self.points, other.points]))


class _Stand(Protocol):
    """Which rows are looked at, and what is made of predictions for them."""

    def rows(self) -> Iterator[tuple[int, Any, Labels, Array]]:
        """(site, X, y, the weights of the rows)."""
        ...

    def seen(self, i: int, X: Any, y: Labels, f: Array) -> Array:
        """F (t, 4, K) as it is for rows that the models have not seen."""
        ...


class Seat(NamedTuple):
    """From where models are looked at: the sites, who is compared, which rows."""

    ready: Ready
    rivals: Rivals
    stand: _Stand


def tally(ready: Ready, rivals: Rivals, stand: _Stand) -> Tally:
    """The sums over all sites' rows. All processes ask together."""
    scorer, n, M = _Scorer(ready, rivals), len(ready.sites.names), len(rivals.whose)
    J = scorer.outputs if scorer.numbers else 0
    rows, reached = np.zeros((n, 1 + 2 * J)), np.zeros((n, 1 + 2 * J))
    errors, away, ahead = np.zeros((n, 4, J or 2)), np.zeros((n, M, J or 2)), np.zeros((n, 2))
    here, some = ready.engine.agents(len(ready.names)), slice(None, None, scorer.step)
    for i, X, y, w in stand.rows():
        f = stand.seen(i, X, y, scorer.near(i, X))
        E = scorer.errors(f, y, scorer.sharp(i))
        errors[i] += np.tensordot(w, E, 1)
        rows[i] += scorer.moments(y, w)
        d = (E[:, TOGETHER] - E[:, LINEAR])[:, : J or 1].mean(axis=1)
        ahead[i] += w @ d, w @ d**2
        F = scorer.far(X[some])
        F[:, rivals.whose == here[i]] = f[some, HOME, None]  # at home: as if left out
        away[i] += np.tensordot(w[some], scorer.errors(F, y[some], rivals.sharpness[1]), 1)
        reached[i] += scorer.moments(y[some], w[some])
    all_ = map(ready.engine.everyones, (rows, errors, ahead, reached, away))
    rows, errors, ahead, reached, away = all_
    return Tally(rows, errors, ahead, rivals.whose, reached, away)


def shown(ready: Ready, rivals: Rivals, stand: _Stand, whose: int, most: int) -> Shown:
    """The same rows, for pictures: at most so many as points. All processes ask together."""
    alone = rivals.away[rivals.whose == whose]
    scorer, n = _Scorer(ready, rivals._replace(away=alone)), len(ready.sites.names)
    C, few = len(scorer.how.classes), max(1, most // len(ready.names))
    counts, points, upto = np.zeros((n, 2, C, C)), np.full((n, few, 3), np.nan), np.zeros(n, int)
    here = ready.engine.agents(len(ready.names))
    for i, X, y, w in stand.rows():
        f = stand.seen(i, X, y, scorer.near(i, X))
        own = f[:, HOME] if here[i] == whose else scorer.far(X)[:, 0]
        if C:
            right = which(y, scorer.how.classes)
            for m, one in enumerate((f[:, TOGETHER], own)):
                taken = rivals.model.winners(rivals.model.decided(one))
                np.add.at(counts[i, m], (right, taken), w)
            continue
        told = scorer.points(y, f[:, TOGETHER], own)[: few - upto[i]]
        points[i, upto[i] : upto[i] + len(told)] = told
        upto[i] += len(told)
    if C:
        return Shown(ready.names[whose], ready.engine.everyones(counts).sum(axis=0), None)
    every = ready.engine.everyones(points).reshape(-1, 3)
    return Shown(ready.names[whose], None, every[np.isfinite(every[:, 0])])


class _Scorer:
    """Rows ↦ predictions of all models ↦ errors."""

    def __init__(self, ready: Ready, rivals: Rivals):
        self.ready, self.rivals, self.how = ready, rivals, ready.agreement.making
        self.numbers, self.outputs = ready.agreement.terms.numbers, ready.agreement.outputs

    @property
    def step(self) -> int:
        """Of so many rows one is looked at by models from elsewhere."""
        test, M = self.ready.problem.test, len(self.rivals.whose)
        T = self.ready.engine.everyones(self.ready.problem.train.T if test is None else test.T)
        return max(1, int(T.sum() * M * self.rivals.pooled.size / _WORK))

    def near(self, i: int, X: Any) -> Array:
        """(t, 4, K) of the common model, the optimum, site i's own, and a line."""
        one = self.rivals
        theta = np.stack([one.model.theta.ravel(), one.pooled, one.own[i]])
        f = self._decided(theta, X)
        line = f[:, :1] if one.line is None else self._lines(one.line.model, X)
        return np.concatenate([f, line], axis=1)

    def far(self, X: Any) -> Array:
        """(t, M, K) of some sites' own models."""
        return self._decided(self.rivals.away, X)

    def _decided(self, theta: Array, X: Any) -> Array:
        flat = theta.reshape(-1, self.how.features.size)
        f = decisions(flat, self.how.features, self.how.units, X)
        return f.reshape(len(X), len(theta), -1)

    def _lines(self, line: Model, X: Any) -> Array:
        return decisions(line.theta, line.features, line.scaling, X)[:, None]

    def sharp(self, i: int) -> Array:
        """(4,) of the models of `near`."""
        one = self.rivals
        common = one.model.closed.sharpness or float(len(one.model.classes))
        line = common if one.line is None else one.line.model.closed.sharpness or common
        return np.array([common, common, one.sharpness[0][i], line])

    def moments(self, y: Labels, w: Array) -> Array:
        """(1 + 2J,) of targets in the common units."""
        if not self.numbers:
            return np.array([w.sum()])
        z = side_by_side(self.how.targets(y))
        return np.concatenate([[w.sum()], w @ z, w @ z**2])

    def points(self, y: Labels, *f: Array) -> Array:
        """(t, 1 + m) the first target, and predictions of it in its units."""
        given = (self.how.units.predictions(one)[:, 0] for one in f)
        return np.column_stack([side_by_side(y)[:, 0], *given])

    def errors(self, f: Array, y: Labels, sharpness: Array) -> Array:
        """(t, m, q) of predictions (t, m, K)."""
        if self.numbers:
            return np.asarray((side_by_side(self.how.targets(y))[:, None] - f) ** 2)
        t, m, K = f.shape
        model, right = self.rivals.model, np.repeat(which(y, self.how.classes), m)
        given = model.decided(f.reshape(-1, K))
        wrong = model.winners(given) != right
        surprise = np.zeros(t * m)
        if LOSSES[model.loss].probabilities:
            p = model.probabilities(given, np.tile(sharpness, t)[:, None])
            chance = np.maximum(p[np.arange(t * m), right], np.finfo(np.float64).eps)
            surprise = -np.log(chance)
        return np.stack([wrong, surprise], axis=1).reshape(t, m, 2)


class HeldOut:
    """The rows that sites keep for testing."""

    def __init__(self, ready: Ready):
        self._sites = ready.sites

    def rows(self) -> Iterator[tuple[int, Any, Labels, Array]]:
        """All of them."""
        for i, held, X, y, w in self._sites.parts():
            if held and len(y):
                yield i, X, y, np.ones(len(y)) if w is None else w

    def seen(self, i: int, X: Any, y: Labels, f: Array) -> Array:
        """As they are."""
        return f


class LeftOut:
    """Training rows, each as if it had been left out; of a loss for which sums say all."""

    def __init__(self, ready: Ready, line: Line):
        self._ready, self._how, self._line = ready, ready.agreement.making, line

    def rows(self) -> Iterator[tuple[int, Any, Labels, Array]]:
        """A sample of each site's, which stands for all."""
        sites, seed = self._ready.sites, self._ready.agreement.terms.settings.seed
        for i, told in enumerate(self._ready.targets):
            X, y = sites.sample(i, seed)
            yield i, X, y, np.full(len(y), told.T / len(y))

    @cached_property
    def _all(self) -> Array:
        return _inverse(self._ready.problem.train)

    @cached_property
    def _lines(self) -> Array:
        return _inverse(self._line.train)

    def _in_line(self, X: Any) -> Array:
        """h T_i (n,) of rows in the linear model."""
        Phi = self._line.how.features(self._line.how.units.inputs(X))
        return np.asarray(np.vecdot(Phi @ self._lines, Phi))

    def seen(self, i: int, X: Any, y: Labels, f: Array) -> Array:
        """f ↦ y − (y − f)/(1 − h)."""
        how, train = self._how, self._ready.problem.train
        Phi, T = how.features(how.units.inputs(X)), float(train.T[i])
        every = np.vecdot(Phi @ self._all, Phi) / T
        few = len(Phi) >= self._ready.targets[i].T  # the sample is all there is
        h = [every, every, _at_home(train, i, Phi, few=few), self._in_line(X) / T]
        z, rest = side_by_side(how.targets(y))[:, None], 1.0 - np.minimum(np.stack(h, 1), _MOST)
        return np.asarray(z - (z - f) / rest[:, :, None])


def _inverse(risk: Risk) -> Array:
    """(Σ_i A_i + N G)⁻¹ (D, D)."""
    N, total = len(risk.T), risk.total(np.ones(len(risk.T)))
    assert total is not None  # sums say all of such a loss
    A = total.A[0]
    return _ridged(A + N * matrix(total.G, len(A)))


def _at_home(risk: Risk, i: int, Phi: Array, *, few: bool) -> Array:
    """h (n,) of rows of site i in its own model; from as few numbers as there are rows, if few."""
    T, one = float(risk.T[i]), risk.rows(slice(i, i + 1))
    if not few or Phi.shape[1] < len(Phi):
        return np.asarray(np.vecdot(Phi @ _inverse(one), Phi) / T)
    total = one.total(np.ones(1))
    assert total is not None
    ridge = T * float(np.mean(np.diag(matrix(total.G, Phi.shape[1]))))  # λ/N times the identity
    K = Phi @ Phi.T
    return np.asarray(np.vecdot(_ridged(K + ridge * np.eye(len(K))), K))


def _ridged(M: Array) -> Array:
    """M⁻¹; of least norm where λ = 0 leaves a choice."""
    with OneThread().limit():
        return inverse(M) if positive(M) else np.asarray(np.linalg.pinv(M, hermitian=True))
