"""The wave: sites that know only their neighbours grow one spanning tree, of a few bytes an edge.

Sites join in *fragments*, each with a tree and the id of its root; at first every site is its own.
In a phase a fragment waits for what its neighbours of smaller root ids have come to, adds itself to
the smallest root among them, by the edge that makes its own root least deep, and tells the others.
So along every edge between fragments goes one message each way in a phase, whoever is faster, and
the tree is a function of the graph and the names. Of two phases each makes a fragment vanish or
take in all its neighbours, hence their number halves at least. A fragment with no edge out is the
network: what was added up on the way to its root comes down.

Roots are told by rank: first sites with many neighbours, so that the tree is low and few have
children. Ids are digests of names: short, so two names may share one, which is seen and refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from coke.errors import MessageError
from coke.maths.graph import Graph, checked_graph
from coke.talk.conversation import Talk, Turn
from coke.talk.names import short_ids
from coke.talk.place import SITES, Place, Summed, Total, degrees_around

_DEEPEST = 2**16 - 1  # that an offer tells
_OFFER = struct.Struct("<6sH")  # root, how deep in its tree: what a site may join by this neighbour
_RANK, _ID = 6, 2**32  # bytes of a rank, and an id is the rest of it by this
_CHILD = b"\1"  # in answer to an offer: I am below you now; nothing: not, but in your fragment
_OPEN, _JOIN, _WHOLE = b"\0", b"\1", b"\2"  # how what goes along a tree begins: edges lead out …
# … and none to join; a root to join; no edge leads out


class _Offer(NamedTuple):
    """A root that may be joined, and how deep in its tree the one that says so is."""

    root: int
    depth: int


class _Join(NamedTuple):
    """A root that a site may join, and how deep it would then be."""

    root: int
    depth: int
    by: int  # the id of the neighbour or child it is reached by
    name: str


class _Local(NamedTuple):
    """Where a site is in its fragment."""

    me: str
    ids: Mapping[str, int]  # of itself and its neighbours: ranks, the well connected first
    root: int
    depth: int
    parent: str | None
    children: tuple[str, ...]  # in the order of their ids
    away: Mapping[str, int]  # neighbours in other fragments ↦ their root

    @property
    def below(self) -> list[str]:
        """Those whose fragment decides before this one."""
        return sorted(n for n, root in self.away.items() if root < self.root)

    @property
    def above(self) -> list[str]:
        """The others, in other fragments."""
        return sorted(n for n, root in self.away.items() if root > self.root)

    @property
    def offer(self) -> bytes:
        """What a neighbour may join."""
        return _offer(self.root, self.depth)

    def sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        """By their ids."""
        return tuple(sorted(names, key=self.ids.__getitem__))

    def joined(self, by: _Join) -> _Local:
        """Below that neighbour, and above its parent of before."""
        children = {*self.children, *(() if self.parent is None else (self.parent,))} - {by.name}
        found = self._replace(root=by.root, depth=by.depth, parent=by.name)
        return found._replace(children=self.sorted(children))


def wave(me: str, neighbours: Sequence[str], most: int = SITES) -> Talk[Place]:
    """One site's part, from its neighbours' names to its place in a tree of at most so many."""
    around = yield from degrees_around(neighbours)
    ids = _ranks(short_ids((me, *neighbours)), around | {me: len(neighbours)})
    away = {name: ids[name] for name in neighbours}
    at = _Local(me=me, ids=ids, root=ids[me], depth=0, parent=None, children=(), away=away)
    while True:
        offers = {n: _offered(data) for n, data in (yield from _heard(at.below)).items()}
        reports = yield from _heard(at.children)
        best, report = _report(at, offers, reports, most)
        told = report
        if at.parent is not None:
            told = (yield Turn({at.parent: report}, [at.parent]))[at.parent]
        if told[:1] == _WHOLE:
            place = yield from _placed(at, reports, told, most)
            return place._replace(degrees=around)
        at = yield from _moved(at, best, told)
        at = yield from _told_around(at, offers)


def _ranks(ids: Mapping[str, int], degrees: Mapping[str, int]) -> dict[str, int]:
    """By degree, then by id: a tree from sites with many neighbours is low, and few sites tell."""
    return {n: (_DEEPEST - min(degrees[n], _DEEPEST)) * _ID + i for n, i in ids.items()}


def waves(names: Sequence[str], graph: Graph, here: Iterable[str]) -> dict[str, Talk[Place]]:
    """The parts of these sites, where a graph of all names' positions says who knows whom."""
    short_ids(names)
    graph = checked_graph(graph, range(len(names)))
    at = {name: i for i, name in enumerate(names)}
    return {name: wave(name, [names[n] for n in sorted(graph[at[name]])]) for name in here}


def _heard(names: Sequence[str]) -> Talk[dict[str, bytes]]:
    """What these have to say, if there are any."""
    return (yield Turn({}, names)) if names else {}


def _report(
    at: _Local, offers: Mapping[str, _Offer], reports: Mapping[str, bytes], most: int
) -> tuple[_Join | None, bytes]:
    """The best root to join of a site and those below it, and what its parent is told of it."""
    near = [_Join(o.root, o.depth + 1, at.ids[n], n) for n, o in offers.items()]
    for n, data in reports.items():
        if data[:1] == _JOIN:
            o = _offered(data[1:])
            near.append(_Join(o.root, o.depth + 1, at.ids[n], n))
    best = min(near, default=None)
    if best is not None:
        return best, _JOIN + _offer(best.root, best.depth)
    if at.away or _OPEN in reports.values():
        return None, _OPEN
    return None, _WHOLE + msgspec.msgpack.encode(_summed(at, _children(reports, most)))


def _moved(at: _Local, best: _Join | None, told: bytes) -> Talk[_Local]:
    """Where the fragment goes, and those below with it; nowhere if it has none to join."""
    children, after, on = at.children, at, b""
    if told[:1] == _JOIN:
        found = _offered(told[1 : 1 + _OFFER.size])
        # The root turns to the site that joins, and so do all on the way.
        turns = at.parent is None or told[1 + _OFFER.size :] == _rank(at.ids[at.me])
        after = at._replace(root=found.root, depth=found.depth + 1)
        if turns and best is not None:
            after = at.joined(best)
            on = _rank(best.by) if best.name in children else b""
    elif told != _OPEN:
        raise MessageError(f"{len(told)} bytes that tell of no fragment")
    if children:
        said = told if after is at else _JOIN + after.offer + on
        yield Turn(dict.fromkeys(children, said), (), broadcast=True)
    return after


def _told_around(at: _Local, offers: Mapping[str, _Offer]) -> Talk[_Local]:
    """What the neighbours' fragments are, once each has told its own."""
    above = [n for n in at.away if n not in offers]
    if above:
        yield Turn(dict.fromkeys(sorted(above), at.offer), (), broadcast=True)
    answers = {n: _answer(at, n, o.root) for n, o in offers.items()}
    heard = (yield Turn(answers, sorted(above))) if at.away else {}
    roots = {n: o.root for n, o in offers.items()}
    roots |= {n: _answered(at, data) for n, data in heard.items()}
    born = [n for n, data in heard.items() if data == _CHILD]
    away = {n: root for n, root in roots.items() if root != at.root}
    return at._replace(children=at.sorted({*at.children, *born}), away=away)


def _answer(at: _Local, name: str, root: int) -> bytes:
    """To a neighbour that offered this root."""
    if name == at.parent:
        return _CHILD
    return b"" if root == at.root else _rank(at.root)


def _answered(at: _Local, data: bytes) -> int:
    """The root of a neighbour that was offered one."""
    if data in (b"", _CHILD):
        return at.root
    if len(data) != _RANK:
        raise MessageError(f"{len(data)} bytes are no answer to an offer of a root")
    return int.from_bytes(data, "little")


def _rank(root: int) -> bytes:
    return root.to_bytes(_RANK, "little")


def _offer(root: int, depth: int) -> bytes:
    return _OFFER.pack(_rank(root), min(depth, _DEEPEST))


def _offered(data: bytes) -> _Offer:
    if len(data) != _OFFER.size:
        raise MessageError(f"{len(data)} bytes offer no root: expected {_OFFER.size}")
    root, depth = _OFFER.unpack(data)
    return _Offer(int.from_bytes(root, "little"), depth)


def _children(reports: Mapping[str, bytes], most: int) -> list[Summed]:
    """What was added up below each child, if no edge leads out."""
    if not all(data[:1] == _WHOLE for data in reports.values()):
        raise MessageError("a tree that is whole at one site and open at another")
    return [Summed.decode(data[1:], most) for data in reports.values()]


def _summed(at: _Local, children: Sequence[Summed]) -> Summed:
    near = [i % _ID for name, i in at.ids.items() if name != at.me]
    return Summed.of(at.ids[at.me] % _ID, near, children)


def _placed(at: _Local, reports: Mapping[str, bytes], told: bytes, most: int) -> Talk[Place]:
    """The end: what all are told comes down, and with it how far the farthest site is."""
    children = _children(reports, most)
    above = None if at.parent is None else Total.decode(told[1:], most)
    total = Total.of(_summed(at, children), children, at.root % _ID, above)
    if at.children:
        said = _WHOLE + msgspec.msgpack.encode(total)
        yield Turn(dict.fromkeys(at.children, said), (), broadcast=True)
    total.refuse_twice(at.me, at.ids[at.me] % _ID)
    return Place(at.me, total.shape, at.parent, at.children, total.reach)
