"""Some sites' rows of a file that holds everybody's, a chunk in memory at a time.

`picked` keeps their rows. `Streams` keeps none: three passes leave how many rows each site has, the
moments of its columns, and its statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from coke.data.passes import Passing, complete, labelled, stream_statistics
from coke.data.scaling import Columns, Scaling, columns_of
from coke.data.sites import Sites, by_label, held_out
from coke.data.sources import Chunk, Source
from coke.data.tables import Labels, Rows
from coke.errors import DataError
from coke.maths.arrays import Array, Mask, Room
from coke.maths.features.features import Features
from coke.maths.losses.problem import Problem
from coke.maths.losses.quadratic import Quadratic

Watch = Callable[[str, int, int | None], None]
"""Told what a pass is for, how many rows it has read, and how many there are, if that is known."""


def joined(sources: Mapping[str, Source]) -> Source:
    """One site's rows after another's, all with the same columns."""
    columns = {source.columns for source in sources.values()}
    if len(columns) != 1:
        raise DataError(
            f"{len(sources)} files with {len(columns)} different sets of columns: expected one "
            ".parquet or .csv file for every site, with the same columns in the same order"
        )

    def chunks(inputs: bool = True) -> Iterator[Chunk]:
        for name, source in sources.items():
            rows = 0
            for chunk in (source if inputs else source.slim()).chunks():
                rows += len(chunk.y)
                yield chunk._replace(codes=np.zeros(len(chunk.y), np.int64), labels=(name,))
            if not rows:
                raise DataError(f"site {name}: its file has no rows; expected one at least")

    def only(names: frozenset[str]) -> Source:
        some = joined({name: source for name, source in sources.items() if name in names})
        return some._replace(part=True)

    rows = [source.rows for source in sources.values() if source.rows is not None]
    known = sum(rows) if len(rows) == len(sources) else None
    return Source(columns.pop(), known, chunks, partial(chunks, inputs=False), only)


def numbered(source: Source, how: Passing, watch: Watch | None = None) -> Rows:
    """The rows' numbers in place of their inputs, with target and site: to say whose they are."""
    y, labels = list[Labels](), list[Labels]()
    for chunk in complete(labelled(source, how), watched(how, watch, "sites", source)):
        y.append(chunk.targets)
        if chunk.codes is not None:
            labels.append(np.array(chunk.labels, dtype=object)[chunk.codes])
    kinds = {"number" if part.dtype.kind in "iuf" else part.dtype.kind for part in y}
    if len(kinds) > 1:
        raise DataError(
            "class labels of different kinds: expected all text, all numbers or all true or false"
        )
    targets = np.concatenate(y)
    numbers = np.arange(len(targets), dtype=np.float64)[:, None]
    return Rows(numbers, targets, np.concatenate(labels) if labels else None, source.columns)


def picked(
    source: Source, how: Passing, sites: Sites, *, by_label: bool,
    room: Room = np.empty, watch: Watch | None = None,
) -> Sites:  # fmt: skip
    """The sites with their inputs, kept in `room`, in place of the rows' numbers.

    Where sites are the source's own, not dealt out, only what holds their rows is read.
    """
    wanted = [*sites.X, *sites.X_test]
    numbers = np.concatenate(wanted)[:, 0].astype(np.int64)
    order = np.argsort(numbers)
    sorted_numbers, names, first, done = numbers[order], frozenset(sites.names), 0, 0
    X, near = room((len(numbers), len(source.columns))), source.near(names) if by_label else source
    for chunk in complete(near, watched(how, watch, "rows", near)):
        if by_label:
            ours = np.array([str(label) in names for label in chunk.labels])
            rows = np.flatnonzero(ours[chunk.codes])
        else:
            low, high = np.searchsorted(sorted_numbers, (first, first + len(chunk.y)))
            rows = sorted_numbers[low:high] - first
        places = order[done : done + len(rows)]
        X[places] = chunk.X[rows[: len(places)]]
        first, done = first + len(chunk.y), done + len(rows)
    if done != len(numbers):
        raise changed(done, len(numbers))
    parts = np.split(X, np.cumsum([len(part) for part in wanted])[:-1])
    n = len(sites.names)
    return sites._replace(X=tuple(parts[:n]), X_test=tuple(parts[n:]))


def changed(found: int, before: int) -> DataError:
    """For a pass that finds other rows than the one before."""
    return DataError(
        f"{found} rows where {before} were before: did a file change? Leave it alone during a run"
    )


@dataclass(frozen=True)
class Streams:
    """Sites whose rows stay in their file."""

    source: Source
    how: Passing
    labels: tuple[Any, ...]
    held: tuple[Mask, ...]  # (T_i,)  which of a site's rows are for testing: a byte a row
    watch: Watch | None

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as text."""
        return tuple(map(str, self.labels))

    def of(self, agents: Sequence[int]) -> Streams:
        """Those sites alone."""
        if list(agents) == list(range(len(self.labels))):
            return self
        labels, held = (tuple(part[i] for i in agents) for part in (self.labels, self.held))
        return replace(self, source=self.source.near(map(str, labels)), labels=labels, held=held)

    def empty(self) -> Sites:
        """The sites without a row."""
        n, d = len(self.labels), len(self.source.columns)
        X, y = (np.empty((0, d)),) * n, (np.empty(0),) * n
        return Sites(self.names, X, y, X, y)

    @cached_property
    def columns(self) -> tuple[Columns, ...]:
        """Of each site's training inputs and, last, target: one pass."""
        told: dict[int, Columns] = {}
        for chunk in self._pass("units").chunks():
            assert chunk.codes is not None
            for code in np.unique(chunk.codes[chunk.codes % 2 == 0]).tolist():
                rows = chunk.codes == code
                some = columns_of(np.column_stack([chunk.X[rows], chunk.y[rows]]))
                told[code] = told[code].merged(some) if code in told else some
        return tuple(told[code] for code in sorted(told))

    def targets(self, scaling: Scaling) -> tuple[Columns, ...]:
        """Of each site's scaled training targets."""
        scaled, scale = scaling.targets, scaling.y_scale
        return tuple(
            Columns(T, scaled(mean[-1:]), sd[-1:] / scale, scaled(low[-1:]), scaled(high[-1:]))
            for T, mean, sd, low, high in self.columns
        )

    def problem(self, features: Features, scaling: Scaling, G: float) -> Problem:
        """The sites' risks with G = λ/N each: one pass."""
        plain, rows = self.how._replace(progress=None), self._pass("features")
        codes, found = stream_statistics(rows, features, scaling, lam=0.0, how=plain)
        place = np.array(list(map(int, codes)))
        train, test = (self._risk(found, place, kind, G) for kind in (0, 1))
        return Problem(train, test if test.T.any() else None)

    def _risk(self, found: Quadratic, place: Labels, kind: int, G: float) -> Quadratic:
        """Of the training rows (0) or the test rows (1), of which a site may have none."""
        which, n = place % 2 == kind, len(self.labels)

        def spread(part: Array) -> Array:
            whole = np.zeros((n, *part.shape[1:]))
            whole[place[which] // 2] = part[which]
            return whole

        return Quadratic(spread(found.A), spread(found.b), spread(found.yy), spread(found.T), G)

    def _pass(self, purpose: str) -> Source:
        """The rows of these sites, of site i with label 2i for training and 2i + 1 for testing."""
        return Source(self.source.columns, None, lambda: self._chunks(purpose))

    def _chunks(self, purpose: str) -> Iterator[Chunk]:
        seen, place = [0] * len(self.labels), {label: i for i, label in enumerate(self.labels)}
        for chunk in complete(self.source, watched(self.how, self.watch, purpose, self.source)):
            sites = np.array([place.get(label, -1) for label in chunk.labels])[chunk.codes]
            codes = np.full(len(sites), -1)
            for i in np.unique(sites[sites >= 0]).tolist():
                rows = np.flatnonzero(sites == i)
                kind = self.held[i][seen[i] : seen[i] + len(rows)]
                seen[i] += len(rows)
                if len(kind) < len(rows):
                    raise changed(seen[i], len(self.held[i]))
                codes[rows] = 2 * i + kind
            ours = codes >= 0
            yield Chunk(chunk.X[ours], chunk.y[ours], codes[ours], tuple(range(2 * len(place))))
        for n, held in zip(seen, self.held, strict=True):
            if n != len(held):
                raise changed(n, len(held))


Held = Sites | Streams
"""Sites with their rows, in memory or in a file."""


def open_streams(
    source: Source, how: Passing, *, test: float, seed: int, watch: Watch | None = None
) -> Streams:
    """All sites of a source, a share `test` of each held out as `split_rows` does: one pass."""
    T: Counter[Any] = Counter()
    for chunk in complete(labelled(source, how), watched(how, watch, "sites", source)):
        assert chunk.codes is not None  # the sites are named
        for code, n in zip(*np.unique(chunk.codes, return_counts=True), strict=True):
            T[chunk.labels[code]] += int(n)
    labels, rng = tuple(by_label(np.array(list(T), dtype=object))), np.random.default_rng(seed)
    held = tuple(held_out(T[label], test, rng) for label in labels)
    return Streams(source, how, labels, held, watch)


def watched(how: Passing, watch: Watch | None, purpose: str, source: Source) -> Passing:
    """The same pass, told to whoever watches."""
    if watch is None:
        return how
    return how._replace(progress=lambda rows: watch(purpose, rows, source.rows))
