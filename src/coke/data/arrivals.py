"""Rows of a stream in the order of their ticks, each once: what comes late, twice or too early.

    late        its tick has gone by: it joins the next tick, and counts by its own
    too late    by more than `late` ticks: left out, for who knows whether it came before
    twice       equal, bit for bit, to a row of the same site and tick: left out
    ahead       more than `late` ticks beyond all but a few sites: a wrong clock; left out
    gaps        NaN or infinite numbers: left out

Without ticks a site's rows are at one tick after the other, and none of this but gaps can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.data.split import Index
from coke.data.tables import Labels
from coke.errors import DataError
from coke.maths.arrays import Array, Mask, side_by_side

LATE = 1000  # ticks
_SHARE = 3  # one site in so many must have come as far for time to have moved on

Ticks = NDArray[np.int64]


class Counts(NamedTuple):
    """Rows, by what became of them."""

    taken: int = 0  # of which …
    late: int = 0  # … so many after their tick
    too_late: int = 0
    twice: int = 0
    ahead: int = 0
    gaps: int = 0

    def with_(self, **more: int) -> Counts:
        """With so many more."""
        return self._replace(**{name: getattr(self, name) + n for name, n in more.items()})


class Due(NamedTuple):
    """The rows of one tick."""

    tick: int
    rows: tuple[Index, ...]  # of each site, among those given
    age: tuple[Array, ...]  # ticks by which each is late


class Arrivals:
    """What has come of N sites' streams so far."""

    def __init__(self, N: int, late: int = LATE):
        self._late = late
        self.now: int | None = None  # the last tick that was handed out
        self.counts = Counts()
        self._next = np.zeros(N, np.int64)  # a site's tick where rows come without
        self._seen: list[dict[int, set[bytes]]] = [{} for _ in range(N)]

    def due(self, X: Array, y: Labels, site: Index, tick: Any = None) -> Iterator[Due]:
        """The ticks of these rows X (T, d), y (T,), `site` (T,) one after the other."""
        whole = finite_rows(X, y)
        given = None if tick is None else checked_ticks(tick, len(site))
        ticks = self._counted(site, whole) if given is None else given
        self.counts = self.counts.with_(gaps=int((~whole).sum()))
        kept = whole
        if given is not None:
            kept = kept & self._in_time(ticks, site, whole)
            kept &= self._first_time(X, y, site, ticks, kept)
        yield from self._in_order(np.flatnonzero(kept), site, ticks)

    def _counted(self, site: Index, whole: Mask) -> Ticks:
        """One after the other, at each site."""
        ticks = np.zeros(len(site), np.int64)
        for n in range(len(self._next)):
            own = np.flatnonzero((site == n) & whole)
            ticks[own] = self._next[n] + np.arange(len(own))
            self._next[n] += len(own)
        return ticks

    def _in_time(self, ticks: Ticks, site: Index, whole: Mask) -> Mask:
        """Neither too late nor ahead; the first rows of all are as they are."""
        now = int(ticks[whole].min(initial=0)) - 1 if self.now is None else self.now
        far = ticks > now + self._late
        if _SHARE * len(set(site[far & whole].tolist())) >= len(self._next):
            far = np.zeros_like(far)  # time itself has moved on
        latest = int(ticks[whole & ~far].max(initial=now))
        old = ticks < latest - self._late if self.now is not None else np.zeros_like(far)
        more = {"ahead": int((far & whole).sum()), "too_late": int((old & whole).sum())}
        self.counts = self.counts.with_(**more)
        return np.asarray(~far & ~old)

    def _first_time(self, X: Array, y: Labels, site: Index, ticks: Ticks, kept: Mask) -> Mask:
        """Whose like has not come before."""
        new = np.ones(len(site), np.bool_)
        for t in np.flatnonzero(kept).tolist():
            mark = blake2b(X[t].tobytes() + repr(y[t]).encode(), digest_size=12).digest()
            seen = self._seen[site[t]].setdefault(int(ticks[t]), set())
            new[t] = mark not in seen
            seen.add(mark)
        self.counts = self.counts.with_(twice=int((~new & kept).sum()))
        return new

    def _in_order(self, rows: Index, site: Index, ticks: Ticks) -> Iterator[Due]:
        """Tick by tick; what is late comes with the first of them, or with the last one's again."""
        if not len(rows):
            return
        now = self.now
        last = int(ticks[rows].max()) if now is None else max(now, int(ticks[rows].max()))
        at = ticks[rows] if now is None else np.maximum(ticks[rows], min(now + 1, last + 1))
        self.counts = self.counts.with_(taken=len(rows), late=int((at > ticks[rows]).sum()))
        for tick in np.unique(at).tolist():
            here = rows[at == tick]
            own = tuple(here[site[here] == n] for n in range(len(self._next)))
            self.now = tick
            yield Due(tick, own, tuple((tick - ticks[one]).astype(np.float64) for one in own))
        self._next = np.maximum(self._next, self.now + 1 if self.now is not None else 0)
        self._forget()

    def _forget(self) -> None:
        """What could only be too late by now."""
        assert self.now is not None
        for seen in self._seen:
            for tick in [tick for tick in seen if tick < self.now - self._late]:
                del seen[tick]


def finite_rows(X: Array, y: Labels) -> Mask:
    """(T,) whose inputs and targets are there."""
    there = side_by_side(y) if y.dtype.kind == "f" else np.zeros((len(y), 1))
    return np.asarray(np.isfinite(X).all(axis=1) & np.isfinite(there).all(axis=1))


def checked_ticks(tick: Any, T: int) -> Ticks:
    """A whole number for each of T rows; or one for all of them."""
    found = np.asarray(tick)
    if found.ndim == 0:
        found = np.full(T, found)
    if found.shape != (T,) or found.dtype.kind not in "iuf" or (found != np.floor(found)).any():
        raise DataError(
            f"tick of shape {found.shape} and kind {found.dtype}: expected whole numbers, one a "
            f"row ({T}) or one for all: hours since some day, say"
        )
    if np.abs(found).max(initial=0) > 2**52:
        raise DataError(f"tick {np.abs(found).max()}: expected whole numbers below 2⁵²")
    return found.astype(np.int64)


def positions(labels: Any, names: Sequence[Any]) -> Index:
    """Which of the known sites each label is, or which is new."""
    at = {name: n for n, name in enumerate(names)}
    given = np.asarray(labels).tolist()
    strange = sorted({str(name) for name in given if name not in at})
    if strange:
        raise DataError(
            f"sites {strange[:8]} were not there when the stream began: expected some of "
            f"{[str(name) for name in names[:8]]}; a new network needs a new stream"
        )
    return np.array([at[name] for name in given], np.int64)
