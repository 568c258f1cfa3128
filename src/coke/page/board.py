"""What an agent has told of itself, for whoever looks: bounded, and never in the way of training.

Training's thread only puts down what is new (`take`); nothing waits for anything here. All that is
looked at (statuses, nodes) never changes once it is made, so the page's thread reads it as it is.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coke.field.agent import Agent, Status
    from coke.field.carriers.base import Event
    from coke.field.edge import End
    from coke.learning.ready import Ready
    from coke.maths.losses.excess import Certificate

MOST = 1000  # moments kept; beyond twice as many, every other one is forgotten
ROUNDS = 400  # the last ones in which anybody had news
EVENTS = 500
SILENT = 2.0  # seconds for which a neighbour with a link has been waited for
Document = dict[str, Any]


class Moment(NamedTuple):
    """Where a site was at some time."""

    at: float  # seconds since 1970
    round: int
    loss: float
    away: float
    bytes: int
    wire_bytes: int


class Facts(NamedTuple):
    """What is known of a site before it says a word."""

    site: str
    network: str
    run: int
    version: str
    neighbours: tuple[str, ...]
    settings: dict[str, str]  # that all sites have in common
    digest: str  # of these
    warnings: tuple[str, ...] = ()
    ends: Callable[[], float | None] = lambda: None  # of its identity, in seconds since 1970


class Board:
    """An agent's news, put down by its thread and read by another."""

    def __init__(self, facts: Facts, clock: Callable[[], float] = time.time):
        self.facts, self._clock, self._began = facts, clock, clock()
        self.moments: list[Moment] = []
        self.spoke: deque[tuple[int, frozenset[str]]] = deque(maxlen=ROUNDS)  # by round
        self.events: deque[Document] = deque(maxlen=EVENTS)
        self.rounded = (
            False  # whether there were rounds, in which neighbours are heard to have news
        )
        self.result: Document | None = None  # once all is over
        self.ended = False
        self.version = 0  # larger after every change
        self._counts: Counter[str] = Counter()  # of events, by kind
        self._every, self._sweeps = 1, 0
        self._status: Status | None = None
        self._agent: Agent | None = None
        self._at = self._began
        self._waited: dict[str, float] = {}
        self._linked: dict[str, tuple[float, str]] = {}  # by neighbour: since when, and what of it
        self._said: dict[str, Any] = {}

    def followed(self, agent: Agent) -> Iterator[Status]:
        """Its statuses, each put down before it is passed on."""
        for status in agent.run():
            self.take(status, agent)
            yield status

    def take(self, status: Status, agent: Agent) -> None:
        """What is new; in training's thread, so it is quick."""
        now, before = self._clock(), self._status
        for event in status.events:
            self._note(event, now)
        self._waited = {name: self._waited.get(name, now) for name in status.missing}
        self._swept(agent, now)
        if before is None or (agent.node is not None and status.round != before.round):
            self._keep(Moment(now, status.round, status.loss, status.away, *status.ledger[1:]))
            self._spoken(status, agent)
        elif now - self.moments[-1].at > 1.0 and status.ledger != before.ledger:
            self._keep(Moment(now, status.round, status.loss, status.away, *status.ledger[1:]))
        self._status, self._agent, self._at = status, agent, now
        self.version += 1

    def finish(self, result: Document) -> None:
        """What it came to."""
        self.result = result
        self.version += 1

    def end(self) -> None:
        """Nothing more will come."""
        self.ended = True
        self.version += 1

    def _note(self, event: Event, now: float) -> None:
        self._counts[event.kind] += 1
        self.events.append({"number": self._counts.total(), "time": now, **event._asdict()})
        if event.who in self.facts.neighbours:
            self._linked[event.who] = (now, f"{event.kind}: {event.why}")

    def _swept(self, agent: Agent, now: float) -> None:
        """Sweeps over the tree, which may be several between two statuses."""
        sweeps = agent.sweeps
        for line in sweeps[self._sweeps :]:
            sent = line["bytes"], line["wire_bytes"]
            self._keep(Moment(now, line["round"], line["loss"], line["away"], *sent))
            if line["spoke"]:
                self.spoke.append((line["round"], frozenset({self.facts.site})))
        self._sweeps = len(sweeps)

    def _keep(self, moment: Moment) -> None:
        if moment.round % self._every and self._every > 1:
            return
        self.moments.append(moment)
        if len(self.moments) >= 2 * MOST:
            self.moments, self._every = self.moments[::2], 2 * self._every

    def _spoken(self, status: Status, agent: Agent) -> None:
        """Who had news in the last round; a neighbour's last word is another array if it had."""
        node = agent.node
        said = {} if node is None else {name: end.cp for name, end in node.ends.items()}
        news = {name for name, cp in said.items() if self._said.get(name, cp) is not cp}
        self._said = said
        self.rounded = self.rounded or (node is not None and node.k > 0)
        who = frozenset(news | {self.facts.site} if status.spoke else news)
        if who:
            self.spoke.append((status.round, who))

    def document(self) -> Document:
        """All of it but the moments, for machines; nothing is in it that the site does not know."""
        facts, status, agent = self.facts, self._status, self._agent
        told = {} if status is None else _told(status)
        ready = None if agent is None else agent.agreed
        return {
            "site": facts.site, "network": facts.network, "run": facts.run,
            "version": facts.version, "began": self._began, "time": self._at, "phase": "start",
            **told,
            "neighbours": [self._neighbour(name) for name in facts.neighbours],
            "sites": None if ready is None else ready.agreement.N,
            "edges": None if ready is None else ready.places[0].shape.edges,
            "root_loss": None if status is None else _in_units(ready, status.loss),
            "certificate": None if agent is None else _proven(agent.certificate),
            "privacy": _private(ready), "digest": facts.digest, "settings": facts.settings,
            "identity_ends": facts.ends(), "warnings": list(facts.warnings),
            "events": list(self.events)[::-1], "counts": dict(self._counts),
            "result": self.result, "ended": self.ended,
        }  # fmt: skip

    def _neighbour(self, name: str) -> Document:
        node = None if self._agent is None else self._agent.node
        end = None if node is None else node.ends.get(name)
        since, why = self._linked.get(name, (None, ""))
        ready = None if self._agent is None else self._agent.agreed
        spoke = [k for k, names in list(self.spoke) if name in names]
        return {
            "name": name, "state": self._state(name, end), "since": since, "why": why,
            "tree": _in_tree(ready, name),
            "edges": None if ready is None else ready.places[0].degrees.get(name),
            "spoke": max(spoke, default=None),
        }  # fmt: skip

    def _state(self, name: str, end: End | None) -> str:
        """alive, silent (it has a link and is waited for), away (no link), closed or in reserve."""
        if end is not None and end.closed:
            node = None if self._agent is None else self._agent.node
            return "reserve" if node is not None and name in node.reserve else "closed"
        if self._status is None or name not in self._status.alive:
            return "away"
        waited = self._at - self._waited.get(name, self._at)
        return "silent" if waited > SILENT else "alive"


def _told(status: Status) -> Document:
    plain = status._asdict() | {"ledger": status.ledger._asdict()}
    del plain["events"]
    odd = {key for key, value in plain.items() if isinstance(value, float) and not isfinite(value)}
    return {key: None if key in odd else value for key, value in plain.items()}


def _proven(found: Certificate | None) -> Document | None:
    if found is None:
        return None
    share = found.share if isfinite(found.share) else None
    return {"text": str(found), "holds": found.holds, "share": share}


def _in_tree(ready: Ready | None, name: str) -> str:
    if ready is None:
        return ""
    place = ready.places[0]
    return "parent" if name == place.parent else "child" if name in place.children else ""


def _in_units(ready: Ready | None, loss: float) -> Document | None:
    """The root of a mean square in the target's own unit, where that is what the loss is."""
    if ready is None or ready.problem.train.metric != "mse" or not isfinite(loss):
        return None
    scale, terms = ready.agreement.units.y_scale, ready.agreement.terms
    if len(scale) != 1 or not terms.numbers:
        return None
    return {"target": terms.targets[0], "rmse": sqrt(loss) * float(scale[0])}


def _private(ready: Ready | None) -> Document | None:
    if ready is None or ready.noised is None:
        return None
    return ready.noised.budget._asdict()
