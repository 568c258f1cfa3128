"""One site in training: its open edges, and the rounds that move them.

A round completes every edge that has both words, then θ moves (`coke.field.moves`), then every edge
that has no word gets one. The caller writes the node's image to disk before it sends what a round
returns, decides how long to wait for the missing, and sends `resend()` again. No socket, clock or
disk here: every method returns the node afterwards.

A *lap* is over when every open edge has advanced. The count of `algorithms.stopping` goes by laps,
its countdown by rounds. A node that has made its last round makes no more, and is done once it has
all words of the last step. It goes on answering: nobody is told DONE in place of a word that he
needs, for DONE says how many words there are. A node whose next message would exceed its share of a
budget stays silent and declares the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import add, gt
from typing import Any, NamedTuple

from coke.errors import MessageError
from coke.field import edge as edges
from coke.field.edge import End
from coke.field.frames import Done, Frame, Word, fits
from coke.field.moves import NOTHING, Setup, Tellings
from coke.maths.algorithms.stopping import NEVER, Quiet, counted
from coke.maths.arrays import Array
from coke.maths.ledger import HEADER, LONG, Ledger

Frames = tuple[tuple[str, Frame], ...]
"""(neighbour, frame), in order."""


class Advance(NamedTuple):
    """The node afterwards, and what to send once its image is on disk."""

    node: Node
    frames: Frames = ()
    durable: bool = True  # False: nothing that must outlive a crash has changed


class Node(NamedTuple):
    """What changes. All but `away` and the ends' boxes outlives a crash."""

    setup: Setup
    ends: Mapping[str, End]
    state: Any  # the algorithm's, one row
    k: int = 0  # rounds, which is: θs computed
    laps: int = 0  # quiet ones, and never more than a neighbour had, and one
    countdown: int = NEVER  # rounds left with this one
    awaited: frozenset[str] = frozenset()  # open edges that have not advanced in this lap
    fine: bool = True  # nothing left to do in all rounds of this lap
    short: bool = False  # the end came for want of budget or rounds
    wide: bool = False  # sites have come or gone, here or elsewhere
    done: bool = False
    ledger: Ledger = Ledger()  # what rounds sent; answers and what timers repeat is the carrier's
    need: Ledger | None = None  # all it would have spent with its first word, if that was too much
    content: int = 0  # the last round with nothing left to do here: not away; 0: none
    away: float = math.inf  # how far it was from that in the last round, see `Setup.away`; not kept

    @property
    def theta(self) -> Array:
        """θ (1, D), the site's own estimate."""
        theta: Array = self.state.theta
        return theta

    @property
    def open(self) -> dict[str, End]:
        """The edges that are not closed, by neighbour: d of them."""
        return {n: end for n, end in self.ends.items() if not end.closed}

    @property
    def reserve(self) -> list[str]:
        """Neighbours whose edge was never opened."""
        kept = sorted(self.setup.reserve & self.ends.keys())
        return [n for n in kept if self.ends[n].standing == edges.RESERVE]

    def lost(self) -> dict[str, str]:
        """Whose edge is closed, and why."""
        shut = {n: edges.why_closed(e) for n, e in self.ends.items() if e.closed}
        return {n: why for n, why in shut.items() if n not in self.reserve}

    @property
    def free(self) -> bool:
        """Whether nobody needs this site any more: all its neighbours know of the end."""
        return self.done and all(end.ending for end in self.open.values())

    @property
    def settled(self) -> bool:
        """Whether it was content itself, not long before the end: others' word is not enough.

        When the end is declared all were, at most a reach ago, and it takes another to arrive.
        """
        return self.content > 0 and self.k - self.content <= 2 * self.setup.reach + 2

    @property
    def spent(self) -> Ledger:
        """By this site since it began, agreement included."""
        return Ledger(*map(add, self.setup.spent, self.ledger))

    def missing(self) -> list[str]:
        """Neighbours whose word a round would leave out, and may still come."""
        return [n for n, e in self.open.items() if self.k and not (e.due or e.finished)]

    def round(self, force: bool = False) -> Advance:
        """One round, if no word is missing; with `force`, without those that are."""
        missing = self.missing()
        if self.done or (missing and not force):
            return Advance(self, durable=False)
        due = {n: end for n, end in self.open.items() if self.k and end.due}
        after = {n: edges.complete(self.setup.edge(n), end) for n, end in due.items()}
        anew = (n for n, end in after.items() if edges.began_anew(self.ends[n], end))
        self.setup.moves.bear(*anew)
        node = self._replace(ends={**self.ends, **after})
        if self.k and (cut := self.setup.suspicious(node.state, node.open, node.k, node.wide)):
            shut = edges.close(self.setup.edge(cut), node.ends[cut], edges.PATIENCE)
            node = node._replace(ends={**node.ends, cut: shut}, wide=True)
        # Of a neighbour that has finished every word counts, unless there is no waiting for it.
        ended = [end for end in node.open.values() if self.k and end.last is not None]
        least, told = node._least(), any(end.finished or missing for end in ended)
        if told or least.done():
            return node._parting(short=node.short)
        if self.k >= self.setup.limits.rounds:
            return node._parting(short=True)
        if missing and not self.setup.algorithm.elastic:
            return Advance(self, durable=False)
        if still := least.countdown >= NEVER and self.setup.renewal.still:
            node = node._anew() if self.setup.renewal.due(self.k) else node
        state, tellings = self.setup.step(node.state, node.open, None if still else self.k + 1)
        node = node._replace(state=state, k=self.k + 1, fine=node.fine and not still)
        node = node._counted(least, frozenset(after))
        return node._said(tellings, node.laps, self.ends)

    def _anew(self) -> Node:
        """As before round 1, but for what was said and counted."""
        begun = {n: edges.anew(self.setup.edge(n), end) for n, end in self.open.items()}
        return self._replace(ends={**self.ends, **begun}, state=self.setup.start())

    def hear(self, sender: str, frame: Frame) -> Advance:
        """After a frame from a neighbour; MessageError, and nothing else, where it makes no sense.

        An edge that starts again has its word at once: without it, sites that wait for each
        other around a circle would wait for ever.
        """
        edge, before = self.setup.edge(sender), self._known(sender)
        end, answer = edges.hear(edge, before, frame)
        moved, lasting = edges.began_anew(before, end), end.last != before.last
        if self.done and end.due:
            end, lasting = edges.complete(edge, end), True
        short, wide = self.short, self.wide
        if self.done:
            waits = isinstance(frame, Word) and frame.step >= end.s and end.out is None
            asks = isinstance(frame, Done) and frame.again
            answer = edges.done(end, self.short) if waits or asks else answer
        elif isinstance(frame, Done):
            here = end.standing == (frame.epoch, False)  # else from before the edge began anew
            short = self.short or (frame.short and here)
        elif isinstance(frame, Word):
            short, wide = self.short or frame.short, self.wide or frame.wide
        node = self._replace(ends={**self.ends, sender: end}, short=short, wide=wide)
        if moved and not self.done:
            self.setup.moves.bear(sender)
            if not end.closed:
                return node._begun_again(sender, self.ends)
        return Advance(node, () if answer is None else ((sender, answer),), moved or lasting)

    def offended(self, sender: str, frame: Frame) -> Advance:
        """After a frame that `hear` refused: the edge starts again if it was a word to go on with.

        Such a word will never be another, so waiting is no use; anything else is dropped.
        """
        edge, end = self.setup.edge(sender), self._known(sender)
        here = isinstance(frame, Word) and (frame.epoch, end.closed) == (end.epoch, False)
        if not (isinstance(frame, Word) and here and 0 <= frame.step - end.s <= 1):
            return Advance(self, durable=False)
        self.setup.moves.bear(sender)
        after = edges.bump(edge, end)
        node, told = self._replace(ends={**self.ends, sender: after}), (sender, after.standing)
        if after.closed or self.done:
            return Advance(node, (told,))
        begun = node._begun_again(sender, self.ends)
        return begun._replace(frames=(told, *begun.frames))

    def resend(self, *neighbours: str) -> Frames:
        """What timers, a new connection or a new start send: outstanding words, by default all.

        A timer for each edge: the words of one that stands still must not wait for the others.
        A done node sends DONE where it has no word, to those who have not shown that they know.
        """
        found: dict[str, Frame] = {}
        for n, end in self.open.items():
            if neighbours and n not in neighbours:
                continue
            if end.out is not None and not (self.done and end.finished):
                found[n] = end.out._replace(again=True)
            elif self.done and not end.ending:
                found[n] = edges.done(end, self.short)._replace(again=True)
        return tuple(found.items())

    def close(self, *neighbours: str) -> Advance:
        """These neighbours count no more: they left, or were given up."""
        self.setup.moves.bear(*neighbours)
        return self._without(*neighbours)

    def leave(self) -> Advance:
        """Every edge closed, also those in reserve; it may go when all have echoed, or later."""
        spared = {n: edges.shut(self.setup.edge(n), self.ends[n]) for n in self.reserve}
        after = self._replace(ends={**self.ends, **spared})._without(*self.open)
        told = ((n, end.standing) for n, end in spared.items())
        return after._replace(frames=(*after.frames, *told))

    def _without(self, *neighbours: str) -> Advance:
        shut = {n: edges.close(self.setup.edge(n), self._known(n)) for n in neighbours}
        node = self._replace(ends={**self.ends, **shut})
        return Advance(node, tuple((n, end.standing) for n, end in shut.items()))

    def join(self, neighbour: str) -> Advance:
        """A neighbour that is new, or back, from zero; one of the two ends is enough."""
        self.setup.moves.bear(neighbour)
        edge = self.setup.edge(neighbour)
        end = edges.reopen(edge, self.ends.get(neighbour, edges.zero(edge)))
        node = self._replace(ends={**self.ends, neighbour: end})
        return Advance(node) if self.done else node._begun_again(neighbour, self.ends)

    def _known(self, neighbour: str) -> End:
        if neighbour not in self.ends:
            raise MessageError(
                f"{neighbour!r} is no neighbour of {self.setup.name!r}: "
                f"expected one of {', '.join(sorted(self.ends))}; see who sends, or join it first"
            )
        return self.ends[neighbour]

    def _parting(self, short: bool) -> Advance:
        """The node that has finished, and what it says."""
        node = self._replace(done=True, countdown=0, short=short)
        return Advance(node, tuple((n, edges.done(end, short)) for n, end in self.open.items()))

    def _least(self) -> Quiet:
        """The least of its own count and countdown and its neighbours' in their last words."""
        heard = [end.quiet for end in self.open.values()]
        count = min([self.laps, *(max(q, 0) for q in heard)])
        countdown = min([self.countdown, *(-q for q in heard if q < 0)])
        return Quiet(count, countdown, self.short)

    def _booked(self, told: Tellings) -> tuple[Node, Tellings]:
        """What its share of the budget allows it to tell; where that is less, the end is declared.

        The paper counts a broadcast once, the wire a copy for each neighbour.
        """
        setup, node, silenced = self.setup, self, set[bytes]()
        payloads = [telling.payload for telling in told.values()]
        for payload, copies in {p: payloads.count(p) for p in payloads}.items():
            later = node.spent.told(len(payload), header=HEADER) if payload else NOTHING
            if any(map(gt, later, setup.share)):
                silenced.add(payload)
                need = later if self.k == 1 else None
                node = node._replace(need=self.need or need)
            length = 0 if payload in silenced else len(payload)
            node = node._replace(ledger=node.ledger.told(length, copies=copies, header=HEADER))
        if silenced:
            state, ends = setup.moves.silenced(node.state, self.open), setup.reach
            node = node._replace(state=state, countdown=min(self.countdown, ends), short=True)
        kept = {n: t._replace(payload=b"") if t.payload in silenced else t for n, t in told.items()}
        return node, kept

    def _counted(self, least: Quiet, moved: frozenset[str]) -> Node:
        """With the count and countdown that this round's words carry."""
        away = self.setup.away(self.theta, self.open, self.wide)
        awaited, fine = (self.awaited - moved) & self.open.keys(), self.fine and away <= 1.0
        said = counted(least, fine and not awaited, self.setup.reach)
        laps, lap = said.count, frozenset(self.open)
        if awaited:  # within a lap
            laps, lap = self.laps if fine else 0, awaited
        return self._replace(
            laps=laps, awaited=lap, fine=fine or not awaited,
            countdown=said.countdown, short=said.short,
            away=away, content=self.k if away <= 1.0 else self.content,
        )  # fmt: skip

    def _begun_again(self, neighbour: str, before: Mapping[str, End]) -> Advance:
        """With the first word on an edge that has just started; it counts for nothing."""
        state = self.setup.start() if self.setup.renewal.still else self.state
        _, told = self.setup.step(state, {neighbour: self.ends[neighbour]})
        return self._said(told, 0, before)

    def _said(self, told: Tellings, quiet: int, before: Mapping[str, End]) -> Advance:
        """With words of this on their edges, as far as it may; and CTL where an edge has closed."""
        node, told = self._booked(told)
        running = node.countdown < NEVER
        quiet, short = -node.countdown if running else quiet, running and node.short
        word = Word(0, 0, b"", quiet, b"", short=short, wide=node.wide)
        words = {t.payload: word._replace(payload=t.payload) for t in told.values()}
        new = {n: edges.freeze(self.ends[n], words[t.payload], t.h) for n, t in told.items()}
        shut = {n: e.standing for n, e in self.ends.items() if e.closed and not before[n].closed}
        out = {n: end.out for n, end in new.items() if end.out is not None}
        far = sum(not fits(word.epoch, word.step, word.quiet) for word in out.values())
        ledger = node.ledger.told(0, copies=far, header=LONG - HEADER)
        node = node._replace(ends={**self.ends, **new}, ledger=ledger)
        return Advance(node, (*shut.items(), *out.items()))
