"""One site in training: its risk, its open edges, and the rounds that move them.

A round completes every edge that has both words, then

    θ ← argmin_θ R(θ) + ρ d ‖θ‖² − ρ θᵀ Σ_edges (own + cp − g),    d = number of open edges,

then writes a word for every edge that has none. The caller writes the site's image to disk before
it sends what a round returns, decides how long to wait for the missing, and sends `resend()` again.
All sums are of numbers on the grid, so they are exact, and sites that wait for each other hold the
bits of the simulation. No socket, clock or disk here: every method returns the site afterwards.

A *lap* is over when every open edge has advanced. The count of `algorithms.stopping` goes by laps,
its countdown by rounds: whoever knows of the end needs nobody else to finish.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from coke.errors import ConvergenceError, MessageError
from coke.field import edge as edges
from coke.field.edge import End, Setup
from coke.field.words import Frame, Place, Stop, Word, decode, encode
from coke.maths.algorithms.codecs import LIMIT
from coke.maths.algorithms.stopping import NEVER, Quiet, counted
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger


class Turn(NamedTuple):
    """The site afterwards, and what to send once its image is on disk."""

    site: Site
    letters: tuple[tuple[str, bytes], ...] = ()  # (neighbour, frame)
    durable: bool = True  # False: nothing that must outlive a crash has changed


class Site(NamedTuple):
    """What changes. All but `stopped` and the ends' boxes outlives a crash."""

    setup: Setup
    ends: Mapping[str, End]
    theta: Array  # (1, D)
    loss: float  # of θ on the site's own rows
    k: int = 0  # rounds, which is: θs computed
    laps: int = 0  # quiet ones, and never more than a neighbour had, and one
    countdown: int = NEVER  # rounds left with this one
    awaited: frozenset[str] = frozenset()  # open edges that have not advanced in this lap
    fine: bool = True  # nothing left to do in all rounds of this lap
    short: bool = False  # the end was declared for want of budget or rounds
    wide: bool = False  # sites have come or gone, here or elsewhere
    stopped: bool = False  # a neighbour has finished
    done: bool = False
    ledger: Ledger = Ledger()  # what rounds sent; answers and what timers repeat is the carrier's

    @property
    def open(self) -> dict[str, End]:
        """The edges that count."""
        return {n: end for n, end in self.ends.items() if not end.closed}

    @property
    def free(self) -> bool:
        """Whether nobody needs this site any more: all its neighbours know of the end."""
        return self.done and all(end.ending for end in self.open.values())

    def ready(self) -> bool:
        """Whether a round would leave nobody out."""
        whole = self.stopped or self.k == 0 or all(end.due for end in self.open.values())
        return whole and not self.done

    def round(self, force: bool = False) -> Turn:
        """One round, if the site is ready; with `force`, without the words that are missing."""
        if self.done or not (force or self.ready()):
            return Turn(self, durable=False)
        site, moved = _completed(self)
        least = _least(site)
        if site.stopped or bool(least.done()[0]):
            over = site._replace(done=True, countdown=0)
            return Turn(over, tuple((n, encode(Stop(e.epoch))) for n, e in over.open.items()))
        return _spoken(_counted(_moved(site), least, moved), self.ends)

    def hear(self, sender: str, data: bytes) -> Turn:
        """After a frame from a neighbour; MessageError, and nothing else, where it makes no sense.

        An edge that starts again has its word at once: without it, sites that wait for each
        other around a circle would wait for ever.
        """
        edge, before = self.setup.edge(sender), self._known(sender)
        frame = decode(data, edge.coder.size)
        end, answer = edges.hear(edge, before, frame)
        site = self._replace(ends={**self.ends, sender: end})
        if self.done and not isinstance(frame, Place):
            waits = isinstance(frame, Word) or frame.again
            answer = Stop(end.epoch) if waits else None
        elif isinstance(frame, Stop):
            here = end.place == (frame.epoch, False)  # else it is from before the edge began anew
            site = site._replace(stopped=site.stopped or here)
        elif isinstance(frame, Word):
            site = site._replace(short=site.short or frame.short, wide=site.wide or frame.wide)
        moved = end.place != before.place
        if moved and not (end.closed or self.done):
            return _spoken(site, self.ends, only=sender)
        return Turn(site, _letters(sender, answer), moved)

    def offended(self, sender: str, data: bytes) -> Turn:
        """After a frame that `hear` refused: the edge starts again if it was a word to go on with.

        Such a word will never be another, so waiting is no use; anything else is dropped.
        """
        edge, end = self.setup.edge(sender), self._known(sender)
        try:
            word = decode(data, edge.coder.size)
        except MessageError:
            return Turn(self, durable=False)
        here = isinstance(word, Word) and (word.epoch, end.closed) == (end.epoch, False)
        if not (isinstance(word, Word) and here and 0 <= word.step - end.s <= 1):
            return Turn(self, durable=False)
        after = edges.bump(edge, end)
        site = self._replace(ends={**self.ends, sender: after})
        if after.closed or self.done:
            return Turn(site, _letters(sender, after.place))
        spoken = _spoken(site, self.ends, only=sender)
        return spoken._replace(letters=(*_letters(sender, after.place), *spoken.letters))

    def resend(self, *neighbours: str) -> tuple[tuple[str, bytes], ...]:
        """What timers, a new connection or a new start send: outstanding words, by default all.

        A timer for each edge: the words of one that stands still must not wait for the others.
        A done site sends STOP instead, to those who have not shown that they know.
        """
        ends = {n: end for n, end in self.open.items() if n in neighbours or not neighbours}
        if self.done:
            unsure = {n: end for n, end in ends.items() if not end.ending}
            return tuple((n, encode(Stop(end.epoch, again=True))) for n, end in unsure.items())
        waiting = [(n, end.out) for n, end in ends.items() if end.out]
        return tuple((n, encode(out._replace(again=True))) for n, out in waiting)

    def close(self, *neighbours: str) -> Turn:
        """These neighbours count no more: they left, or were given up."""
        shut = {n: edges.close(self.setup.edge(n), self._known(n)) for n in neighbours}
        letters = tuple((n, encode(end.place)) for n, end in shut.items())
        return Turn(self._replace(ends={**self.ends, **shut}), letters)

    def leave(self) -> Turn:
        """Every edge closed; the site may go when its neighbours have echoed, or after a while."""
        return self.close(*self.open)

    def join(self, neighbour: str) -> Turn:
        """A neighbour that is new, or back, from zero; one of the two ends is enough."""
        edge = self.setup.edge(neighbour)
        end = edges.reopen(edge, self.ends.get(neighbour, edges.zero(edge)))
        site = self._replace(ends={**self.ends, neighbour: end})
        return Turn(site) if self.done else _spoken(site, self.ends, only=neighbour)

    def declare(self) -> Site:
        """The end begins in the next round, converged or not: a limit of rounds or of bytes."""
        begun = self.countdown < NEVER or self.done
        later = self._replace(countdown=self.setup.diameter + 1, short=True)
        return self if begun else later

    def _known(self, neighbour: str) -> End:
        if neighbour not in self.ends:
            raise MessageError(
                f"{neighbour!r} is no neighbour of {self.setup.name!r}: "
                f"expected one of {', '.join(sorted(self.ends))}; see who sends, or join it first"
            )
        return self.ends[neighbour]


def started(setup: Setup, neighbours: Iterable[str]) -> Site:
    """Before round 1: every edge open, and nothing said."""
    with setup.alone.limit():
        state = setup.algorithm.start(setup.risk)
    ends = {n: edges.zero(setup.edge(n)) for n in sorted(neighbours)}
    return Site(setup, ends, state.theta, float(state.loss[0]))


def _letters(neighbour: str, frame: Frame | None) -> tuple[tuple[str, bytes], ...]:
    return () if frame is None else ((neighbour, encode(frame)),)


def _completed(site: Site) -> tuple[Site, frozenset[str]]:
    """With every edge completed that has both words; and which."""
    due = {n: end for n, end in site.open.items() if end.due}
    after = {n: edges.complete(site.setup.edge(n), end) for n, end in due.items()}
    return site._replace(ends={**site.ends, **after}), frozenset(due)


def _moved(site: Site) -> Site:
    """With the next θ; the first of a warm start is there already."""
    a = site.setup.algorithm
    if a.warm and site.k == 0:
        return site._replace(k=1)
    ends = site.open.values()
    pulls = sum((end.own + end.cp - end.g for end in ends), np.zeros(site.setup.risk.size))
    with site.setup.alone.limit(), np.errstate(over="ignore", invalid="ignore"):
        theta, loss = site.setup.argmin(len(ends))(a.rho * pulls[None], site.theta)
    if not (np.abs(theta) <= LIMIT).all():
        raise ConvergenceError(
            f"round {site.k + 1}: θ of {site.setup.name!r} is not finite or beyond {LIMIT:g}: "
            f"{a} diverges here; use a smaller ρ, or scale the inputs and targets"
        )
    return site._replace(theta=theta, loss=float(loss[0]), k=site.k + 1)


def _least(site: Site) -> Quiet:
    """The least of the site's own count and countdown and its neighbours' in their last words."""
    heard = [end.quiet for end in site.open.values()]
    count = min([site.laps, *(max(q, 0) for q in heard)])
    countdown = min([site.countdown, *(-q for q in heard if q < 0)])
    return Quiet(np.array([count]), np.array([countdown]), np.array([site.short]))


def _settled(site: Site) -> bool:
    """‖θ − own‖ ≤ tol and ‖own − cp‖ ≤ tol on every open edge."""
    tol, theta = site.setup.tol, site.theta[0]
    if tol is None:
        return False
    gaps = (x for end in site.open.values() for x in (theta - end.own, end.own - end.cp))
    return all(math.sqrt(float(np.vecdot(x, x))) <= tol for x in gaps)


def _counted(site: Site, least: Quiet, moved: frozenset[str]) -> Site:
    """With the count and countdown that this round's words carry."""
    awaited = (site.awaited - moved) & site.open.keys()
    fine = site.fine and _settled(site)
    said = counted(least, np.array([fine and not awaited]), site.setup.diameter)
    countdown = int(said.countdown[0])
    if awaited:  # within a lap
        laps = site.laps if fine else 0
        return site._replace(laps=laps, countdown=countdown, awaited=awaited, fine=fine)
    lap = frozenset(site.open)
    return site._replace(laps=int(said.count[0]), countdown=countdown, awaited=lap, fine=True)


def _spoken(site: Site, before: Mapping[str, End], only: str | None = None) -> Turn:
    """With a word on every open edge that has none; its letters, and CTL where an edge closed."""
    names = site.ends if only is None else (only,)
    silent = {n: site.ends[n] for n in names if not site.ends[n].closed and not site.ends[n].out}
    running = site.countdown < NEVER
    quiet = -site.countdown if running else site.laps if only is None else 0
    short = running and site.short
    new = {
        n: edges.freeze(site.setup.edge(n), end, site.theta, quiet, short, site.wide)
        for n, end in silent.items()
    }
    words = {n: end.out for n, end in new.items() if end.out is not None}
    shut = {n: e.place for n, e in site.ends.items() if e.closed and not before[n].closed}
    frames: dict[str, Frame] = {**shut, **words}
    letters = tuple((n, encode(frame)) for n, frame in frames.items())
    ledger = _booked(site.ledger, [word.payload for word in words.values()])
    return Turn(site._replace(ends={**site.ends, **new}, ledger=ledger), letters)


def _booked(ledger: Ledger, payloads: list[bytes]) -> Ledger:
    """The paper counts a broadcast once, the wire a copy for each neighbour."""
    for payload, copies in Counter(payloads).items():
        ledger = ledger.told(len(payload), copies=copies)
    return ledger
