"""Training by sums over the tree, on a network: with all sites, or all go on to rounds without.

The conversation is that of `coke.talk.descent`; as in the agreement, what was heard is on disk
before anything that follows from it is sent, so a site that crashed holds it again. It needs every
site. Where a neighbour that is waited for has had no link for a while, where sites have come or
gone, where a message makes no sense, or where another site has gone on already, this one goes on
too: to rounds, from what all had known last (`coke.talk.handover`), so that duals sum to zero.

The root's last order comes after all sites have answered for the same model. So whoever has it
tells any neighbour that makes rounds, or has not parted yet (`Proven`), and a site that waits for
its parent takes it for the parent's: also one that had gone on to rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from coke.errors import CokeError, FileError, MessageError
from coke.field.agreeing import Agree
from coke.field.carriers.base import Event
from coke.field.frames import Proven
from coke.field.mission import Mission
from coke.field.phases import Desk
from coke.field.store import Store
from coke.learning.descending import descent_of
from coke.maths.algorithms.tree_newton import END
from coke.talk.conversation import Talk
from coke.talk.descent import Descent
from coke.talk.tree import PROOF, ending, mark_of, read

PATIENCE = 3  # times as long as a site lingers at the end, without a link


@dataclass
class Descend:
    """Until the sites have a model that is proven, or go on without one of them."""

    name: ClassVar[str] = "descend"
    desk: Desk
    mission: Mission
    store: Store
    agreed: Agree
    missing: Sequence[str] = ()
    together: ClassVar[tuple[str, ...]] = ()
    descent: Descent | None = None  # as far as it came; None: the algorithm is one of rounds
    lines: list[dict[str, Any]] = field(default_factory=list)  # of every sweep, for the history
    _given_up: bool = False
    _since: dict[str, float] = field(default_factory=dict)  # without a link

    def begin(self) -> None:
        """Goes on where the agreement ended; not for a site that joins, or has made rounds."""
        ready = self.agreed.result
        assert ready is not None  # the phase before is over
        if not (self.mission.case(ready).descends and self.agreed.whole):
            return
        self._given_up = self.store.traces
        self._try(self._hold)
        if self._given_up and self.descent is not None and self.descent.done:
            self._given_up = False  # the proof came after rounds had begun
        if {*self.agreed.first} != self.desk.carrier.neighbours:
            self.hand_over("sites have come or gone")

    def _hold(self) -> None:
        """From the beginning, as far as what is on disk allows."""
        ready = self.agreed.result
        assert ready is not None
        self.descent, self.lines = descent_of(ready, self.mission.case(ready), 0), []
        self.agreed.further(self._talk(self.descent, float(ready.times[0])))

    @property
    def done(self) -> bool:
        """Whether there is a model that needs no rounds."""
        return self.descent is not None and self.descent.done and not self._given_up

    def _talk(self, descent: Descent, times: float) -> Talk[None]:
        """With a line for every sweep, of the mean loss over the site's own rows."""
        began = self.agreed.spent.transmissions
        while not descent.done:
            yield from descent.sweep()
            spent = self.agreed.spent
            before = self.lines[-1]["transmissions"] if self.lines else began
            spoke = spent.transmissions > before
            loss = times * descent.loss
            line = {"round": descent.k, "spoke": spoke, "loss": loss, "away": descent.away}
            self.lines.append({**line, **spent._asdict()})

    def over(self) -> bool:
        """Whether rounds are not needed, or are what is left."""
        return self.descent is None or self._given_up or self.descent.done

    def work(self) -> bool:
        """Goes on where it can, and asks those it waits for."""
        self._try(self.agreed.work)
        self.missing = self.agreed.missing
        now, alive = self.desk.clock(), self.desk.alive
        self._since = {n: self._since.get(n, now) for n in self.missing if n not in alive}
        lost = [name for name, since in self._since.items() if now - since > self._patience]
        if lost:
            self.hand_over(f"{', '.join(lost)} has had no link for a while")
        return False

    @property
    def _patience(self) -> float:
        given = self.desk.pace.patience
        return PATIENCE * self.desk.pace.linger if given is None else given

    def hand_over(self, why: str) -> None:
        """To rounds, with those who are there."""
        if self.descent is not None and not self.over():
            self._given_up = True
            self.desk.news.append(Event("rounds", "descent", f"going on by rounds: {why}"))

    @property
    def proven(self) -> Proven:
        """What was proven of which model, once this site knows."""
        assert self.descent is not None
        assert self.descent.certificate is not None
        return Proven(mark_of(self.descent.u), PROOF.pack(*self.descent.certificate[:3]))

    def hear(self, sender: str, letter: Proven) -> bool:
        """Whether that ends the descent here; it does where only the root's last order was missing.

        On disk and on to the children it goes as if the parent had told it.
        """
        descent, waits = self.descent, self.agreed.waits
        if descent is None or descent.done or mark_of(descent.u) != letter.mark:
            return False
        if waits != [descent.place.parent] or sender not in self.agreed.first:
            return False
        told = read(PROOF, letter.proof)  # or it is refused
        self.agreed.instead(waits[0], bytes([END]) + ending(told))
        self._given_up = self._given_up and not descent.done
        self.desk.news.append(Event("proven", sender, "has told the end of the descent"))
        return self.done

    def _try(self, step: Callable[[], object]) -> None:
        """Nothing that a neighbour says now may stop this site; what made no sense is forgotten."""
        try:
            step()
        except FileError:
            raise  # of this site's own disk
        except CokeError as error:
            self.hand_over(str(error))
            if isinstance(error, MessageError):  # others would come again
                self.agreed.again()
                self._hold()
