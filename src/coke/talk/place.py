"""What a site knows of the network: its place in a tree, and what was added up along it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from coke.data.learnt import learnt
from coke.errors import GraphError, MessageError
from coke.maths.graph import Shape
from coke.talk.conversation import Talk, Turn
from coke.talk.names import SHORT
from coke.talk.thinning import used

_DEGREE = struct.Struct("<H")
_MOST = 2**62  # of a sum
SITES = 2**20  # of a network, where nobody says how many there may be
_ROOM = 64  # bytes of sums beside the ids
S = TypeVar("S")


class Place(NamedTuple):
    """What one site knows of the network, once it is in the tree."""

    name: str
    shape: Shape  # the same at all sites
    parent: str | None  # none at the root
    children: tuple[str, ...]  # those with many neighbours first, then by their short ids
    reach: int  # steps to the farthest site at most: along the tree
    degrees: Mapping[str, int] = {}  # of the neighbours; nothing at a site that joins later

    @property
    def reserve(self) -> frozenset[str]:
        """Neighbours that a consensus on fewer links leaves out: see `coke.talk.thinning`."""
        beside = self.degrees.keys() - {self.parent, *self.children}
        return frozenset(n for n in beside if not used(self.name, n, self.shape))

    @property
    def parted(self) -> frozenset[str]:
        """Neighbours across an edge with a leaf at an end, which parts one site from the rest."""
        return frozenset(n for n, d in self.degrees.items() if 1 in (d, len(self.degrees)))

    @classmethod
    def later(cls, name: str, shape: Shape) -> Place:
        """Of a site that joins the network beside its tree."""
        return cls(name, shape, None, (), shape.sites)


class Summed(NamedTuple):
    """What is added up over the sites of a subtree."""

    height: int  # of the subtree
    ends: int  # of edges
    inner: int  # sites that have children
    sizes: int  # Σ s, s the sites of a site's own subtree
    squares: int  # Σ s²
    odd: int  # Σ over the ends of edges of (the other id − the own), modulo 2¹⁶: 0 if both are here
    ids: bytes  # sorted

    @classmethod
    def of(cls, own: int, near: Sequence[int], children: Sequence[Summed]) -> Summed:
        """Of a site with this id and these neighbours' ids, and those below it."""
        ids = sorted([own, *(i for child in children for i in child.everyone)])
        s, odd = len(ids), sum(near) - len(near) * own
        return cls(
            height=max((child.height + 1 for child in children), default=0),
            ends=len(near) + sum(child.ends for child in children),
            inner=bool(children) + sum(child.inner for child in children),
            sizes=s + sum(child.sizes for child in children),
            squares=s * s + sum(child.squares for child in children),
            odd=(odd + sum(child.odd for child in children)) % 2**16,
            ids=np.array(ids, "<u4").tobytes(),
        )

    @property
    def everyone(self) -> list[int]:
        """The ids, as numbers."""
        return _numbers(self.ids)

    @property
    def shape(self) -> Shape:
        """Of the network, where these are all sites: an edge of the tree parts s from N − s."""
        N = len(self.ids) // SHORT
        return Shape(N, self.ends // 2, self.inner, N * self.sizes - self.squares)

    def twice(self, root: int) -> bytes:
        """Ids that two sites have; the root's own if some end of an edge is elsewhere.

        For fragments of one root id take each other for one.
        """
        found = {a for a, b in pairwise(self.everyone) if a == b} | ({root} if self.odd else set())
        return np.array(sorted(found), "<u4").tobytes()

    @classmethod
    def decode(cls, data: bytes, most: int = SITES) -> Summed:
        """What such bytes say, if that can be, of so many sites at most."""
        if len(data) > SHORT * most + _ROOM:
            raise _too_many(len(data) // SHORT, most)
        found = _read(data, cls)
        *numbers, ids = found
        if min(numbers) < 0 or max(numbers) > _MOST or len(ids) % SHORT or not ids:
            raise MessageError(f"{len(data)} bytes of sums that cannot be")
        return found


class Total(NamedTuple):
    """What comes down from the root."""

    shape: Shape
    twice: bytes  # ids that two sites have
    up: int  # steps from the sender to the farthest site that is not below it
    first: int  # to the farthest below it
    second: int  # to the farthest below it by another child

    @classmethod
    def of(cls, own: Summed, children: Iterable[Summed], root: int, above: Total | None) -> Total:
        """What a site tells its children, from what its parent told it; or the root begins with."""
        highs = sorted((child.height + 1 for child in children), reverse=True)
        first, second = (*highs, 0, 0)[:2]
        if above is None:
            return cls(own.shape, own.twice(root), 0, first, second)
        # By the parent, and from there not back.
        beyond = above.second if own.height + 1 == above.first else above.first
        return cls(above.shape, above.twice, 1 + max(above.up, beyond), first, second)

    @property
    def reach(self) -> int:
        """Steps to the farthest site."""
        return max(self.up, self.first)

    def refuse_twice(self, name: str, own: int) -> None:
        """Where two sites have one id; each of the two says its name."""
        ids = _numbers(self.twice)
        if ids:
            whose = f"{name!r} and another site have" if own in ids else "two sites have"
            raise GraphError(
                f"{whose} one short id ({', '.join(f'{i:08x}' for i in ids[:8])}), by one name or "
                "by two: give each site its own name, or rename one of them"
            )

    @classmethod
    def decode(cls, data: bytes, most: int = SITES) -> Total:
        """What such bytes say, if that can be, of so many sites at most."""
        found = _read(data, cls)
        if found.shape.sites > most:
            raise _too_many(found.shape.sites, most)
        steps = found[2:]
        if not (found.shape.can_be and min(steps) >= 0 and max(steps) < found.shape.sites):
            raise MessageError(f"{len(data)} bytes of a network that cannot be")
        if len(found.twice) % SHORT:
            raise MessageError(f"{len(found.twice)} bytes are no ids")
        return found


def shape_of(data: bytes, most: int = SITES) -> Shape:
    """The network that a site which joins later is told of, of so many sites at most."""
    found = _read(data, Shape)
    if found.sites > most:
        raise _too_many(found.sites, most)
    if not found.can_be:
        raise MessageError(f"a network that cannot be: {found}")
    return found


def _too_many(sites: int, most: int) -> MessageError:
    return MessageError(
        f"a neighbour tells of about {sites} sites: expected {most} at most; set max_sites in "
        "[site] higher if there are so many, or find out who makes them up"
    )


def degrees_around(neighbours: Sequence[str]) -> Talk[dict[str, int]]:
    """How many neighbours each neighbour has."""
    mine = _DEGREE.pack(min(len(neighbours), 2**16 - 1))
    told = dict.fromkeys(neighbours, mine)
    heard = (yield Turn(told, neighbours, broadcast=True)) if neighbours else {}
    for name, data in heard.items():
        if len(data) != _DEGREE.size or not any(data):
            raise MessageError(f"{name} says {len(data)} bytes: expected its number of neighbours")
    return {name: _DEGREE.unpack(data)[0] for name, data in heard.items()}


def _numbers(ids: bytes) -> list[int]:
    found: list[int] = np.frombuffer(ids, "<u4").tolist()
    return found


def _read(data: bytes, kind: type[S]) -> S:
    try:
        return msgspec.msgpack.decode(data, type=learnt(kind))
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes tell nothing of a network: {error}") from error
