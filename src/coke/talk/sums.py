"""Before training: the sites agree on what is common, by sums over a spanning tree.

Nobody is elected. Each site floods whom it knows, so everyone learns the same graph and computes
the same tree, diameter and step size. Then sums go up the tree and the total comes down, the same
bytes to all: numbers for scaling and class labels, and descriptions of the inputs for P.
Every function here is one site's part of a conversation (`coke.talk.conversation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from coke.data.units import LABELS, Columns
from coke.errors import DataError, MessageError
from coke.maths.algorithms.codecs import pack_integers, unpack_integers
from coke.maths.algorithms.mixtures import decode_mixture, encode_mixture
from coke.maths.arrays import Array
from coke.maths.features.mixtures import RANKS, Component, Gaussian, kind_of, reduced
from coke.talk.conversation import Network, Talk, Turn

_LARGEST = 2**48  # whole number in a sum, far from where sums of many sites overflow
_HALF, _HALVES = 1 << 14, 3  # whole numbers are packed in so large parts, and so many more at most

Part = Callable[[Sequence[bytes]], bytes]
"""A site's message, of its children's."""
Integers = NDArray[np.int64]


def swept(
    net: Network,
    me: str,
    totals: list[bytes],
    own: Part,
    concluded: Callable[[bytes], bytes] = bytes,
) -> Talk[bytes]:
    """A sum over the tree: up go partial sums, down comes the root's total, the same to all.

    `own` makes a site's message of its own part and its children's messages, in their names' order.
    The root says what is `concluded` from the total, where that is shorter. It is noted in
    `totals`, for sites that join later.
    """
    parent = net.tree.parent.get(me)
    children = net.tree.children.get(me, [])
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


DROP = 'drop such columns, and rows with missing = "drop", or begin a new run'
RAW = msgspec.msgpack.encode(None)  # of a site whose columns are not all numbers yet
_Wire = tuple[float, bytes, bytes, bytes, bytes, list[str | int | float | bool]]


class Told(NamedTuple):
    """What sites tell each other for scaling, σ = "auto" and class labels."""

    columns: Columns  # of the inputs and, for regression, the target; empty where not needed
    labels: tuple[Any, ...] = ()

    def merged(self, other: Told) -> Told:
        """Of both sites."""
        labels = _union(self.labels, other.labels)
        return Told(self.columns.merged(other.columns), labels)

    def encode(self) -> bytes:
        """In float64: inputs come in units from nanometres to parsecs."""
        arrays = [np.asarray(part, "<f8").tobytes() for part in self.parts]
        return msgspec.msgpack.encode((self.columns.T, *arrays, self.labels))

    @classmethod
    def decode(cls, data: bytes, sizes: Sequence[int]) -> Told:
        """What such bytes say, if the four arrays have these sizes and make sense."""
        try:
            T, *raw, labels = msgspec.msgpack.decode(data, type=_Wire)
            arrays = [np.frombuffer(part, "<f8").astype(np.float64) for part in raw]
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise MessageError(f"{len(data)} bytes tell nothing of columns: {error}") from error
        mean, sd, low, high = arrays
        good = [len(part) for part in arrays] == list(sizes) and 0 < T < 2**53
        good = good and all(np.isfinite(part).all() for part in arrays) and len(labels) <= LABELS
        if not (good and (sd >= 0).all() and (low <= high).all()):
            raise MessageError(f"numbers of columns that cannot be, in {len(data)} bytes")
        return cls(Columns(T, mean, sd, low, high), tuple(labels))

    @property
    def parts(self) -> tuple[Array, Array, Array, Array]:
        """The columns' four arrays."""
        return self.columns.mean, self.columns.sd, self.columns.low, self.columns.high


def _union(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """All labels, sorted."""
    try:
        return tuple(sorted({*a, *b}))
    except TypeError as error:
        raise DataError(
            "class labels of different kinds cannot be sorted: use all text or all numbers"
        ) from error


def tell(sweep: Sweep, own: Told | None) -> Talk[Told | None]:
    """The numbers of all sites together; None where a site has no numbers yet."""
    sizes = [] if own is None else [len(part) for part in own.parts]

    def merged(children: Sequence[bytes]) -> bytes:
        if own is None or RAW in children:
            return RAW
        return reduce(Told.merged, (Told.decode(child, sizes) for child in children), own).encode()

    total = yield from sweep(merged)
    if total != RAW and own is None:
        raise DataError(
            f"the others agreed on numbers without gaps, which are not all here: {DROP}"
        )
    return None if total == RAW else Told.decode(total, sizes)


class _Inputs(NamedTuple):
    """What the sites agree on for P and the thresholds."""

    mixture: list[Gaussian]
    spread: float  # standard deviation of the target


def describe_inputs(sweep: Sweep, own: Sequence[Component], y: Columns, s0: float) -> Talk[_Inputs]:
    """All sites' mixtures merged, as many components as the largest description has."""
    d = len(own[0].mean)
    merged = partial(_merged_mixtures, own, d, s0)
    total, spread = yield from _after_targets(sweep, y, merged)
    return _Inputs([part.gaussian() for part in decode_mixture(total, d, s0)], spread)


def _merged_mixtures(
    own: Sequence[Component], d: int, s0: float, children: Sequence[bytes]
) -> bytes:
    """A site's message to its parent: its own description and its children's, merged."""
    heard = [decode_mixture(data, d, s0) for data in children]
    kind = max([kind_of(len(own)), *(data[0] for data in children)])
    parts = [part.gaussian() for description in (own, *heard) for part in description]
    return encode_mixture([g.truncated(RANKS[kind]) for g in reduced(parts, kind)], s0)


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
    sweep: Sweep, own: Array, concluded: Callable[[Integers], Integers] | None = None, size: int = 0
) -> Talk[Integers]:
    """The sum of numbers (k,), rounded first; or what is concluded from it, `size` numbers."""
    k = len(own)
    if not np.isfinite(own).all():
        raise DataError("numbers that are not finite in a sum over sites: look at the rows")
    mine = np.rint(np.clip(own, -_LARGEST, _LARGEST)).astype(np.int64)

    def added(children: Sequence[bytes]) -> bytes:
        return _packed_whole(sum((_whole(child, k) for child in children), mine))

    if concluded is None:
        return _whole((yield from sweep(added)), k)
    total = yield from sweep(added, lambda data: _packed_whole(concluded(_whole(data, k))))
    return _whole(total, size)


def _packed_whole(n: Integers) -> bytes:
    """How many high halves come first, each with its length; what is below is coded last."""
    halves, low = [], n
    while np.abs(low).max(initial=0) >= _HALF:
        high, low = np.divmod(low, _HALF)
        halves.append(low)
        low = high
    parts = [pack_integers(part) for part in (low, *halves[::-1])]
    return (
        bytes([len(halves)])
        + b"".join(len(p).to_bytes(4, "little") + p for p in parts[:-1])
        + parts[-1]
    )


def _whole(data: bytes, size: int) -> Integers:
    """The numbers that were packed, if no more than sums of sites can be."""
    found, rest, halves = np.zeros(size, np.int64), data[1:], data[0] if data else _HALVES + 1
    if halves > _HALVES:
        raise MessageError(f"{len(data)} bytes are no sum of whole numbers")
    for left in range(halves, -1, -1):  # the last has no length before it
        head, length = (4, int.from_bytes(rest[:4], "little")) if left else (0, len(rest))
        found = _HALF * found + unpack_integers(rest[head : head + length], size)
        if len(rest) < head + length or np.abs(found).max(initial=0) > _LARGEST:
            raise MessageError(f"{len(data)} bytes are no sum of whole numbers up to {_LARGEST}")
        rest = rest[head + length :]
    return found


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
