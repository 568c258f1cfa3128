"""What sites of a stream tell each other, and how it reaches those of this process and its kin.

A stream (`coke.learning.streaming`) asks for three things, as a generator, and sees neither other
processes nor sockets: to pass notices on, to say û, to agree on something. `_InProcess` answers for
all sites of this process, and of other ranks; an agent in the field answers with what has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from coke.learning.ready import Ready
from coke.maths.algorithms.alarms import Marks, latest
from coke.maths.algorithms.algorithm import Spoken
from coke.maths.algorithms.online import Edges
from coke.maths.arrays import Array
from coke.maths.graph import adjacency
from coke.maths.ledger import Spent
from coke.talk.conversation import Talk

R = TypeVar("R")


class Arrived(NamedTuple):
    """What a tick brings to one site, in the common units."""

    X: Array  # (m, d)
    y: Array  # (m, K)
    age: Array  # (m,) ticks by which a row is late


class Noticing(NamedTuple):
    """Notices to the neighbours; asks for the last that any neighbour tells of each site."""

    told: tuple[Marks, ...]  # of each kind (n, N)


class Saying(NamedTuple):
    """A round's messages; asks for û (P, K·D) of the sites near."""

    hat: Array  # (n, K·D)
    spoken: Spoken


class Basing(NamedTuple):
    """Conversations of the sites here; asks for what all come to, and what it cost (n, 3)."""

    talks: Sequence[Talk[Any]]


Ask = Noticing | Saying | Basing
Asks = Generator[Ask, Any, R]


class Near(NamedTuple):
    """The sites here, and those they hear."""

    edges: Edges
    own: Marks  # (n,)  which of all N sites those here are
    N: int
    answer: Callable[[Ask], Any] | None = None  # None: whoever drives the stream answers

    @classmethod
    def together(cls, ready: Ready) -> Near:
        """Of a simulation, or of one of its ranks."""
        W, N = adjacency(ready.graph), len(ready.names)
        own = np.asarray(ready.engine.agents(N), np.int64)
        edges = Edges.of(W, own)
        return cls(edges, own, N, _InProcess(ready, edges))

    @classmethod
    def alone(cls, ready: Ready) -> Near:
        """Of one site in the field, which knows its neighbours only."""
        (place,) = ready.places
        edges = Edges.star(len(place.degrees))
        return cls(edges, np.zeros(1, np.int64), ready.agreement.N)

    def driven(self, asks: Asks[R]) -> R:
        """What it comes to, with every question answered at once."""
        assert self.answer is not None  # else somebody else drives it
        found: Any = None
        while True:
            try:
                ask = asks.send(found)
            except StopIteration as stop:
                return stop.value
            found = self.answer(ask)


class _InProcess:
    """All sites of this process, and those of other ranks."""

    def __init__(self, ready: Ready, edges: Edges):
        self._names = [place.name for place in ready.places]
        self._engine, self._W = ready.engine, edges.W

    def __call__(self, ask: Ask) -> Any:
        match ask:
            case Noticing(told):
                return tuple(latest(self._W, self._engine.everyones(one)) for one in told)
            case Saying(hat):
                return self._engine.everyones(hat)
            case Basing(talks):
                return self._agreed(talks)

    def _agreed(self, talks: Sequence[Talk[Any]]) -> tuple[Any, Spent]:
        found, spent = self._engine.converse(dict(zip(self._names, talks, strict=True)))
        return found[self._names[0]], spent
