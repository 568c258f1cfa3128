"""Rows of any number, a chunk at a time, and one pass over them.

A source can be read again and again (scaling takes one pass, statistics another); a chunk is all
that is ever in memory. `coke.data.formats` opens files and tables, `coke.data.npy` arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.data.coding import Coding
from coke.data.missing import MISSING, left_out
from coke.data.raw import Kind
from coke.data.reading import PLAINLY
from coke.data.tables import checked_rows
from coke.errors import DataError, InputError, unknown
from coke.maths import compiled
from coke.maths.arrays import Array, Mask, finite, side_by_side

PRECISIONS = ("auto", "double")
Numbers = NDArray[Any]
Progress = Callable[[int], None]  # rows read so far
Watch = Callable[[str, int, int | None], None]
"""Told what a pass is for, how many rows it has read, and how many there are, if that is known."""


class Chunk(NamedTuple):
    """A few rows as they are: NaN where a number is missing, −1 where a site is."""

    X: Numbers  # (t, d)  by row or by column; float32 if that holds the types exactly, else float64
    y: Array  # (t,) or (t, K)  numbers, or (t,) the place of each row's class in `classes`
    codes: NDArray[np.int64] | None  # (t,)  the place of each row's site in `labels`
    labels: tuple[Any, ...]  # the sites of this chunk
    classes: tuple[Any, ...] | None = None  # the classes of this chunk
    held: Mask | None = None  # (t,)  which rows are for testing; None: none
    weights: Array | None = None  # (t,)  for how many rows each stands; None: one

    @property
    def targets(self) -> Numbers:
        """Numbers, or class labels; none may be missing."""
        if self.classes is None:
            return self.y
        kind = object if isinstance(self.classes[0], str) else None
        return np.array(self.classes, kind)[self.y.astype(np.int64)]


Chunks = Callable[[], Iterator[Chunk]]


class Source(NamedTuple):
    """Where chunks come from: each call of `chunks` is one pass over all rows, as they are.

    `complete` refuses or leaves out rows with missing values.
    """

    columns: tuple[str, ...]  # names of the inputs
    rows: int | None  # how many, where that is known
    chunks: Chunks
    narrow: Chunks | None = None  # the same without reading the inputs: X is (t, 0)
    only: Callable[[frozenset[str]], Source] | None = None
    """Names of sites ↦ their rows, without those of most others; kept rows keep their order."""
    part: bool = False  # of a larger source, so that a row's number here says little
    kinds: tuple[Kind, ...] = ()  # what raw columns hold, as far as they were read

    def slim(self) -> Source:
        """Targets and sites alone."""
        return self if self.narrow is None else Source((), self.rows, self.narrow, part=self.part)

    def near(self, sites: Iterable[str]) -> Source:
        """The rows of these sites, and as few others as can be left out without reading them."""
        return self if self.only is None else self.only(frozenset(sites))


def joined(sources: Mapping[str, Source]) -> Source:
    """One site's rows after another's, all with the same columns; the first's order is theirs."""
    columns = _common(sources)

    def chunks(inputs: bool = True) -> Iterator[Chunk]:
        for name, source in sources.items():
            rows = 0
            order = [source.columns.index(column) for column in columns]
            for chunk in (source if inputs else source.slim()).chunks():
                rows += len(chunk.y)
                X = chunk.X[:, order] if inputs and order != sorted(order) else chunk.X
                codes = np.zeros(len(chunk.y), np.int64)
                yield chunk._replace(X=X, codes=codes, labels=(name,))
            if not rows:
                raise DataError(f"site {name}: its file has no rows; expected one at least")

    def only(names: frozenset[str]) -> Source:
        some = joined({name: source for name, source in sources.items() if name in names})
        return some._replace(part=True)

    rows = [source.rows for source in sources.values() if source.rows is not None]
    known = sum(rows) if len(rows) == len(sources) else None
    kinds = next(iter(sources.values())).kinds  # all have the same
    slim = partial(chunks, inputs=False)
    return Source(columns, known, chunks, slim, only, kinds=kinds)


def _common(sources: Mapping[str, Source]) -> tuple[str, ...]:
    """The columns of all sites, or which sites have others than the first."""
    (first, one), *others = sources.items()
    wrong = []
    for name, source in others:
        lacks, more = (
            [column for column in a.columns if column not in b.columns]
            for a, b in ((one, source), (source, one))
        )
        said = [f"{what} {', '.join(map(repr, some[:8]))}" for what, some in
                (("lacks", lacks), ("has also", more)) if some]  # fmt: skip
        if said:
            wrong.append(f"{name} {' and '.join(said)}")
    if wrong:
        raise DataError(
            f"not all files have the columns of {first}: {'; '.join(wrong[:8])}; expected one file "
            "of rows for every site, with the same columns"
        )
    return one.columns


class Passing(NamedTuple):
    """How a pass is made; none of it changes what the statistics mean."""

    precision: str = "auto"  # float32 where it does not change the answer; "double" never
    workers: int = 1  # threads; the answer has the same bits with any number of them
    missing: str = "refuse"  # rows with a missing value, "drop" them, or "fill" those of inputs
    progress: Progress | None = None
    fast: bool = False  # loops compiled by Numba: other last bits
    say: Callable[[str], None] = PLAINLY.say  # is told which rows were left out

    def checked(self) -> Passing:
        """The same, or why not."""
        if self.precision not in PRECISIONS:
            raise InputError(unknown("precision", self.precision, PRECISIONS))
        if self.missing not in MISSING:
            raise InputError(unknown("treatment of missing values", self.missing, MISSING))
        if self.workers < 1:
            raise InputError(f"workers={self.workers}: expected at least one thread")
        if self.fast and not compiled.available():
            raise InputError("fast=True needs Numba: install coke-learn[fast], or leave it out")
        return self

    def watched(self, watch: Watch | None, purpose: str, source: Source) -> Passing:
        """The same pass, told to whoever watches."""
        if watch is None:
            return self
        return self._replace(progress=lambda rows: watch(purpose, rows, source.rows))


PLAIN = Passing()


def complete(source: Source, how: Passing = PLAIN) -> Iterator[Chunk]:
    """The chunks of one pass, without rows that lack something or refused because of them."""
    read = kept = 0
    gone: Counter[str] = Counter()
    for chunk in source.chunks():
        good = chunk if _whole(chunk) else _repaired(chunk, source, how.missing, read)
        read, kept = read + len(chunk.y), kept + len(good.y)
        if len(good.y) < len(chunk.y):
            gone += _sites(chunk) - _sites(good)
        if len(good.y):
            yield good
        if how.progress is not None:
            how.progress(read)
    if not read:
        raise DataError("no rows" + (", where there were some: did a file change?" * source.part))
    if not kept:
        raise DataError(f"no rows left of {read}: expected at least one without a missing value")
    if kept < read and not source.part:
        how.say(left_out(gone, read - kept))


def _sites(chunk: Chunk) -> Counter[str]:
    """How many rows there are of each site that is named."""
    labels, codes = [*map(str, chunk.labels), "no site"], chunk.codes
    return Counter() if codes is None else Counter(labels[code] for code in codes.tolist())


def _whole(chunk: Chunk) -> bool:
    """Whether nothing is missing."""
    there = finite(chunk.X) and finite(chunk.y)
    there = there and (chunk.weights is None or finite(chunk.weights))
    return there and (chunk.codes is None or not np.any(chunk.codes < 0))


def _repaired(chunk: Chunk, source: Source, missing: str, first: int) -> Chunk:
    sites = np.zeros(len(chunk.y), np.int64) if chunk.codes is None else chunk.codes
    if missing != "refuse":
        good = np.isfinite(side_by_side(chunk.y)).all(axis=1) & (sites >= 0)
        if missing == "drop":
            good &= np.isfinite(chunk.X).all(axis=1)
        if chunk.weights is not None:
            good &= np.isfinite(chunk.weights)
        codes, weights = (None if v is None else v[good] for v in (chunk.codes, chunk.weights))
        return chunk._replace(X=chunk.X[good], y=chunk.y[good], codes=codes, weights=weights)
    try:
        if chunk.weights is not None:
            checked_rows(chunk.weights[:, None], chunk.y, None, ("the weight",))
        checked_rows(chunk.X, chunk.y, np.where(sites < 0, None, 0), source.columns)  # type: ignore[call-overload]
    except DataError as error:
        where = f"rows {first + 1} to {first + len(chunk.y)}"
        if source.part:
            where = f"rows near those of site {', '.join(map(str, chunk.labels)):.200}"
        raise DataError(f"{where}: {error}") from None
    return chunk


def labelled(source: Source, how: Passing) -> Source:
    """The source for a pass that needs targets and sites only: inputs are read to drop rows."""
    return source if how.missing == "drop" else source.slim()


def coded(source: Source, how: Passing, coding: Coding) -> Source:
    """The same rows as inputs that were agreed on."""

    def chunks() -> Iterator[Chunk]:
        for chunk in complete(source, how._replace(progress=None)):
            yield chunk._replace(X=coding.matrix(chunk.X, source.kinds))

    only = source.only
    return source._replace(
        columns=coding.names,
        kinds=(),
        chunks=chunks,
        only=None if only is None else lambda names: coded(only(names), how, coding),
    )


def changed(found: int, before: int) -> DataError:
    """Rows that came or went between two passes."""
    return DataError(
        f"{found} rows where {before} were before: did a file change? Leave it alone during a run"
    )
