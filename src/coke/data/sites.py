"""Who holds which rows: by label, or dealt out; and which of them are for testing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coke.data.tables import Labels
from coke.errors import DataError, unknown
from coke.maths.arrays import Mask

Index = NDArray[np.int64]
SPLITS = ("iid", "sorted")


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
