"""Streams of several kernels beside each other, until all but one have been left.

Each kernel has a stream of its own (`coke.learning.streaming`), all see the same rows, and what is
predicted is Σ_j v_j f_j. From time to time the sites add up what every kernel has cost them: that
gives the weights, and who goes (`coke.maths.algorithms.trial`). What sites tell of their inputs is
told once, as finely as the middle one of the kernels asks for, and gives each its basis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from coke.errors import MessageError
from coke.learning.basis import Basis, basis_of
from coke.learning.kernels import Bank, mixed
from coke.learning.model import Model
from coke.learning.near import Arrived, Asks, Basing, Near
from coke.learning.ready import Ready
from coke.learning.streaming import Stream
from coke.maths.algorithms.trial import LOOKS, USUAL, Trial
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.ledger import Spent
from coke.settings.kernels import Kernel
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_integers, swept
from coke.threads import OneThread

_FINE = 2.0**24  # whole numbers to the target's variance, of a loss
_LARGE = 2.0**40  # of a site's sum in these units


class Several:
    """A stream with several kernels; its face is `Stream`'s, and in the end that of the leader."""

    def __init__(
        self, ready: Ready, memory: float, kernels: Sequence[Kernel], near: Near | None = None
    ):
        self.near = Near.together(ready) if near is None else near
        self.kernels, self.trial = tuple(kernels), Trial.of(len(kernels))
        self._began = ready.spent
        self._streams = [Stream(_of(ready, one), memory, self.near) for one in kernels]
        sigma = [one.ready.agreement.sigma for one in self._streams]
        self._order = sorted(range(len(kernels)), key=sigma.__getitem__)
        for stream in self._streams:
            stream.describe = partial(self._described, stream)
        self._told: tuple[tuple[int, int], Basis] | None = None
        self._losses: list[list[Array]] = [[] for _ in range(len(ready.places))]  # (J,) a row
        self._looked, self._own, self._threads = 0, np.zeros_like(ready.spent), OneThread()
        self.K, self.D, self.ready = self._streams[0].K, self._streams[0].D, ready

    @property
    def leader(self) -> Stream:
        """The heaviest kernel's."""
        return self._streams[self.trial.leader]

    @property
    def running(self) -> list[Stream]:
        """Of those that are still learnt with."""
        return [one for one, on in zip(self._streams, self.trial.running, strict=True) if on]

    def tick(self, rows: Sequence[Arrived]) -> list[Array]:
        """What each site had predicted (m_i, K) for the rows of this tick, before it saw them."""
        with self._threads.limit():
            return self.near.driven(self.ticking(rows))

    def ticking(self, rows: Sequence[Arrived]) -> Asks[list[Array]]:
        """The same, asking."""
        if len(self.running) == 1:
            return (yield from self.leader.ticking(rows))
        found, v = [np.zeros_like(one.y) for one in rows], self.trial.v
        off = [np.zeros((len(self.kernels), len(one.y))) for one in rows]
        for j in self._in_turn():
            told = yield from self._streams[j].ticking(rows)
            for i, (f, one) in enumerate(zip(told, rows, strict=True)):
                found[i] += v[j] * f
                off[i][j] = np.sum((one.y - f) ** 2, axis=1)
        for kept, paid in zip(self._losses, off, strict=True):
            kept.extend(paid.T)
        if self.ticks in LOOKS:
            yield from self._look(self.ticks)
        return found

    def _in_turn(self) -> list[int]:
        """Those that run, and first the middle one, which tells of the inputs for all."""
        some = [j for j in self._order if self.trial.running[j]]
        some.insert(0, some.pop((len(some) - 1) // 2))
        return some

    def _look(self, tick: int) -> Asks[None]:
        """The sites add up what the kernels have cost since the last look; some may go."""
        J, basis = len(self.kernels), self.leader.basis
        unit = _FINE / max((1.0 if basis is None else basis.spread) ** 2, 1e-100)
        talks = [
            _added(partial(swept, place, []), _paid(kept, J, unit))
            for place, kept in zip(self.ready.places, self._losses, strict=True)
        ]
        total, spent = yield Basing(talks)
        self._own = self._own + spent
        if total[0] > 0:
            losses, clipped = np.split(total[1:] / total[0], 2)
            self.trial = self.trial.after(tick, self.ticks - self._looked, losses, clipped)
            self._looked = self.ticks
        elif tick >= LOOKS[-1]:
            self.trial = self.trial.led()
        self._losses = [[] for _ in self._losses]
        self._settle()

    def _settle(self) -> None:
        """The last one knows what it was weighed against, and what all have spent."""
        if len(self.running) > 1:
            return
        last, bank = self.leader, Bank(self.kernels, tuple(self.trial.weights.tolist()))
        last.spent, self._own = self._total(self._streams), np.zeros_like(self._own)
        last.ready = self.ready = replace(
            last.ready, agreement=replace(last.ready.agreement, bank=bank)
        )
        last.describe = last.described

    def _described(self, stream: Stream, most: int) -> Asks[Basis]:
        """By what was told a moment ago for another kernel, or else anew."""
        now = stream.ticks, most
        if self._told is not None and self._told[0] == now and self._told[1].inputs:
            agreed = stream.ready.agreement
            return basis_of(self._told[1], agreed, agreed.making.G)
        basis = yield from stream.described(most)
        self._told = now, basis
        return basis

    def ending(self) -> Stream:
        """The leader's stream, to end with: the others go."""
        if len(self.running) > 1:
            with self._threads.limit():
                self.near.driven(self._look(LOOKS[-1]))
        return self.leader

    @property
    def ticks(self) -> int:
        """So far."""
        return self.leader.ticks

    @property
    def spent(self) -> Spent:
        """By all kernels' streams, those that have gone among them."""
        return self.leader.spent if len(self.running) == 1 else self._total(self._streams)

    def _total(self, streams: Sequence[Stream]) -> Spent:
        """What was agreed on first is in every one's."""
        return self._own + self._began + sum(one.spent - self._began for one in streams)

    @property
    def alarms(self) -> list[int]:
        """Of the leader."""
        return self.leader.alarms

    @property
    def rounds(self) -> int:
        """Of the leader."""
        return self.leader.rounds

    @property
    def theta(self) -> Array:
        """θ_i (n, K, J·D) of the sites here, of all kernels that are learnt with."""
        return self._mixed([one.theta for one in self.running])[1]

    @property
    def everyones(self) -> Array:
        """θ (N, K, J·D) of all sites, at every process."""
        return np.asarray(self.ready.engine.everyones(self.theta))

    def model(self, site: int | None = None) -> Model:
        """The sites' mean; of a site its own, with its fast layer."""
        if len(self.running) == 1:
            return self.leader.model(site)
        thetas = [
            one.everyones.mean(axis=0) if site is None else one.at_site(site)
            for one in self.running
        ]
        features, theta = self._mixed(thetas)
        bank = Bank(self.kernels, tuple(self.trial.v.tolist()))
        model = self.leader.ready.model(np.zeros(self.K * self.D))
        return model._replace(theta=theta, features=features, kernels=bank.shares)

    def _mixed(self, thetas: Sequence[Array]) -> tuple[DrawnFeatures, Array]:
        v = self.trial.v[self.trial.running]
        phis = [one.ready.agreement.features for one in self.running]
        return mixed(list(zip(v.tolist(), phis, thetas, strict=True)))


def stream_of(ready: Ready, memory: float, near: Near | None = None) -> Stream | Several:
    """The stream of sites that have agreed; of several kernels, where these were wanted."""
    kernels = ready.agreement.terms.kernels
    if kernels:
        return Several(ready, memory, kernels, near)
    return Stream(ready, memory, near)


def _of(ready: Ready, kernel: Kernel) -> Ready:
    """With the features of one kernel."""
    return replace(ready, agreement=replace(ready.agreement, bank=Bank.one(kernel)))


def _paid(rows: Sequence[Array], J: int, unit: float) -> Array:
    """(1 + 2J,) how many rows; their losses of every kernel; and clipped at four usual ones."""
    losses = np.array(rows).reshape(-1, J)
    if not len(losses):
        return np.zeros(1 + 2 * J)
    some = losses.any(axis=0)  # others have gone
    usual = USUAL * (losses[:, some].mean(axis=0).min() if some.any() else 0.0)
    clipped = np.minimum(losses, usual)
    told = unit * np.concatenate([losses.sum(axis=0), clipped.sum(axis=0)])
    return np.append(len(losses), np.minimum(told, _LARGE))


def _added(sweep: Sweep, own: Array) -> Talk[Array]:
    """The sum over all sites."""
    total = yield from add_integers(sweep, own)
    if (total < 0).any():
        raise MessageError("losses below zero: expected sums of squares")
    return total.astype(np.float64)
