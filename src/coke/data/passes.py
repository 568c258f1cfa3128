"""One pass over rows of any number leaves statistics: constant memory, any number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from coke.data.blocks import BLOCK, Batch, Numbers, Summing, Sums
from coke.data.scaling import Scaling
from coke.data.sources import Chunk, Source
from coke.data.tables import checked_rows
from coke.errors import DataError, InputError, unknown
from coke.maths import compiled
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.waves import PLAIN as NUMPY
from coke.maths.features.waves import Loops, compiled_loops
from coke.maths.losses.quadratic import Quadratic
from coke.threads import OneThread

PRECISIONS = ("auto", "double")
MISSING = ("refuse", "drop")
Progress = Callable[[int], None]  # rows read so far


class Passing(NamedTuple):
    """How a pass is made; none of it changes what the statistics mean."""

    precision: str = "auto"  # float32 where it does not change the answer; "double" never
    workers: int = 1  # threads; the answer has the same bits with any number of them
    missing: str = "refuse"  # rows with a missing value, or "drop" them
    progress: Progress | None = None
    fast: bool = False  # loops compiled by Numba: other last bits

    def checked(self) -> Passing:
        """The same, or why not."""
        if self.precision not in PRECISIONS:
            raise InputError(unknown("precision", self.precision, PRECISIONS))
        if self.missing not in MISSING:
            raise InputError(unknown("treatment of missing values", self.missing, MISSING))
        if self.workers < 1:
            raise InputError(f"workers={self.workers}: expected at least one thread")
        if self.fast and not compiled.available():
            raise InputError("fast=True needs Numba: install coke[fast], or leave it out")
        return self


PLAIN = Passing()


class _Streamed(NamedTuple):
    """The sites found, in the order of their sorted labels, and their risks."""

    names: tuple[str, ...]
    risk: Quadratic
    test: Quadratic | None = None  # of rows for testing, of which a site may have none


def complete(source: Source, how: Passing = PLAIN) -> Iterator[Chunk]:
    """The chunks of one pass, without rows that lack something or refused because of them."""
    read = kept = 0
    for chunk in source.chunks():
        good = chunk if _whole(chunk) else _repaired(chunk, source, how.missing, read)
        read, kept = read + len(chunk.y), kept + len(good.y)
        if len(good.y):
            yield good
        if how.progress is not None:
            how.progress(read)
    if not read:
        raise DataError("no rows" + (", where there were some: did a file change?" * source.part))
    if not kept:
        raise DataError(f"no rows left of {read}: expected at least one without a missing value")


def _whole(chunk: Chunk) -> bool:
    """Whether nothing is missing, for the price of one dot product; False for huge numbers too."""
    x = chunk.X.ravel("K")
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(np.dot(x, x)) and np.isfinite(np.dot(chunk.y, chunk.y))
    return bool(finite) and (chunk.codes is None or not np.any(chunk.codes < 0))


def _repaired(chunk: Chunk, source: Source, missing: str, first: int) -> Chunk:
    sites = np.zeros(len(chunk.y), np.int64) if chunk.codes is None else chunk.codes
    if missing == "drop":
        good = np.isfinite(chunk.X).all(axis=1) & np.isfinite(chunk.y) & (sites >= 0)
        codes = None if chunk.codes is None else chunk.codes[good]
        return chunk._replace(X=chunk.X[good], y=chunk.y[good], codes=codes)
    try:
        checked_rows(chunk.X, chunk.y, np.where(sites < 0, None, 0), source.columns)  # type: ignore[call-overload]
    except DataError as error:
        where = f"rows {first + 1} to {first + len(chunk.y)}"
        if source.part:
            where = f"rows near those of site {', '.join(map(str, chunk.labels)):.200}"
        raise DataError(f"{where}: {error}") from None
    return chunk


def labelled(source: Source, how: Passing) -> Source:
    """The source for a pass that needs targets and sites only: inputs are read to drop rows."""
    return source.slim() if how.missing == "refuse" else source


def stream_statistics(
    source: Source,
    features: DrawnFeatures,
    scaling: Scaling | None = None,
    *,
    lam: float,
    how: Passing = PLAIN,
) -> _Streamed:
    """The statistics of every site in one pass, λ/N each; as `Quadratic.from_rows` has them.

    Rows without a site belong to one site, "0". Memory is that of the answer (N, D, D) and a few
    chunks, whatever the number of rows.
    """
    d = len(source.columns)
    if features.omega.shape[1] != d:
        raise InputError(
            f"features for {features.omega.shape[1]} inputs: expected {d}, {source.columns[:8]}"
        )
    plain = Scaling(np.zeros(d), np.ones(d), 0.0, 1.0)
    loops = compiled_loops() if how.checked().fast else NUMPY
    kernel = Summing(features, scaling or plain, loops, double=how.precision == "double")
    sums: dict[_Whose, _Sum] = {}
    with OneThread().limit():
        # A block of a site's rows is to wait in no more room than the site's sums take.
        rows = min(BLOCK, max(64, features.size**2 // max(1, d)))
        for part in _in_order(kernel, _blocks(complete(source, how), rows), how.workers):
            if part.site not in sums:
                sums[part.site] = _Sum(features.size, loops)
            sums[part.site].add(part)
    try:
        labels = sorted({whose.site for whose in sums})
    except TypeError as error:
        raise DataError(
            "site labels of different kinds cannot be sorted: use all text or all numbers"
        ) from error
    train = _risk([sums[_Whose(name)] for name in labels], kernel.unit, lam)
    test = None
    if any(whose.held for whose in sums):
        nothing = _Sum(features.size, loops)
        test = _risk([sums.get(_Whose(name, True), nothing) for name in labels], kernel.unit, lam)
    return _Streamed(tuple(map(str, labels)), train, test)


def _blocks(chunks: Iterable[Chunk], rows: int) -> Iterator[Batch]:
    """Each site's rows in the order they came, so many at a time; without sites, BLOCK.

    What a block holds depends on its site's rows alone, so ranks make the sums of one process.
    """
    waiting: dict[Any, _Waiting] = {}
    for chunk in chunks:
        for site, X, y in _by_site(chunk):
            if site not in waiting:
                waiting[site] = _Waiting(site, BLOCK if chunk.codes is None else rows)
            yield from waiting[site].full(X, y)
    for left in waiting.values():
        yield from left.rest()


class _Whose(NamedTuple):
    """Whose rows, and what for."""

    site: Any
    held: bool = False


class _Waiting:
    """Rows of one site, fewer than a block."""

    def __init__(self, site: Any, size: int):
        self.site, self.size, self.rows = site, size, 0
        self._parts: list[tuple[Numbers, Array]] = []

    def full(self, X: Numbers, y: Array) -> Iterator[Batch]:
        """The blocks that are full with these rows; what is over waits."""
        first = 0
        if self._parts and self.rows + len(y) >= self.size:
            first = self.size - self.rows
            self._parts.append((X[:first], y[:first]))
            yield from self.rest()
        while len(y) - first >= self.size:
            yield Batch(self.site, X[first : first + self.size], y[first : first + self.size])
            first += self.size
        if first < len(y):
            self._parts.append((X[first:].copy(), y[first:].copy()))  # or the whole chunk waits
            self.rows += len(y) - first

    def rest(self) -> Iterator[Batch]:
        """All that wait."""
        parts, self._parts, self.rows = self._parts, [], 0
        if parts:
            X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
            yield Batch(self.site, X, y)


def _by_site(chunk: Chunk) -> Iterator[tuple[_Whose, Numbers, Array]]:
    """Each site's rows in the order they came, those for testing apart."""
    if chunk.codes is None or (len(chunk.labels) == 1 and chunk.held is None):
        yield _Whose(chunk.labels[0] if chunk.codes is not None else 0), chunk.X, chunk.y
        return
    kinds = [False] if chunk.held is None else [False, True]
    codes = chunk.codes if chunk.held is None else 2 * chunk.codes + chunk.held
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(kinds) * len(chunk.labels)))
    whose = (_Whose(site, held) for site in chunk.labels for held in kinds)
    X, y = chunk.X[order], chunk.y[order]
    for one, last, first in zip(whose, ends, [0, *ends[:-1]], strict=True):
        if last > first:
            yield one, X[first:last], y[first:last]


def _in_order(
    kernel: Callable[[Batch], Sums], blocks: Iterator[Batch], workers: int
) -> Iterator[Sums]:
    """kernel(block) of every block in their order, so that sums do not depend on the threads."""
    if workers == 1:
        yield from map(kernel, blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Sums]] = deque()
        for block in blocks:
            waiting.append(pool.submit(kernel, block))
            if len(waiting) > 4 * workers:
                yield waiting.popleft().result()
        yield from (part.result() for part in waiting)


class _Sum:
    """Parts of one site added up in float64."""

    def __init__(self, D: int, loops: Loops):
        self.A, self.b, self.yy, self.T = np.zeros((D, D)), np.zeros(D), 0.0, 0
        self._add = loops.add

    def add(self, part: Sums) -> None:
        self._add(self.A, part.A)
        self.b += part.b
        self.yy += part.yy
        self.T += part.T


def _risk(sums: list[_Sum], unit: float, lam: float) -> Quadratic:
    """The sums over T_i; a site without rows has zeros."""
    T = np.array([float(one.T) for one in sums])
    D = len(sums[0].b)
    A, b = np.empty((len(T), D, D)), np.empty((len(T), D))
    for i, one in enumerate(sums):
        A[i], b[i] = one.A * (unit / max(T[i], 1.0)), one.b * (np.sqrt(unit) / max(T[i], 1.0))
        one.A = np.empty((0, 0)) if one.T else one.A  # one copy is enough
    yy = np.array([one.yy for one in sums]) / np.maximum(T, 1.0)
    if not (np.isfinite(A).all() and np.isfinite(b).all() and np.isfinite(yy).all()):
        raise DataError(
            "numbers beyond 1e150 or so are of no use here: scale them, or use larger units"
        )
    return Quadratic(A, b, yy, T, lam / len(T))
