"""Whose the rows of a table are: by label or dealt out, for training and for testing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coke.data.site import Kept
from coke.data.tables import Labels, Rows
from coke.errors import DataError, unknown
from coke.maths.arrays import Mask

Index = NDArray[np.int64]
SPLITS = ("iid", "sorted")


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

    Of several targets it is the first that sorts.
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
        first = y if y.ndim == 1 else y[:, 0]
        order = order[np.argsort(first[order], kind="stable")]
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
        if rows.weights is not None:
            how["weights"] = tuple(rows.weights[i] for i in self.train)
            how["weights_test"] = tuple(rows.weights[i] for i in self.test)
        how["kinds"] = rows.kinds
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
