"""A stream that lies in a file: its rows in the order of their times, as if they came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from coke.data.arrivals import finite_rows, positions
from coke.data.split import Index, by_label, split
from coke.data.tables import Rows, read_table
from coke.data.timed import Clocked, Timed
from coke.engines.process import ALONE
from coke.engines.ranks.engine import Ranks
from coke.errors import ConfigError, DataError
from coke.learning.kinds import Say, reading_of, with_kind, with_target
from coke.learning.prequential import Feed
from coke.learning.ready import Ready, agree
from coke.learning.several import stream_of
from coke.learning.terms import Terms
from coke.maths.graph import adjacency, graph_on
from coke.maths.losses import LOSSES, NUMBERS, OF_CLASSES
from coke.settings.declaration import Settings
from coke.settings.rules import of_stream

if TYPE_CHECKING:
    from mpi4py import MPI

_SLICE = 32  # ticks that are learnt from between two looks
LEAST_SQUARES = "least-squares"


class Replay(NamedTuple):
    """Sites that have agreed, and the rows that will come to them."""

    feed: Feed
    clock: Clocked
    rows: Timed  # in the order of their ticks
    whose: Index  # (T,) positions of the sites

    def run(self) -> Iterator[int]:
        """Learns from all rows, some ticks at a time; how many rows have come."""
        _, at = np.unique(self.rows.ticks, return_index=True)
        ends = [*at[_SLICE::_SLICE].tolist(), len(self.rows.ticks)]
        for first, last in zip([0, *ends[:-1]], ends, strict=True):
            some, whose = self.rows.some(slice(first, last)), self.whose[first:last]
            self.feed.take(some.X, some.y, whose, some.ticks)
            yield last


def open_online(settings: Settings, comm: MPI.Comm | None, say: Say) -> Replay:
    """The rows of the file, and sites that have agreed by the first of them."""
    settings = learnt_online(with_kind(with_target(settings), say))
    for reason in of_stream(settings):
        raise ConfigError(reason)
    clock = clocked(settings)
    table = read_table(str(settings.data.file), reading_of(settings, say))
    rows = clock.rows(table)
    if rows.sites is None:
        raise ConfigError("a stream in a file without data.site: name the column of its sites")
    lost = np.array([name is None for name in rows.sites.tolist()])
    if lost.any():
        raise DataError(f"{lost.sum()} rows have no site in column {settings.data.site!r}: name it")
    rows = rows.some(np.argsort(rows.ticks, kind="stable"))
    ready, names = _agreed(settings, rows, clock.columns, comm)
    feed = Feed(stream_of(ready, settings.memory), settings.stream.late)
    return Replay(feed, clock, rows, positions(rows.sites, names))


def clocked(settings: Settings) -> Clocked:
    """How that stream's tables are read."""
    data, stream = settings.data, settings.stream
    return Clocked(
        time=stream.time, targets=data.targets, site=data.site, drop=data.drop,
        classes=LOSSES[settings.loss].kind != NUMBERS, tick=stream.tick, on_gap=stream.on_gap,
    )  # fmt: skip


def learnt_online(settings: Settings) -> Settings:
    """With the loss of classes that a stream has."""
    if settings.loss != OF_CLASSES:
        return settings
    return msgspec.structs.replace(settings, loss=LEAST_SQUARES)


def first_rows(rows: Timed, most: int) -> Index:
    """The first whole rows of a site: so many, or fewer."""
    return np.flatnonzero(finite_rows(rows.X, rows.y))[:most]


def _agreed(
    settings: Settings, rows: Timed, columns: tuple[str, ...], comm: MPI.Comm | None
) -> tuple[Ready, list[str]]:
    """The sites agree on units and a model, from the first rows of each."""
    assert rows.sites is not None
    parts, most = by_label(rows.sites), settings.stream.first
    some = {name: part[first_rows(rows.some(part), most)] for name, part in parts.items()}
    bare = [str(name) for name, part in some.items() if not len(part)]
    if bare:
        raise DataError(f"sites {bare[:8]} have no row without a gap: leave them out, or mend them")
    numbers = LOSSES[settings.loss].kind == NUMBERS
    table = Rows(rows.X, rows.y, None, columns, targets=settings.data.targets)
    kept = split(some, test=0.0, seed=settings.seed).kept(table, numbers=numbers)
    graph = graph_on(list(parts), settings.graph.kind, settings.graph.edges, settings.seed)
    engine = ALONE if comm is None else Ranks(comm, adjacency(graph), kept.names)
    here = kept if comm is None else kept.of(engine.agents(len(kept.names)))
    terms = Terms(settings, columns, streams=True)
    return agree(here, graph, terms, engine, kept.names), [*parts]
