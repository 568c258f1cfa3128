"""One site on a network, from the first greeting to the last word; a loop over what arrives.

    meet     neighbours compare their settings, in words; a difference stops both, by name
    agree    the conversation of `coke.talk.conversation`, over links that lose things
    descend  sums over the tree, if that is how they train and all are there
    train    rounds of `coke.field.node`: durable before sent, sent again until answered
    close    one more sum, about the model that came out, if all are still there
    part     everybody knows of the end; both ends of every edge compare their duals

The phases are objects, of `phases`, `agreeing`, `descending`, `training`, `closing` and `parting`;
the network is a `Carrier`, the disk a `Store`. Here are the loop, who hears what, and what to tell.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coke.errors import MessageError
from coke.field.agreeing import Agree
from coke.field.carriers.base import Carrier, Event
from coke.field.closing import Close
from coke.field.descending import Descend
from coke.field.frames import (
    LETTER,
    Audited,
    Check,
    Hello,
    Parted,
    Proven,
    decode_letter,
    decode_pulse,
    is_pulse,
    is_word,
)
from coke.field.mission import Mission
from coke.field.node import Node
from coke.field.parting import Farewell
from coke.field.phases import Desk, Meet, Pace, Phase
from coke.field.store import Store
from coke.field.training import Train
from coke.learning.model import Closed
from coke.learning.ready import Ready
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.maths.losses.excess import Certificate

if TYPE_CHECKING:
    from coke.field.streaming import Follow

USUAL = Pace()


class Status(NamedTuple):
    """What an agent tells of itself while it runs."""

    phase: str  # meet, agree, descend, train, close, part or over
    round: int
    alive: tuple[str, ...]  # neighbours with a live link
    missing: tuple[str, ...]  # those one waits for
    spoke: bool  # whether the last round's words had news
    loss: float
    ledger: Ledger
    away: float  # what is left in parts of what may be: 1 or less once content; ∞: nothing tells
    countdown: int | None
    events: tuple[Event, ...]
    refused: int  # frames that made no sense


class Learnt(NamedTuple):
    """What training came to, at one site."""

    theta: Array  # (D,) in the basis of the setup
    rounds: int
    converged: bool
    ledger: Ledger  # of this site, agreement included
    asymmetry: Mapping[str, float | None]  # by neighbour: max |g_ij + g_ji|; None: not known
    pull: float  # ‖Σ ρ(g_ij + g_ji)‖ over this site's edges: zero, or the answer is shifted
    lacking: str | None  # why a budget was too small to begin with, and what would do
    closed: Closed  # what was added up at the end, if all sites were there
    lost: Mapping[str, str]  # neighbours whose edge is closed, and why
    suspects: Mapping[str, str]  # neighbours that did what honest ones hardly can
    certificate: Certificate | None = None  # what was proven, likewise


@dataclass
class Agent:
    """One site's process."""

    mission: Mission
    carrier: Carrier
    store: Store
    pace: Pace = USUAL
    clock: Callable[[], float] = time.monotonic
    finishing: bool = False  # of a stream: whether to end with its source
    named: Callable[[], list[Event]] = list  # forgets whom the site's file names no more
    stopped: bool = False  # by `stop`: a later start goes on from there
    _look: float = -math.inf  # when to look at the links again

    @cached_property
    def desk(self) -> Desk:
        """The links, clock and timers that its phases share."""
        return Desk(self.carrier, self.pace, self.clock)

    @cached_property
    def _meet(self) -> Meet:
        begun = self.store.begun or bool(self.store.heard)  # then it has met them
        return Meet(self.desk, self.mission, begun=begun)

    @cached_property
    def _agree(self) -> Agree:
        return Agree(self.desk, self.mission, self.store, self._meet.greeted)

    @cached_property
    def _descend(self) -> Descend:
        return Descend(self.desk, self.mission, self.store, self._agree)

    @cached_property
    def follow(self) -> Follow | None:
        """The site's stream, if it has one."""
        return self.mission.follow(self.desk, self.store, self._agree, self.finishing)

    @cached_property
    def _train(self) -> Train:
        return Train(self.desk, self.mission, self.store, self._agree, self._descend)

    @cached_property
    def _close(self) -> Close:
        return Close(self.desk, self.mission, self._agree, self._train)

    @cached_property
    def _part(self) -> Farewell:
        return Farewell(self.desk, self._train)

    @property
    def agreed(self) -> Ready | None:
        """What all sites know alike, once they do."""
        return self._agree.result

    @property
    def node(self) -> Node | None:
        """The site in training, once it is."""
        return self._train.node

    @property
    def sweeps(self) -> list[dict[str, Any]]:
        """A line for every sweep over the tree that was made."""
        return self._descend.lines

    @property
    def certificate(self) -> Certificate | None:
        """What was proven of the model, once it is."""
        descent = self._descend.descent
        return self._close.certificate or (None if descent is None else descent.certificate)

    @property
    def rounds(self) -> int:
        """Sweeps over the tree, or rounds."""
        descent, node = self._descend.descent, self._train.node
        if node is None and self.follow is not None and self.follow.begun:
            return self.follow.stream.ticks
        if node is not None and not self._descend.done:
            return node.k
        return 0 if descent is None else descent.k

    def lines(self) -> list[dict[str, Any]]:
        """Of every sweep or round."""
        return self._descend.lines if self._descend.done else self.store.rounds(self.rounds)

    def stop(self) -> None:
        """Ends after what is being done; a later start goes on from there."""
        self.stopped = True

    def leave(self) -> None:
        """For good: closes every edge and ends."""
        self._train.leaving = True

    def run(self) -> Iterator[Status]:
        """All phases, or as many as there are before `stop`; a status when there is news."""
        follow = self.follow
        then: tuple[Phase, ...] = (self._descend,) if follow is None else (follow,)
        first: tuple[Phase, ...] = (self._meet, self._agree)
        for phase in (*first, *then, self._train, self._close, self._part):
            if self.stopped:
                break
            phase.begin()
            while not (self.stopped or phase.over()):
                if phase.work() or not self._listen(phase):
                    yield self._status(phase.name, phase)
        if self.stopped and follow is not None:
            follow.goodbye()
        if not self.stopped and self._train.trained.done:
            yield self._status("over", self._part)

    def _listen(self, phase: Phase) -> bool:
        """Whether anything came; what has come is heard before the phase works again."""
        wait, together = self.desk.pace.tick, phase.together
        for heard in range(len(self.carrier.neighbours)):
            got = self.carrier.receive(wait, together)
            if got is None:
                return heard > 0
            self._hear(*got)
            wait, together = 0.0, ()
        return True

    def _hear(self, sender: str, data: bytes) -> None:
        """A frame, for the phase that it concerns; what makes no sense is counted."""
        training = self._train.node is not None
        try:
            if not data or data[0] < LETTER:
                if training:
                    self._train.hear(sender, data)
                elif is_word(data):
                    self._descend.hand_over(f"{sender} has begun with rounds")
                return
            if is_pulse(data) and self.follow is not None:
                self.follow.hear(sender, decode_pulse(data))
                return
            match decode_letter(data):  # which refuses a stream's
                case Hello() as hello:
                    self._meet.hear(sender, hello, training=training)
                case Check() | Parted() as letter:
                    self._part.hear(sender, letter)
                case Proven() | Audited() as letter:
                    self._train.told(sender, letter)
                case letter:
                    self._agree.hear(sender, letter)
        except MessageError:
            self.desk.refused[sender] += 1

    def _status(self, name: str, phase: Phase) -> Status:
        node, desk = self._train.node, self.desk
        words = () if node is None else tuple(end.out for end in node.ends.values())
        sweep, ledger = {"spoke": False, "loss": np.nan, "away": np.inf}, self._agree.spent
        if node is None and self.sweeps:
            sweep = self.sweeps[-1]
        if self.follow is not None and self.follow.begun:
            _, ledger, sweep["loss"] = self.follow.told
        return Status(
            phase=name,
            round=self.rounds,
            events=self._events(),
            alive=tuple(sorted(desk.alive)),
            missing=tuple(phase.missing) if name != "over" else (),
            spoke=bool(sweep["spoke"] or any(word and word.payload for word in words)),
            loss=sweep["loss"] if node is None else self._train.loss,
            ledger=ledger if node is None else node.spent,
            away=sweep["away"] if node is None else node.away,
            countdown=None if node is None or node.countdown == NEVER else node.countdown,
            refused=desk.refused.total(),
        )

    def _events(self) -> tuple[Event, ...]:
        """What is new, of the links now and then only, for to look costs more than a word.

        Who has a new link is told everything again at once.
        """
        desk, now = self.desk, self.desk.clock()
        found, desk.news = desk.news, []
        if now >= self._look:
            self._look = now + desk.pace.again
            found = [*found, *self.named()]
            desk.alive = self.carrier.alive()
            found += self.carrier.events()
        for event in found:
            if event.kind == "up":
                desk.timers.pop(event.who, None)
        return tuple(found)

    def outcome(self) -> Learnt:
        """What training came to; ask when it is over."""
        node, apart = self._train.trained, self._part.apart()
        rho, known = node.setup.moves.rho, [x for x in apart.values() if x is not None]
        pulls, proven = sum(known, np.zeros(node.setup.moves.width)), self._close.certificate
        return Learnt(
            theta=node.theta[0] if self._close.u is None else self._close.u,
            rounds=self.rounds,
            converged=self._converged(node, proven),
            ledger=Ledger(*map(sum, zip(node.spent, self._close.ledger, strict=True))),
            certificate=proven,
            asymmetry={n: None if x is None else float(np.abs(x).max()) for n, x in apart.items()},
            pull=float(rho * np.sqrt(np.vecdot(pulls, pulls))),
            lacking=None if node.need is None else node.setup.lacking(node.need),
            closed=self._close.found,
            lost=node.lost(),
            suspects={} if node.setup.watch is None else dict(node.setup.watch.suspects),
        )

    def _converged(self, node: Node, proven: Certificate | None) -> bool:
        """Not by others' word alone: by this site's own test or limit, and the proof."""
        own = node.settled or node.k >= node.setup.limits.rounds or self._descend.done
        return node.done and own and (not node.short if proven is None else proven.holds)
