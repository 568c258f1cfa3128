"""Every site learns whom there is and who talks to whom, and so the same tree and diameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import networkx as nx

from coke.errors import GraphError, MessageError
from coke.maths.graph import Graph, checked_graph
from coke.talk.conversation import Talk, Turn

LONGEST = 255  # characters of a site's name


class Tree(NamedTuple):
    """A spanning tree that every site computes alike from the same graph."""

    root: Any
    parent: dict[Any, Any]  # of all but the root
    order: list[Any]  # from the root outwards

    @property
    def messages(self) -> int:
        """Of one sum: up and down."""
        return 2 * len(self.parent)


def spanning_tree(graph: Graph) -> Tree:
    """Breadth first from the centre of the graph; ties go to the smaller number or name."""
    root = min(nx.center(graph))
    parent = {child: at for at, child in nx.bfs_edges(graph, root, sort_neighbors=sorted)}
    return Tree(root, parent, [root, *parent])


class Network(NamedTuple):
    """What every site knows of the network once it knows all of it."""

    names: tuple[str, ...]  # sorted
    graph: Graph  # on the names, in that order
    tree: Tree  # on the names
    diameter: int
    distances: dict[str, dict[str, int]]

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
    distances = dict(nx.all_pairs_shortest_path_length(G))
    widest = max(max(row.values()) for row in distances.values())
    graph = nx.relabel_nodes(checked_graph(G, names), dict(enumerate(names)))
    return Network(names, graph, spanning_tree(G), widest, distances)


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
