"""What an agent on a stream is for: its source, its first rows, and rounds once the stream ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from coke.data.files import pack, read_packed, unpack, write_file
from coke.data.reading import PLAINLY
from coke.data.tables import Rows
from coke.data.timed import Timed
from coke.errors import ConfigError
from coke.field.feeding import Inflow, Offset, open_inflow
from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.node import Node
from coke.learning.case import Case, Wanted
from coke.learning.finishing import case_of
from coke.learning.kinds import Say
from coke.learning.model import Model
from coke.learning.online import LEAST_SQUARES, clocked, first_rows
from coke.learning.ready import Ready
from coke.learning.resting import SiteStream
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.maths.losses import OF_CLASSES
from coke.maths.losses.problem import Problem, Quadratic
from coke.settings.declaration import AUTO, SiteSettings

if TYPE_CHECKING:
    from coke.field.agreeing import Agree
    from coke.field.phases import Desk
    from coke.field.store import Store
    from coke.field.streaming import Follow

_KIND, _MOST = "first rows", 1 << 30
_PAUSE = 0.1  # seconds between two looks at a source without rows


class _FirstMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of the first rows that is no number."""

    loss: str
    offset: Offset
    columns: list[str]
    dates: bool
    y: list[Any] | None  # classes; None: numbers, which are an array


class First(NamedTuple):
    """The rows by which the sites agree, and all that came with them."""

    loss: str
    rows: Timed
    offset: Offset
    columns: tuple[str, ...]
    dates: bool

    def keep(self, path: Path) -> None:
        """For good: what was agreed on follows from them."""
        arrays, y = {"X": self.rows.X, "ticks": self.rows.ticks}, self.rows.y
        numbers = np.issubdtype(y.dtype, np.floating)  # some of which may be NaN
        labels = None if numbers else y.tolist()
        meta = _FirstMeta(self.loss, self.offset, [*self.columns], self.dates, labels)
        write_file(path, pack(_KIND, meta, arrays | ({"y": y} if numbers else {})))

    @classmethod
    def read(cls, path: Path) -> First:
        """As they were kept."""
        meta, arrays = unpack(read_packed(path, _KIND, _MOST), _KIND, _FirstMeta)
        y = arrays["y"] if meta.y is None else np.array(meta.y)
        rows = Timed(arrays["X"], y, None, arrays["ticks"])
        return cls(meta.loss, rows, meta.offset, tuple(meta.columns), meta.dates)


def first_of(
    config: SiteSettings, inflow: Inflow, folder: Path, stopped: Callable[[], bool]
) -> First | None:
    """The first rows of a site: as they were, or as soon as there are enough; None if stopped."""
    path = folder / "first.coke"
    if path.exists():
        return First.read(path)
    clock, offset, loss = None, Offset(), config.loss
    parts, rows = list[Timed](), None
    while not stopped():
        table, offset, _ = inflow.read(offset)
        if table is None:
            if inflow.ended and rows is not None:
                break  # there will be no more
            time.sleep(_PAUSE)
            continue
        if clock is None:
            loss = _loss(config, table)
            clock = clocked(msgspec.structs.replace(config, loss=loss))
        parts.append(clock.rows(table))
        rows = _joined(parts)
        if len(first_rows(rows, config.stream.first)) >= config.stream.first:
            break
    if clock is None or rows is None or (stopped() and not inflow.ended):
        return None
    found = First(loss, rows, offset, clock.columns, clock.dates)
    found.keep(path)
    return found


def _joined(parts: list[Timed]) -> Timed:
    X, y, ticks = (np.concatenate([getattr(p, n) for p in parts]) for n in ("X", "y", "ticks"))
    return Timed(X, y, None, ticks)


def _loss(config: SiteSettings, table: pa.Table) -> str:
    """Of what the target holds, where nobody says: of text, classes."""
    target = config.data.targets[0]
    if config.loss == OF_CLASSES:
        return LEAST_SQUARES
    if config.loss != AUTO or target not in table.column_names:
        return config.loss
    kind = table.schema.field(target).type
    words = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)
    return LEAST_SQUARES if words else "quadratic"


class StreamMission(Mission):
    """A site's, on a stream; once that has ended, of the rounds that follow."""

    def __init__(self, config: SiteSettings, first: First, inflow: Inflow, say: Say = PLAINLY.say):
        data = msgspec.structs.replace(config.data, test=0.0)
        config = msgspec.structs.replace(config, loss=first.loss, data=data)
        some = first_rows(first.rows, config.stream.first)
        if not len(some):
            raise ConfigError(f"{config.data.file}: no row without a gap to agree by")
        own = first.rows.some(some)
        rows = Rows(own.X, own.y, None, first.columns, targets=config.data.targets)
        super().__init__(config, rows, say=say)
        self.wanted = Wanted(False, False, config.site.max_sites)
        self.first, self.inflow, self.clock = first, inflow, clocked(config)
        self.clock.columns, self.clock.dates = first.columns, first.dates
        self.ended: SiteStream | None = None
        self._risks: tuple[Quadratic, Quadratic] | None = None
        self._ready: Ready | None = None

    def follow(self, desk: Desk, store: Store, agreed: Agree, finishing: bool) -> Follow:
        """By the phase that does."""
        from coke.field.streaming import Follow  # here: it knows of missions

        return Follow(desk, self, store, agreed, finishing=finishing)

    def end(self, stream: SiteStream, risks: tuple[Quadratic, Quadratic]) -> None:
        """The stream has ended there."""
        self.ended, self._risks = stream, risks

    def case(self, ready: Ready) -> Case:
        """Of the rounds after the end of the stream."""
        if self.ended is None or self._risks is None:
            return super().case(ready)
        return case_of(self.ended, Problem(self._risks[1]))

    def setup(self, ready: Ready, spent: Ledger) -> Setup:
        """With what the stream has spent."""
        if self.ended is not None:
            spent = Ledger.of(self.ended.spent)
        return super().setup(ready, spent)

    def begun(self, node: Node) -> Node:
        """From where the stream has come to."""
        assert self.ended is not None
        at, names = self.ended.known, self.ended.neighbours
        h = float(at.coke.h[0, 0])
        ends = {
            name: node.ends[name]._replace(
                own=at.coke.hat[0], cp=at.said[1 + e], g=at.duals[e], h=h
            )
            for e, name in enumerate(names)
        }
        state = node.state._replace(theta=at.coke.theta, loss=at.coke.loss)
        return node._replace(ends=ends, state=state)

    @cached_property
    def _scores(self) -> Model:
        assert self._ready is not None
        agreed = self._ready.agreement
        return self._ready.model(np.zeros(agreed.outputs * agreed.features.size))

    def knows(self, ready: Ready) -> None:
        """What the sites have agreed on."""
        self._ready = ready

    def paid(self, y: Any, f: Array) -> float:
        """What a prediction (K,) in the common units costs: a squared error, or a wrong class."""
        model = self._scores
        if len(model.classes):
            return self.missed(y, model.labels(model.decided(f[None]))[0])
        return self.missed(y, model.scaling.predictions(f[None])[0])

    def missed(self, y: Any, told: Any) -> float:
        """The same of a target that was told."""
        if len(self._scores.classes):
            return float(y != told)
        return float(np.sum((np.ravel(y) - np.ravel(told)) ** 2))


def opened(config: SiteSettings) -> Inflow:
    """The site's source."""
    data = config.data
    return open_inflow(str(data.file), data.separator, data.decimal)


def stream_mission(
    config: SiteSettings, folder: Path, stopped: Callable[[], bool], say: Say
) -> StreamMission | None:
    """For a site's file, once its source has given the first rows; None if stopped before."""
    inflow = opened(config)
    first = first_of(config, inflow, folder, stopped)
    return None if first is None else StreamMission(config, first, inflow, say=say)
