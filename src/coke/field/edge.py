"""One end of one edge: stop and wait, so that both histories are prefixes of one sequence.

An end keeps own and cp, the last completed words of both sides added up, and g = Σ(own − cp), so
that γ = ρg. It passes step s only with both words of step s; hearing word s + 1 proves that the
other end has passed s too: no acknowledgements. A word never changes once it is written, and the
caller makes it durable before its first byte leaves. Hence, whatever is lost, doubled, delayed
or killed, two ends at the same step hold own_ij = cp_ji and g_ij = −g_ji to the last bit.

Where that cannot be (a lost disk, an old backup, values beyond all reason) the end starts again
in the next epoch, from zero: `bump`. Functions map ends to ends; no socket, clock or disk.

Where rounds take the place of a descent (`coke.talk.handover`), an epoch's number is how many
orders both ends begin after, and the chain begins with what they know: the same, or it is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from coke.errors import InputError
from coke.field.frames import MOST, TAG, TOP, Done, Frame, Standing, Word
from coke.maths.algorithms.codecs import LIMIT, Codec
from coke.maths.algorithms.coke import dual
from coke.maths.arrays import Array
from coke.talk.handover import Base

STRIKES = 3  # an end that had to start again so often is closed …
PATIENCE = 2 * STRIKES  # … and from then on stays so, until an operator opens it
LEAST = 20  # steps that an epoch must last, or whoever ends it earns a strike
FIRST, RESERVE = Standing(0, False), Standing(0, True)  # where edges begin
CHAIN = 16  # bytes of the digest over all completed words


class Edge(NamedTuple):
    """What stays fixed; the same at both ends but for `lower`."""

    codec: Codec
    size: int  # W, the numbers in a message
    lower: bool  # whether this end's name is the lower one
    start: float = 0.0  # threshold before the first step
    integrates: bool = True  # whether the edge keeps its g; else the algorithm has its own duals
    bases: Mapping[int, Base] = {}  # by epoch, that do not begin from zero


class End(NamedTuple):
    """What changes. All but `box` outlives a crash; the peer still has what was in the box."""

    epoch: int
    closed: bool
    s: int  # completed steps in this epoch
    own: Array  # (W,)  what I said, up to step s
    cp: Array  # (W,)   what he said
    g: Array  # (W,)    Σ over completed steps of own − cp
    h: float  # what the last step left of the threshold
    tag: bytes  # chain over the payloads of completed steps, the same at both ends
    out: Word | None = None  # my word of step s
    prev: Word | None = None  # my word of step s − 1
    strikes: int = 0
    quiet: int = 0  # what his last completed word said of it
    ending: bool = False  # he has shown a countdown or DONE
    last: int | None = None  # words that he has said in this epoch, if he says no more
    box: tuple[Word | None, Word | None] = (None, None)  # his words of steps s and s + 1

    @property
    def standing(self) -> Standing:
        """Its epoch, and whether it is closed: what the two ends compare first."""
        return Standing(self.epoch, self.closed)

    @property
    def due(self) -> bool:
        """Whether both words of step s are here."""
        return self.out is not None and self.box[0] is not None

    @property
    def finished(self) -> bool:
        """Whether he has no word left to say that is not completed."""
        return self.last is not None and self.s >= self.last


class _Reply(NamedTuple):
    """The end after it has heard a frame, and the one frame to answer, if any."""

    end: End
    answer: Frame | None = None


def zero(edge: Edge, at: Standing = FIRST, strikes: int = 0) -> End:
    """An end that has said and heard nothing in its epoch."""
    base, nothing = None if at.closed else edge.bases.get(at.epoch), np.zeros(edge.size)
    x, g, h = base or (nothing, nothing, edge.start)
    return End(
        epoch=at.epoch, closed=at.closed, s=0, own=x, cp=x, g=g, h=min(h, edge.start),
        tag=bytes(CHAIN) if base is None else _begun(edge, x, g), strikes=strikes,
    )  # fmt: skip


def _begun(edge: Edge, x: Array, g: Array) -> bytes:
    """The chain before the first word of an edge that does not begin from zero."""
    lower = g if edge.lower else 0.0 - g  # never −0
    return blake2b(x.tobytes() + lower.tobytes(), digest_size=CHAIN).digest()


def began_anew(before: End, after: End) -> bool:
    """Whether an end stands elsewhere than it did."""
    return before.epoch != after.epoch or before.closed != after.closed


def freeze(end: End, word: Word, h: float) -> End:
    """out ← this word as that of step s, and what it leaves of the threshold."""
    return end._replace(out=Word(end.epoch, end.s, end.tag[:TAG], *word[3:]), h=h)


def complete(edge: Edge, end: End) -> End:
    """own ← own + mine, cp ← cp + his, g ← g + own − cp, s ← s + 1: the same at both ends.

    The end itself where a word is missing.
    """
    mine, (his, after) = end.out, end.box
    if mine is None or his is None:
        return end
    own, cp = _added(edge, end.own, mine.payload), _added(edge, end.cp, his.payload)
    tag = _chained(edge, end.tag, mine.payload, his.payload)
    g = dual(1.0, own, cp, end.g) if edge.integrates else end.g
    # Beyond LIMIT sums need not be exact (`codecs`); an honest edge's g stayed below half of it on
    # the hardest tables.
    if not (_bounded(g) and (cp is end.cp or _bounded(cp))):
        return bump(edge, end)
    if after is not None and after.tag != tag[:TAG]:
        return bump(edge, end)
    return end._replace(
        s=end.s + 1, own=own, cp=cp, g=g, tag=tag, out=None, prev=mine, quiet=his.quiet,
        box=(after, None),
    )  # fmt: skip


def _bounded(x: Array) -> bool:
    """Whether |x| ≤ LIMIT everywhere; by the norm alone where that is enough, which is cheaper."""
    return bool(x.dot(x) < LIMIT * LIMIT) or bool((np.abs(x) <= LIMIT).all())


def _added(edge: Edge, x: Array, payload: bytes) -> Array:
    return x + edge.codec.decode(payload, edge.size) if payload else x


def _chained(edge: Edge, tag: bytes, mine: bytes, his: bytes) -> bytes:
    """H(tag, the lower name's payload, the higher name's)."""
    low, high = (mine, his) if edge.lower else (his, mine)
    return blake2b(tag + len(low).to_bytes(4, "little") + low + high, digest_size=CHAIN).digest()


def hear(edge: Edge, end: End, frame: Frame) -> _Reply:
    """The end after a frame from the other side; MessageError for a payload that is none."""
    if isinstance(frame, Word):
        if frame.payload:
            edge.codec.decode(frame.payload, edge.size)
        if frame.epoch == end.epoch and not end.closed:
            return _heard(edge, end, frame)
    his = frame if isinstance(frame, Standing) else Standing(frame.epoch, False)
    mine = end.standing
    if his < mine:
        return _Reply(end, mine)
    if his > mine:
        end = _followed(edge, end, his)
        if end.closed:
            return _Reply(end, end.standing)
    if isinstance(frame, Done):
        return _Reply(end._replace(ending=True, last=frame.said))
    return _Reply(end) if isinstance(frame, Standing) else _heard(edge, end, frame)


def _followed(edge: Edge, end: End, his: Standing) -> End:
    """Where the other end stands. Epochs that do not last would keep a run for ever.

    But for those that a descent has led to, of which there are few.
    """
    early = his.epoch > end.epoch and end.s < LEAST and his.epoch not in edge.bases
    strikes = end.strikes + early
    most = PATIENCE if end.closed else STRIKES
    return zero(edge, Standing(his.epoch, his.closed or strikes >= most), strikes)


def _heard(edge: Edge, end: End, word: Word) -> _Reply:
    """A word of this epoch, at a step that tells where its sender is."""
    ahead = word.step - end.s
    strange = ahead == 0 and word.tag != end.tag[:TAG]
    if strange or ahead > 1 or (ahead == 1 and end.out is None):  # one of us lost its memory
        end = bump(edge, end)
        return _Reply(end, end.standing)
    if ahead >= 0:
        box = (word, end.box[1]) if ahead == 0 else (end.box[0], word)
        return _Reply(end._replace(box=box, ending=end.ending or word.quiet < 0))
    if not word.again:  # answers to answers would never end
        return _Reply(end)
    # A peer that waits needs my last word; one that lost its memory will see that it is behind.
    return _Reply(end, end.prev if ahead == -1 else end.out or end.prev)


def bump(edge: Edge, end: End) -> End:
    """The next epoch from zero; closed after STRIKES times, and where epochs end."""
    strikes = end.strikes + 1
    closed = strikes >= STRIKES or end.epoch == TOP
    return zero(edge, Standing(min(_later(edge, end), TOP), closed), strikes)


def close(edge: Edge, end: End, strikes: int = 0) -> End:
    """The edge is no more, in this epoch: it counts in no sum."""
    return zero(edge, Standing(end.epoch, True), max(end.strikes, strikes))


def anew(edge: Edge, end: End) -> End:
    """The next epoch from zero, with the same record; itself where this one has hardly begun."""
    later = _later(edge, end)
    return end if end.s <= LEAST or later > TOP else zero(edge, Standing(later, False), end.strikes)


def shut(edge: Edge, end: End) -> End:
    """Closed for good, where it was closed until it would be needed."""
    return zero(edge, Standing(_later(edge, end), True), end.strikes)


def done(end: End, short: bool) -> Done:
    """How many words there are on an edge whose end says no more."""
    return Done(end.epoch, end.s + (end.out is not None), short=short)


def why_closed(end: End) -> str:
    """In words, of an end that is closed."""
    return "struck out" if end.strikes >= STRIKES else "left, or was forgotten"


def reopen(edge: Edge, end: End) -> End:
    """The next epoch, open, with a clean record: an operator's decision."""
    if end.epoch == TOP:
        raise InputError(
            f"an edge in its last epoch {TOP} cannot be opened again: start a new run, or find out "
            "why its neighbour starts again so often"
        )
    return zero(edge, Standing(_later(edge, end), False))


def _later(edge: Edge, end: End) -> int:
    """The next epoch, from zero at both ends: later than any that a descent may have led to."""
    return max(end.epoch, MOST if edge.bases else 0) + 1
