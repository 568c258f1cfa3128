"""Conversations before training: what one site says, waits for and concludes, as a generator.

A site yields what it tells whom and from whom it waits, and is sent what they told it. It sees
neither sockets nor other sites, so that a simulation of all sites and one agent in the field run
the same code; and as it is a function of what it heard, an agent that crashed replays what it had
received and goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import networkx as nx

from coke.errors import GraphError, MessageError
from coke.maths.graph import Graph, checked_graph
from coke.maths.ledger import Ledger
from coke.talk.tree import Tree, spanning_tree

R = TypeVar("R")
LONGEST = 255  # characters of a site's name


class Turn(NamedTuple):
    """One step of a conversation."""

    tell: Mapping[str, bytes]  # neighbour → message
    expect: Collection[str]  # whose next message must be there before the next step
    broadcast: bool = False  # one message to all: one transmission in the paper's account


Talk = Generator[Turn, dict[str, bytes], R]


def cost(ledger: Ledger, turn: Turn) -> Ledger:
    """The ledger of a site after a turn of its own."""
    if turn.broadcast and turn.tell:
        return ledger.told(len(next(iter(turn.tell.values()))), copies=len(turn.tell))
    for message in turn.tell.values():
        ledger = ledger.told(len(message))
    return ledger


class Network(NamedTuple):
    """What every site knows of the network once it knows all of it."""

    names: tuple[str, ...]  # sorted
    graph: Graph  # on the names' positions 0 … N−1
    tree: Tree  # on the names
    diameter: int
    distances: dict[str, dict[str, int]]


@lru_cache(maxsize=8)  # every site of a simulation asks the same
def network(records: frozenset[tuple[str, tuple[str, ...]]]) -> Network:
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
    distances = dict(nx.all_pairs_shortest_path_length(G))
    widest = max(max(row.values()) for row in distances.values())
    return Network(names, checked_graph(G, names), spanning_tree(G), widest, distances)


def records_of(net: Network) -> bytes:
    """The whole network, for a site that joins later."""
    names = net.names
    return msgspec.msgpack.encode(
        [(name, sorted(names[n] for n in net.graph[i])) for i, name in enumerate(names)]
    )


def network_of(records: bytes) -> Network:
    """The network of such records."""
    known = dict(_records(records))
    net = _whole(known) if known else None
    if net is None:
        raise MessageError(f"records of {len(known)} sites that are no whole network")
    return net


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
        news = [(x, known[x]) for x in fresh if not _had(known, whole, x, r) >= set(neighbours)]
        message = msgspec.msgpack.encode(news) if news else b""
        heard = yield Turn(dict.fromkeys(neighbours, message), neighbours, broadcast=True)
        r, before = r + 1, set(known)
        for friend in sorted(neighbours):
            for name, friends in _records(heard[friend]):
                if known.setdefault(name, friends) != friends:
                    raise GraphError(f"two sites are called {name}: give each its own name")
        fresh = sorted(set(known) - before)


def _whole(known: Mapping[str, tuple[str, ...]]) -> Network | None:
    """The network, if no neighbour of a known site is unknown."""
    if any(friend not in known for friends in known.values() for friend in friends):
        return None
    return network(frozenset(known.items()))


def _had(known: Mapping[str, tuple[str, ...]], whole: Network | None, x: str, r: int) -> set[str]:
    """Sites that surely have the record of x after r steps: those within r of it."""
    if whole is not None:
        return {name for name, away in whole.distances[x].items() if away <= r}
    ball = edge = {x}
    for _ in range(min(r, 2)):  # more is rarely worth the search
        edge = {friend for name in edge for friend in known.get(name, ())} - ball
        ball = ball | edge
    return ball


def _records(data: bytes) -> list[tuple[str, tuple[str, ...]]]:
    if not data:
        return []
    try:
        records = msgspec.msgpack.decode(data, type=list[tuple[str, tuple[str, ...]]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(f"{len(data)} bytes are no records of sites: {error}") from error
    names = {name for name, friends in records for name in (name, *friends)}
    if not all(0 < len(name) <= LONGEST for name in names):
        raise MessageError(f"a site's name is empty or longer than {LONGEST} characters")
    return records


def swept(net: Network, me: str, own: Callable[[Sequence[bytes]], bytes]) -> Talk[bytes]:
    """A sum over the tree: up go partial sums, down comes the root's total, the same to all.

    `own` makes a site's message of its own part and its children's messages, in their names' order.
    """
    parent = net.tree.parent.get(me)
    children = [child for child, at in net.tree.parent.items() if at == me]
    heard = (yield Turn({}, children)) if children else {}
    total = own([heard[child] for child in sorted(children)])
    if parent is not None:
        total = (yield Turn({parent: total}, [parent]))[parent]
    if children:
        yield Turn(dict.fromkeys(children, total), ())
    return total


Sweep = Callable[[Callable[[Sequence[bytes]], bytes]], Talk[bytes]]
"""A site's way to a total over all sites, given how it makes its own message."""


def noted(sweep: Sweep, totals: list[bytes]) -> Sweep:
    """The same sweep, and its totals kept for sites that join later."""

    def kept(own: Callable[[Sequence[bytes]], bytes]) -> Talk[bytes]:
        total = yield from sweep(own)
        totals.append(total)
        return total

    return kept


def given(totals: Iterable[bytes]) -> Sweep:
    """For a site that joins later: the totals the others have agreed on, one after the other."""
    rest = iter(totals)

    def told(own: Callable[[Sequence[bytes]], bytes]) -> Talk[bytes]:
        total = next(rest, None)
        if total is None:
            raise MessageError("fewer totals than this site's settings need: compare the settings")
        return total
        yield  # it asks nobody, but is a conversation all the same

    return told


Letter = tuple[str, str, bytes]  # sender, recipient, message


class Sites(Generic[R]):
    """The conversations of some sites; what they tell others waits in `leaving`."""

    def __init__(self, talks: Mapping[str, Talk[R]]):
        self._talks = talks
        self._box: dict[tuple[str, str], deque[bytes]] = {}
        self.leaving: list[Letter] = []
        self.waiting: dict[str, Turn] = {}
        self.results: dict[str, R] = {}
        self.ledgers = dict.fromkeys(talks, Ledger())

    def begin(self) -> None:
        """Everybody's first turn."""
        for name in self._talks:
            self._go_on(name, None)

    def hear(self, letters: Iterable[Letter] = ()) -> bool:
        """Takes what came, lets everybody go on who can, and says whether anything moved."""
        moved = False
        for letter in letters:
            self._take(letter)
            moved = True
        while ready := [name for name, turn in self.waiting.items() if self._complete(name, turn)]:
            moved = True
            for name in ready:
                expect = self.waiting.pop(name).expect
                self._go_on(name, {other: self._box[other, name].popleft() for other in expect})
        return moved

    def _take(self, letter: Letter) -> None:
        sender, name, message = letter
        self._box.setdefault((sender, name), deque()).append(message)

    def _complete(self, name: str, turn: Turn) -> bool:
        return all(self._box.get((other, name)) for other in turn.expect)

    def _go_on(self, name: str, heard: Any) -> None:
        try:
            turn = self._talks[name].send(heard)
        except StopIteration as stop:
            self.results[name] = stop.value
            return
        self.waiting[name], self.ledgers[name] = turn, cost(self.ledgers[name], turn)
        for other, message in turn.tell.items():
            letter = (name, other, message)
            if other in self._talks:
                self._take(letter)
            else:
                self.leaving.append(letter)

    def stuck(self) -> GraphError:
        """Where nobody can go on."""
        return GraphError(f"sites {sorted(self.waiting)[:8]} wait for each other for ever")


def together(talks: Mapping[str, Talk[R]]) -> tuple[dict[str, R], dict[str, Ledger]]:
    """All sites' conversations in one process: what each concluded, and what each spent."""
    sites = Sites(talks)
    sites.begin()
    sites.hear()
    if sites.waiting:
        raise sites.stuck()
    return sites.results, sites.ledgers
