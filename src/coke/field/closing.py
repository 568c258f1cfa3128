"""After the last round: a common model and its proof, and one more sum, if all are still there.

The sites bring what they have come to together (`coke.talk.descent`), unless they have descended to
it together. The sum tells how far the model misses, or how sharp it is (`coke.learning.closing`).
Nobody is waited for in vain: a site that has heard nothing for a while ends with its own model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from coke.errors import CokeError, MessageError
from coke.field.agreeing import Agree
from coke.field.carriers.base import Event
from coke.field.mission import Mission
from coke.field.node import Node
from coke.field.phases import Desk
from coke.field.training import Train
from coke.learning.case import Case
from coke.learning.closing import closing
from coke.learning.descending import descent_of
from coke.learning.model import NOTHING_CLOSED, Closed
from coke.learning.ready import Ready
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.maths.losses.excess import Certificate
from coke.maths.losses.risk import Risk
from coke.talk.conversation import Talk
from coke.talk.handover import Settled
from coke.talk.sums import swept

PATIENCE = 6  # times as long as a site lingers at the end
_COSTS, _SLACK = 0.1, 0.01  # of a site's loss, and of that of no model: under a guard, a common one


def near(risk: Risk, own: Array, u: Array) -> bool:
    """Whether to have u instead costs little: all sites bend κ/2 on average in a common basis."""
    at, zero = (float(risk.losses(x[None])[0]) for x in (own, 0.0 * own))
    return 0.5 * risk.kappa * float((u - own) @ (u - own)) <= _COSTS * at + _SLACK * zero


@dataclass
class Close:
    """Until the sum is known here, or nobody says anything more."""

    name: ClassVar[str] = "close"
    desk: Desk
    mission: Mission
    agreed: Agree
    training: Train
    missing: Sequence[str] = ()
    together: ClassVar[tuple[str, ...]] = ()
    found: Closed = NOTHING_CLOSED
    u: Array | None = None  # the common model (D,)
    certificate: Certificate | None = None  # what is proven of it
    ledger: Ledger = field(default_factory=Ledger)  # what it took
    _talks: bool = False
    _heard: int = -1
    _spoilt: bool = False
    _until: float = math.inf

    def begin(self) -> None:
        """From what training has come to; after a crash, with what was heard."""
        ready, node = self.agreed.result, self.training.trained
        assert ready is not None  # the phases before are over
        used = set(self.agreed.first) - node.setup.reserve
        whole = node.done and not node.wide and set(node.open) == used
        case, proven = self.mission.case(ready), self.training.descend.done
        self._talks = whole and (case.closes or (case.goal is not None and not proven))
        if self._talks:
            self._try(partial(self.agreed.close, self._talk(ready, case)))
        if proven:
            descent = self.training.descend.descent
            assert descent is not None
            self.u, self.certificate = descent.u, descent.certificate

    def _talk(self, ready: Ready, case: Case) -> Talk[Closed]:
        """The proof of what rounds have come to, and the sum."""
        node = self.training.trained
        if case.goal is not None and not self.training.descend.done:
            descent = descent_of(ready, case, 0, self._settled(ready, node))
            yield from descent.talk()
            guard, own = ready.agreement.terms.settings.guard, node.theta[0]
            if guard and not near(node.setup.risk, own, descent.u):
                raise MessageError(
                    "the common model is not near the one that this site has come to, which it "
                    "keeps: the root of the tree, or a site on the way, has told another"
                )
            self.u, self.certificate = descent.u, descent.certificate
        if not case.closes:
            return NOTHING_CLOSED
        theta = case.theta(node.theta[0] if self.u is None else self.u)
        sweep = partial(swept, ready.places[0], [])
        return (yield from closing(sweep, ready, case, 0, theta))

    def _settled(self, ready: Ready, node: Node) -> Settled:
        """What this site's edges have come to."""
        place, ends = ready.places[0], node.open
        said = {child: ends[child].own for child in place.children}
        pulls = sum((end.g for end in ends.values()), np.zeros(node.setup.moves.width))
        return Settled(
            hat=next((end.own for end in ends.values()), node.theta[0]), said=said,
            above=None if place.parent is None else ends[place.parent].cp,
            gamma=node.setup.moves.rho * pulls,
        )  # fmt: skip

    def over(self) -> bool:
        """Whether it is known, or is not to be had."""
        found, now = self.agreed.heard, self.desk.clock()
        if self._talks and (closed := self.agreed.closed) is not None:
            self.found, self.ledger = closed
            return True
        if found > self._heard:
            self._heard, self._until = found, now + PATIENCE * self.desk.pace.linger
        if self._talks and now >= self._until and not self._spoilt:
            self._give_up("nobody has said anything more for a while")
        return self._spoilt or not self._talks

    def work(self) -> bool:
        """Goes on where it can, and asks those it waits for."""
        if self._talks:
            self._try(self.agreed.work)
        self.missing = self.agreed.missing
        return False

    def _try(self, step: Callable[[], object]) -> None:
        """Nothing that a neighbour says now may cost this site its model."""
        try:
            step()
        except CokeError as error:
            self._give_up(str(error))

    def _give_up(self, why: str) -> None:
        self._spoilt = True
        self.desk.news.append(Event("spoilt", "closing", f"no proof and no sum of errors: {why}"))
