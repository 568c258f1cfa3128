"""A site on a stream: it follows its source, tick by tick with its neighbours, and never stops.

All that a site does is a function of its journal: rows with the offset behind them, that a tick is
over, messages of neighbours, that one of them rests. A record is on disk before anything follows
from it; every so many ticks the whole state is, too (`stream-0.coke`, `stream-1.coke`), and the
journal begins anew. So a row counts once, whenever the process dies, and the same is said again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np

from coke.data.files import Arrays, pack, unpack
from coke.data.pending import Pending, Remembered
from coke.data.timed import Timed
from coke.errors import FileError
from coke.field.agreeing import Agree
from coke.field.carriers.base import Event
from coke.field.feeding import Offset
from coke.field.phases import Desk
from coke.field.pulses import Ends, Join, Pulse, Rests, TickSaid, TickWaits
from coke.field.rejoining import Rejoin
from coke.field.store import Store
from coke.field.streams import StreamMission
from coke.field.ticking import AWAY, SOURCE, Foreseen, Order, Ticking
from coke.learning.frozen import Frozen, freeze, thaw
from coke.learning.resting import SiteStream
from coke.talk.conversation import Conversation
from coke.talk.names import short_id
from coke.threads import OneThread

_KIND = "stream"
_OFTEN = 50  # ticks between two images
_EARLY = 64  # messages of a neighbour that are kept before they are of use
_AGAIN = 128  # the number of the first message after an edge has rested, within a tick
_LOOK = 0.05  # seconds between two looks at the source
_FULL = 5000  # rows that wait, with which no more are read
_Number = tuple[int, int]
Record = tuple[str, Any]


class _Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a site's state that is no array."""

    number: int
    offset: Offset
    stream: Frozen
    pending: Remembered
    targets: list[Any]  # of the rows that wait
    ids: list[int]
    sent: list[tuple[str, int, int, bytes]]
    paid: tuple[int, float, float]
    last: Any


@dataclass
class Follow:
    """Until the stream ends by agreement, if ever."""

    name: ClassVar[str] = "stream"
    desk: Desk
    mission: StreamMission
    store: Store
    agreed: Agree
    missing: Sequence[str] = ()
    together: Sequence[str] = ()
    finishing: bool = False  # whether to end once the source has nothing more
    paid: tuple[int, float, float] = (0, 0.0, 0.0)  # rows, losses, those of the last value
    _last: Any = None
    _number: int = 0
    _offset: Offset = field(default_factory=dict)
    _sent: dict[str, dict[_Number, bytes]] = field(default_factory=dict)
    _inbox: dict[str, dict[_Number, bytes]] = field(default_factory=dict)
    _in: dict[str, _Number] = field(default_factory=dict)
    _base: dict[str, _Number] = field(default_factory=dict)  # of edges that go on within a tick
    _ends: dict[int, int] = field(default_factory=dict)
    _fresh: float = 0.0  # when a row came last
    _looked: float = 0.0
    _waits: float = 0.0  # since when the missing are waited for
    _imaged: int = 0

    @property
    def stream(self) -> SiteStream:
        """What it has learnt."""
        return self._ticking.stream

    @property
    def pending(self) -> Pending:
        """What has come."""
        return self._ticking.pending

    @property
    def begun(self) -> bool:
        """Whether there is a stream."""
        return hasattr(self, "_ticking")

    def begin(self) -> None:
        """From the last image and what the journal has since; or from the first rows."""
        ready, config = self.agreed.result, self.mission.config
        assert ready is not None  # the phase before is over
        self.mission.knows(ready)
        stream = SiteStream(ready, config.memory)
        stream.spent = np.array([self.agreed.spent], np.int64)
        self._ticking = Ticking(stream, Pending(config.stream.late), self._foresaw)
        self.rejoin = Rejoin(self.desk, self.mission.name, self._ticking, self._patience)
        image = self.store.streamed.read(lambda data: unpack(data, _KIND, _Image))
        if image is None:
            self._offset = self.mission.first.offset
            self.pending.add(self.mission.first.rows)
        else:
            self._restore(*image)
        self._talking = Conversation(self._ticking.talk(begun=image is not None))
        self._go_on()
        for record in self._recorded():
            self._apply(record)
        self._fresh = self._waits = self.desk.clock()
        self._imaged = stream.ticks

    def _recorded(self) -> list[Record]:
        """What followed the image; a journal of before it is forgotten."""
        mark = self._number.to_bytes(8, "little")
        if not self.store.stream:
            self.store.stream.begin(mark)
            return []
        begin, *blocks = self.store.stream.read()
        if begin != mark:
            self.store.stream.begin(mark)
            return []
        try:
            return [tuple(one) for data in blocks for one in msgspec.msgpack.decode(data)]
        except msgspec.DecodeError as error:
            raise FileError(
                f"{self.store.stream.path}: cannot be read: {error}; restore it"
            ) from error

    def _apply(self, record: Record) -> None:
        kind, what = record
        if kind == "rows":
            self._offset, *parts = what
            self.pending.add(_rows(*parts))
            return
        sender, message = what
        self._talking.take(sender, message)
        if sender != SOURCE:
            self._in[sender] = self._expected(sender)[0], self._expected(sender)[1] + 1
        if not self._talking.waiting():
            self._go_on()

    def _commit(self, *records: Record) -> None:
        """On disk, and only then what follows from it."""
        self.store.stream.add(msgspec.msgpack.encode(records))
        for record in records:
            self._apply(record)

    def _go_on(self) -> None:
        """As far as what came allows; what it tells is kept, to be asked for again."""
        with OneThread().limit():
            told = self._talking.go_on()
        tick = self.stream.ticks
        for name, message in told:
            sent = self._sent.setdefault(name, {})
            for old in [number for number in sent if number[0] < tick - 1]:
                del sent[old]
            k = self._first(name) + sum(number[0] == tick for number in sent)
            sent[tick, k] = message
            self.desk.post([(name, TickSaid(tick, k, message))])
        self._waits = self.desk.clock()

    def _expected(self, name: str) -> _Number:
        """The number of a neighbour's next message."""
        tick, k = self._in.get(name, (0, 0))
        return (tick, k) if tick == self.stream.ticks else (self.stream.ticks, self._first(name))

    def _first(self, name: str) -> int:
        """The number of a tick's first message on an edge: greater where it had rested."""
        tick, k = self._base.get(name, (-1, 0))
        return k if tick == self.stream.ticks else 0

    def over(self) -> bool:
        """Whether the stream has ended; then rounds follow, from where it is."""
        if self._talking.done and self.mission.ended is None:
            self.mission.end(self.stream, self._ticking.risks)
            self.desk.timers.clear()
        return self._talking.done

    def work(self) -> bool:
        """What has come, and what it makes possible; who is waited for is asked."""
        self._look()
        waiting, before = self._talking.waiting(), self.stream.ticks
        if waiting == [SOURCE]:
            self.missing = ()
            self._order()
        else:
            self._deliver(waiting)
        self.rejoin.work()
        self._tell_ends()
        if self.stream.ticks >= self._imaged + _OFTEN and self._talking.waiting() == [SOURCE]:
            self.keep()
        return self.stream.ticks > before

    def _look(self) -> None:
        """At the source, now and then."""
        now = self.desk.clock()
        if now - self._looked < _LOOK or len(self.pending.rows) > _FULL:
            return
        self._looked = now
        table, offset, news = self.mission.inflow.read(self._offset)
        self.desk.news += news
        if table is not None:
            rows = self.mission.clock.rows(table)
            self._fresh = now
            self._commit(("rows", (offset, *_plain(rows))))
        elif offset != self._offset:
            self._offset = offset

    @property
    def _ended(self) -> bool:
        """Whether the source has nothing more, and that is the end."""
        idle = self.desk.clock() - self._fresh > self.mission.config.stream.wait
        return self.finishing and (idle or self.mission.inflow.ended)

    def _order(self) -> None:
        """Ends a tick, once no row of it is expected any more; or the stream."""
        now, last = self.pending.now, self.pending.last
        assert now is not None  # the first tick is known
        assert last is not None
        tick, ended = now + 1, self._ended
        begun = any((self.stream.ticks + 1, 0) in inbox for inbox in self._inbox.values())
        idle = self.desk.clock() - self._fresh > self.mission.config.stream.wait
        known = ended and len(self._ends) == self.stream.near.N
        self.rejoin.ended = known and now == max(self._ends.values())
        if self.rejoin.held():
            return
        behind = self._behind(ended)
        full = last > tick or (ended and last >= tick) or ((begun or behind) and (idle or ended))
        if full and (self.rejoin.ready or self.rejoin.may()):
            self._say(Order(tick, tuple(self.rejoin.due())))
        elif self.rejoin.ready:
            self._say(Order(resumed=tuple(self.rejoin.due())))
        elif self.rejoin.ended and self.stream.live.all():
            self._say(Order(end=True))

    def _say(self, order: Order) -> None:
        """What the source says is heard as all else is."""
        for one in order.resumed:
            self._base[one.name] = (self.stream.ticks, _AGAIN)
            self._inbox.pop(one.name, None)
            self._sent.pop(one.name, None)
            self.desk.news.append(Event("joined", one.name, f"at tick {self.stream.ticks + 1}"))
        self._commit(("heard", (SOURCE, msgspec.msgpack.encode(order))))

    def _behind(self, ended: bool) -> bool:
        """Whether others, with whom this site is not in step now, have come further."""
        assert self.pending.now is not None
        late = ended and bool(self._ends) and self.pending.now < max(self._ends.values())
        return late or self.rejoin.behind()

    def _deliver(self, waiting: Sequence[str]) -> None:
        """What the conversation waits for, if it is there; who is away, rests."""
        rest = self._ticking.exchanging
        late = self.desk.clock() - self._waits > self._patience()
        records, missing = list[Record](), list[str]()
        for name in waiting:
            message = self._inbox.get(name, {}).pop(self._expected(name), None)
            if message is None and rest and (late or name in self.rejoin.gone):
                message = AWAY
                self.rejoin.gone.discard(name)
                self.desk.news.append(Event("rests", name, f"from tick {self.stream.ticks} on"))
                self.desk.post([(name, Rests(self.stream.ticks))])
            if message is None:
                missing.append(name)
            else:
                records.append(("heard", (name, message)))
        if records:
            self._commit(*records)
        self.missing = self.together = missing
        asked = self.desk.due(missing)
        self.desk.post((name, TickWaits(*self._expected(name))) for name in asked)

    def _patience(self) -> float:
        """Seconds for which the missing are waited for; their own source may be waited for, too."""
        pace = self.desk.pace
        patience = pace.least if pace.patience is None else pace.patience
        return patience + self.mission.config.stream.wait

    def _tell_ends(self) -> None:
        """Where this site's stream ends, and what it has heard of others' ends."""
        if not self._ended or self.pending.last is None:
            return
        own = short_id(self.mission.name)
        if self._ends.get(own) != self.pending.last:
            self._ends[own] = self.pending.last
            self._pass_on()
        for name in self.desk.due(f"{one}\0ends" for one in self.stream.neighbours):
            self.desk.post([(name.removesuffix("\0ends"), Ends(self._ends))])

    def _pass_on(self) -> None:
        self.desk.post((name, Ends(self._ends)) for name in self.stream.neighbours)

    def hear(self, sender: str, letter: Pulse) -> None:
        """Of the stream, once there is one."""
        if not self.begun or sender not in self.stream.neighbours:
            return
        match letter:
            case TickSaid(tick, k, message):
                self._said(sender, (tick, k), message)
            case TickWaits(tick, k):
                self._asked(sender, (tick, k))
            case Rests():
                self.rejoin.rests(sender, letter)
            case Join():
                self.rejoin.hear(sender, letter)
            case Ends(last) if len(self._ends | last) <= self.stream.near.N:
                if not last.items() <= self._ends.items():
                    self._ends |= last
                    self._pass_on()

    def _said(self, sender: str, number: _Number, message: bytes) -> None:
        if sender in self.rejoin.resting():
            self.desk.post([(sender, Rests(self.stream.ticks))])
            return
        inbox, now = self._inbox.setdefault(sender, {}), self.stream.ticks
        for old in [one for one in inbox if one < self._expected(sender)]:
            del inbox[old]
        soon = self._expected(sender) <= number and number[0] <= now + 1
        if soon and len(inbox) < _EARLY and message != AWAY:
            inbox.setdefault(number, message)

    def _asked(self, sender: str, number: _Number) -> None:
        message = self._sent.get(sender, {}).get(number)
        if message is not None:
            self.desk.post([(sender, TickSaid(*number, message))])
        elif sender in self.rejoin.resting():
            self.desk.post([(sender, Rests(self.stream.ticks))])

    def goodbye(self) -> None:
        """Commits, and tells the neighbours not to wait."""
        if self.begun and not self._talking.done:
            if self._talking.waiting() == [SOURCE]:
                self.keep()
            self.desk.post((name, Rests(self.stream.ticks)) for name in self.stream.neighbours)

    def _foresaw(self, seen: Foreseen) -> None:
        """How well the rows of a tick were predicted."""
        rows, loss, last = self.paid
        for y, f in zip(seen.y, seen.found, strict=True):
            loss += self.mission.paid(y, f)
            last += 0.0 if self._last is None else self.mission.missed(y, self._last)
            rows, self._last = rows + 1, y
        self.paid = rows, loss, last

    def keep(self) -> None:
        """The whole state, from which the journal begins anew."""
        meta, arrays = freeze(self.stream)
        rows = self.pending.kept
        arrays |= {
            "pending.X": np.array([x for _, x, _ in rows]).reshape(
                len(rows), len(self.mission.columns)
            ),
            "pending.ticks": np.array([tick for tick, _, _ in rows], np.int64),
        }
        image = _Image(
            number=self._number + 1, offset=self._offset, stream=meta,
            pending=self.pending.memory(), targets=[_label(y) for _, _, y in rows],
            ids=[*self._ticking.ids], paid=self.paid, last=_label(self._last),
            sent=[(n, *number, m) for n, sent in self._sent.items() for number, m in sent.items()],
        )  # fmt: skip
        self.store.streamed.write(pack(_KIND, image, arrays))
        self._number, self._imaged = image.number, self.stream.ticks
        self.store.stream.begin(self._number.to_bytes(8, "little"))

    def _restore(self, image: _Image, arrays: Arrays) -> None:
        X, ticks = arrays.pop("pending.X"), arrays.pop("pending.ticks").tolist()
        thaw(self.stream, image.stream, arrays)
        rows = list(zip(ticks, X, image.targets, strict=True))
        self.pending.remember(image.pending, rows)
        self._ticking.knows(image.ids)
        self._number, self._offset, self.paid = image.number, image.offset, image.paid
        self._last = image.last
        for name, tick, k, message in image.sent:
            self._sent.setdefault(name, {})[tick, k] = message


def _plain(rows: Timed) -> tuple[Any, ...]:
    """Rows for the journal."""
    X = np.ascontiguousarray(rows.X)
    return X.tobytes(), list(X.shape), rows.y.tolist(), rows.ticks.tolist()


def _rows(X: bytes, shape: list[int], y: list[Any], ticks: list[int]) -> Timed:
    there = np.frombuffer(X).reshape(shape)
    return Timed(there, np.array(y), None, np.array(ticks, np.int64))


def _label(y: Any) -> Any:
    return y.tolist() if isinstance(y, np.ndarray | np.generic) else y
