"""One site's part in a stream, as a conversation with its neighbours and with its own source.

Tick by tick: the source says that a tick is over, neighbours tell each other notices, and where a
round is due what they have learnt. It is a function of what it heard, as every conversation is: so
what the source says is heard, too, and an agent that crashed holds it again from its last image.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coke.data.pending import Pending
from coke.errors import MessageError
from coke.field.pulses import Hand
from coke.learning.common import MARK
from coke.learning.near import Arrived, Asks, Basing, Noticing, R, Saying
from coke.learning.resting import SiteStream, Stand
from coke.maths.algorithms.alarms import NEVER, Marks
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger, Spent
from coke.talk.conversation import Talk, Turn
from coke.talk.names import short_id
from coke.talk.present import AWAY
from coke.talk.sums import swept

SOURCE = ""  # whom no neighbour is called like
_NOTICE = struct.Struct("<IH")  # whose, and its age in ticks, with a bit for its kind
_FIRST = struct.Struct("<q")
_OLDEST = 2**15 - 1  # ticks


class Resumed(NamedTuple):
    """How an edge goes on that rested."""

    name: str
    hand: Hand  # the other end's


class SourceSays(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the source says."""

    tick: int | None = None  # that is over
    resumed: tuple[Resumed, ...] = ()  # edges that go on
    end: bool = False  # of the stream
    resting: tuple[str, ...] = ()  # neighbours whose edges rest from now on


class Foreseen(NamedTuple):
    """A tick's rows: how many, what was predicted, what came."""

    tick: int
    found: Array  # (m, K) in the common units
    y: Sequence[Any]


class Ticking:
    """The conversation, and what it knows of who is who."""

    def __init__(self, stream: SiteStream, pending: Pending, seen: Callable[[Foreseen], None]):
        self.stream, self.pending, self._seen = stream, pending, seen
        (self._place,) = stream.ready.places
        self._ids = {short_id(self._place.name): 0}  # of sites, and their columns in notices
        self.risks: Any = None  # of all rows, at the end
        self.everybody = True  # is needed: who is away is waited for
        self.attempt = 1  # to end, the next one

    def talk(self, begun: bool) -> Talk[None]:
        """Until the stream ends; the first tick is the earliest of all sites."""
        if not begun:
            self.pending.now = (yield from self._earliest()) - 1
        self.everybody = ended = False
        while not ended:
            order = order_of((yield Turn({}, [SOURCE]))[SOURCE])
            for name in order.resting:
                self.stream.rest(name)
            self._rejoin(order.resumed)
            if order.tick is not None:
                rows, y = self._rows(order.tick)
                (found,) = yield from self._answered(self.stream.ticking([rows]))
                self._seen(Foreseen(order.tick, found, y))
            ended = order.end and (yield from self._alike())
        self.risks = yield from self._answered(self.stream.gathering())

    def _alike(self) -> Talk[bool]:
        """A try to end: whether all have the same in common; edges whose ends have not, rest."""
        self.everybody = True
        alike, spent = yield from _counted(self._compared())
        self.stream.spent = self.stream.spent + spent
        if not alike:
            self.everybody, self.attempt = False, self.attempt + 1
        return alike

    def _compared(self) -> Talk[bool]:
        _, others = yield from self._marked(b"")
        yes, own = bytes([True]), not others

        def all_alike(children: Sequence[bytes]) -> bytes:
            return bytes([own and all(told == yes for told in children)])

        total = yield from swept(self._place, [], all_alike)
        for name in others:
            self.stream.rest(name)
        return total == yes

    def _earliest(self) -> Talk[int]:
        own = self.pending.first
        assert own is not None  # it has agreed by its first rows

        def least(children: Sequence[bytes]) -> bytes:
            return _FIRST.pack(min(own, *(_unpacked(_FIRST, one)[0] for one in children), own))

        return int(_unpacked(_FIRST, (yield from swept(self._place, [], least)))[0])

    def _rows(self, tick: int) -> tuple[Arrived, Sequence[Any]]:
        """In the common units."""
        agreed, s = self.stream.ready.agreement, self.stream
        X, y, age = self.pending.take(tick)
        if not len(y):
            nothing = np.empty((0, s.inputs)), np.empty((0, s.K)), np.empty(0)
            return Arrived(*nothing), ()
        targets = np.asarray(agreed.making.targets(np.array(y))).reshape(len(y), s.K)
        return Arrived(agreed.units.inputs(X), targets, age), y

    def _answered(self, asks: Asks[R]) -> Talk[R]:
        """What the stream comes to, with the neighbours' answers to what it asks."""
        answer: Any = None
        while True:
            try:
                ask = asks.send(answer)
            except StopIteration as stop:
                return stop.value
            match ask:
                case Noticing(told):
                    answer = yield from self._noticed(told)
                case Saying(hat, spoken):
                    answer = yield from self._said(hat, spoken.payloads.get(0, b""))
                case Basing((talk,)):
                    answer = yield from _counted(talk)

    def _exchanged(self, message: bytes) -> Talk[dict[str, bytes]]:
        """With all that are there and have the same in common; other edges rest from now on."""
        alike, others = yield from self._marked(message)
        for name in others:
            self.stream.rest(name)
        return alike

    def _marked(self, message: bytes) -> Talk[tuple[dict[str, bytes], list[str]]]:
        """What is said by those who have the same in common; and who have not, or are away."""
        s, mark = self.stream, self.stream.mark
        live = [name for name, there in zip(s.neighbours, s.live, strict=True) if there]
        heard = yield Turn(dict.fromkeys(live, mark + message), live, broadcast=True)
        alike = {
            name: told[MARK:] for name, told in heard.items()
            if told != AWAY and told[:MARK] == mark
        }  # fmt: skip
        return alike, sorted(heard.keys() - alike.keys())

    def _noticed(self, told: tuple[Marks, ...]) -> Talk[tuple[Marks, ...]]:
        heard = yield from self._exchanged(self.packed(told))
        found = tuple(np.full_like(one, NEVER) for one in told)
        for message in heard.values():
            self._unpack(message, found)
        return found

    def packed(self, told: tuple[Marks, ...]) -> bytes:
        """Notices (1, N) of each kind, those that there are."""
        names, now = {at: one for one, at in self._ids.items()}, self.stream.ticks
        return b"".join(
            _NOTICE.pack(names[at], min(now - int(one[0, at]), _OLDEST) << 1 | kind)
            for kind, one in enumerate(told) for at in np.flatnonzero(one[0] > NEVER).tolist()
        )  # fmt: skip

    def _unpack(self, message: bytes, found: tuple[Marks, ...]) -> None:
        """Into the latest of each site; what nobody can have said is no notice."""
        whole = len(message) - len(message) % _NOTICE.size
        for who, said in _NOTICE.iter_unpack(message[:whole]):
            if who not in self._ids and len(self._ids) >= self.stream.near.N:
                continue
            one, at = found[said & 1], self._ids.setdefault(who, len(self._ids))
            one[0, at] = max(one[0, at], self.stream.ticks - (said >> 1))

    def _said(self, hat: Array, payload: bytes) -> Talk[Array]:
        """û of the site and of its neighbours; an edge whose word makes no sense rests."""
        s, codec = self.stream, self.stream.online.algorithm.codec
        assert codec is not None
        heard = yield from self._exchanged(payload)
        P, width = 1 + len(s.neighbours), hat.shape[1]
        said = np.zeros((P, width)) if s.linked is None else s.linked.said.copy()
        said[0] = hat[0]
        for name, message in heard.items():
            try:
                news = codec.decode(message, width)
            except MessageError:
                s.rest(name)
            else:
                said[1 + s.neighbours.index(name)] += news
        return said

    def _rejoin(self, resumed: Sequence[Resumed]) -> None:
        """Goes on with edges whose ends have the same in common; else takes over what they have.

        From that on, edges to whoever does not have it rest: its marks differ.
        """
        s, mark = self.stream, self.stream.mark
        for name, hand in resumed:
            found = tuple(np.full_like(notices.heard, NEVER) for notices in s.notices)
            self._unpack(hand.notices, found)
            s.knows(found)
            if hand.common.mark == mark:
                at = Stand(np.frombuffer(hand.hat, "<f8"), np.frombuffer(hand.dual, "<f8"))
                s.resume(name, at, counts=name < self._place.name)
        for _, hand in resumed:
            if hand.common.mark != mark:
                with suppress(MessageError):  # of a basis that makes no sense: the edge rests on
                    s.take_over(hand.common)

    @property
    def ids(self) -> Mapping[int, int]:
        """Short ids of the sites it has heard of, and their columns."""
        return self._ids

    def knows(self, ids: Sequence[int]) -> None:
        """As it was, in order."""
        self._ids = {one: at for at, one in enumerate(ids)}


def _counted(talk: Talk[R]) -> Talk[tuple[R, Spent]]:
    """With what it took."""
    ledger, heard = Ledger(), None
    while True:
        try:
            turn = talk.send(heard)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value, np.array([ledger], np.int64)
        ledger = ledger.sent(turn.tell.values(), broadcast=turn.broadcast)
        heard = yield turn


def order_of(message: bytes) -> SourceSays:
    """What the source has said."""
    return msgspec.msgpack.decode(message, type=SourceSays)


def _unpacked(form: struct.Struct, data: bytes) -> tuple[Any, ...]:
    if len(data) != form.size:
        raise MessageError(f"{len(data)} bytes where {form.size} would do")
    return form.unpack(data)
