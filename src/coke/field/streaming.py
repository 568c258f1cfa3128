"""A site on a stream: it follows its source, tick by tick with its neighbours, and never stops.

All that a site does is a function of its journal: rows with the offset behind them, that a tick is
over, messages of neighbours, that one of them rests. A record is on disk before anything follows
from it; every so many ticks the whole state is, too (`stream-0.coke`, `stream-1.coke`), and the
journal begins anew. So a row counts once, whenever the process dies, and the same is said again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from coke.data.files import Arrays, unpack
from coke.data.pending import Pending
from coke.field.agreeing import Agree
from coke.field.attending import Attend
from coke.field.carriers.base import Event
from coke.field.endings import Endings
from coke.field.foreseen import Foresight
from coke.field.images import (
    KIND,
    Image,
    Record,
    label_of,
    packed,
    recorded,
    restore,
    rows_of,
)
from coke.field.looking import OwnSource
from coke.field.numbered import Numbered
from coke.field.phases import Desk
from coke.field.pulses import Ends, Join, Pulse, Rests, TickHere, TickSaid, TickWaits
from coke.field.rejoining import Rejoin
from coke.field.store import Store
from coke.field.streams import StreamMission
from coke.field.ticking import SOURCE, SourceSays, Ticking, order_of
from coke.learning.frozen import freeze
from coke.learning.resting import SiteStream
from coke.maths.ledger import Ledger
from coke.talk.conversation import Conversation
from coke.talk.present import AWAY
from coke.threads import OneThread

_OFTEN = 50  # ticks between two images
_FULL = 5000  # rows that wait, with which no more are read


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
    _number: int = 0
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

    @property
    def told(self) -> tuple[int, Ledger, float]:
        """Ticks, what was sent, and the mean error of a row."""
        return self.stream.ticks, Ledger.of(self.stream.spent), self.score.mean

    def summary(self) -> dict[str, Any]:
        """For people and machines."""
        before = (self.pending.now or 0) - self.stream.ticks
        alarms = [self.mission.clock.when(before + tick) for tick in self.stream.alarms]
        arrivals = self.pending.counts._asdict()
        return {**self.score.summary(), "arrivals": arrivals, "alarms": alarms}

    def begin(self) -> None:
        """From the last image and what the journal has since; or from the first rows."""
        ready, config = self.agreed.result, self.mission.config
        assert ready is not None  # the phase before is over
        self.mission.knows(ready)
        stream = SiteStream(ready, config.memory)
        stream.spent = np.array([self.agreed.spent], np.int64)
        self.score = Foresight(self.mission.paid, self.mission.missed)
        self._ticking = Ticking(stream, Pending(config.stream.late), self.score.add)
        self._endings = Endings(self.desk, self.mission.name, stream.neighbours, stream.near.N)
        self._post = Numbered(lambda: stream.ticks)
        self._attend = Attend(self.desk, config.stream.wait)
        self._source = OwnSource(self.desk, self.mission)
        self.rejoin = Rejoin(self.desk, self.mission.name, self._ticking, self._attend.patience)
        image = self.store.streamed.read(lambda data: unpack(data, KIND, Image))
        if image is None:
            self._source.offset = self.mission.first.offset
            self.pending.add(self.mission.first.rows)
        else:
            self._restore(*image)
        self._talking = Conversation(self._ticking.talk(begun=image is not None))
        self._go_on()
        for record in recorded(self.store.stream, self._number):
            self._apply(record)
        self._source.anew()
        self._imaged = stream.ticks

    def _apply(self, record: Record) -> None:
        kind, what = record
        if kind == "rows":
            self._source.offset, *parts = what
            self.pending.add(rows_of(*parts))
            return
        sender, message = what
        self._talking.take(sender, message)
        if sender != SOURCE:
            self._post.used(sender)
        for name, hand in order_of(message).resumed if sender == SOURCE else ():
            self._post.anew(name)
            self.rejoin.goes_on(name, hand)
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
        self.desk.post(self._post.tell(told))
        self.desk.restart(dict(told))
        self._attend.anew()

    def over(self) -> bool:
        """Whether the stream has ended; then rounds follow, from where it is."""
        if self._talking.done and self.mission.ended is None:
            self.mission.end(self.stream, self._ticking.risks)
            self.desk.timers.clear()
        return self._talking.done

    def work(self) -> bool:
        """What has come, and what it makes possible; who is waited for is asked."""
        came = self._source.look() if len(self.pending.rows) <= _FULL else None
        if came is not None:
            self._commit(("rows", came))
        waiting, before = self._talking.waiting(), self.stream.ticks
        if waiting == [SOURCE]:
            self.missing = ()
            self._order()
        else:
            self._deliver(waiting)
        self.rejoin.work()
        if self._ended and self.pending.last is not None:
            self._endings.tell(self.pending.last, self._here(), self._ticking.attempt)
        if self.stream.ticks >= self._imaged + _OFTEN and self._talking.waiting() == [SOURCE]:
            self.keep()
        return self.stream.ticks > before

    @property
    def _ended(self) -> bool:
        """Whether the source has nothing more, and that is the end."""
        return self.finishing and self._source.ended

    def _here(self) -> set[str]:
        """Neighbours with whom all ticks are over: then no row that comes is learnt from."""
        between = self._talking.waiting() == [SOURCE] or self._ticking.everybody
        over = between and self._endings.over(self.pending.now)
        return {*self.stream.neighbours} - {*self.rejoin.resting()} if over else set()

    def _order(self) -> None:
        """Ends a tick, once no row of it is expected any more; or the stream."""
        now, last = self.pending.now, self.pending.last
        assert now is not None  # the first tick is known
        assert last is not None
        tick, ended, idle = now + 1, self._ended, self._source.idle
        self.rejoin.ended = ended and self._endings.over(now)
        gone = tuple(sorted(self.rejoin.gone.difference(self.rejoin.resting())))
        if gone:  # they wait for nothing of this site any more, nor will they at the end
            self._say(SourceSays(resting=gone))
        if gone or self.rejoin.held():
            return
        behind = self.rejoin.behind() or (ended and now < self._endings.last)
        full = last > tick or (ended and last >= tick)
        full = full or ((self._post.begun or behind) and (idle or ended))
        if full and not self._here() and (self.rejoin.ready or self.rejoin.may()):
            self._say(SourceSays(tick, self.rejoin.due()))
        elif self.rejoin.ready:
            self._say(SourceSays(resumed=self.rejoin.due()))
        elif self._endings.together(self._ticking.attempt) and self.rejoin.all_ended:
            self._say(SourceSays(end=True))

    def _say(self, order: SourceSays) -> None:
        """What the source says is heard as all else is."""
        for name in order.resting:
            self._rests(name)
        for name, hand in order.resumed:
            if hand.common.mark == self.stream.mark:
                self.desk.news.append(Event("joined", name, f"at tick {self.stream.ticks + 1}"))
        self._commit(("heard", (SOURCE, msgspec.msgpack.encode(order))))

    def _deliver(self, waiting: Sequence[str]) -> None:
        """What the conversation waits for, if it is there; who is away, rests."""
        records, missing = list[Record](), list[str]()
        for name in waiting:
            message = self._post.came(name)
            gone = name in self.rejoin.gone or self._attend.late(name)
            if message is None and gone and not self._ticking.everybody:
                message = AWAY
                self._rests(name)
            if message is None:
                missing.append(name)
            else:
                records.append(("heard", (name, message)))
        if records:
            self._commit(*records)
        self.missing = self.together = missing
        for name in self._attend.due(missing):
            self.desk.post([(name, TickWaits(*self._post.expected(name)))])

    def _rests(self, name: str) -> None:
        """That edge does, as both ends are to know."""
        self.rejoin.gone.discard(name)
        self.desk.news.append(Event("rests", name, f"from tick {self.stream.ticks} on"))
        self.desk.post([(name, Rests(self.stream.ticks))])

    def hear(self, sender: str, letter: Pulse) -> None:
        """Of the stream, once there is one."""
        if not self.begun or sender not in self.stream.neighbours:
            return
        match letter:
            case TickSaid() if sender in self.rejoin.resting():
                self.desk.post([(sender, Rests(self.stream.ticks))])
            case TickSaid():
                self._post.hear(sender, letter)
            case TickWaits():
                answer = self._post.answer(sender, letter, sender in self.rejoin.resting())
                self.rejoin.gone |= {sender} if isinstance(answer, Rests) else set()
                self.desk.post([] if answer is None else [(sender, answer)])
            case TickHere():
                self._attend.here(sender)
            case Rests():
                self.rejoin.rests(sender, letter)
            case Join():
                self.rejoin.hear(sender, letter)
            case Ends():
                self._endings.hear(sender, letter)

    def goodbye(self) -> None:
        """Commits, and tells the neighbours not to wait."""
        if self.begun and not self._talking.done:
            if self._talking.waiting() == [SOURCE]:
                self.keep()
            gone = () if self._here() else self.stream.neighbours  # who end need this site
            self.desk.post((name, Rests(self.stream.ticks)) for name in gone)

    def keep(self) -> None:
        """The whole state, from which the journal begins anew."""
        meta, arrays = freeze(self.stream)
        rows = self.pending.kept
        image = Image(
            number=self._number + 1, offset=self._source.offset, stream=meta,
            pending=self.pending.memory(), targets=[label_of(y) for _, _, y in rows],
            ids=[*self._ticking.ids], paid=self.score.paid, last=label_of(self.score.last),
            post=self._post.kept(), given=self.rejoin.given, attempt=self._ticking.attempt,
        )  # fmt: skip
        width = len(self.mission.columns)
        self.store.streamed.write(packed(image, arrays, rows, width))
        self.stream.model(0).save(self.store.folder / "model.coke")  # to predict with meanwhile
        self._number, self._imaged = image.number, self.stream.ticks
        self.store.stream.begin(self._number.to_bytes(8, "little"))

    def _restore(self, image: Image, arrays: Arrays) -> None:
        restore(image, arrays, self.stream, self.pending)
        self._ticking.knows(image.ids)
        self._number, self._source.offset = image.number, image.offset
        self.score.paid, self.score.last = image.paid, image.last
        self._post.remember(image.post)
        self.rejoin.given, self._ticking.attempt = dict(image.given), image.attempt
