"""After the last round: one more sum over all sites, if they are all still there.

It tells how far the model misses, or how sharp it is (`coke.learning.closing`). It is no part of
the answer, so nobody is waited for in vain: a site that has heard nothing for a while ends without
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from coke.errors import CokeError
from coke.field.agreeing import Agree
from coke.field.carriers.base import Event
from coke.field.mission import Mission
from coke.field.phases import Desk
from coke.field.training import Train
from coke.learning.closing import closing
from coke.learning.model import NOTHING_CLOSED, Closed
from coke.maths.ledger import Ledger
from coke.talk.sums import swept

PATIENCE = 6  # times as long as a site lingers at the end


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
    ledger: Ledger = field(default_factory=Ledger)  # what it took
    _heard: int = -1
    _spoilt: bool = False
    _until: float = math.inf

    def begin(self) -> None:
        """Goes on where the agreement ended; after a crash, with what was heard."""
        ready, node = self.agreed.result, self.training.trained
        assert ready is not None  # the phases before are over
        whole = node.done and not node.wide and set(node.open) == set(self.agreed.first)
        case = self.mission.case(ready)
        if not (whole and case.closes):
            return
        sweep = partial(swept, ready.agreement.net, self.mission.name, [])
        talk = closing(sweep, ready, case, 0, case.theta(node.theta[0]))
        self._try(partial(self.agreed.further, talk))

    def over(self) -> bool:
        """Whether it is known, or is not to be had."""
        found, now = self.agreed.heard, self.desk.clock()
        if self.agreed.closed is not None:
            self.found, self.ledger = self.agreed.closed
            return True
        if found > self._heard:
            self._heard, self._until = found, now + PATIENCE * self.desk.pace.linger
        if self.agreed.talks and now >= self._until and not self._spoilt:
            self._give_up("nobody has said anything more for a while")
        return self._spoilt or not self.agreed.talks

    def work(self) -> bool:
        """Goes on where it can, and asks those it waits for."""
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
        self.desk.news.append(Event("spoilt", "closing", f"no sum of errors: {why}"))
