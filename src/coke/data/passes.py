"""One pass over rows of any number leaves statistics: constant memory, any number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from coke.data.blocks import RowBlock, Summing, Sums, risk
from coke.data.raw import NUMBER
from coke.data.sources import PLAIN, Chunk, Numbers, Passing, Source, complete
from coke.data.units import Scaling
from coke.errors import DataError, InputError
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.waves import PLAIN as NUMPY
from coke.maths.features.waves import compiled_loops
from coke.maths.losses.problem import Quadratic
from coke.threads import OneThread


class _Streamed(NamedTuple):
    """The sites found, in the order of their sorted labels, and their risks."""

    names: tuple[str, ...]
    risk: Quadratic
    test: Quadratic | None = None  # of rows for testing, of which a site may have none


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
    loops = compiled_loops() if how.checked().fast else NUMPY
    kernel = Summing(features, scaling or Scaling.none(d), loops, double=how.precision == "double")
    sums: dict[_Whose, Sums] = {}
    with OneThread().limit():
        # A block of a site's rows is to wait in no more room than the site's sums take.
        most, zeros = kernel.rows, (features.size, features.size)
        rows = min(most, max(64, features.size**2 // max(1, d)))
        blocks = _blocks(complete(source, how), rows, most)
        for part in _in_order(kernel, blocks, how.workers):
            if part.site not in sums:
                sums[part.site] = kernel.nothing(part.site, np.zeros(zeros))
            sums[part.site].add(part, loops)
    words = [n for n, k in zip(source.columns, source.kinds, strict=False) if k.what != NUMBER]
    if words:
        raise DataError(f"columns {words[:8]} are no numbers: expected inputs that are")
    try:
        labels = sorted({whose.site for whose in sums})
    except TypeError as error:
        raise DataError(
            "site labels of different kinds cannot be sorted: use all text or all numbers"
        ) from error
    made = partial(_made, unit=kernel.unit, G=lam / len(labels))
    train = made([sums[_Whose(name)] for name in labels])
    test = None
    if any(whose.held for whose in sums):
        none = kernel.nothing(None, np.zeros(zeros))
        test = made([sums.get(_Whose(name, True), none) for name in labels])
    return _Streamed(tuple(map(str, labels)), train, test)


def _made(sums: Sequence[Sums], unit: float, G: float) -> Quadratic:
    whole = np.empty((len(sums), *sums[0].A.shape))
    for A, one in zip(whole, sums, strict=True):
        A[:] = one.A
        if one.T:
            one.A = A  # one copy is enough
    return risk(whole, sums, unit, G)


def _blocks(chunks: Iterable[Chunk], rows: int, most: int) -> Iterator[RowBlock]:
    """Each site's rows in the order they came, so many at a time; without sites, the most.

    What a block holds depends on its site's rows alone, so ranks make the sums of one process.
    """
    waiting: dict[Any, _Waiting] = {}
    for chunk in chunks:
        for site, X, y in _by_site(chunk):
            if site not in waiting:
                waiting[site] = _Waiting(site, most if chunk.codes is None else rows)
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

    def full(self, X: Numbers, y: Array) -> Iterator[RowBlock]:
        """The blocks that are full with these rows; what is over waits."""
        first = 0
        if self._parts and self.rows + len(y) >= self.size:
            first = self.size - self.rows
            self._parts.append((X[:first], y[:first]))
            yield from self.rest()
        while len(y) - first >= self.size:
            yield RowBlock(self.site, X[first : first + self.size], y[first : first + self.size])
            first += self.size
        if first < len(y):
            self._parts.append((X[first:].copy(), y[first:].copy()))  # or the whole chunk waits
            self.rows += len(y) - first

    def rest(self) -> Iterator[RowBlock]:
        """All that wait."""
        parts, self._parts, self.rows = self._parts, [], 0
        if parts:
            X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
            yield RowBlock(self.site, X, y)


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
    kernel: Callable[[RowBlock], Sums], blocks: Iterator[RowBlock], workers: int
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
