"""Before training: the sites agree on what is common, by sums over a spanning tree.

Nobody is elected: a wave gives every site its place in a tree (`coke.talk.wave`). Then sums go up
the tree and the total comes down, the same bytes to all: numbers for scaling and class labels
(`coke.talk.told`), and descriptions of the inputs for P.
Every function here is one site's part of a conversation (`coke.talk.conversation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import NamedTuple, Protocol

import numpy as np

from coke.data.units import Columns
from coke.errors import DataError, MessageError
from coke.maths import guards
from coke.maths.algorithms.integers import LARGEST, Integers, pack_integers, unpack_integers
from coke.maths.algorithms.mixtures import decode_mixture, encode_mixture
from coke.maths.alike import alike
from coke.maths.arrays import Array
from coke.maths.features.merging import Detail
from coke.maths.features.mixtures import Component, Gaussian, kind_of
from coke.talk.claiming import ByName
from coke.talk.conversation import Talk, Turn
from coke.talk.place import Place

Part = Callable[[Sequence[bytes]], bytes]
"""A site's message, of its children's."""


def swept(
    place: Place,
    totals: list[bytes],
    own: Part,
    concluded: Callable[[bytes], bytes] = bytes,
) -> Talk[bytes]:
    """A sum over the tree: up go partial sums, down comes the root's total, the same to all.

    `own` makes a site's message of its own part and its children's messages, in their order.
    The root says what is `concluded` from the total, where that is shorter. It is noted in
    `totals`, for sites that join later.
    """
    parent, children = place.parent, place.children
    heard = (yield Turn({}, children)) if children else {}
    total = own([heard[child] for child in children])
    if parent is not None:
        total = (yield Turn({parent: total}, [parent]))[parent]
    else:
        total = concluded(total)
    totals.append(total)
    if children:
        yield Turn(dict.fromkeys(children, total), (), broadcast=True)
    return total


class Sweep(Protocol):
    """A site's way to a total over all sites, given how it makes its own message."""

    def __call__(self, own: Part, concluded: Callable[[bytes], bytes] = bytes) -> Talk[bytes]:
        """The total, or what the root concluded from it."""
        ...


def given(totals: Iterable[bytes]) -> Sweep:
    """For a site that joins later: the totals the others have agreed on, one after the other."""
    rest = iter(totals)

    def told(own: Part, concluded: Callable[[bytes], bytes] = bytes) -> Talk[bytes]:
        total = next(rest, None)
        if total is None:
            raise MessageError("fewer totals than this site's settings need: compare the settings")
        return total
        yield  # it asks nobody, but is a conversation all the same

    return told


class _Inputs(NamedTuple):
    """What the sites agree on for P and the thresholds."""

    mixture: list[Gaussian]
    spread: float  # standard deviation of the target


def describe_inputs(
    sweep: Sweep, own: Sequence[Component], y: Columns, how: Detail
) -> Talk[_Inputs]:
    """All sites' mixtures merged, as many components as the largest description has, or more."""
    d = len(own[0].mean)
    merged = partial(_merged_mixtures, own, d, how)
    total, spread = yield from _after_targets(sweep, y, merged)
    return _Inputs(_mixture(total, d, how.s0), spread)


@alike
def _mixture(total: bytes, d: int, s0: float) -> list[Gaussian]:
    return [part.gaussian() for part in decode_mixture(total, d, s0)]


def _merged_mixtures(
    own: Sequence[Component], d: int, how: Detail, children: Sequence[bytes]
) -> bytes:
    """A site's message to its parent: its own description and its children's, merged."""
    heard = [decode_mixture(data, d, how.s0) for data in children]
    kind = max([kind_of(len(own)), *(data[0] for data in children)])
    parts = [part.gaussian() for description in (own, *heard) for part in description]
    return encode_mixture(how.merged(parts, kind), how.s0)


def add_grams(sweep: Sweep, A: Array, y: Columns) -> Talk[tuple[Array, float]]:
    """Σ_i A_i (D, D) in float32, and the target's spread: most bytes, and reveals most."""
    below = np.tril_indices(len(A))

    def added(children: Sequence[bytes]) -> bytes:
        packed = A[below] + sum(_packed(child, len(below[0])) for child in children)
        return np.asarray(packed, "<f4").tobytes()

    total, spread = yield from _after_targets(sweep, y, added)
    G = np.zeros_like(A)
    G[below] = _packed(total, len(below[0]))
    return G + np.tril(G, -1).T, spread


def _packed(data: bytes, size: int) -> Array:
    if len(data) != 4 * size:
        raise MessageError(
            f"{len(data)} bytes after the target: expected a Gram matrix of {size} numbers"
        )
    found = np.frombuffer(data, "<f4").astype(np.float64)
    if not np.isfinite(found).all():
        raise MessageError("a Gram matrix with numbers that are not finite")
    return found


def add_integers(
    sweep: Sweep, own: Array, concluded: Callable[[Integers], Integers] | None = None,
    size: int = 0, believed: Callable[[Integers], Integers] = guards.added,
) -> Talk[Integers]:  # fmt: skip
    """The sum of numbers (k,), rounded first; or what is concluded from it, `size` numbers.

    Under a guard by name: as much of all sites' (n, k) as can be `believed`.
    """
    k = len(own)
    if not np.isfinite(own).all():
        raise DataError("numbers that are not finite in a sum over sites: look at the rows")
    mine = np.rint(np.clip(own, -LARGEST, LARGEST)).astype(np.int64)

    if isinstance(sweep, ByName):
        claims = yield from sweep.claims(pack_integers(mine))
        total = believed(np.stack([unpack_integers(one, k) for one in claims]))
        return total if concluded is None else concluded(total)

    def added(children: Sequence[bytes]) -> bytes:
        return pack_integers(sum((unpack_integers(child, k) for child in children), mine))

    if concluded is None:
        return unpack_integers((yield from sweep(added)), k)
    data = yield from sweep(added, lambda data: pack_integers(concluded(unpack_integers(data, k))))
    return unpack_integers(data, size)


def add_up(sweep: Sweep, own: Array) -> Talk[Array]:
    """The sum of a few numbers (k,), in float64."""

    def total(children: Sequence[bytes]) -> bytes:
        parts = [own, *(_numbers(child, len(own)) for child in children)]
        return np.asarray(sum(parts[1:], parts[0]), "<f8").tobytes()

    return _numbers((yield from sweep(total)), len(own))


def _numbers(data: bytes, size: int) -> Array:
    if len(data) != 8 * size:
        raise MessageError(f"{len(data)} bytes: expected {size} numbers")
    found = np.frombuffer(data, "<f8").astype(np.float64)
    if not np.isfinite(found).all():
        raise MessageError("numbers that are not finite")
    return found


def add_targets(sweep: Sweep, y: Columns) -> Talk[float]:
    """The target's spread alone, where P needs no message."""
    _, spread = yield from _after_targets(sweep, y, lambda _: b"")
    return spread


def _after_targets(
    sweep: Sweep, y: Columns, own: Callable[[Sequence[bytes]], bytes]
) -> Talk[tuple[bytes, float]]:
    """A total that comes after the targets' moments in every message; and the targets' spread."""
    K = len(y.mean)
    size = 4 * (1 + 2 * K)

    def merged(children: Sequence[bytes]) -> bytes:
        told = reduce(Columns.merged, (_targets(child, K) for child in children), y)
        with np.errstate(over="ignore"):  # refused where it is read
            head = np.concatenate([[told.T], told.mean, told.sd]).astype("<f4")
        return head.tobytes() + own([child[size:] for child in children])

    total = yield from sweep(merged)
    return total[size:], _targets(total, K).spread


def _targets(data: bytes, K: int) -> Columns:
    """Rows, means and standard deviations of a site's K targets, in float32."""
    if len(data) < 4 * (1 + 2 * K):
        raise MessageError(f"{len(data)} bytes: expected {4 * (1 + 2 * K)} for the target first")
    found = np.frombuffer(data, "<f4", 1 + 2 * K).astype(np.float64)
    T, mean, sd = float(found[0]), found[1 : 1 + K], found[1 + K :]
    if not (0 < T < 2**53 and np.isfinite(found).all() and (sd >= 0).all()):
        raise MessageError("a target whose numbers cannot be")
    return Columns.of_moments(T, mean, sd)
