"""One site on a network, from the first greeting to the last word; a loop over what arrives.

    meet     neighbours compare their settings, in words; a difference stops both, by name
    agree    the conversation of `coke.talk.conversation`, over links that lose things
    train    rounds of `coke.field.node`: durable before sent, sent again until answered
    part     everybody knows of the end; both ends of every edge compare their duals

The mathematics is in `site`, the network in a `Carrier`, the disk in a `Store`; here are only the
clock and the order of things. `run` yields a status whenever there is something to tell. The first
two phases are in `coke.field.phases`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from coke.errors import ConvergenceError, MessageError
from coke.field.carriers.base import Carrier, Event
from coke.field.edge import STRIKES, End, Setup
from coke.field.letters import Check, encode
from coke.field.node import Site, Turn, started
from coke.field.pace import Pace
from coke.field.phases import Meeting
from coke.field.state import image, restored
from coke.field.status import Mission, R, Status
from coke.field.store import Store
from coke.field.words import CLOSED
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger

__all__ = ["Agent", "Mission", "Outcome", "Status"]


class Outcome(NamedTuple):
    """What training came to."""

    theta: Array  # (D,) in the basis of the setup
    rounds: int
    converged: bool
    ledger: Ledger  # of this site, agreement included
    asymmetry: Mapping[str, float | None]  # by neighbour: max |g_ij + g_ji|; None: not known
    pull: float  # ‖Σ ρ(g_ij + g_ji)‖ over this site's edges: zero, or the answer is shifted
    dual: float  # the largest entry of ρ|g_ij|: a cap below it changes the answer


class Agent(Meeting[R]):
    """One site's process."""

    def __init__(
        self,
        mission: Mission[R],
        carrier: Carrier,
        store: Store,
        pace: Pace = Pace(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(mission, carrier, store, pace, clock)
        self._checks: dict[str, Check] = {}
        self._echoed: set[str] = set()  # who knows that this site has left
        self._durations: deque[float] = deque(maxlen=20)
        self._leaving = False

    def leave(self) -> None:
        """For good: closes every edge and ends."""
        self._leaving = True

    def run(self) -> Iterator[Status]:
        """All phases, or as many as there are before `stop`."""
        yield from self._meet()
        yield from self._agree()
        yield from self._train()
        yield from self._part()

    def outcome(self) -> Outcome:
        """What training came to; ask when it is over."""
        site, setup = self._trained(), self._trained().setup
        pulls, asymmetry = np.zeros(setup.risk.size), dict[str, float | None]()
        for name, end in site.open.items():
            apart = self._apart(name, end)
            asymmetry[name] = None if apart is None else float(np.abs(apart).max())
            pulls = pulls if apart is None else pulls + apart
        rho, good = setup.algorithm.rho, site.done and not site.short
        pull = float(rho * np.sqrt(np.vecdot(pulls, pulls)))
        dual = rho * max((float(np.abs(end.g).max()) for end in site.open.values()), default=0.0)
        return Outcome(site.theta[0], site.k, good, self._ledger(), asymmetry, pull, dual)

    def _apart(self, name: str, end: End) -> Array | None:
        """g_ij + g_ji; None where it cannot be known.

        The other end may be a step behind when all is over: what the step added is taken back,
        which is exact where no cap has clipped it.
        """
        check = self._checks.get(name)
        ahead = 2 if check is None or check.epoch != end.epoch else end.s - check.step
        exact = ahead == 0 or (ahead == 1 and np.isinf(self._trained().setup.cap))
        if check is None or not exact or check.g.shape != end.g.shape:
            return None
        return end.g - ahead * (end.own - end.cp) + check.g

    def _trained(self) -> Site:
        assert self.site is not None, "training has not begun"
        return self.site

    # Training

    def _train(self) -> Iterator[Status]:
        if self.stopped or self.agreed is None:
            return
        self._begin(self.mission.setup(self.agreed))
        since = self._clock()
        while not (self.stopped or self._trained().done):
            if self._leaving:
                yield from self._leave()
                return
            site = self.site = self._ready()
            missing = [name for name, end in site.open.items() if not end.due]
            late = self._clock() - since > self._patience(missing)
            if site.ready() or late:
                turn = site.round(force=True)
                if not late:  # else the usual would become what is waited for the missing
                    self._durations.append(self._clock() - since)
                since = self._clock()
                self._keep(turn, said=True)
                yield self._status("train", missing if late else [])
                continue
            # To all, not only to those one waits for: around a circle of lost words each would
            # have the word of the one that waits for it, and nobody would say his own again.
            for name in self._timers.due(site.open):
                self._post(site.resend(name))
            if not self._receive():
                yield self._status("train", missing)

    def _ready(self) -> Site:
        """Before a round: is anybody left, has the graph changed, is the limit reached?"""
        site = self._trained()
        if not site.open:
            raise ConvergenceError(
                f"every edge of {self.mission.name!r} is closed: its neighbours have left, have "
                "forgotten it, or were refused; to come back, set joins = true in [site] and "
                "start it again"
            )
        wide = site.wide or site.open.keys() != set(self._first)
        if wide and site.setup.diameter != self._widest():
            setup = replace(site.setup, diameter=self._widest())
            site = site._replace(setup=setup, wide=True, laps=0)
        return site.declare() if site.k >= self.mission.rounds else site

    def _widest(self) -> int:
        """A bound on the diameter once sites have come or gone, and nobody knows the graph.

        Everybody knows in time: a site next to the change counts from zero, so no count elsewhere
        gets beyond the old diameter before a word from there has brought the news. No more sites
        are taken to have come than there were.
        """
        assert self.agreed is not None
        return 2 * self.mission.widest(self.agreed) + 1

    def _begin(self, setup: Setup) -> None:
        """From the disk, or from zero; with the neighbours that the settings name now."""
        site = self.store.image(partial(restored, setup=setup))
        for path in self.store.spoilt:
            why = "cannot be read: going on from the state before, which neighbours may notice"
            self.tell(Event("spoilt", path.name, why))
        fresh = site is None
        self.site = site = started(setup, self.neighbours) if site is None else site
        if not site.done:
            gone = [n for n in site.open if n not in self.neighbours]
            if gone:
                self._keep(site.close(*gone))
            for name in self.neighbours:
                if self._opens(site, name, fresh):
                    self._keep(self._trained().join(name))
        self.store.rounds(self._trained().k)
        self._post(self._trained().resend())

    def _opens(self, site: Site, name: str, fresh: bool) -> bool:
        """A neighbour that is new; for a site that joins, all but those struck out."""
        if name not in site.ends:
            return True
        end = site.ends[name]
        back = fresh or (end.closed and end.strikes < STRIKES)
        return self.mission.joins and back

    def _patience(self, missing: list[str]) -> float:
        """Seconds to wait for the missing.

        A round in which nobody is heard says nothing new, so it is only made at the end: whoever
        knows of it needs nobody to finish, and those who waited for this site may have gone.
        """
        site, usual = self._trained(), median(self._durations) if self._durations else 0.0
        patience = self.pace.patience_for(usual)
        if site.countdown < NEVER:
            return min(patience, self.pace.linger)
        return patience if len(missing) < len(site.open) else np.inf

    def _leave(self) -> Iterator[Status]:
        """Until every neighbour has echoed, or after a while."""
        self._keep(self._trained().leave())
        closed = {n for n, end in self._trained().ends.items() if end.closed}
        until = self._clock() + self.pace.linger
        while self._clock() < until and not self.stopped and closed - self._echoed:
            for name in self._timers.due(closed - self._echoed):
                self._post(self._trained().close(name).letters)
            self._receive()
            yield self._status("part", sorted(closed - self._echoed))

    def _keep(self, turn: Turn, said: bool = False) -> None:
        """On disk first, then on its way."""
        before, self.site = self._trained(), turn.site
        if turn.durable:
            self.store.keep_image(image(turn.site))
        self._post(turn.letters)
        ends = turn.site.ends
        self._timers.restart(n for n, e in before.ends.items() if e.out is not ends[n].out)
        if said and turn.site.k > before.k:
            self.store.append(self._line(before, turn.site))

    def _line(self, before: Site, site: Site) -> dict[str, object]:
        spoke = site.ledger.transmissions > before.ledger.transmissions
        total = self._ledger()._asdict()
        return {"round": site.k, "spoke": spoke, "loss": site.loss, "away": self._away(), **total}

    def _word(self, sender: str, data: bytes) -> None:
        site = self._trained()
        try:
            self._keep(site.hear(sender, data))
        except MessageError:
            self._refused[sender] += 1
            self._keep(site.offended(sender, data))
        if self._leaving and data[:1] == bytes([CLOSED]):
            self._echoed.add(sender)

    # Parting

    def _part(self) -> Iterator[Status]:
        """Until all neighbours know of the end and have shown their duals, or after a while."""
        if self.stopped or self.site is None or not self.site.done:
            return
        until = self._clock() + self.pace.linger
        while self._clock() < until and not self.stopped:
            site = self._trained()
            open_ = set(site.open) & self.carrier.neighbours
            lacking = {n for n in open_ if not (self._settled(n) and site.ends[n].ending)}
            if not lacking:
                break
            for name in self._timers.due(lacking):
                self._post(site.resend(name))
                self._post([(name, encode(self._check(name)))])
            self._receive()
            yield self._status("part", sorted(lacking))
        yield self._status("over", [])

    def _settled(self, name: str) -> bool:
        """Whether both have the other's duals, as far as can be known."""
        return name in self._checks and self._checks[name].had

    def _check(self, name: str) -> Check:
        end = self._trained().ends[name]
        return Check(end.epoch, end.s, end.g, had=name in self._checks)

    def _checked(self, sender: str, check: Check) -> None:
        """Kept once this site, too, is done; answered where the sender still lacks ours."""
        if self.site is None or not self.site.done or sender not in self.site.ends:
            return
        self._checks[sender] = check
        if not check.had:
            self._post([(sender, encode(self._check(sender)))])
