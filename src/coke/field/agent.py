"""One site on a network, from the first greeting to the last word; a loop over what arrives.

    meet     neighbours compare their settings, in words; a difference stops both, by name
    agree    the conversation of `coke.talk.conversation`, over links that lose things
    train    rounds of `coke.field.node`: durable before sent, sent again until answered
    part     everybody knows of the end; both ends of every edge compare their duals

The phases are objects of `coke.field.phases` and `coke.field.training`, the network is a `Carrier`,
the disk a `Store`; here are only the loop, who hears what, and what there is to tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from coke.errors import MessageError
from coke.field.carriers.base import Carrier, Event
from coke.field.frames import LETTER, Check, Hello, decode_letter
from coke.field.mission import Mission
from coke.field.node import Node
from coke.field.pace import Desk, Pace
from coke.field.phases import Agree, Meet, Phase
from coke.field.store import Store
from coke.field.training import Part, Train
from coke.learning.ready import Ready
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger


class Status(NamedTuple):
    """What there is to tell."""

    phase: str  # meet, agree, train, part or over
    round: int
    alive: tuple[str, ...]  # neighbours with a live link
    missing: tuple[str, ...]  # those one waits for
    spoke: bool  # whether the last round's words had news
    loss: float
    ledger: Ledger
    away: float  # how far from tol: 1 or less once this site is content
    countdown: int | None
    events: tuple[Event, ...]
    refused: int  # frames that made no sense


class Learnt(NamedTuple):
    """What training came to."""

    theta: Array  # (D,) in the basis of the setup
    rounds: int
    converged: bool
    ledger: Ledger  # of this site, agreement included
    asymmetry: Mapping[str, float | None]  # by neighbour: max |g_ij + g_ji|; None: not known
    pull: float  # ‖Σ ρ(g_ij + g_ji)‖ over this site's edges: zero, or the answer is shifted
    dual: float  # the largest entry of ρ|g_ij|: a cap below it changes the answer
    lacking: str | None  # why a budget was too small to begin with, and what would do


class Agent:
    """One site's process."""

    def __init__(
        self,
        mission: Mission,
        carrier: Carrier,
        store: Store,
        pace: Pace = Pace(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ):
        self.mission, self.carrier, self.store = mission, carrier, store
        self.stopped = False
        self.desk = Desk(carrier, pace, clock)
        self._meet = Meet(self.desk, mission, begun=store.begun)
        self._agree = Agree(self.desk, mission, store, self._meet.greeted)
        self._train = Train(self.desk, mission, store, self._agree)
        self._part = Part(self.desk, self._train)

    @property
    def agreed(self) -> Ready | None:
        """What all sites know alike, once they do."""
        return self._agree.result

    @property
    def node(self) -> Node | None:
        """The site in training, once it is."""
        return self._train.node

    def stop(self) -> None:
        """Ends after what is being done; a later start goes on from there."""
        self.stopped = True

    def leave(self) -> None:
        """For good: closes every edge and ends."""
        self._train.leaving = True

    def run(self) -> Iterator[Status]:
        """All phases, or as many as there are before `stop`; a status when there is news."""
        phases: tuple[Phase, ...] = (self._meet, self._agree, self._train, self._part)
        for phase in phases:
            if self.stopped:
                return
            phase.begin()
            while not (self.stopped or phase.over()):
                if phase.work() or not self._receive():
                    yield self._status(phase.name, phase)
        if not self.stopped and self._train.trained.done:
            yield self._status("over", self._part)

    def _receive(self) -> bool:
        """One frame, if one comes in time; whether one came."""
        got = self.carrier.receive(self.desk.pace.tick)
        if got is None:
            return False
        sender, data = got
        try:
            if data and data[0] >= LETTER:
                self._hear(sender, data)
            elif self._train.node is not None:
                self._train.hear(sender, data)
        except MessageError:
            self.desk.refused[sender] += 1
        return True

    def _hear(self, sender: str, data: bytes) -> None:
        match decode_letter(data):
            case Hello() as hello:
                self._meet.hear(sender, hello, training=self._train.node is not None)
            case Check() as check:
                self._part.hear(sender, check)
            case letter:
                self._agree.hear(sender, letter)

    def _status(self, name: str, phase: Phase) -> Status:
        node, desk = self._train.node, self.desk
        ends = () if node is None else tuple(node.ends.values())
        return Status(
            phase=name,
            round=0 if node is None else node.k,
            events=desk.events(),
            alive=tuple(sorted(desk.alive)),
            missing=tuple(phase.missing) if name != "over" else (),
            spoke=any(end.out is not None and bool(end.out.payload) for end in ends),
            loss=np.nan if node is None else float(node.state.loss[0]),
            ledger=self._agree.ledger if node is None else node.spent,
            away=self._train.away(),
            countdown=None if node is None or node.countdown == NEVER else node.countdown,
            refused=desk.refused.total(),
        )

    def outcome(self) -> Learnt:
        """What training came to; ask when it is over."""
        node, apart = self._train.trained, self._part.apart()
        rho, known = node.setup.moves.rho, [x for x in apart.values() if x is not None]
        pulls = sum(known, np.zeros(node.setup.width))
        return Learnt(
            theta=node.theta[0],
            rounds=node.k,
            converged=node.done and not node.short,
            ledger=node.spent,
            asymmetry={n: None if x is None else float(np.abs(x).max()) for n, x in apart.items()},
            pull=float(rho * np.sqrt(np.vecdot(pulls, pulls))),
            dual=rho * max((float(np.abs(e.g).max()) for e in node.open.values()), default=0.0),
            lacking=_lacking(node),
        )


def _lacking(node: Node) -> str | None:
    """Why nothing could be said even in round 1; None where something could."""
    if node.need is None:
        return None
    limits, N, spent = node.setup.limits, node.setup.sites, node.setup.spent
    budget = {"max_transmissions": limits.max_transmissions, "max_bytes": limits.max_bytes}
    needs = zip(budget, node.need, strict=False)
    enough = " and ".join(f"{key}={N * n}" for key, n in needs if budget[key] is not None)
    return (
        f"a budget of {budget} is too small: {node.setup.name!r}, whose share is one part in {N}, "
        f"had sent {spent.bytes} bytes in {spent.transmissions} transmissions to agree, and its "
        f"first message would have made it {node.need.bytes} in {node.need.transmissions}; for "
        f"this site {enough} would do"
    )
