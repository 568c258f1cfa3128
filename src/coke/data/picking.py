"""Rows of some sites out of a file that holds everybody's, kept: found by number or label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.data.raw import is_plain, raw_numbers
from coke.data.site import Kept
from coke.data.sources import Passing, Source, Watch, changed, complete, labelled
from coke.data.split import Places
from coke.data.tables import Labels
from coke.errors import DataError
from coke.maths.arrays import Array, Room


class Owners(NamedTuple):
    """Targets and sites of all rows, without their inputs."""

    y: Labels  # (T,)
    sites: Labels | None  # (T,)
    weights: Array | None  # (T,)


def owners(source: Source, how: Passing, watch: Watch | None = None) -> Owners:
    """One pass, to say whose the rows are."""
    y, labels, weights = list[Labels](), list[Labels](), list[Array]()
    for chunk in complete(labelled(source, how), how.watched(watch, "sites", source)):
        y.append(chunk.targets)
        if chunk.codes is not None:
            labels.append(np.array(chunk.labels, dtype=object)[chunk.codes])
        if chunk.weights is not None:
            weights.append(chunk.weights)
    kinds = {"number" if part.dtype.kind in "iuf" else part.dtype.kind for part in y}
    if len(kinds) > 1:
        raise DataError(
            "class labels of different kinds: expected all text, all numbers or all true or false"
        )
    sites, w = (np.concatenate(parts) if parts else None for parts in (labels, weights))
    return Owners(np.concatenate(y), sites, w)


def picked(
    source: Source, how: Passing, places: Places, whose: Owners, *,
    by_label: bool, room: Room = np.empty, watch: Watch | None = None,
) -> Kept:  # fmt: skip
    """The sites at these places with their inputs, kept in `room`; `whose` has all rows' targets.

    Where sites are the source's own, not dealt out, only what holds their rows is read.
    """
    wanted = [*places.train, *places.test]
    numbers = np.concatenate(wanted)
    order = np.argsort(numbers)
    sorted_numbers, names, first, done = numbers[order], frozenset(places.names), 0, 0
    X, near = room((len(numbers), len(source.columns))), source.near(names) if by_label else source
    plain = True
    for chunk in complete(near, how.watched(watch, "rows", near)):
        if by_label:
            ours = np.array([str(label) in names for label in chunk.labels])
            rows = np.flatnonzero(ours[chunk.codes])
        else:
            low, high = np.searchsorted(sorted_numbers, (first, first + len(chunk.y)))
            rows = sorted_numbers[low:high] - first
        at = order[done : done + len(rows)]
        X[at] = chunk.X[rows[: len(at)]]
        plain = plain and is_plain(source.kinds, chunk.X)
        first, done = first + len(chunk.y), done + len(rows)
    if done != len(numbers):
        raise changed(done, len(numbers))
    parts, n = np.split(X, np.cumsum([len(part) for part in wanted])[:-1]), len(places.names)
    w = whose.weights
    return Kept(
        names=places.names,
        X=tuple(parts[:n]),
        y=tuple(whose.y[at] for at in places.train),
        X_test=tuple(parts[n:]),
        y_test=tuple(whose.y[at] for at in places.test),
        weights=None if w is None else tuple(w[at] for at in places.train),
        weights_test=None if w is None else tuple(w[at] for at in places.test),
        room=room,
        kinds=() if plain else source.kinds or raw_numbers(len(source.columns)),
    )
