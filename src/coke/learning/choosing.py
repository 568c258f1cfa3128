"""How the sites choose a model without pooling rows: one site's part of the conversation.

Every step is a sum over the tree of a few whole numbers, or a merger of sketches:

    quantiles     17 of each column (`coke.maths.choice.quantiles`)
    bandwidths    by the evidence of each site's own rows, weighed by how sure it is; for inputs as
                  they are and by quantiles. Beside them how far the sites' means differ
    errors        on rows left out, of both, of the plain kernel and of a linear model, for a range
                  of ridges: which inputs, which ridge
    frequencies   where the tuned model is clearly ahead: of several times as many as are wanted
                  those with the largest coefficients in the sites' own ridge regressions
    judge         elsewhere (sites differ, are small, or linear and plain come near), with
                  frequencies as drawn: a few sweeps for the linear and the tuned model, and the
                  plain one unless it is behind the latter by then, and several ridges on four
                  fifths of the rows, and all sites' errors on rows left out

A site says nothing of single rows, but its parent hears its part: see docs/privacy.md.

Under a guard quantiles, bandwidths and errors go by name, each as far as one can believe one site
(`coke.learning.believing`). Frequencies are drawn, and nobody judges: in sums that long a liar
would be heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from coke.data.blocks import BareFeatures
from coke.data.units import Scaling
from coke.errors import MessageError
from coke.learning.believing import bandwidths_believed, errors_believed
from coke.learning.choice import (
    FINE,
    LINEAR,
    PLAIN,
    TUNED,
    Candidate,
    Choice,
    Samples,
    Wish,
    linear,
    plain,
    power,
    widened,
)
from coke.learning.judging import Contest, judged
from coke.maths.algorithms.integers import Integers
from coke.maths.arrays import Array
from coke.maths.choice import errors as left
from coke.maths.choice import evidence
from coke.maths.choice.quantiles import NO_KNOTS, Sketch, scored
from coke.maths.features.features import DrawnFeatures, draw_features, own_gram
from coke.maths.guards import capped
from coke.talk.claiming import ByName
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_integers

_FEW, _PER = 60, 2  # rows to look at, and times the columns, below which a site is small
_CLEAR = 0.9  # of the errors of plain and linear: no judge is needed below
_QUIET, _LOW = 1e-3, 1e-2  # least noise that random features can do with; noise called low
_USUAL = 100  # frequencies; more where rows are ten times that, or three with little noise
_POOL, _MOST, _FITTED = 6, 1200, 300  # times as many frequencies to choose from, by so many rows
_COARSE = 0.75  # of the coefficients' root mean square
_LEAST = 0.02  # noise that the judge tries, over the signal's variance, or less if sites found less
_TIMES = tuple(5.0**k for k in range(6))  # of it
_NUMBERS, _LABELS = 1, 4  # how sure the plain rule is: evidence takes labels for numbers
_FARTHEST = 20.0  # of a logarithm that a site may find
_PER_POWER = 8.0 / 0.6931471805599453  # sixteenths of a power of two in p/2


def choose(sweep: Sweep, own: Samples, wish: Wish) -> Talk[Choice]:
    """All steps, one after the other."""
    knots = (yield from _quantiles(sweep, own)) if True in wish.inputs else NO_KNOTS
    rows = {by: scored(knots, own.Z) if by else own.Z for by in wish.inputs}
    found = yield from _bandwidths(sweep, own, rows)
    curves = yield from _errors(sweep, own, wish, rows, found)
    by = min(wish.inputs, key=lambda by: float(curves.tuned[by].min()))
    noise, least = curves.noise(by), curves.least(by)
    near = least[TUNED] > _CLEAR * min(least[PLAIN], least[LINEAR])
    clear = not (near or found.apart or found.small)
    named = isinstance(sweep, ByName)
    if named or not clear:  # with another kernel only where a judge finds its ridge
        wish = wish._replace(kernel=wish.kernel if named else wish.drawn, useful=False)
    alone = least[TUNED] if clear else np.inf  # of sites that differ it says nothing
    bare = _Bare(found.scales(wish, by), found.weight(wish, by), noise, alone)
    omega = yield from _frequencies(sweep, own, wish, bare, rows[by])
    features = DrawnFeatures(omega, np.empty(0), bare.linear)
    tuned = Candidate(TUNED, features, knots if by else NO_KNOTS, wish.ridged(noise / own.all))
    choice = Choice(tuned, 1.0 / bare.scales, least, {}, 0.0, found.apart, noise)
    if clear:
        return choice
    # A site's rows may ask for more of a ridge than all sites' rows together bear, or for less.
    low, d = wish.ridged(_LEAST / own.all), own.Z.shape[1]
    rivals = [linear(d, low), plain(wish.plain._replace(n_features=len(omega)), d, low)]
    if named:
        return _by_errors(own, wish, choice, rivals, curves)
    # Where each site by itself finds the tuned model better than the plain one, that has never won
    # rightly. But classes are no numbers, which bandwidths by evidence take them for.
    others = rivals if own.classes or least[PLAIN] < least[TUNED] else rivals[:1]
    lower = tuned._replace(ridge=wish.ridged(min(noise, _LEAST) / own.all))
    times = _TIMES if wish.ridge is None else (1.0,)
    contest = Contest([*others, lower], rows[by], found.rows, times, wish.doubt)
    choice = yield from judged(sweep, own, choice, contest)
    will_do = wish.size is None and choice.judged[choice.best.name] <= _LOW
    return choice.fewer(_USUAL) if will_do else choice


def _by_errors(
    own: Samples, wish: Wish, choice: Choice, rivals: list[Candidate], curves: _Curves
) -> Choice:
    """Under a guard: errors on rows left out are bounded, as a judge's many sums are not."""
    best = min(rivals, key=lambda one: choice.errors[one.name])
    if choice.errors[best.name] >= _CLEAR * choice.errors[TUNED]:
        return choice
    ridge = wish.ridged(curves.noise(best.name) / own.all)
    return choice._replace(best=best._replace(ridge=ridge))


def _quantiles(sweep: Sweep, own: Samples) -> Talk[Array]:
    """Knots of all rows' columns."""
    mine, d = Sketch.of(own.Z, own.T), own.Z.shape[1]
    if isinstance(sweep, ByName):
        told = yield from sweep.claims(mine.encode())
        first, *others = capped([Sketch.decode(one, d) for one in told])
        return first.merged(others).knots()

    def merged(children: Sequence[bytes]) -> bytes:
        return mine.merged([Sketch.decode(child, d) for child in children]).encode()

    return Sketch.decode((yield from sweep(merged)), d).knots()


class _Bandwidths(NamedTuple):
    """What all sites' evidence comes to."""

    p: dict[bool, Integers]  # (d,) by kind of inputs, in sixteenths of a power of two
    part: dict[bool, int]  # of l/s, likewise
    apart: bool  # whether sites differ
    small: bool  # whether most have few rows
    rows: float  # to fit with, of all sites

    def scales(self, wish: Wish, by: bool) -> Array:
        """(d,) inverse bandwidths."""
        d = len(self.p[by])
        if wish.sigma is not None:
            return np.full(d, 1.0 / wish.sigma)
        return np.array([float(np.sqrt(2.0 / d)) * power(int(n)) for n in self.p[by]])

    def weight(self, wish: Wish, by: bool) -> float:
        """Of the linear part: at least that of the waves, so that the model holds a linear one."""
        if wish.linear is not None:
            return wish.linear
        return power(max(self.part[by], 0)) / float(np.sqrt(float(len(self.p[by]))))


def _bandwidths(sweep: Sweep, own: Samples, rows: dict[bool, Array]) -> Talk[_Bandwidths]:
    """Of each kind of inputs; and whether sites differ, or are small."""
    means = own.share * FINE * np.column_stack([own.Z, own.Y]).mean(axis=0)
    squares = means**2 / (own.share * FINE)
    few = min(own.fit, left.ROWS) < max(_FEW, _PER * own.Z.shape[1])
    mine = [np.array([few, own.able, own.fit]), means, squares]
    mine += [_told(own, Z) for Z in rows.values()]
    head = sum(map(len, mine[:3]))
    believed = partial(bandwidths_believed, head, own.Z.shape[1])
    total = yield from add_integers(sweep, np.concatenate(mine), believed=believed)
    (small, able, fit), total, c, d = total[:3], total[3:], len(means), own.Z.shape[1]
    if not (0 <= able <= own.N <= fit <= own.all):
        raise MessageError(
            f"{able} of {own.N} sites know their bandwidths by {fit} rows: cannot be"
        )
    mean, square = total[:c] / FINE, total[c : 2 * c] / FINE
    between = (square - mean**2) / np.maximum(1.0 - mean**2, 1e-6)
    p, part, usual = {}, {}, _LABELS if own.classes else _NUMBERS
    before = -2 * usual * float(np.log(widened(d))) if own.classes else 0.0  # the plain rule's
    for by, at in zip(rows, total[2 * c :].reshape(len(rows), -1), strict=True):
        sure, told = at[:d], at[d : 2 * d]
        within = (np.abs(told) <= 16 * _FARTHEST * (sure + own.N)).all() and (sure >= 0).all()
        if not (within and abs(int(at[-1])) <= 16 * _FARTHEST * max(int(able), 1)):
            raise MessageError("bandwidths that cannot be: expected what sites find in their rows")
        p[by] = np.rint(_PER_POWER * (told / 16 + before) / (usual + sure)).astype(np.int64)
        part[by] = round(_PER_POWER * float(at[-1]) / 16 / max(int(able), 1))
    apart = bool(between.max() > 0.1 + 2 * (own.N - 1) / own.all)
    return _Bandwidths(p, part, apart, bool(2 * small > own.N), float(fit))


def _told(own: Samples, Z: Array) -> Array:
    """(2d + 1,) a site's F, 16 F p and 16 log l²/s²."""
    if not own.able:
        return np.zeros(2 * Z.shape[1] + 1)
    n = min(own.fit, evidence.ROWS)
    p, sure, parts = evidence.fitted(Z[:n], own.Y[:n])
    sure = np.minimum(sure, 1e6)
    return np.concatenate([sure, 16 * sure * p, [16 * (parts[1] - parts[0])]])


class _Curves(NamedTuple):
    """Errors on rows left out, for each noise."""

    tuned: dict[bool, Array]
    others: dict[str, Array]

    def least(self, by: bool) -> dict[str, float]:
        """Of each model."""
        others = {name: float(curve.min()) for name, curve in self.others.items()}
        return {**others, TUNED: float(self.tuned[by].min())}

    def noise(self, which: bool | str) -> float:
        """Where the error is least."""
        curve = self.others[which] if isinstance(which, str) else self.tuned[which]
        if not curve.any():
            return 1.0  # nobody had rows enough to say
        return max(left.NOISES[int(curve.argmin())], _QUIET)


def _errors(
    sweep: Sweep, own: Samples, wish: Wish, rows: dict[bool, Array], found: _Bandwidths
) -> Talk[_Curves]:
    """Of the linear model, the plain one, and the tuned one on each kind of inputs."""
    n, d = min(own.fit, left.ROWS), own.Z.shape[1]
    mine, weight = np.zeros((2 + len(rows), len(left.NOISES))), own.share * own.able
    if own.able:
        Z = own.Z[:n]
        kernels = [evidence.lines(Z), own_gram(wish.plain.kernel, Z / wish.plain.sigma)]
        for by, Z in rows.items():
            scaled, line = Z[:n] * found.scales(wish, by), d * found.weight(wish, by) ** 2
            kernels.append(own_gram(wish.kernel, scaled) + line * evidence.lines(Z[:n]))
        mine = np.minimum([left.left_out(K, own.Y[:n]) for K in kernels], 1e3)
    told = FINE * np.append(weight * mine.ravel(), weight)
    total = yield from add_integers(sweep, told, believed=errors_believed)
    curves = total[:-1].reshape(mine.shape) / max(float(total[-1]), 1.0)
    tuned = {by: curves[2 + i] for i, by in enumerate(rows)}
    return _Curves(tuned, {LINEAR: curves[0], PLAIN: curves[1]})


def _size(own: Samples, wish: Wish, bare: _Bare) -> int:
    """L: many with many rows; and where they are drawn, which takes three for one that is chosen.

    There two rows for each coefficient, which is enough; and of several outputs, each of which has
    its own, fewer. More than usual buy nothing where a site's few rows leave as little as random
    features can do with, and every one costs bytes in training.
    """
    usual, rows = min(_USUAL, wish.most), int(own.all)
    if bare.alone <= _QUIET:
        return usual
    if rows >= (3 if bare.noise <= _LOW else 10) * wish.most:
        return wish.most
    drawn = min(wish.most, rows // 4) // own.Y.shape[1]
    return usual if wish.useful else max(usual, drawn)


class _Bare(NamedTuple):
    """The tuned model before its frequencies."""

    scales: Array  # (d,)
    linear: float
    noise: float
    alone: float = np.inf  # error on rows left out, each site by its own


def _frequencies(sweep: Sweep, own: Samples, wish: Wish, bare: _Bare, Z: Array) -> Talk[Array]:
    """(L, d): the most useful ones of a pool, or the first ones."""
    L, useful = wish.size or _size(own, wish, bare), wish.useful
    how = wish.plain._replace(
        n_features=max(L, min(_POOL * L, _MOST)) if useful else L,
        kernel=wish.kernel,
        sigma=1.0,
        mapping="cos-sin",
    )
    pool = draw_features(how, len(bare.scales)).omega * bare.scales
    if not useful:
        return pool
    n, K = min(own.fit, _FITTED), own.few.shape[1]
    mine = np.zeros((2 * len(pool), K))
    if own.able:
        # In float32, for what is told of them is coarse; their height comes last.
        phi = BareFeatures(DrawnFeatures(pool, np.empty(0), bare.linear), Scaling.none(Z.shape[1]))
        found = left.coefficients(phi(Z[:n], single=True), own.few[:n], bare.noise / phi.height**2)[
            : 2 * len(pool)
        ]
        mine = found / (_COARSE * max(float(np.sqrt(np.mean(found**2))), 1e-12))

    def best(total: Integers) -> Integers:
        energy = np.sum(total.reshape(2, len(pool), K) ** 2, axis=(0, 2))
        taken = np.zeros(len(pool), np.int64)
        taken[np.argsort(-energy, kind="stable")[:L]] = 1
        return taken

    taken = yield from add_integers(sweep, mine.ravel(), best, len(pool))
    if not (np.isin(taken, (0, 1)).all() and taken.sum() == L):
        raise MessageError(f"{taken.sum()} frequencies of {len(pool)}: expected {L}, each once")
    return pool[taken > 0]
