"""One site on a network, from the first greeting to the last word; a loop over what arrives.

    meet     neighbours compare their settings, in words; a difference stops both, by name
    agree    the conversation of `coke.run.talk`, over links that lose things
    train    rounds of `coke.agents.site`: durable before sent, sent again until answered
    part     everybody knows of the end; both ends of every edge compare their duals

The mathematics is in `site`, the network in a `Carrier`, the disk in a `Store`; here are only the
clock and the order of things. `run` yields a status whenever there is something to tell.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from coke.agents.agreeing import Agreeing
from coke.agents.carriers import Carrier, Event
from coke.agents.edge import Setup
from coke.agents.letters import (
    FIRST,
    Ask,
    Check,
    Hello,
    Letter,
    Said,
    Totals,
    Want,
    decode,
    differing,
    encode,
)
from coke.agents.site import Site, Turn, image, restored, started
from coke.agents.store import Heard, Store
from coke.agents.timers import Pace, Timers
from coke.errors import ConfigError, MessageError
from coke.maths.arrays import Array
from coke.maths.stopping import NEVER
from coke.run.ledger import Ledger
from coke.run.talk import Talk

R = TypeVar("R")


class Mission(Protocol[R]):
    """What the agent is for: its rows and settings, and how they become a risk to minimise."""

    @property
    def name(self) -> str:
        """The site."""
        ...

    @property
    def settings(self) -> dict[str, str]:
        """What must be the same at all sites, in words."""
        ...

    @property
    def run(self) -> str:
        """A digest of the site's rows and settings: what a state folder belongs to."""
        ...

    @property
    def rounds(self) -> int:
        """At most so many."""
        ...

    @property
    def joins(self) -> bool:
        """Whether the others have agreed already, without this site."""
        ...

    def talk(self) -> Talk[R]:
        """The conversation to come to an agreement."""
        ...

    def join(self, totals: Sequence[bytes]) -> R:
        """The same from what the others have agreed on."""
        ...

    def totals(self, agreed: R) -> Sequence[bytes]:
        """What sites that join later need to know."""
        ...

    def setup(self, agreed: R) -> Setup:
        """What stays fixed in training."""
        ...


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


class Outcome(NamedTuple):
    """What training came to."""

    theta: Array  # (D,) in the basis of the setup
    rounds: int
    converged: bool
    ledger: Ledger  # of this site, agreement included
    asymmetry: Mapping[str, float | None]  # by neighbour: max |g_ij + g_ji|; None: not known
    pull: float  # ‖Σ ρ(g_ij + g_ji)‖ over this site's edges: zero, or the answer is shifted


class Agent(Generic[R]):
    """One site's process."""

    def __init__(
        self,
        mission: Mission[R],
        carrier: Carrier,
        store: Store,
        pace: Pace = Pace(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ):
        self.mission, self.carrier, self.store, self.pace = mission, carrier, store, pace
        self.neighbours = sorted(carrier.neighbours)
        self.site: Site | None = None
        self.agreed: R | None = None
        self._agreeing: Agreeing[R] | None = None
        self._given: tuple[bytes, ...] | None = None
        self._greeted: set[str] = set()
        self._checks: dict[str, Check] = {}
        self._refused: Counter[str] = Counter()
        self._clock, self._timers = clock, Timers(pace, clock)
        self._durations: deque[float] = deque(maxlen=20)
        self._stop = self._leaving = False
        self._before = Ledger()  # spent on the agreement
        self._alive: frozenset[str] = frozenset()

    def stop(self) -> None:
        """Ends after what is being done; a later start goes on from there."""
        self._stop = True

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
            check = self._checks.get(name)
            same = check is not None and (check.epoch, check.step) == (end.epoch, end.s)
            if check is None or not same or check.g.shape != end.g.shape:
                asymmetry[name] = None
                continue
            apart = end.g + check.g
            pulls, asymmetry[name] = pulls + apart, float(np.abs(apart).max())
        pull = float(setup.algorithm.rho * np.sqrt(np.vecdot(pulls, pulls)))
        good = site.done and not site.short
        return Outcome(site.theta[0], site.k, good, self._ledger(), asymmetry, pull)

    def _trained(self) -> Site:
        assert self.site is not None, "training has not begun"
        return self.site

    # Meeting

    def _meet(self) -> Iterator[Status]:
        hello = Hello(self.mission.settings, back=True)
        enough = 1 if self.mission.joins else len(self.neighbours)
        while len(self._greeted) < enough and not self._stop:
            for name in self._timers.due(set(self.neighbours) - self._greeted):
                self.carrier.send(name, encode(hello))
            self._receive()
            yield self._status("meet", sorted(set(self.neighbours) - self._greeted))
        self._timers.clear()

    def _hello(self, sender: str, hello: Hello) -> None:
        # Ours first: the other end, too, should be able to say what differs.
        if hello.back:
            self.carrier.send(sender, encode(Hello(self.mission.settings, back=False)))
        different = differing(self.mission.settings, hello.settings)
        if different:
            time.sleep(0.2)  # so that the answer leaves before the link does
            raise ConfigError(
                f"{self.mission.name} and {sender} do not fit together: {different}; "
                "make them equal at all sites"
            )
        self._greeted.add(sender)

    # Agreeing

    def _agree(self) -> Iterator[Status]:
        if self._stop:
            return
        m = self.mission
        heard = self.store.heard(Heard(m.name, m.run, m.settings, {}, None))
        if m.joins or heard.totals is not None:
            yield from self._take_over(heard)
            return
        talking = self._agreeing = Agreeing(m.talk(), self.neighbours)
        talking.heard.update({n: list(m) for n, m in heard.messages.items() if n in talking.heard})
        letters = talking.begin() + talking.advance()
        self._send_all(letters)
        while not (talking.done or self._stop):
            for name, ask in [a for a in talking.asks() if a[0] in self._timers.due({a[0]})]:
                self.carrier.send(name, encode(ask))
            self._receive()
            if any(map(len, talking.heard.values())) and not talking.waiting():
                self.store.keep_heard(Heard(m.name, m.run, m.settings, talking.heard, None))
                self._send_all(talking.advance())
                self._timers.clear()
            yield self._status("agree", talking.waiting())
        self.agreed, self._before = talking.result, talking.ledger

    def _take_over(self, heard: Heard) -> Iterator[Status]:
        """What the others agreed on before this site came."""
        self._given = None if heard.totals is None else tuple(heard.totals)
        while self._given is None and not self._stop:
            for name in self._timers.due(self._greeted):
                self.carrier.send(name, encode(Want()))
            self._receive()
            yield self._status("agree", sorted(self._greeted))
        if self._given is not None:
            m = self.mission
            self.store.keep_heard(Heard(m.name, m.run, m.settings, {}, list(self._given)))
            self.agreed = m.join(self._given)
        self._timers.clear()

    def _send_all(self, letters: Sequence[tuple[str, Said]]) -> None:
        for name, said in letters:
            self.carrier.send(name, encode(said))

    # Training

    def _train(self) -> Iterator[Status]:
        if self._stop or self.agreed is None:
            return
        self._begin(self.mission.setup(self.agreed))
        since = self._clock()
        while not (self._stop or self._trained().done):
            site = self._trained()
            if self._leaving:
                yield from self._leave()
                return
            if site.k >= self.mission.rounds:
                site = self.site = site.declare()
            missing = [name for name, end in site.open.items() if not end.due]
            late = self._clock() - since > self._patience() and len(missing) < len(site.open)
            if site.ready() or late:
                turn = site.round(force=True)
                self._durations.append(self._clock() - since)
                since = self._clock()
                self._keep(turn, said=True)
                yield self._status("train", missing if late else [])
                continue
            for name in self._timers.due(set(missing)):
                self._post(site.resend(name))
            if not self._receive():
                yield self._status("train", missing)

    def _begin(self, setup: Setup) -> None:
        """From the disk, or from zero; with the neighbours that the settings name now."""
        data = self.store.image()
        if data is None:
            self.site = started(setup, self.neighbours)
            if self.mission.joins:
                self.site = self.site._replace(
                    setup=replace(setup, diameter=2 * setup.diameter + 2)
                )
                for name in self.neighbours:
                    self._keep(self._trained().join(name))
        else:
            self.site = restored(data, setup)
            gone = [n for n in self.site.open if n not in self.neighbours]
            new = [n for n in self.neighbours if n not in self.site.ends]
            if gone:
                self._keep(self.site.close(*gone))
            for name in new:
                self._keep(self._trained().join(name))
        self.store.rounds(self._trained().k)
        self._post(self._trained().resend())

    def _patience(self) -> float:
        usual = median(self._durations) if self._durations else 0.0
        return self.pace.patience_for(usual)

    def _leave(self) -> Iterator[Status]:
        """Until every neighbour has echoed, or after a while."""
        self._keep(self._trained().leave())
        closed = [n for n, end in self._trained().ends.items() if end.closed]
        until = self._clock() + self.pace.linger
        while self._clock() < until and not self._stop:
            for name in self._timers.due(set(closed)):
                self._post(self._trained().close(name).letters)
            self._receive()
            yield self._status("part", [])

    def _keep(self, turn: Turn, said: bool = False) -> None:
        """On disk first, then on its way."""
        before, self.site = self._trained(), turn.site
        if turn.durable:
            self.store.keep_image(image(turn.site))
        self._post(turn.letters)
        if said and turn.site.k > before.k:
            self._timers.clear()
            self.store.append(self._line(before, turn.site))

    def _line(self, before: Site, site: Site) -> dict[str, object]:
        spoke = site.ledger.transmissions > before.ledger.transmissions
        total = self._ledger()._asdict()
        return {"round": site.k, "spoke": spoke, "loss": site.loss, "away": self._away(), **total}

    def _post(self, letters: Sequence[tuple[str, bytes]]) -> None:
        for name, frame in letters:
            if name in self.carrier.neighbours:  # one that was forgotten has no link any more
                self.carrier.send(name, frame)

    # Parting

    def _part(self) -> Iterator[Status]:
        """Until all neighbours know of the end and have shown their duals, or after a while."""
        if self._stop or self.site is None or not self.site.done:
            return
        until = self._clock() + self.pace.linger
        while self._clock() < until and not self._stop:
            site = self._trained()
            open_ = set(site.open) & self.carrier.neighbours
            lacking = {n for n in open_ if n not in self._checks or not site.ends[n].ending}
            if not lacking:
                break
            for name in self._timers.due(lacking):
                self._post(site.resend(name))
                self._post([(name, encode(self._check(name)))])
            self._receive()
            yield self._status("part", sorted(lacking))
        yield self._status("over", [])

    def _check(self, name: str) -> Check:
        end = self._trained().ends[name]
        return Check(end.epoch, end.s, end.g)

    # What arrives

    def _receive(self) -> bool:
        """One frame, if one comes in time; whether one came."""
        got = self.carrier.receive(self.pace.tick)
        if got is None:
            return False
        sender, data = got
        try:
            if data and data[0] >= FIRST:
                self._letter(sender, decode(data))
            elif self.site is not None:
                self._word(sender, data)
        except MessageError:
            self._refused[sender] += 1
        return True

    def _word(self, sender: str, data: bytes) -> None:
        site = self._trained()
        try:
            self._keep(site.hear(sender, data))
        except MessageError:
            self._refused[sender] += 1
            self._keep(site.offended(sender, data))

    def _letter(self, sender: str, letter: Letter) -> None:
        match letter:
            case Hello():
                self._hello(sender, letter)
            case Said():
                if self._agreeing is not None:
                    self._agreeing.hear(sender, letter)
            case Ask():
                said = self._agreeing.answer(letter, sender) if self._agreeing else None
                if said is not None:
                    self.carrier.send(sender, encode(said))
            case Want():
                if self.agreed is not None:
                    totals = Totals(tuple(self.mission.totals(self.agreed)))
                    self.carrier.send(sender, encode(totals))
            case Totals(totals):
                if self._given is None and self.mission.joins:
                    self._given = totals
            case Check():
                self._checked(sender, letter)

    def _checked(self, sender: str, check: Check) -> None:
        """Kept once this site, too, is done; answered once."""
        if self.site is None or not self.site.done or sender not in self.site.ends:
            return
        if sender not in self._checks:
            self._post([(sender, encode(self._check(sender)))])
        self._checks[sender] = check

    # Telling

    def _ledger(self) -> Ledger:
        own = Ledger() if self.site is None else self.site.ledger
        return Ledger(*(a + b for a, b in zip(self._before, own, strict=True)))

    def _away(self) -> float:
        """The largest move or disagreement on this site's edges, in units of tol."""
        site = self._trained()
        ends = site.open.values()
        gaps = [x for e in ends for x in (site.theta[0] - e.own, e.own - e.cp)] or [np.zeros(1)]
        tol = site.setup.tol
        return max(float(np.sqrt(np.vecdot(x, x))) for x in gaps) / tol if tol else np.inf

    def _status(self, phase: str, missing: Sequence[str]) -> Status:
        events = tuple(self.carrier.events())
        for event in events:
            if event.kind == "up":
                self._timers.now(event.who)
        s = self.site
        alive = tuple(sorted(self.carrier.alive()))
        running = None if s is None or s.countdown == NEVER else s.countdown
        spoke = s is not None and any(e.out is not None and e.out.payload for e in s.ends.values())
        return Status(
            phase, 0 if s is None else s.k, alive, tuple(missing), spoke,
            np.nan if s is None else s.loss, self._ledger(),
            np.inf if s is None else self._away(), running, events, sum(self._refused.values()),
        )  # fmt: skip
