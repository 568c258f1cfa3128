"""After the last round: one more sum over all sites, if they are all still there.

It tells how far the model misses (`coke.learning.closing`). It is no part of the answer, so nobody
is waited for in vain: a site that has heard nothing for a while ends without it.
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
from coke.learning.closing import closes, closing, freedom_of
from coke.maths.choice.misses import Misses
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
    misses: Misses | None = None
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
        if not (whole and closes(ready, case)):
            return
        sweep = partial(swept, ready.agreement.net, self.mission.name, [])
        theta, freedom = case.theta(node.theta[0]), freedom_of(ready, case)
        talk = closing(sweep, ready, case, 0, theta, freedom)
        self._try(partial(self.agreed.further, talk))

    def over(self) -> bool:
        """Whether it is known, or is not to be had."""
        found, now = self.agreed.heard, self.desk.clock()
        if self.agreed.closed is not None:
            self.misses, self.ledger = self.agreed.closed
            return True
        if found > self._heard:
            self._heard, self._until = found, now + PATIENCE * self.desk.pace.linger
        return self._spoilt or not self.agreed.talks or now >= self._until

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
            self._spoilt = True
            self.desk.news.append(Event("spoilt", "intervals", f"no sum of errors: {error}"))
