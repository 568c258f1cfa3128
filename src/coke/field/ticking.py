"""One site's part in a stream, as a conversation with its neighbours and with its own source.

Tick by tick: the source says that a tick is over, neighbours tell each other notices, and where a
round is due what they have learnt. It is a function of what it heard, as every conversation is: so
what the source says is heard, too, and an agent that crashed holds it again from its last image.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coke.data.pending import Pending
from coke.errors import MessageError
from coke.learning.basis import Basis
from coke.learning.near import Asks, Basing, Noticing, R, Saying
from coke.learning.resting import Common, Hand, SiteStream
from coke.learning.streaming import Arrived
from coke.maths.algorithms.alarms import NEVER, Marks
from coke.maths.algorithms.online import Clock
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger, Spent
from coke.talk.conversation import Talk, Turn
from coke.talk.names import short_id
from coke.talk.sums import swept

SOURCE = ""  # whom no neighbour is called like
AWAY = b"\xff" * 9  # in place of a message: the neighbour's edge rests
_NOTICE = struct.Struct("<IH")  # whose, and its age in ticks, with two bits for its kind
_FIRST = struct.Struct("<q")
_OLDEST = 2**14 - 1  # ticks


class Resumed(NamedTuple):
    """How an edge goes on that rested."""

    name: str
    steps: int
    hat: bytes
    common: tuple[float, int, int, int, tuple[int, ...], bool] | None  # None: both were there
    notices: bytes


class SourceSays(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the source says."""

    tick: int | None = None  # that is over
    resumed: tuple[Resumed, ...] = ()  # edges that go on
    end: bool = False  # of the stream


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
        self.exchanging = False  # with all neighbours: who is away may be left out

    def talk(self, begun: bool) -> Talk[None]:
        """Until the stream ends; the first tick is the earliest of all sites."""
        if not begun:
            self.pending.now = (yield from self._earliest()) - 1
        while not (order := order_of((yield Turn({}, [SOURCE]))[SOURCE])).end:
            for one in order.resumed:
                self._resume(one)
            if order.tick is not None:
                rows, y = self._rows(order.tick)
                (found,) = yield from self._answered(self.stream.ticking([rows]))
                self._seen(Foreseen(order.tick, found, y))
        self.risks = yield from self._answered(self.stream.gathering())

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
        """With all neighbours that are there; who is not rests from now on."""
        s = self.stream
        live = [name for name, there in zip(s.neighbours, s.live, strict=True) if there]
        self.exchanging = True
        heard = yield Turn(dict.fromkeys(live, message), live, broadcast=True)
        self.exchanging = False
        for name in [name for name, told in heard.items() if told == AWAY]:
            s.rest(name)
            del heard[name]
        return heard

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
            _NOTICE.pack(names[at], min(now - int(one[0, at]), _OLDEST) << 2 | kind)
            for kind, one in enumerate(told) for at in np.flatnonzero(one[0] > NEVER).tolist()
        )  # fmt: skip

    def _unpack(self, message: bytes, found: tuple[Marks, ...]) -> None:
        """Into the latest of each site; what nobody can have said is no notice."""
        whole = len(message) - len(message) % _NOTICE.size
        for who, said in _NOTICE.iter_unpack(message[:whole]):
            if who not in self._ids and len(self._ids) >= self.stream.near.N:
                continue
            one, at = found[said & 3], self._ids.setdefault(who, len(self._ids))
            one[0, at] = max(one[0, at], self.stream.ticks - (said >> 2))

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

    def _resume(self, one: Resumed) -> None:
        if one.common is not None:
            w, since, age, agreed, alarms, owed = one.common
            self.stream.caught_up(Common(Clock(w, since), age, agreed, alarms, owed))
        found = tuple(np.full_like(notices.heard, NEVER) for notices in self.stream.notices)
        self._unpack(one.notices, found)
        self.stream.knows(found)
        self.stream.resume(one.name, Hand(one.steps, np.frombuffer(one.hat, "<f8")))

    @property
    def ids(self) -> Mapping[int, int]:
        """Short ids of the sites it has heard of, and their columns."""
        return self._ids

    def knows(self, ids: Sequence[int]) -> None:
        """As it was, in order."""
        self._ids = {one: at for at, one in enumerate(ids)}


def _counted(talk: Talk[Basis]) -> Talk[tuple[Basis, Spent]]:
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
