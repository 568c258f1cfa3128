"""Conversations before training: what one site says, waits for and concludes, as a generator.

A site yields what it tells whom and from whom it waits, and is sent what they told it. It sees
neither sockets nor other sites, so that a simulation of all sites and one agent in the field run
the same code; and as it is a function of what it heard, an agent that crashed replays what it had
received and goes on.

In the first one, `flood`, every site learns whom there is and who talks to whom, and so the same
tree and diameter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from coke.errors import GraphError, InputError, MessageError
from coke.maths.arrays import Array
from coke.maths.graph import Graph, Tree, adjacency, checked_graph, grown, steps
from coke.maths.ledger import HEADER, Ledger, Spent
from coke.talk.names import by_id

R = TypeVar("R")


class Turn(NamedTuple):
    """One step of a conversation."""

    tell: Mapping[str, bytes]  # neighbour → message
    expect: Collection[str]  # whose next message must be there before the next step
    broadcast: bool = False  # one message to all: one transmission in the paper's account


Talk = Generator[Turn, dict[str, bytes], R]


class Conversation(Generic[R]):
    """One site's conversation: how far it has come, what it has cost, and what it came to."""

    def __init__(self, talk: Talk[R]):
        self._talk = talk
        self._turn: Turn | None = None  # the last one
        self._came: dict[str, deque[bytes]] = {}  # and was not used yet
        self.ledger = Ledger()
        self.result: R | None = None
        self.done = False

    def further(self, talk: Talk[Any]) -> None:
        """One more conversation with the same neighbours, once this one is done."""
        self._talk, self._turn, self.result, self.done = talk, None, None, False

    def take(self, sender: str, message: bytes) -> None:
        """The next message of that neighbour."""
        self._came.setdefault(sender, deque()).append(message)

    def waiting(self) -> list[str]:
        """The neighbours without whose next message it cannot go on."""
        expected = () if self._turn is None or self.done else self._turn.expect
        return [name for name in expected if not self._came.get(name)]

    def go_on(self) -> list[tuple[str, bytes]]:
        """As far as what came allows; what it tells whom on the way."""
        told: list[tuple[str, bytes]] = []
        while not self.done and not self.waiting():
            told += self._step()
        return told

    def _step(self) -> Iterable[tuple[str, bytes]]:
        answers: Any = None  # to begin with
        if self._turn is not None:
            answers = {name: self._came[name].popleft() for name in self._turn.expect}
        try:
            turn = self._turn = self._talk.send(answers)
        except StopIteration as stop:
            self.result, self.done = stop.value, True
            return ()
        self.ledger = self.ledger.sent(turn.tell.values(), broadcast=turn.broadcast)
        return turn.tell.items()


def outcome(talk: Talk[R]) -> R:
    """What a conversation comes to that needs nobody else."""
    try:
        next(talk)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a conversation that was to need nobody else")


Letter = tuple[str, str, bytes]  # sender, recipient, message
Post = Callable[[Callable[[], list[Letter]]], list[Letter] | None]
"""Lets the sites here go on and brings what those elsewhere tell them; None once all are silent."""


def nobody_else(go_on: Callable[[], list[Letter]]) -> None:
    """All sites are here."""
    go_on()


def together(
    talks: Mapping[str, Talk[R]], post: Post = nobody_else
) -> tuple[dict[str, R], dict[str, Ledger]]:
    """All these sites' conversations: what each concluded and spent, in the order of `talks`."""
    held = {name: Conversation(talk) for name, talk in talks.items()}
    came: list[Letter] | None = []
    while came is not None:
        came = post(partial(_delivered, held, came))
    waiting = sorted(name for name, one in held.items() if not one.done)
    if waiting:
        raise GraphError(f"sites {waiting[:8]} wait for each other for ever")
    results: dict[str, Any] = {name: one.result for name, one in held.items()}
    return results, {name: one.ledger for name, one in held.items()}


def _delivered(held: Mapping[str, Conversation[R]], letters: list[Letter]) -> list[Letter]:
    """Lets everybody here go on as far as they can; their letters to sites elsewhere."""
    leaving: list[Letter] = []
    ready: Iterable[str] = held
    while ready:
        for sender, name, message in letters:
            held[name].take(sender, message)
        said = [(name, to, told) for name in ready for to, told in held[name].go_on()]
        leaving += [letter for letter in said if letter[1] not in held]
        letters = [letter for letter in said if letter[1] in held]
        ready = dict.fromkeys(to for _, to, _ in letters)
    return leaving


class Network(NamedTuple):
    """What every site knows of the network once it knows all of it."""

    names: tuple[str, ...]  # sorted
    graph: Graph  # on the names, in that order
    tree: Tree  # on the names
    diameter: int
    distances: NDArray[np.int32]  # (N, N) in that order

    def farthest(self, x: str, sites: Iterable[str]) -> int:
        """How far the farthest of these sites is from x."""
        i, *others = (bisect_left(self.names, name) for name in (x, *sites))
        return int(self.distances[i, others].max(initial=0))

    def records(self) -> bytes:
        """The whole network, for a site that joins later."""
        return msgspec.msgpack.encode([(name, sorted(self.graph[name])) for name in self.names])


def network_of(records: bytes) -> Network:
    """The network of such records."""
    known = dict(_records(records))
    net = _whole(known) if known else None
    if net is None:
        raise MessageError(f"records of {len(known)} sites that are no whole network")
    return net


def network(names: Sequence[str], graph: Graph) -> Network:
    """What all know of these sites on that graph of their positions."""
    around = ((names[i], tuple(sorted(names[n] for n in graph[i]))) for i in graph)
    return _network(frozenset(around))


def flood(me: str, neighbours: Sequence[str]) -> Talk[Network]:
    """Every site learns the whole graph, in as many steps as its diameter.

    In step r a site passes on the records it first heard in step r − 1, but for those that all its
    neighbours must have by now.
    """
    known, fresh, r = {me: tuple(sorted(neighbours))}, [me], 0
    while True:
        whole = _whole(known)
        if whole is not None and r >= whole.diameter:
            return whole
        news = [(x, known[x]) for x in fresh if not _had(known, whole, x, r, neighbours)]
        message = msgspec.msgpack.encode(news) if news else b""
        heard = yield Turn(dict.fromkeys(neighbours, message), neighbours, broadcast=True)
        r, before = r + 1, set(known)
        for friend in sorted(neighbours):
            for name, friends in _records(heard[friend]):
                if known.setdefault(name, friends) != friends:
                    raise GraphError(f"two sites are called {name}: give each its own name")
        fresh = sorted(set(known) - before)


def flooded(net: Network) -> Spent:
    """What each site has sent (N, 3), in the order of the names, once all know the network.

    Without flooding: N sites in one process would tell N² records, where a row of distances tells
    which records a site passes on when.
    """
    records = [(name, sorted(net.graph[name])) for name in net.names]
    sizes = np.array([len(msgspec.msgpack.encode(record)) for record in records], np.float64)
    at = {name: i for i, name in enumerate(net.names)}
    around = [[at[friend] for friend in friends] for _, friends in records]
    return np.array([_spent(net, i, near, sizes) for i, near in enumerate(around)], np.int64)


def _spent(net: Network, i: int, near: list[int], sizes: Array) -> tuple[int, int, int]:
    """Of site i: in step r the records from r steps away, but for those all neighbours have."""
    away = net.distances[i]
    # A site that knows the whole graph knows who has what; before, it looks two steps around.
    known = np.where(away >= away.max(), away, np.minimum(away, 2))
    news = net.distances[near].max(axis=0, initial=0) > known
    count, size = (
        np.bincount(away[news], weights, net.diameter)[: net.diameter]
        for weights in (None, sizes[news])
    )
    size += (count > 0) * np.where(count < 16, 1, np.where(count < 2**16, 3, 5))  # of the list
    told = int(size.sum())
    return int(np.count_nonzero(size)), told, len(near) * (told + HEADER * net.diameter)


def _whole(known: Mapping[str, tuple[str, ...]]) -> Network | None:
    """The network, if no neighbour of a known site is unknown."""
    if any(friend not in known for friends in known.values() for friend in friends):
        return None
    return _network(frozenset(known.items()))


@lru_cache(maxsize=8)  # every site of a simulation asks the same
def _network(records: frozenset[tuple[str, tuple[str, ...]]]) -> Network:
    """The network of these sites and their neighbours; refused if neighbours disagree."""
    known = dict(records)
    G = nx.Graph((a, b) for a, friends in records for b in friends)
    G.add_nodes_from(known)
    for a, b in G.edges:
        if not (b in known[a] and a in known[b]):
            lone, other = (a, b) if b in known[a] else (b, a)
            raise GraphError(
                f"{lone} names {other} as a neighbour, but {other} does not name {lone}: "
                "an edge needs both ends; add it or take it away"
            )
    names = tuple(sorted(known))
    graph = nx.relabel_nodes(checked_graph(G, names), dict(enumerate(names)))
    distances = steps(adjacency(graph), np.arange(len(names)))
    tree = grown(graph, distances.max(axis=1))
    return Network(names, graph, tree, int(distances.max()), distances)


def _had(
    known: Mapping[str, tuple[str, ...]], whole: Network | None, x: str, r: int,
    neighbours: Sequence[str],
) -> bool:  # fmt: skip
    """Whether all neighbours surely have the record of x after r steps: if within r of it."""
    if whole is not None:
        return whole.farthest(x, neighbours) <= r
    ball = edge = {x}
    for _ in range(min(r, 2)):  # more is rarely worth the search
        edge = {friend for name in edge for friend in known.get(name, ())} - ball
        ball = ball | edge
    return ball >= set(neighbours)


def _records(data: bytes) -> list[tuple[str, tuple[str, ...]]]:
    if not data:
        return []
    try:
        records = msgspec.msgpack.decode(data, type=list[tuple[str, tuple[str, ...]]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes are no records of sites: {error}") from error
    names = {name for name, friends in records for name in (name, *friends)}
    try:
        by_id(names)
    except InputError as error:
        raise MessageError(f"a record of sites: {error}") from error
    return records
