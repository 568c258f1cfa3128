"""Sites whose rows are in a file that holds everybody's, a chunk in memory at a time.

`Passed` keeps no row: three passes leave how many each site has, the moments of its columns, and
its statistics. `coke.data.picking` keeps some sites' rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from coke.data.blocks import precise
from coke.data.coding import Coding, ToldColumn, told_columns
from coke.data.passes import stream_statistics
from coke.data.raw import Kind, is_plain, raw_numbers
from coke.data.site import SiteRows, Sites, sampled
from coke.data.sources import Chunk, Passing, Source, Watch, changed, coded, complete, labelled
from coke.data.split import by_label, held_out
from coke.data.tables import Labels
from coke.data.units import LABELS, Columns, Making, columns_of, size_of
from coke.errors import DataError
from coke.maths.arrays import Array, Mask
from coke.maths.losses.problem import Problem


class _Moments(NamedTuple):
    """What a pass over a site's training rows leaves."""

    columns: Columns | None  # None where raw columns are no inputs yet
    counts: Counter[Any]  # rows of each class; none of numbers


@dataclass(frozen=True)
class Passed(Sites):
    """Sites whose rows stay in their file."""

    names: tuple[str, ...]
    source: Source
    how: Passing
    own: tuple[Any, ...]  # the sites' labels in the file
    held: tuple[Mask, ...]  # (T_i,)  which of a site's rows are for testing: a byte a row
    classes: tuple[tuple[Any, ...], ...]  # among all rows of a site, sorted; none of numbers
    watch: Watch | None = None
    samples: dict[int, tuple[Array, Labels]] = field(default_factory=dict)  # once they were drawn
    kinds: tuple[Kind, ...] = ()
    raws: dict[int, tuple[float, list[ToldColumn]]] = field(default_factory=dict)  # likewise

    def of(self, agents: Sequence[int]) -> Passed:
        """Those sites alone."""
        if list(agents) == list(range(len(self.own))):
            return self
        parts: Any = {
            name: tuple(getattr(self, name)[i] for i in agents)
            for name in ("names", "own", "held", "classes")
        }
        return replace(self, **parts, source=self.source.near(parts["names"]), samples={}, raws={})

    def plain(self, i: int) -> bool:
        """From one pass for all."""
        return self._told[i].columns is not None

    def raw(self, i: int, *, hashed: bool) -> tuple[float, list[ToldColumn]]:
        """From one more pass for all."""
        if not self.raws:
            self.raws.update(self._raws(hashed))
        return self.raws[i]

    def _raws(self, hashed: bool) -> dict[int, tuple[float, list[ToldColumn]]]:
        found = dict[int, tuple[float, list[ToldColumn]]]()
        for i, _, X, *_ in self._parts("columns", kinds=(False,)):
            some = told_columns(X, self.source.kinds, hashed=hashed)
            T, before = found.get(i, (0.0, [ToldColumn()] * len(some)))
            merged = [a.merged(b) for a, b in zip(before, some, strict=True)]
            found[i] = T + len(X), merged
        return found

    def coded(self, coding: Coding) -> Passed:
        """Anew in every pass."""
        source = coded(self.source, self.how, coding)
        return replace(self, source=source, kinds=(), samples={}, raws={})

    def columns(self, i: int) -> Columns:
        """From one pass for all."""
        columns = self._told[i].columns
        assert columns is not None  # raw columns are made inputs before
        return columns

    def labels(self, i: int) -> tuple[Any, ...]:
        """From the pass that found the sites."""
        return self.classes[i]

    def shares(self, i: int, classes: Labels) -> Array:
        """From one pass for all."""
        counts = [self._told[i].counts[label] for label in classes.tolist()]
        return np.array(counts) / self.columns(i).T

    def targets(self, i: int, how: Making) -> Columns:
        """Of the raw ones, shifted and scaled; of codes from how often each is there."""
        if self.classes[i]:
            codes = how.targets(how.classes)
            return size_of(
                self.columns(i).T, float(self.shares(i, how.classes) @ np.vecdot(codes, codes))
            )
        (T, *parts), K, to = self.columns(i), len(how.units.y_scale), how.units.targets
        mean, sd, low, high = (part[-K:] for part in parts)
        return Columns(T, to(mean), sd / how.units.y_scale, to(low), to(high))

    def sample(self, i: int, seed: int) -> tuple[Array, Labels]:
        """From one pass for all; the first seed that is asked for is that of them all."""
        if not self.samples:
            self.samples.update(self._sampled(seed))
        return self.samples[i]

    def _sampled(self, seed: int) -> dict[int, tuple[Array, Labels]]:
        wanted = [sampled(int(np.count_nonzero(~held)), seed) for held in self.held]
        X = [np.empty((len(some), len(self.source.columns))) for some in wanted]
        y, seen = list[Any]([None] * len(wanted)), [0] * len(wanted)
        for i, _, rows, targets, _ in self._parts("sample", kinds=(False,)):
            if y[i] is None:
                y[i] = np.empty((len(wanted[i]), *targets.shape[1:]), targets.dtype)
            at = wanted[i] - seen[i]
            here = (at >= 0) & (at < len(targets))
            X[i][here], y[i][here] = rows[at[here]], targets[at[here]]
            seen[i] += len(targets)
        return dict(enumerate(zip(X, y, strict=True)))

    @cached_property
    def _told(self) -> tuple[_Moments, ...]:
        columns, counts = dict[int, Columns](), [Counter[Any]() for _ in self.own]
        raw = set[int]()
        for i, held, X, y, _ in self._parts("units"):
            if i in raw or not is_plain(self.source.kinds, X):
                raw.add(i)
            if held or i in raw:
                continue
            some = columns_of(X if self.classes[i] else np.column_stack([X, y]))
            columns[i] = columns[i].merged(some) if i in columns else some
            if self.classes[i]:
                labels, n = np.unique(y, return_counts=True)
                counts[i].update(dict(zip(labels.tolist(), n.tolist(), strict=True)))
        told = (None if i in raw else columns[i] for i in range(len(self.own)))
        return tuple(map(_Moments, told, counts))

    def parts(self) -> Iterator[SiteRows]:
        """One more pass."""
        return self._parts("accuracy")

    def _parts(self, purpose: str, kinds: Sequence[bool] = (False, True)) -> Iterator[SiteRows]:
        """Rows for training or testing, each site's in the order they came: a pass."""
        for chunk in self._chunks(purpose):
            assert chunk.codes is not None
            assert chunk.held is not None
            targets = chunk.targets
            for held in kinds:
                codes = np.where(chunk.held == held, chunk.codes, -1)
                for code in np.unique(codes[codes >= 0]).tolist():
                    rows = codes == code
                    yield SiteRows(code, held, chunk.X[rows], targets[rows])

    def problem(self, how: Making) -> Problem:
        """The statistics of training and test rows: one pass."""

        def chunks() -> Iterator[Chunk]:
            for chunk in self._chunks("features"):
                yield chunk._replace(y=how.numbers(chunk.targets), classes=None)

        rows = Source(self.source.columns, None, chunks)
        plain = self.how._replace(progress=None)
        if precise(how):
            plain = plain._replace(precision="double")
        _, train, test = stream_statistics(rows, how.features, how.units, lam=0.0, how=plain)
        weighed = how.weighed(replace(train, G=how.G))
        return Problem(weighed, None if test is None else replace(test, G=how.G))

    def _chunks(self, purpose: str) -> Iterator[Chunk]:
        """The rows of these sites, each said to be for training or for testing."""
        seen, place = [0] * len(self.own), {label: i for i, label in enumerate(self.own)}
        for chunk in complete(self.source, self.how.watched(self.watch, purpose, self.source)):
            sites = np.array([place.get(label, -1) for label in chunk.labels])[chunk.codes]
            held = np.zeros(len(sites), np.bool_)
            for i in np.unique(sites[sites >= 0]).tolist():
                rows = np.flatnonzero(sites == i)
                kind = self.held[i][seen[i] : seen[i] + len(rows)]
                seen[i] += len(rows)
                if len(kind) < len(rows):
                    raise changed(seen[i], len(self.held[i]))
                held[rows] = kind
            ours = sites >= 0
            y, found = chunk.y[ours], chunk.classes
            yield Chunk(chunk.X[ours], y, sites[ours], self.own, found, held[ours])
        for n, kept in zip(seen, self.held, strict=True):
            if n != len(kept):
                raise changed(n, len(kept))


def pass_over(
    source: Source, how: Passing, *, test: float, seed: int, watch: Watch | None = None
) -> Passed:
    """All sites of a source, a share `test` of each held out as `split` does: one pass."""
    T, classes = Counter[Any](), dict[Any, set[Any]]()
    for chunk in complete(labelled(source, how), how.watched(watch, "sites", source)):
        assert chunk.codes is not None  # the sites are named
        for code, n in zip(*np.unique(chunk.codes, return_counts=True), strict=True):
            site = chunk.labels[code]
            T[site] += int(n)
            if chunk.classes is not None:
                found = np.unique(chunk.targets[chunk.codes == code]).tolist()
                classes[site] = _few(classes.get(site, set()).union(found))
    own, rng = tuple(by_label(np.array(list(T), dtype=object))), np.random.default_rng(seed)
    return Passed(
        names=tuple(map(str, own)),
        source=source,
        how=how,
        own=own,
        held=tuple(held_out(T[label], test, rng) for label in own),
        classes=tuple(tuple(sorted(classes.get(label, ()))) for label in own),
        watch=watch,
        kinds=source.kinds or raw_numbers(len(source.columns)),
    )


def _few(labels: set[Any]) -> set[Any]:
    """The classes of a site; refused where they are so many that they must be numbers."""
    if len(labels) > LABELS:
        raise DataError(
            f"the target has {len(labels)} values at a site: expected class labels, at most "
            f'{LABELS}; for numbers use loss = "quadratic"'
        )
    return labels
