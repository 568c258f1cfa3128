"""Holders of rows: what each can tell of its own, the units of all, and the problem they make.

`Site` is one holder, as a conversation sees it. `Sites` are those whose rows are in this process:
`Kept` in memory or on disk, `coke.data.out_of_core.Passed` in a file that is passed over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.data.blocks import Owned, counted, risks
from coke.data.coding import Coding, ToldColumn, told_columns
from coke.data.raw import Kind, is_plain
from coke.data.sources import Numbers, Watch
from coke.data.tables import Labels
from coke.data.units import Columns, Making, Scaling, columns_of, numbers_of, size_of
from coke.maths.arrays import Array, Mask, Room, mapped
from coke.maths.losses import LOSSES
from coke.maths.losses.codes import which
from coke.maths.losses.problem import Problem

SAMPLE = 500  # rows of a site that a choice of model looks at


class SiteRows(NamedTuple):
    """Some rows of site i as they came."""

    i: int
    held: bool  # for testing
    X: Numbers  # (t, d)
    y: Labels  # (t,) or (t, K)
    weights: Array | None = None  # (t,)


class Sites(ABC):
    """The sites that are here. What they tell of their rows holds none."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]  # what raw columns hold; none: numbers, and no gap

    @abstractmethod
    def of(self, agents: Sequence[int]) -> Sites:
        """Those sites alone."""

    @abstractmethod
    def plain(self, i: int) -> bool:
        """Whether all inputs of site i are numbers, and none is missing."""

    @abstractmethod
    def raw(self, i: int, *, hashed: bool) -> tuple[float, list[ToldColumn]]:
        """How many training rows site i has, and what is told of their raw columns."""

    @abstractmethod
    def coded(self, coding: Coding) -> Sites:
        """The same sites with raw columns made inputs."""

    @abstractmethod
    def columns(self, i: int) -> Columns:
        """Of site i's training inputs and, last, its targets where they are numbers."""

    @abstractmethod
    def labels(self, i: int) -> tuple[Any, ...]:
        """The classes among all rows of site i, sorted; none where the target is a number."""

    @abstractmethod
    def shares(self, i: int, classes: Labels) -> Array:
        """Of each class among the training rows of site i."""

    @abstractmethod
    def sample(self, i: int, seed: int) -> tuple[Array, Labels]:
        """Training inputs and targets of site i as they came: at most SAMPLE, in random order."""

    @abstractmethod
    def targets(self, i: int, how: Making) -> Columns:
        """Of site i's training targets in the common units; of codes, their joint size."""

    @abstractmethod
    def problem(self, how: Making) -> Problem:
        """The risks of all sites here."""

    @abstractmethod
    def parts(self) -> Iterator[SiteRows]:
        """All rows as they came, some at a time, those for testing apart."""

    def units(self, scaling: Scaling) -> Kept | None:
        """The rows in the common units, where they are kept at all."""
        return None


class Site(NamedTuple):
    """One holder of rows."""

    here: Sites
    i: int
    name: str  # which no other site has

    def coded(self, coding: Coding) -> Site:
        """Alone, with its raw columns made inputs."""
        return Site(self.here.of([self.i]).coded(coding), 0, self.name)

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
    weights: tuple[Array, ...] | None = None  # (T_i,) each: a row of weight w stands for w rows
    weights_test: tuple[Array, ...] | None = None
    kinds: tuple[Kind, ...] = ()

    def plain(self, i: int) -> bool:
        """Of training and test rows."""
        return not self.kinds or is_plain(self.kinds, self.X[i], self.X_test[i])

    def raw(self, i: int, *, hashed: bool) -> tuple[float, list[ToldColumn]]:
        """Of the rows themselves."""
        return float(len(self.X[i])), told_columns(self.X[i], self.kinds, hashed=hashed)

    def coded(self, coding: Coding) -> Kept:
        """With the inputs in `room`."""
        to, d = partial(coding.matrix, kinds=self.kinds), len(coding.names)
        X, X_test = (mapped(to, part, d, self.room) for part in (self.X, self.X_test))
        return replace(self, X=X, X_test=X_test, kinds=())

    def of(self, agents: Sequence[int]) -> Kept:
        """Those sites alone."""
        parts = ["names", "X", "y", "X_test", "y_test"]
        if self.weights is not None:
            parts += ["weights", "weights_test"]
        some: Any = {part: tuple(getattr(self, part)[i] for i in agents) for part in parts}
        return replace(self, **some)

    def columns(self, i: int) -> Columns:
        """Of the rows themselves."""
        if not self.numbers:
            return columns_of(self.X[i], self._weights(i))
        return columns_of(np.column_stack([self.X[i], numbers_of(self.y[i])]), self._weights(i))

    def _weights(self, i: int) -> Array | None:
        return None if self.weights is None else self.weights[i]

    def labels(self, i: int) -> tuple[Any, ...]:
        """Of training and test rows."""
        if self.numbers:
            return ()
        return tuple(sorted({*self.y[i].tolist(), *self.y_test[i].tolist()}))

    def sample(self, i: int, seed: int) -> tuple[Array, Labels]:
        """Of the rows themselves."""
        some = sampled(len(self.y[i]), seed, self._weights(i))
        return self.X[i][some], self.y[i][some]

    def shares(self, i: int, classes: Labels) -> Array:
        """Of the rows themselves."""
        at, weights = which(self.y[i], classes), self._weights(i)
        counts = np.bincount(at, weights, minlength=len(classes))
        return np.asarray(counts / (len(at) if weights is None else weights.sum()))

    def targets(self, i: int, how: Making) -> Columns:
        """Of the rows themselves."""
        y, weights = how.targets(self.y[i]), how.weights(self.y[i], self._weights(i))
        if self.numbers:
            return columns_of(y, weights)
        T = float(len(y) if weights is None else weights.sum())
        codes = LOSSES[how.loss].codes
        return size_of(T, float(np.average(np.vecdot(y, y), weights=weights)) if codes else 1.0)

    def units(self, scaling: Scaling) -> Kept:
        """The same rows in the common units, the inputs in `room`."""
        y: Any = (self.y, self.y_test)
        if self.numbers:
            y = tuple(tuple(scaling.targets(numbers_of(v)) for v in part) for part in y)
        d, to = len(scaling.x_scale), scaling.inputs
        X, X_test = (mapped(to, part, d, self.room) for part in (self.X, self.X_test))
        return replace(self, X=X, y=y[0], X_test=X_test, y_test=y[1])

    def parts(self) -> Iterator[SiteRows]:
        """A site's rows at a time."""
        none = [None] * len(self.names)
        train = (False, self.X, self.y, self.weights or none)
        for held, X, y, w in (train, (True, self.X_test, self.y_test, self.weights_test or none)):
            for i, (X_i, y_i, w_i) in enumerate(zip(X, y, w, strict=True)):
                yield SiteRows(i, held, X_i, y_i, w_i)

    def without(self, out: Sequence[Mask]) -> tuple[Kept, Kept]:
        """Without those training rows (T_i,) of each site; and with them in place of test rows."""
        rest: dict[str, Any] = {}
        held: dict[str, Any] = {}
        for name in ("X", "y") if self.weights is None else ("X", "y", "weights"):
            both = list(zip(getattr(self, name), out, strict=True))
            rest[name] = tuple(rows[~mask] for rows, mask in both)
            held[f"{name}_test"] = tuple(rows[mask] for rows, mask in both)
        return replace(self, **rest), replace(self, **held)

    def problem(self, how: Making) -> Problem:
        """Of the rows as they came; features that are kept lie in `room`."""
        told = counted(self.watch, sum(map(len, (*self.y, *self.y_test))))
        train = how.weighed(risks(Owned(self.X, self.y, self.weights), how, told, self.room))
        if not any(map(len, self.y_test)):
            return Problem(train)
        held = Owned(self.X_test, self.y_test, self.weights_test)
        return Problem(train, risks(held, how, told, self.room))


def sampled(T: int, seed: int, weights: Array | None = None) -> NDArray[np.int64]:
    """Row numbers of a sample of T rows; with weights, the heavier the likelier."""
    rng = np.random.default_rng(seed)
    if weights is None:
        return rng.choice(T, min(T, SAMPLE), replace=False)
    most = min(int(np.count_nonzero(weights)), SAMPLE)
    return rng.choice(T, most, replace=False, p=weights / weights.sum())
