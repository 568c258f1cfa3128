"""The end of a site's time on a network: both ends of every edge compare their duals, and part.

    CHECK    my end of the edge when all was over; and yours?
    CHECKED  the same, and I have yours
    PARTED   I have yours, and you have mine: I lack nothing, and may be gone

CHECK is answered by CHECKED, CHECKED by PARTED, PARTED by nothing; a timer repeats the first two.
A site goes once it has shown every neighbour that it lacks nothing: so where nothing is lost nobody
is left waiting. The very last letter may be lost, as nobody answers it; then, and for a neighbour
that stays away, the time that a site lingers is the bound. Nothing here outlives a crash: whoever
starts again asks again, and has its model in any case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from coke.field.carriers.base import Event
from coke.field.frames import Check, Parted
from coke.field.phases import Desk
from coke.field.training import Train
from coke.maths.arrays import Array


class Parting(NamedTuple):
    """What one end of an edge knows of the other when all is over."""

    his: Check | None = None
    had: bool = False  # whether he has mine

    @property
    def settled(self) -> bool:
        """Whether both have the other's duals, and this end knows it."""
        return self.his is not None and self.had

    def says(self, own: Check) -> Check:
        """What a timer repeats, and what is answered to one that has not got it."""
        return own._replace(had=self.his is not None)

    def hear(self, letter: Check | Parted, own: Check) -> tuple[Parting, Check | Parted | None]:
        """After a letter, and the one to answer; whoever has lost his memory is told again."""
        if isinstance(letter, Parted):
            return self._replace(had=True), None
        after = Parting(letter, letter.had)
        return after, Parted() if letter.had else after.says(own)


@dataclass
class Farewell:
    """Until all neighbours have shown their duals and have this site's, or after a while."""

    name: ClassVar[str] = "part"
    desk: Desk
    training: Train
    missing: Sequence[str] = ()
    together: ClassVar[tuple[str, ...]] = ()
    _known: dict[str, Parting] = field(default_factory=dict)
    _until: float = math.inf
    _begun: bool = False

    def begin(self) -> None:
        """Starts the time after which nobody is waited for any more; all are told at once."""
        node = self.training.trained
        self._begun, self._until = True, self.desk.clock() + self.desk.pace.linger
        self._known = {n: Parting() for n in node.open if n in self.desk.carrier.neighbours}
        self.desk.timers.clear()

    def over(self) -> bool:
        """Whether nobody lacks anything that this site could tell, or it has been a while."""
        done = self.training.trained.done
        self.missing = sorted(n for n, at in self._known.items() if done and not at.settled)
        late = self.missing and self.desk.clock() >= self._until
        if late:
            why = f"has not parted within {self.desk.pace.linger:g} s: it may lack this site's end"
            self.desk.news += [Event("late", name, why) for name in self.missing]
        return bool(late or not self.missing)

    def work(self) -> bool:
        """Tells those who lack something."""
        for name in self.desk.due(self.missing):
            said = self._known[name].says(self._own(name))
            self.desk.post([*self.training.resend(name), (name, said)])
        return False

    def hear(self, sender: str, letter: Check | Parted) -> None:
        """Kept and answered once this site, too, parts.

        Not before: whoever has this site's answer may go, and this site may still need its word.
        """
        if self._begun and sender in self._known:
            after, answer = self._known[sender].hear(letter, self._own(sender))
            self._known[sender] = after
            self.desk.post([] if answer is None else [(sender, answer)])

    def _own(self, name: str) -> Check:
        end = self.training.trained.ends[name]
        return Check(end.epoch, end.s, end.g, had=False)

    def apart(self) -> dict[str, Array | None]:
        """g_ij + g_ji by neighbour; None where it cannot be known.

        The other end may be a step behind when all is over: what the step added is taken back.
        """
        node, found = self.training.trained, dict[str, Array | None]()
        for name, end in node.open.items():
            check, found[name] = self._known.get(name, Parting()).his, None
            if check is None or check.epoch != end.epoch or check.g.shape != end.g.shape:
                continue
            ahead = end.s - check.step
            if ahead in (0, 1):
                found[name] = end.g - ahead * (end.own - end.cp) + check.g
        return found
