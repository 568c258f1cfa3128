"""Learning from rows that come tick by tick, at sites that have agreed on features and units.

A tick: every site predicts its new rows, sees their targets, moves its fast layer, and keeps them
for the next round. A round is due when the data have grown by a twentieth. At ticks 10, 100 and
1000 after the start or an alarm the sites agree on a basis; later where it no longer fits a third
of them. An alarm scales what was learnt down to the weight of one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from coke.data.split import Index
from coke.learning.basis import Basis, Own, common_basis, streamed_own
from coke.learning.model import Model
from coke.learning.near import Arrived, Asks, Basing, Near, Noticing, Saying
from coke.learning.ready import Ready
from coke.maths.algorithms.alarms import Errors, Notices
from coke.maths.algorithms.algorithm import Spoken
from coke.maths.algorithms.hedge import Fast
from coke.maths.algorithms.online import (
    FAR,
    GROWTH,
    Clock,
    Linked,
    Online,
    levels_of,
    misfits,
    noise,
)  # fmt: skip
from coke.maths.arrays import Array, Sizes
from coke.maths.features.mixtures import RANKS
from coke.maths.ledger import TICKHEAD, Spent
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.streamed import Batch, Streamed, joined
from coke.talk.sums import swept
from coke.threads import OneThread

BASES = (10, 100, 1000)  # ticks since the start, or an alarm, at which a basis is agreed on
KEPT = 1024  # rows of a site of which its inputs are described
_PRIOR = 1e-2  # rows' worth of φφᵀ = I, of all sites together, before the first row
_COMPONENTS = 2  # of a site's mixture: it is told again and again
_ONCE = 1 << 40  # ticks: until a basis is agreed on, a site that it does not fit says so once


Describe = Callable[[int], Asks[Basis | None]]


class Stream:
    """The streams of the n sites here, tick by tick.

    `memory` is in ticks, infinite where all rows count. What the sites tell others, and wait for,
    is asked for (`coke.learning.near`): all at once by `tick` and `gather`, one by one by the
    generators of the same names, where somebody else brings the answers.
    """

    def __init__(self, ready: Ready, memory: float, near: Near | None = None):
        self.near = near = Near.together(ready) if near is None else near
        agreed, N = ready.agreement, len(near.own)
        self.ready, self.beta = ready, 1.0 - 1.0 / memory
        self.online = Online.of(agreed.kappa, agreed.shape, near.edges)
        self._d = near.edges.d.astype(np.int64)
        self.K, self.D = agreed.outputs, agreed.features.size
        self._share, self.inputs = agreed.making.G, agreed.features.omega.shape[1]
        self.statistics = Streamed.empty(N, self.D, self.K)
        self.theta = np.zeros((N, self.K, self.D))  # θ_i (n, K, D), of the plain features
        self.fast, self._errors = Fast.idle(N, self.K, self.D), Errors.none(N, self.K)
        self.clock, self.age, self.ticks = Clock(), 0, 0
        self.notices = self._silence()  # of drift, of a basis that does not fit
        self.basis: Basis | None = None
        self.linked: Linked | None = None
        self._level, self.agreed = np.full(N, FAR), 0
        self.waiting: list[list[Batch]] = [[] for _ in range(N)]  # with ticks for ages
        self.rows = [deque[Array](maxlen=KEPT) for _ in range(N)]
        self.spent: Spent = ready.spent.copy()
        self.alarms: list[int] = []
        self.owed = 0  # the age at which a basis is tried again that was missed
        self.rounds, self._threads = 0, OneThread()
        self.describe: Describe = self.described  # or whoever tells for several streams

    def tick(self, rows: Sequence[Arrived]) -> list[Array]:
        """What each site had predicted (m_i, K) for the rows of this tick, before it saw them."""
        with self._threads.limit():
            return self.near.driven(self.ticking(rows))

    def ticking(self, rows: Sequence[Arrived]) -> Asks[list[Array]]:
        """The same, asking."""
        found = self._seen(rows)
        self.ticks, self.age = self.ticks + 1, self.age + 1
        self.clock = self.clock.ticked(self.beta)
        restarted, anew = yield from self._warned()
        if restarted:
            self._restart()
        anew = anew or self.age in (*BASES, self.owed)
        if anew or self.clock.due:
            yield from self._round(anew)
        return found

    def _seen(self, rows: Sequence[Arrived]) -> list[Array]:
        """Row by row; those that are late join the statistics alone."""
        Phi = [self.ready.agreement.features(one.X) for one in rows]
        found = [phi @ theta.T for phi, theta in zip(Phi, self.theta, strict=True)]
        now = [np.flatnonzero(one.age == 0) for one in rows]
        for k in range(max(map(len, now), default=0)):
            self._learn(rows, Phi, found, [at[k : k + 1] for at in now])
        for i, one in enumerate(rows):
            if len(one.y):
                self.waiting[i].append(Batch(Phi[i], one.y, self.ticks + 1 - one.age))
                self.rows[i].extend(one.X)
        return found

    def _learn(
        self, rows: Sequence[Arrived], Phi: Sequence[Array], found: list[Array], at: list[Index]
    ) -> None:
        """One row of each site that has one more: what was predicted, and the fast layer's step."""
        N, there = len(rows), np.array([len(one) > 0 for one in at])
        phi, y = np.zeros((N, self.D)), np.zeros((N, self.K))
        here = np.flatnonzero(there).tolist()
        for i in here:
            phi[i], y[i] = Phi[i][at[i][0]], rows[i].y[at[i][0]]
        f = self.fast.each(self.theta, phi)
        mixed = self.fast.mixed(f)
        for i in here:
            found[i][at[i][0]] = mixed[i]
        off = y[:, None] - np.stack([f[:, 0], mixed], axis=1)
        self._errors = self._errors.after(np.vecdot(off, off), y, there)
        self.fast = self.fast.after(f, y, phi, there)

    def _warned(self) -> Asks[tuple[bool, bool]]:
        """Whether to restart, and whether to agree on a basis, by notices that have come to all."""
        now = self.ticks
        self.notices[0] = self.notices[0].said(self._errors.drift, now)
        said = self.notices
        self._book(sum((one.size for one in said), np.zeros_like(self._d)))
        told = yield Noticing(tuple(one.told for one in said))
        self.notices = [one.after(new) for one, new in zip(said, told, strict=True)]
        drift, misfit = (w.enough(now) for w in self.notices[:2])
        return bool(drift.all()), bool(misfit.all())

    def _silence(self) -> list[Notices]:
        """No notice of drift, and none of a basis that does not fit."""
        own, N, shape = self.near.own, self.near.N, self.ready.agreement.shape
        # The longest way along a tree with so many sites inside; all know it alike.
        reach = min(shape.inner + 1, N - 1)
        return [Notices.none(own, N, reach), Notices.none(own, N, reach, _ONCE)]

    def _restart(self) -> None:
        """What was learnt counts as much as one batch: the stream has changed."""
        w = max(1.0, GROWTH * self.clock.w)
        self.statistics = self.statistics.scaled(w / np.maximum(self.statistics.w, w))
        self.clock = self.clock._replace(w=min(w, self.clock.w))
        self._errors, self.age = Errors.none(len(self.theta), self.K), 0
        self.notices[:2] = self._silence()
        self.alarms.append(self.ticks)

    def _round(self, anew: bool) -> Asks[None]:
        """The rows join the statistics; then one round of COKE, in a basis where there is one."""
        self._join()
        plain = self._risk()
        anew = anew and (yield from self._agree())
        if self.basis is None:
            self.theta = plain.alone().reshape(self.theta.shape)
            return
        risk = self._whitened(plain)
        if anew:
            self._level = levels_of(risk.A)
        if self.linked is None:
            yield from self._said(*self.online.start(risk))
        else:
            h = noise(self._errors.size, self.statistics.w, self.near.N, self.D)
            yield from self._said(*self.online.round(self.linked, risk, h))
        self.rounds += 1
        self.theta = self._plain(self.online.around(self.known))
        if self.ticks - self.agreed >= max(self.clock.w, BASES[1]):
            self.notices[1] = self.notices[1].said(misfits(self._level, risk.A), self.ticks)

    def _risk(self) -> Quadratic:
        """Of the rows that have joined the statistics."""
        return self.statistics.risk(self._share, _PRIOR / self.near.N)

    def _said(self, at: Linked, spoken: Spoken) -> Asks[None]:
        """Once everybody has spoken."""
        self._book(spoken.size)
        said = yield Saying(at.coke.hat, spoken)
        self.linked = self.online.heard(at, said, self._moves(said))

    def _moves(self, said: Array) -> Array:
        """(E, K·D) by how much the duals of the edges move."""
        return np.asarray(self.near.edges.ends @ said)

    @property
    def known(self) -> Linked:
        """What the sites have told each other, once there was a round."""
        assert self.linked is not None
        return self.linked

    def ending(self) -> Stream:
        """What to end with: itself."""
        return self

    def gathered(self) -> tuple[Quadratic, Quadratic]:
        """The risks of all rows so far, and the same in a basis of all of them, to end with."""
        with self._threads.limit():
            return self.near.driven(self.gathering())

    def gathering(self) -> Asks[tuple[Quadratic, Quadratic]]:
        """The same, asking."""
        self._join()
        yield from self._agree(max(RANKS))
        plain = self.statistics.risk(self._share)
        risk = self._whitened(plain)
        if self.linked is None:
            yield from self._said(*self.online.start(risk))
        return plain, risk

    @property
    def everyones(self) -> Array:
        """θ (N, K, D) of all sites, at every process."""
        return np.asarray(self.ready.engine.everyones(self.theta))

    def at_site(self, i: int) -> Array:
        """θ_i (K, D) with the site's fast layer: what it predicts with."""
        v = self.fast.hedge.v[i]
        return np.asarray(self.theta[i] + np.tensordot(v, self.fast.delta[i], 1))

    def model(self, site: int | None = None) -> Model:
        """The sites' mean; of a site its own, with its fast layer."""
        theta = self.everyones.mean(axis=0) if site is None else self.at_site(site)
        return self.ready.model(theta.ravel())

    def ended(self, at: Linked, u: Array) -> None:
        """With the model u (N, K·D) that ordinary rounds and a proof have come to."""
        self.linked, self.theta = at, self._plain(u)

    def _join(self) -> None:
        """What has waited for a round."""
        batches = [joined(waiting, self.ticks) for waiting in self.waiting]
        self.statistics = self.statistics.after(self.clock.since, self.beta, batches)
        self.clock = self.clock._replace(since=0)
        self.waiting = [[] for _ in self.waiting]

    def _agree(self, most: int = _COMPONENTS) -> Asks[bool]:
        """On a basis for the inputs of now; whether there is one."""
        basis = yield from self.describe(most)
        if basis is not None:
            self._take(basis)
            self.agreed = self.ticks
        return basis is not None

    def _take(self, basis: Basis) -> None:
        """The state moves into it."""
        if self.basis is not None and self.linked is not None:
            self.linked = self.online.moved(self.linked, self.basis.whitening, basis.whitening)
        self.adopt(basis)
        self.notices[1] = self._silence()[1]

    def described(self, most: int) -> Asks[Basis]:
        """What all come to from what each tells of its inputs, as a mixture of so many."""
        agreed, places = self.ready.agreement, self.ready.places
        talks = [
            common_basis(partial(swept, place, []), agreed, self._own(i, most))
            for i, place in enumerate(places)
        ]
        basis, spent = yield Basing(talks)
        self.spent = self.spent + spent
        return basis

    def adopt(self, basis: Basis) -> None:
        """That basis, from now on."""
        self.basis = basis
        self._regulariser = basis.whitening.regulariser(self._share)

    def _own(self, i: int, most: int) -> Own:
        """What site i tells of its rows, as many as are remembered."""
        some = max(BASES[0], int(self.clock.w))
        X = np.array(list(self.rows[i])[-some:]).reshape(-1, self.inputs)
        return streamed_own(X, self.statistics, i, self._share)._replace(most=most)

    def _whitened(self, plain: Quadratic) -> Quadratic:
        assert self.basis is not None
        return plain.whitened(self.basis.whitening, self._regulariser)

    def _plain(self, u: Array) -> Array:
        """θ (N, K, D) of u (N, K·D)."""
        assert self.basis is not None
        return self.basis.whitening.theta(u.reshape(self.theta.shape))

    def _book(self, sizes: Sizes) -> None:
        """A broadcast of each site: silence has a header, too, or nobody could tell it."""
        copies = self._listeners * (sizes + TICKHEAD)
        self.spent = self.spent + np.hstack([sizes > 0, sizes, copies])

    @property
    def _listeners(self) -> Sizes:
        """(n, 1) neighbours to whom a broadcast goes."""
        return self._d
