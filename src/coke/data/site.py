"""Holders of rows: what each can tell of its own, and the problem that their rows make.

`Site` is one holder, as a conversation sees it. `Sites` are those whose rows are in this process:
`Kept` in memory or on disk, `coke.data.out_of_core.Passed` in a file that is passed over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.data.scaling import Columns, Scaling, columns_of, numbers_of
from coke.data.sources import Watch
from coke.data.tables import Labels, Rows
from coke.errors import DataError, unknown
from coke.maths.arrays import Array, Mask, Room, mapped
from coke.maths.features.features import DrawnFeatures
from coke.maths.losses import LOSSES
from coke.maths.losses.problem import Problem
from coke.maths.losses.risk import Risk

Index = NDArray[np.int64]
SPLITS = ("iid", "sorted")


class Making(NamedTuple):
    """How rows become risks: the same at all sites."""

    features: DrawnFeatures
    units: Scaling
    loss: str
    classes: Labels  # sorted; none for numbers
    G: float  # λ/N


class Sites(ABC):
    """The sites that are here. What they tell of their rows holds none."""

    names: tuple[str, ...]

    @abstractmethod
    def of(self, agents: Sequence[int]) -> Sites:
        """Those sites alone."""

    @abstractmethod
    def columns(self, i: int) -> Columns:
        """Of site i's training inputs and, last, its target where that is a number."""

    @abstractmethod
    def labels(self, i: int) -> tuple[Any, ...]:
        """The classes among all rows of site i, sorted; none where the target is a number."""

    @abstractmethod
    def targets(self, i: int, units: Scaling) -> Columns:
        """Of site i's training targets in the common units; of classes 0 and 1, as margins are."""

    @abstractmethod
    def problem(self, how: Making) -> Problem:
        """The risks of all sites here."""

    def units(self, scaling: Scaling) -> Kept | None:
        """The rows in the common units, where they are kept at all."""
        return None


class Site(NamedTuple):
    """One holder of rows."""

    here: Sites
    i: int
    name: str  # which no other site has

    def columns(self) -> Columns:
        """Of its training inputs and, last, its target where that is a number."""
        return self.here.columns(self.i)

    def labels(self) -> tuple[Any, ...]:
        """The classes among its rows."""
        return self.here.labels(self.i)

    def rows(self) -> tuple[Array, Labels]:
        """Its training inputs and targets, as they came."""
        assert isinstance(self.here, Kept)  # whoever passes over rows is not asked for them
        return self.here.X[self.i], self.here.y[self.i]


@dataclass(frozen=True)
class Kept(Sites):
    """Rows of N sites, each with training rows and (perhaps no) test rows."""

    names: tuple[str, ...]
    X: tuple[Array, ...]  # (T_i, d) each
    y: tuple[Labels, ...]
    X_test: tuple[Array, ...]
    y_test: tuple[Labels, ...]
    numbers: bool = True  # whether the target is a number; else it is a class
    room: Room = np.empty  # for rows with classes in other units, and their features
    watch: Watch | None = None  # told of the rows whose features are made

    def of(self, agents: Sequence[int]) -> Kept:
        """Those sites alone."""
        parts = ("names", "X", "y", "X_test", "y_test")
        some: Any = {part: tuple(getattr(self, part)[i] for i in agents) for part in parts}
        return replace(self, **some)

    def columns(self, i: int) -> Columns:
        """Of the rows themselves."""
        if not self.numbers:
            return columns_of(self.X[i])
        return columns_of(np.column_stack([self.X[i], numbers_of(self.y[i])]))

    def labels(self, i: int) -> tuple[Any, ...]:
        """Of training and test rows."""
        if self.numbers:
            return ()
        return tuple(sorted({*self.y[i].tolist(), *self.y_test[i].tolist()}))

    def targets(self, i: int, units: Scaling) -> Columns:
        """Of the rows themselves."""
        if not self.numbers:
            return Columns.of_number(float(len(self.y[i])), 0.0, 1.0)
        return columns_of(units.targets(numbers_of(self.y[i]))[:, None])

    def units(self, scaling: Scaling) -> Kept:
        """The same rows in the common units, the inputs in `room`."""
        X: Any = (self.X, self.X_test)
        y: Any = (self.y, self.y_test)
        d = len(scaling.x_scale)
        if self.numbers:
            y = tuple(tuple(scaling.targets(numbers_of(v)) for v in part) for part in y)
        if self.room is np.empty:
            X = tuple(tuple(map(scaling.inputs, part)) for part in X)
        else:
            X = tuple(mapped(scaling.inputs, part, d, self.room) for part in X)
        return replace(self, X=X[0], y=y[0], X_test=X[1], y_test=y[1])

    def problem(self, how: Making) -> Problem:
        """Of rows that are in the common units already; features of classes lie in `room`."""
        phi = how.features if self.watch is None else self._watched(how.features, self.watch)

        def risk(X: Sequence[Array], y: Sequence[Labels]) -> Risk:
            made = LOSSES[how.loss].risk
            return made(phi, X, y, how.G, classes=how.classes, room=self.room)

        train = risk(self.X, self.y)
        return Problem(
            train, risk(self.X_test, self.y_test) if any(map(len, self.y_test)) else None
        )

    def _watched(self, features: DrawnFeatures, watch: Watch) -> Callable[[Array], Array]:
        total, done = sum(map(len, (*self.y, *self.y_test))), 0

        def phi(X: Array) -> Array:
            nonlocal done
            found, done = features(X), min(done + len(X), total)
            watch("features", done, total)
            return found

        return phi


def parts_of(
    y: Labels, sites: Labels | None, split: str | None, **dealing: Any
) -> dict[Any, Index]:
    """Whose the rows are: by label, or dealt out where a split is asked for or needed."""
    if sites is not None and split is None:
        return by_label(sites)
    return deal(y, split=split or "iid", **dealing)


def by_label(labels: Labels) -> dict[Any, Index]:
    """The row numbers of every site, in the order of the sorted labels."""
    try:
        names, which, T = np.unique(labels, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise DataError(
            "site labels of different kinds cannot be sorted: use all text or all numbers"
        ) from error
    parts = np.split(np.argsort(which, kind="stable"), np.cumsum(T)[:-1])
    return dict(zip(names.tolist(), parts, strict=True))


def deal(
    y: Labels,
    n_agents: int,
    *,
    split: str = "iid",
    sizes: Sequence[int] | None = None,
    size_range: tuple[int, int] | None = None,
    seed: int,
) -> dict[Any, Index]:
    """Row numbers for n_agents: at random ("iid"), or in order of the target ("sorted").

    Sites are near equal, or have the given sizes, or sizes drawn from a range; all rows are used.
    """
    if split not in SPLITS:
        raise DataError(unknown("split", split, SPLITS))
    T, rng = len(y), np.random.default_rng(seed)
    if not 1 <= n_agents <= T:
        raise DataError(
            f"{n_agents} agents for n_samples={T} rows: every site needs a row; "
            f"expected 1 to {T} agents"
        )
    order = rng.permutation(T)
    if split == "sorted":
        order = order[np.argsort(y[order], kind="stable")]
    if size_range is not None:
        sizes = _drawn(T, n_agents, size_range, rng)
    if sizes is None:
        sizes = [len(part) for part in np.array_split(order, n_agents)]
    if len(sizes) != n_agents or min(sizes, default=0) < 1 or sum(sizes) != T:
        raise DataError(
            f"{len(sizes)} sizes, the smallest {min(sizes, default=0)}, with sum {sum(sizes)}: "
            f"expected {n_agents} sizes of at least 1 with sum {T}"
        )
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return {i: np.sort(part) for i, part in enumerate(parts)}


def _drawn(T: int, n: int, bounds: tuple[int, int], rng: np.random.Generator) -> list[int]:
    """N sizes within the bounds that add up to T: uniform draws, then the rest given or taken."""
    low, high = bounds
    if not (1 <= low <= high and n * low <= T <= n * high):
        raise DataError(
            f"sizes from {low} to {high} for {n} agents: cannot add up to {T} rows; "
            f"expected a range around {T / n:.0f}"
        )
    sizes = rng.integers(low, high + 1, n)
    for i in rng.permutation(n):
        rest = T - sizes.sum()
        sizes[i] += np.clip(rest, low - sizes[i], high - sizes[i])
    return [int(size) for size in sizes]


def held_out(T: int, test: float, rng: np.random.Generator) -> Mask:
    """Which of a site's T rows are for testing: a share `test`, rounded, never all."""
    tested = np.zeros(T, np.bool_)
    tested[rng.permutation(T)[: min(round(test * T), T - 1)]] = True
    return tested


class Places(NamedTuple):
    """Which rows of a table are whose: row numbers, for training and for testing."""

    names: tuple[str, ...]
    train: tuple[Index, ...]
    test: tuple[Index, ...]

    def of(self, agents: Sequence[int]) -> Places:
        """Of those sites alone."""
        some: list[Any] = [tuple(part[i] for i in agents) for part in self]
        return Places(*some)

    def kept(self, rows: Rows, **how: Any) -> Kept:
        """The sites with their rows of that table."""
        X, y = ([part[i] for i in self.train] for part in (rows.X, rows.y))
        X_test, y_test = ([part[i] for i in self.test] for part in (rows.X, rows.y))
        return Kept(self.names, tuple(X), tuple(y), tuple(X_test), tuple(y_test), **how)


def split(parts: dict[Any, Index], *, test: float, seed: int) -> Places:
    """A share `test` of each site's rows (rounded, never all) is held out at random."""
    if not 0 <= test < 1:
        raise DataError(f"test={test}: expected a share from 0 to below 1; the paper uses 0.3")
    rng = np.random.default_rng(seed)
    train, held = [], []
    for part in parts.values():
        tested = held_out(len(part), test, rng)
        held.append(np.sort(part[tested]))
        train.append(np.sort(part[~tested]))
    return Places(tuple(map(str, parts)), tuple(train), tuple(held))
