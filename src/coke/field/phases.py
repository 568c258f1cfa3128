"""The first half of a site's time on a network: it meets its neighbours and agrees with them.

    meet     neighbours compare their settings, in words; a difference stops both, by name
    agree    the conversation of `coke.talk.conversation`, over links that lose things

Until training begins a site depends on every other, so what does not fit stops it. From then on
nothing that a neighbour says does: it is refused and counted. A site that has begun to train before
meets nobody first: whoever is away then must not hold it up.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Generic

import numpy as np

from coke.errors import ConfigError, InputError, MessageError
from coke.field.agreeing import Agreeing
from coke.field.carriers.base import Carrier, Event
from coke.field.letters import (
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
from coke.field.node import Site
from coke.field.pace import Pace, Timers
from coke.field.status import Mission, R, Status
from coke.field.store import Heard, Store
from coke.maths.algorithms.stopping import NEVER
from coke.maths.ledger import Ledger


class Meeting(Generic[R]):
    """One site's process until it can train; and what it hears at any time."""

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
        self.stopped = False  # by `stop`
        self._agreeing: Agreeing[R] | None = None
        self._first: tuple[str, ...] = ()  # the neighbours of the agreement; none where one joins
        self._greeted: set[str] = set()
        self._refused: Counter[str] = Counter()
        self._clock, self._timers = clock, Timers(pace, clock)
        self._before = Ledger()  # spent on the agreement
        self._look, self._alive = -math.inf, tuple[str, ...]()
        self._news: list[Event] = []  # beside what the carrier tells

    def stop(self) -> None:
        """Ends after what is being done; a later start goes on from there."""
        self.stopped = True

    # Meeting

    def _meet(self) -> Iterator[Status]:
        hello = Hello(self.mission.settings, back=True)
        enough = 1 if self.mission.joins else len(self.neighbours)
        enough = 0 if self.store.begun else enough
        while len(self._greeted) < enough and not self.stopped:
            for name in self._timers.due(set(self.neighbours) - self._greeted):
                self.carrier.send(name, encode(hello))
            self._receive()
            yield self._status("meet", sorted(set(self.neighbours) - self._greeted))
        self._timers.restart(self.neighbours)

    def _hello(self, sender: str, hello: Hello) -> None:
        # Ours first: the other end, too, should be able to say what differs.
        if hello.back:
            self.carrier.send(sender, encode(Hello(self.mission.settings, back=False)))
        different = differing(self.mission.settings, hello.settings)
        if different:
            text = (
                f"{self.mission.name} and {sender} do not fit together: {different}; "
                "make them equal at all sites"
            )
            if self.site is not None:
                raise MessageError(text)
            time.sleep(0.2)  # so that the answer leaves before the link does
            raise ConfigError(text)
        self._greeted.add(sender)

    # Agreeing

    def _agree(self) -> Iterator[Status]:
        if self.stopped:
            return
        m = self.mission
        heard = self.store.heard(Heard(m.name, m.run, m.settings, {}, None))
        if heard.totals is not None or (m.joins and not heard.messages):
            yield from self._take_over(heard.totals)
            return
        talking = self._held_again(heard)
        while not (talking.done or self.stopped):
            for name, ask in [a for a in talking.asks() if a[0] in self._timers.due({a[0]})]:
                self.carrier.send(name, encode(ask))
            self._receive()
            if any(map(len, talking.heard.values())) and not talking.waiting():
                self._advance(talking)
                self._timers.restart(self.neighbours)
            yield self._status("agree", talking.waiting())
        self.agreed, self._before = talking.result, talking.ledger

    def _advance(self, talking: Agreeing[R]) -> None:
        """On disk before what follows from it is sent; and only what something follows from."""
        m, letters = self.mission, talking.advance()
        self.store.keep_heard(Heard(m.name, m.run, m.settings, talking.used, None))
        self._send_all(letters)

    def _held_again(self, heard: Heard) -> Agreeing[R]:
        """The conversation as far as it went, with the neighbours that it began with.

        Neighbours that came later took over its totals; those that went are in them.
        """
        self._first = tuple(sorted(heard.messages) or self.neighbours)
        talk = self.mission.talk(self._first)
        talking = self._agreeing = Agreeing(talk, self._first, heard.messages)
        self._send_all(talking.advance())
        if not talking.done and [*self._first] != self.neighbours:
            raise ConfigError(
                f"the neighbours of {self.mission.name!r} are {', '.join(self.neighbours)}, but "
                f"the agreement began with {', '.join(self._first)} and is not complete: restore "
                "them until it is, or begin a new run"
            )
        return talking

    def _take_over(self, totals: Sequence[bytes] | None) -> Iterator[Status]:
        """What the others agreed on before this site came."""
        if totals is not None:
            self.agreed = self.mission.join(totals)
        while self.agreed is None and not self.stopped:
            for name in self._timers.due(self._greeted):
                self.carrier.send(name, encode(Want()))
            self._receive()
            yield self._status("agree", sorted(self._greeted))
        self._timers.restart(self.neighbours)

    def _taken(self, sender: str, totals: Sequence[bytes]) -> None:
        """Kept only where they lead somewhere: another neighbour may tell better ones."""
        m = self.mission
        if self.agreed is not None or self._agreeing is not None or sender not in self._greeted:
            return
        try:
            agreed = m.join(totals)
        except InputError as error:
            raise MessageError(f"{sender} tells totals that are of no use: {error}") from error
        self.store.keep_heard(Heard(m.name, m.run, m.settings, {}, list(totals)))
        self.agreed = agreed

    def _send_all(self, letters: Sequence[tuple[str, Said]]) -> None:
        self._post([(name, encode(said)) for name, said in letters])

    def _post(self, letters: Sequence[tuple[str, bytes]]) -> None:
        for name, frame in letters:
            if name in self.carrier.neighbours:  # one that was forgotten has no link any more
                self.carrier.send(name, frame)

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
                if self.mission.joins:
                    self._taken(sender, totals)
            case Check():
                self._checked(sender, letter)

    def _word(self, sender: str, data: bytes) -> None:
        """A word of training."""
        raise NotImplementedError

    def _checked(self, sender: str, check: Check) -> None:
        """The other end of an edge, when all was over."""
        raise NotImplementedError

    # Telling

    def _ledger(self) -> Ledger:
        own = Ledger() if self.site is None else self.site.ledger
        return Ledger(*(a + b for a, b in zip(self._before, own, strict=True)))

    def _away(self) -> float:
        """The largest move or disagreement on this site's edges, in units of tol."""
        site = self.site
        if site is None or not site.setup.tol:
            return np.inf
        ends = site.open.values()
        gaps = [x for e in ends for x in (site.theta[0] - e.own, e.own - e.cp)] or [np.zeros(1)]
        return max(float(np.sqrt(np.vecdot(x, x))) for x in gaps) / site.setup.tol

    def tell(self, event: Event) -> None:
        """With the next status."""
        self._news.append(event)

    def _looked_at_links(self) -> tuple[Event, ...]:
        """What happened to the links; not in every round, for that costs more than a word."""
        now = self._clock()
        if now < self._look:
            return ()
        self._look = now + self.pace.again
        self._alive = tuple(sorted(self.carrier.alive()))
        return tuple(self.carrier.events())

    def _status(self, phase: str, missing: Sequence[str]) -> Status:
        events = (*self._news, *self._looked_at_links())
        self._news.clear()
        for event in events:
            if event.kind == "up":
                self._timers.now(event.who)
        s, alive = self.site, self._alive
        running = None if s is None or s.countdown == NEVER else s.countdown
        spoke = s is not None and any(e.out is not None and e.out.payload for e in s.ends.values())
        return Status(
            phase, 0 if s is None else s.k, alive, tuple(missing), spoke,
            np.nan if s is None else s.loss, self._ledger(),
            self._away(), running, events, sum(self._refused.values()),
        )  # fmt: skip
