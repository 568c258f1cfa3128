"""One end of one edge: stop and wait, so that both histories are prefixes of one sequence.

An end keeps own and cp, the last completed words of both sides added up, and g = Σ(own − cp), so
that γ = ρg. It passes step s only with both words of step s; hearing word s + 1 proves that the
other end has passed s too: no acknowledgements. A word never changes once it is written, and the
caller makes it durable before its first byte leaves. Hence, whatever is lost, doubled, delayed
or killed, two ends at the same step hold own_ij = cp_ji and g_ij = −g_ji to the last bit.

Where that cannot be (a lost disk, an old backup, values beyond all reason) the end starts again
in the next epoch, from zero: `bump`. Functions map ends to ends; no socket, clock or disk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from coke.errors import InputError
from coke.field.words import TAG, TOP, Frame, Place, Stop, Word
from coke.maths.algorithms.codecs import GRID, LIMIT, Codec, Float64
from coke.maths.algorithms.coke import COKE, Threshold, censor
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from coke.maths.losses.risk import Argmin, Risk
from coke.threads import OneThread

STRIKES = 3  # an end that had to start again so often is closed
FIRST = Place(0, False)
CHAIN = 16  # bytes of the digest over all completed words


class Coder(NamedTuple):
    """A codec and how many numbers it codes. Codecs are frozen settings, so they can be hashed."""

    codec: Codec
    size: int  # D


class Edge(NamedTuple):
    """What stays fixed; the same at both ends but for `lower`."""

    coder: Coder
    threshold: Threshold
    warm: bool  # the first word of an epoch is never silent
    lower: bool  # whether this end's name is the lower one
    cap: float  # on |g|, entry by entry; on the grid, or infinite


@dataclass(frozen=True)
class Setup:
    """What stays fixed at one site."""

    name: str
    risk: Risk  # of one row: this site's
    algorithm: COKE
    diameter: int  # of the graph; N − 1 is always enough
    tol: float | None  # ‖θ − own‖ and ‖own − cp‖ where nothing is left to do; None: go on
    cap: float = math.inf  # on each entry of an edge's dual |γ_ij|
    alone: OneThread = field(default_factory=OneThread, repr=False, compare=False)
    # Not for `replace` to take over: they follow from the fields above.
    _solvers: dict[int, Argmin] = field(default_factory=dict, init=False, repr=False, compare=False)
    _edges: dict[str, Edge] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.risk.T) != 1:
            raise InputError(f"{len(self.risk.T)} risks: expected the one of {self.name}")
        if not (
            0 <= self.diameter < NEVER - 1 and (self.tol is None or self.tol >= 0) and self.cap > 0
        ):
            raise InputError(
                f"diameter={self.diameter}, tol={self.tol}, cap={self.cap}: expected a diameter "
                f"from 0 to {NEVER - 2}, tol ≥ 0 and cap > 0"
            )

    def edge(self, neighbour: str) -> Edge:
        """What stays fixed at this end of the edge to a neighbour."""
        if neighbour not in self._edges:
            a = self.algorithm
            cap = min(self.cap / a.rho, 2 * LIMIT)
            cap = math.floor(cap / GRID) * GRID if math.isfinite(self.cap) else math.inf
            coder = Coder(a.codec or Float64(), self.risk.size)
            own = Edge(coder, a.threshold, a.warm, self.name < neighbour, cap)
            self._edges[neighbour] = own
        return self._edges[neighbour]

    def argmin(self, d: int) -> Argmin:
        """The local solver for d open edges; prepared anew when d changes."""
        if d not in self._solvers:
            self._solvers.clear()
            self._solvers[d] = self.risk.argmin(self.algorithm.rho * np.array([[float(d)]]))
        return self._solvers[d]


class End(NamedTuple):
    """What changes. All but `box` outlives a crash; the peer still has what was in the box."""

    epoch: int
    closed: bool
    s: int  # completed steps in this epoch
    own: Array  # (D,)  what I said, up to step s
    cp: Array  # (D,)   what he said
    g: Array  # (D,)    Σ over completed steps of own − cp
    h: float  # threshold of a run whose thresholds shrink in silence
    tag: bytes  # chain over the payloads of completed steps, the same at both ends
    out: Word | None  # my word of step s
    prev: Word | None  # my word of step s − 1
    strikes: int
    quiet: int  # what his last completed word said of it
    ending: bool  # he has shown a countdown or STOP
    box: tuple[Word | None, Word | None] = (None, None)  # his words of steps s and s + 1

    @property
    def place(self) -> Place:
        """Where this end is."""
        return Place(self.epoch, self.closed)

    @property
    def due(self) -> bool:
        """Whether both words of step s are here."""
        return self.out is not None and self.box[0] is not None


class Reply(NamedTuple):
    """The end after it has heard a frame, and the one frame to answer, if any."""

    end: End
    answer: Frame | None = None


def zero(edge: Edge, place: Place = FIRST, strikes: int = 0) -> End:
    """An end that has said and heard nothing."""
    nothing = np.zeros(edge.coder.size)
    at = (*place, 0, nothing, nothing, nothing, edge.threshold.start, bytes(CHAIN))
    return End(*at, out=None, prev=None, strikes=strikes, quiet=0, ending=False)


# Sites in step have the same `own` on all edges: one decoding, one distance and one encoding serve
# them all, and both looks at a payload.


@lru_cache(maxsize=256)
def decoded(coder: Coder, payload: bytes) -> Array:
    """What a payload says (D,), read-only."""
    values = coder.codec.decode(payload, coder.size)
    values.flags.writeable = False
    return values


@lru_cache(maxsize=64)
def encoded(coder: Coder, innovation: bytes) -> bytes:
    """The payload for these float64 numbers."""
    return coder.codec.encode(np.frombuffer(innovation))


def freeze(
    edge: Edge, end: End, theta: Array, quiet: int, short: bool = False, wide: bool = False
) -> End:
    """out ← the coded innovation θ − own where ‖θ − own‖ ≥ h, else silence; θ is (1, D).

    Step s of the edge has the threshold h(s + 1), as round s + 1 of a simulation has.
    """
    h = edge.threshold.at(np.array([[end.h]]), end.s + 1)
    news = censor(theta, end.own[None], 0.0 * h if edge.warm and end.s == 0 else h)
    payload = encoded(edge.coder, (theta[0] - end.own).tobytes()) if news[0, 0] else b""
    out = Word(end.epoch, end.s, end.tag[:TAG], quiet, payload, short=short, wide=wide)
    return end._replace(out=out, h=float(edge.threshold.after(h, news)[0, 0]))


def complete(edge: Edge, end: End) -> End:
    """own ← own + mine, cp ← cp + his, g ← clip(g + own − cp), s ← s + 1: the same at both ends."""
    mine, his = end.out, end.box[0]
    assert mine is not None
    assert his is not None
    own, cp = _added(edge, end.own, mine.payload), _added(edge, end.cp, his.payload)
    g = end.g + (own - cp)
    if edge.cap < math.inf:
        g = np.clip(g, -edge.cap, edge.cap)
    # Beyond LIMIT sums are no longer exact; an honest g is far below it.
    if not (_largest(g) <= LIMIT and (cp is end.cp or _largest(cp) <= LIMIT)):
        return bump(edge, end)
    tag = chained(edge, end.tag, mine.payload, his.payload)
    after = end.box[1]
    if after is not None and after.tag != tag[:TAG]:
        return bump(edge, end)
    return end._replace(
        s=end.s + 1, own=own, cp=cp, g=g, tag=tag, out=None, prev=mine, quiet=his.quiet,
        box=(after, None),
    )  # fmt: skip


def _added(edge: Edge, x: Array, payload: bytes) -> Array:
    return x + decoded(edge.coder, payload) if payload else x


def _largest(x: Array) -> float:
    return float(np.abs(x).max())


def chained(edge: Edge, tag: bytes, mine: bytes, his: bytes) -> bytes:
    """H(tag, the lower name's payload, the higher name's)."""
    low, high = (mine, his) if edge.lower else (his, mine)
    return blake2b(tag + len(low).to_bytes(4, "little") + low + high, digest_size=CHAIN).digest()


def hear(edge: Edge, end: End, frame: Frame) -> Reply:
    """The end after a frame from the other side; MessageError for a payload that is none."""
    if isinstance(frame, Word) and frame.payload:
        decoded(edge.coder, frame.payload)
    his = frame if isinstance(frame, Place) else Place(frame.epoch, False)
    if his < end.place:
        return Reply(end, end.place)
    if his > end.place:
        end = zero(edge, his, end.strikes)
        if his.closed:
            return Reply(end, end.place)
    if isinstance(frame, Stop):
        return Reply(end._replace(ending=True))
    return Reply(end) if isinstance(frame, Place) else _heard(edge, end, frame)


def _heard(edge: Edge, end: End, word: Word) -> Reply:
    """A word of this epoch, at a step that tells where its sender is."""
    ahead = word.step - end.s
    strange = ahead == 0 and word.tag != end.tag[:TAG]
    if strange or ahead > 1 or (ahead == 1 and end.out is None):  # one of us lost its memory
        end = bump(edge, end)
        return Reply(end, end.place)
    if ahead >= 0:
        box = (word, end.box[1]) if ahead == 0 else (end.box[0], word)
        return Reply(end._replace(box=box, ending=end.ending or word.quiet < 0))
    if not word.again:  # answers to answers would never end
        return Reply(end)
    # A peer that waits needs my last word; one that lost its memory will see that it is behind.
    return Reply(end, end.prev if ahead == -1 else end.out or end.prev)


def bump(edge: Edge, end: End) -> End:
    """The next epoch from zero; closed after STRIKES times, and where epochs end."""
    strikes = end.strikes + 1
    place = Place(min(end.epoch + 1, TOP), strikes >= STRIKES or end.epoch == TOP)
    return zero(edge, place, strikes)


def close(edge: Edge, end: End) -> End:
    """The edge is no more, in this epoch: it counts in no sum."""
    return zero(edge, Place(end.epoch, True), end.strikes)


def reopen(edge: Edge, end: End) -> End:
    """The next epoch, open, with a clean record: an operator's decision."""
    if end.epoch == TOP:
        raise InputError(
            f"an edge in its last epoch {TOP} cannot be opened again: start a new run, or find out "
            "why its neighbour starts again so often"
        )
    return zero(edge, Place(end.epoch + 1, False))
