"""Training by sums over the tree, and the proof at the end of all training in a common basis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from coke.engines.process import Record
from coke.learning.case import Case
from coke.learning.ready import Ready
from coke.maths.algorithms.coke import COKE
from coke.maths.algorithms.stopping import at_first
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger, Spent
from coke.maths.losses.excess import Certificate
from coke.maths.losses.joint import Joint, OneOf
from coke.talk.descent import Descent
from coke.talk.handover import Settled
from coke.threads import OneThread


class At(NamedTuple):
    """Where the sites here are: a record's state."""

    theta: Array  # (n, D), all alike
    loss: Array  # (n,)


class Descending:
    """The descents of the sites here, order by order; `state` is what a consensus has come to."""

    def __init__(self, ready: Ready, case: Case, state: Any = None):
        self._ready, self._case, self._threads = ready, case, OneThread()
        came = dict[str, Settled]() if state is None else _settled(ready, case, state)
        with self._threads.limit():
            here = Joint(case.problem.train)
            self._sites = {
                name: descent_of(ready, case, i, came.get(name), OneOf(here, i))
                for i, name in enumerate(ready.sites.names)
            }
        self._first = next(iter(self._sites.values()))
        self.k, self.spent = 0, np.zeros((len(self._sites), 3), np.int64)

    @property
    def u(self) -> Array:
        """The common model (D,)."""
        return self._first.u

    @property
    def certificate(self) -> Certificate | None:
        """What was proven of it, at the end."""
        return self._first.certificate

    def sweeps(self) -> Iterator[Spent]:
        """Order after order; what the sites here spent on each (n, 3)."""
        while not self._first.done:
            talks = {name: site.sweep() for name, site in self._sites.items()}
            with self._threads.limit(), np.errstate(over="ignore", invalid="ignore"):
                _, spent = self._ready.engine.converse(talks)
            self.k, self.spent = self.k + 1, self.spent + spent
            yield spent

    def _away(self) -> float:
        """As the root sees it, at whichever process that is."""
        told = np.array([site.away for site in self._sites.values()])
        return float(self._ready.engine.everyones(told).min())

    def records(self) -> Iterator[Record]:
        """A record of every sweep, as of a round."""
        engine, problem, before = self._ready.engine, self._case.problem, self._case.spent
        judge = engine.judge(problem)
        for spent in self.sweeps():
            theta = problem.everywhere(self.u)
            with self._threads.limit(), np.errstate(over="ignore", invalid="ignore"):
                losses = np.array([site.loss for site in self._sites.values()])
                state = At(theta, losses)
                score, consensus, optimality = judge(state)
            total, proven = before + self.spent, self.certificate
            yield Record(
                k=self.k, spoke=engine.everyones(spent[:, 0] > 0),
                ledger=Ledger.of(engine.everyones(total)), score=score,
                consensus_gap=consensus, optimality_gap=optimality, away=self._away(),
                settled=proven is not None and proven.holds, state=state, spent=total,
                quiet=at_first(len(total)),
            )  # fmt: skip


def descent_of(
    ready: Ready, case: Case, i: int, settled: Settled | None = None, own: OneOf | None = None
) -> Descent:
    """Of site i of those here."""
    assert case.goal is not None  # it was asked for
    risk = case.problem.train.rows(slice(i, i + 1))
    return Descent(ready.places[i], risk, case.goal, settled, own)


def _settled(ready: Ready, case: Case, state: Any) -> dict[str, Settled]:
    """What each site here brings, of what all have said last."""
    assert isinstance(case.algorithm, COKE)  # no other has a basis
    hats = dict(zip(ready.names, ready.engine.everyones(state.hat), strict=True))
    rho = case.algorithm.rho
    return {
        place.name: Settled(
            hat=hats[place.name], said=dict.fromkeys(place.children, hats[place.name]),
            above=hats.get(place.parent or ""), gamma=rho * g,
        )
        for place, g in zip(ready.places, state.g, strict=True)
    }  # fmt: skip
