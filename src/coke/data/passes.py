"""One pass over rows of any number leaves statistics: constant memory, any number of threads.

Features are computed in float32 and each block's sums are added up in float64. That changes A by a
few 1e-7 of its largest entry and the ridge model's MSE by about 1e-9 of itself (1e-7 where features
are nearly collinear and λ is tiny: precision="double" is for that). A block whose angles ωᵀx are
too large for float32, or its targets, is done in float64.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from coke.data.site import Scaling
from coke.data.sources import PLAIN, Chunk, Numbers, Passing, Source, complete
from coke.errors import DataError, InputError
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.waves import PLAIN as NUMPY
from coke.maths.features.waves import Loops, compiled_loops
from coke.maths.losses.problem import Quadratic
from coke.threads import OneThread

BLOCK = 1024  # rows whose sums are made in one product
CACHE = 1 << 20  # bytes of features that stay in cache from their angles to their waves
REACH = 256.0  # most ‖ω‖‖x‖ in float32, whose angles are then wrong by 2e-5 at most or so


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
    kernel = _Summing(features, scaling or Scaling.none(d), loops, double=how.precision == "double")
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


def _blocks(chunks: Iterable[Chunk], rows: int) -> Iterator[_Block]:
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

    def full(self, X: Numbers, y: Array) -> Iterator[_Block]:
        """The blocks that are full with these rows; what is over waits."""
        first = 0
        if self._parts and self.rows + len(y) >= self.size:
            first = self.size - self.rows
            self._parts.append((X[:first], y[:first]))
            yield from self.rest()
        while len(y) - first >= self.size:
            yield _Block(self.site, X[first : first + self.size], y[first : first + self.size])
            first += self.size
        if first < len(y):
            self._parts.append((X[first:].copy(), y[first:].copy()))  # or the whole chunk waits
            self.rows += len(y) - first

    def rest(self) -> Iterator[_Block]:
        """All that wait."""
        parts, self._parts, self.rows = self._parts, [], 0
        if parts:
            X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
            yield _Block(self.site, X, y)


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
    kernel: Callable[[_Block], _Sums], blocks: Iterator[_Block], workers: int
) -> Iterator[_Sums]:
    """kernel(block) of every block in their order, so that sums do not depend on the threads."""
    if workers == 1:
        yield from map(kernel, blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[_Sums]] = deque()
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

    def add(self, part: _Sums) -> None:
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


class _Block(NamedTuple):
    """Up to BLOCK rows of one site."""

    site: Any
    X: Numbers  # (t, d)  by row or by column
    y: Array  # (t,)


class _Sums(NamedTuple):
    """_Sums over one block, of bare cosines: their factor comes last (`_Summing.unit`)."""

    site: Any
    A: Numbers  # (D, D)
    b: Array  # (D,)
    yy: float
    T: int


class _Map(NamedTuple):
    """[(x − shift)·gain, 1] ↦ angles, in one precision."""

    W: Numbers  # (d + 1, L)
    shift: Numbers  # (d,)
    gain: Numbers  # (d,)  1/scale


class _BeyondError(Exception):
    """An angle could be too large for float32."""


class _Summing:
    """_Block ↦ its sums. Frozen once built, so that threads may share it."""

    def __init__(self, features: DrawnFeatures, scaling: Scaling, loops: Loops, *, double: bool):
        self.features, self.scaling, self.loops, self.wide = features, scaling, loops, double
        lengths = np.vecdot(features.omega, features.omega)
        self.longest = float(np.sqrt(lengths.max(initial=0.0)))
        self.chosen = bool(features.linear or scaling.knots.size)
        self.double = self._map(np.float64, np.float64)
        self.single = {kind: self._map(np.float32, kind) for kind in (np.float32, np.float64)}

    @property
    def unit(self) -> float:
        """The square of the features' factor, 2/L or 1/L, where sums are of bare waves."""
        if self.chosen:
            return 1.0
        return (2.0 if len(self.features.phase) else 1.0) / len(self.features.omega)

    def _map(self, kind: type[np.floating[Any]], given: type[np.floating[Any]]) -> _Map:
        """For rows given in that type: W makes good what it loses of the shift and the gain."""
        f, s = self.features, self.scaling
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 REACH is exceeded
            shift, gain = s.x_shift.astype(given), (1.0 / s.x_scale).astype(given)
            lost = f.omega @ ((s.x_shift - shift) / s.x_scale)  # (L,)
            constant = (f.phase if len(f.phase) else 0.0) - lost
            told = (gain > 0.0) & (gain < np.inf)
            W = f.omega * np.where(told, 1.0 / s.x_scale / np.where(told, gain, 1.0), 1.0)
            W = self.loops.unit * np.vstack([W.T, constant])
            return _Map(W.astype(kind, order="C"), shift, gain)

    def __call__(self, block: _Block) -> _Sums:
        """The sums of one block."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked when all is added up
            y = self.scaling.targets(block.y)
            yy = float(y @ y)
            if self.chosen:  # its ridge may be so small that float32 would be seen
                Phi = self.features(self.scaling.inputs(np.asarray(block.X, np.float64)))
                return _Sums(block.site, Phi.T @ Phi, y @ Phi, yy, len(y))
            single = yy < 1e30 and not self.wide
            try:
                map_ = self.single[block.X.dtype.type] if single else self.double
                A, b = self._sums(map_, block.X, y)
            except _BeyondError:
                A, b = self._sums(self.double, block.X, y)
            return _Sums(block.site, A, b, yy, len(y))

    def _sums(self, map_: _Map, X: Numbers, y: Array) -> tuple[Numbers, Array]:
        """ΦᵀΦ and yᵀΦ of bare waves."""
        L, kind = len(self.features.omega), map_.W.dtype
        Phi = np.empty((len(X), self.features.size), kind)
        strip = max(64, 1 << (CACHE // Phi[0].nbytes).bit_length() >> 1)  # a power of two
        Z = np.empty_like(X, kind, shape=(min(len(X), strip), len(map_.W)))  # by row or column
        Z[:, -1] = 1.0
        y, b = y.astype(kind), np.zeros(Phi.shape[1])
        for first in range(0, len(X), strip):
            some = slice(first, first + strip)
            x, phi = X[some], Phi[some]
            z = Z[: len(x)]
            square = self.loops.scaled(x, map_.shift, map_.gain, z)
            if map_ is not self.double and not np.sqrt(square) * self.longest <= REACH:
                raise _BeyondError
            np.matmul(z, map_.W, out=phi[:, :L])
            self.loops.waves(phi, L)
            b += y[some] @ phi
        return Phi.T @ Phi, b
