"""The wave: sites that know their neighbours' names find their places in one tree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.errors import GraphError, MessageError
from coke.maths.graph import GRAPHS as KINDS
from coke.maths.graph import Shape, build_graph
from coke.maths.ledger import Ledger
from coke.talk.conversation import Conversation, Talk, together
from coke.talk.names import short_id
from coke.talk.place import Place, Summed, Total, degrees_around, shape_of
from coke.talk.wave import wave, waves
from kit.problems import GRAPHS, placed

NAMES = tuple("abcdef")


def spent(graph: nx.Graph, names: Sequence[str]) -> Ledger:
    ledgers = together(waves(names, graph, names))[1]
    return Ledger(*map(sum, zip(*ledgers.values(), strict=True)))


def named(n: int, seed: int, length: int = 8) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{i:x}".rjust(length, "s") for i in rng.choice(16**6, n, replace=False)]


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), kind=st.sampled_from(sorted(KINDS)))
@settings(max_examples=80, deadline=None)
def test_all_are_in_one_tree_and_know_how_far_it_reaches(seed: int, n: int, kind: str) -> None:
    """Parents and children agree; N, E, inner sites, Σ of distances and reach are the tree's."""
    graph, names = build_graph(kind, n, seed=seed), named(n, seed)
    places = placed(graph, names)
    edges = [(name, place.parent) for name, place in places.items() if place.parent is not None]
    tree = nx.Graph(edges)
    tree.add_nodes_from(names)
    assert nx.is_tree(tree)
    links = {frozenset((names[a], names[b])) for a, b in graph.edges}
    assert {frozenset(edge) for edge in edges} <= links
    for name, place in places.items():
        below = {child for child, parent in edges if parent == name}
        rank = {names[i]: (-graph.degree(i), short_id(names[i])) for i in graph}
        assert list(place.children) == sorted(below, key=rank.__getitem__)
        assert place.reach == nx.eccentricity(tree, name)
    inner = len({parent for _, parent in edges})
    apart = sum(sum(row.values()) for _, row in nx.all_pairs_shortest_path_length(tree)) // 2
    wanted = Shape(n, graph.number_of_edges(), inner, apart)
    assert {place.shape for place in places.values()} == {wanted}


@given(seed=st.integers(0, 500), n=st.integers(2, 12))
@settings(deadline=None)
def test_who_is_faster_does_not_matter(seed: int, n: int) -> None:
    """Whatever order messages come in: the same places, and the same spent."""
    graph, names = build_graph("random", n, seed=seed), named(n, seed)
    found, ledgers = together(waves(names, graph, names))
    rng, mail = np.random.default_rng(seed), list[tuple[str, str, bytes]]()
    held = {name: Conversation(talk) for name, talk in waves(names, graph, names).items()}
    for name, one in held.items():
        mail += [(name, to, data) for to, data in one.go_on()]
    while mail:
        # Letters of one sender to one site stay in order.
        some = mail[int(rng.integers(len(mail)))]
        first = next(letter for letter in mail if letter[:2] == some[:2])
        mail.remove(first)
        sender, to, data = first
        held[to].take(sender, data)
        mail += [(to, whom, said) for whom, said in held[to].go_on()]
    assert {name: one.result for name, one in held.items()} == found
    assert {name: one.ledger for name, one in held.items()} == ledgers


def test_a_conversation_held_again_from_what_it_heard_says_the_same() -> None:
    """As an agent does that was killed."""
    graph = GRAPHS["ring"]
    heard: dict[str, list[tuple[str, bytes]]] = {name: [] for name in NAMES}
    said: dict[str, list[tuple[str, bytes]]] = {name: [] for name in NAMES}
    held = {name: Conversation(talk) for name, talk in waves(NAMES, graph, NAMES).items()}
    while not all(one.done for one in held.values()):
        for name, one in held.items():
            for to, message in one.go_on():
                said[name].append((to, message))
                heard[to].append((name, message))
                held[to].take(name, message)
    for name, talk in waves(NAMES, graph, NAMES).items():
        again = Conversation(talk)
        told = again.go_on()
        for sender, message in heard[name]:
            again.take(sender, message)
            told += again.go_on()
        assert told == said[name]
        assert again.ledger == held[name].ledger


@pytest.mark.parametrize("seed", range(5))
def test_its_cost_is_linear_in_edges(seed: int) -> None:
    """At most 80 bytes of wire an edge among ten sites, 110 among any number; of any names."""
    graph = build_graph("random", 10, edges=28, seed=seed)
    assert spent(graph, named(10, seed)).wire_bytes <= 60 * 28
    for N in (100, 1000):
        graph = build_graph("random", N, seed=seed)
        for length in (8, 40):
            found = spent(graph, named(N, seed, length))
            assert found.wire_bytes <= 110 * graph.number_of_edges()


@pytest.mark.parametrize(
    ("kind", "N"),
    [("random", 400), ("ring", 400), ("star", 400), ("grid", 400), ("complete", 100)],
)
def test_phases_are_few(kind: str, N: int) -> None:
    """Each edge carries a few messages each way, on every graph: their number is near 2 E + N."""
    graph, names = build_graph(kind, N, seed=1), named(N, 1)
    talks = {name: Conversation(talk) for name, talk in waves(names, graph, names).items()}
    sent, mail = dict[tuple[str, str], int](), list[tuple[str, str, bytes]]()
    ready = set(names)
    while ready:
        mail = [(name, to, data) for name in sorted(ready) for to, data in talks[name].go_on()]
        for sender, to, data in mail:
            sent[sender, to] = sent.get((sender, to), 0) + 1
            talks[to].take(sender, data)
        ready = {to for _, to, _ in mail}
    assert max(sent.values()) <= 20  # two of a phase, of which there are at most 2 log₂ N
    assert sum(sent.values()) <= 6 * graph.number_of_edges() + 12 * len(names)


def collision() -> tuple[str, str]:
    """Two names of one short id."""
    seen = dict[int, str]()
    for i in count():
        other = seen.setdefault(short_id(f"site {i}"), f"site {i}")
        if other != f"site {i}":
            return other, f"site {i}"
    raise AssertionError


def refused(around: dict[str, dict[str, list[str]]]) -> dict[str, str]:
    """What stops each site, of which some have one name: place ↦ {name: neighbours' places}."""
    names = {place: name for place, own in around.items() for name in own}
    held: dict[str, Conversation[Place]] = {}
    for place, own in around.items():
        ((name, friends),) = own.items()
        held[place] = Conversation(wave(name, [names[friend] for friend in friends]))
    errors, ready = dict[str, str](), set(around)
    while ready:
        mail = []
        for place in sorted(ready):
            (friends,) = around[place].values()
            by_name = {names[friend]: friend for friend in friends}
            try:
                mail += [(place, by_name[to], data) for to, data in held[place].go_on()]
            except GraphError as error:
                errors[place] = str(error)
        for sender, to, data in mail:
            held[to].take(names[sender], data)
        # What is wrong is said after what was told.
        ready = {to for _, to, _ in mail} | {p for p, one in held.items() if not one.waiting()}
        ready = {p for p in ready if p not in errors and not held[p].done}
    return errors


@pytest.mark.parametrize("same", [True, False], ids=["one name", "two names of one id"])
@pytest.mark.parametrize("between", [1, 2, 3])
def test_two_sites_of_one_id_are_refused_by_name_wherever(same: bool, between: int) -> None:
    """On paths and rings: everybody stops, and each of the two says its own name."""
    one, other = ("b", "b") if same else collision()
    middle = [f"m{i}" for i in range(between)]
    for ring in (False, True):
        line = ["first", *middle, "second", *(["back"] if ring else [])]
        own = dict(zip(line, [one, *middle, other, "back"], strict=False))
        near = {place: set[str]() for place in line}
        for a, b in zip(line, line[1:] + (line[:1] if ring else []), strict=False):
            near[a].add(b)
            near[b].add(a)
        if any(len({own[n] for n in near[p]}) < len(near[p]) for p in line):
            continue  # two neighbours of one name are one
        errors = refused({p: {own[p]: sorted(near[p])} for p in line})
        if not same and (between == 1 or ring):  # one that knows both names says nothing more
            assert f"{one!r} and {other!r} have one short id" in str(errors)
            continue
        assert errors.keys() == set(line)
        assert errors["first"].startswith(f"{one!r} and another site have one short id")
        assert errors["second"].startswith(f"{other!r} and another site have one short id")


def test_names_of_one_id_are_refused_before_a_simulation_says_a_word() -> None:
    one, other = collision()
    with pytest.raises(GraphError, match=f"'{one}' and '{other}' have one short id"):
        waves([one, "a", other], nx.path_graph(3), [one])


def test_an_edge_needs_both_ends_and_the_graph_to_be_one() -> None:
    half = {"a": wave("a", ["b"]), "b": wave("b", ["a", "c"]), "c": wave("c", [])}
    with pytest.raises(GraphError, match="wait for each other"):
        together(half)
    with pytest.raises(GraphError, match="falls into 2 components"):
        waves("abcd", nx.Graph([(0, 1), (2, 3)]), "a")


MESSAGES = st.binary(max_size=40) | st.tuples(
    st.integers(-1, 9), st.integers(-1, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9),
    st.integers(0, 2), st.binary(max_size=9),
).map(lambda row: b"\2" + msgspec.msgpack.encode(row))  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(data=st.lists(MESSAGES, max_size=6))
def test_any_bytes_are_part_of_a_wave_or_refused(data: list[bytes]) -> None:
    talk = Conversation(wave("a", ["b", "c"]))
    try:
        talk.go_on()
        for i, message in enumerate(data):
            talk.take("bc"[i % 2], message)
            talk.go_on()
    except (MessageError, GraphError):
        return


@given(data=st.binary(max_size=60))
def test_any_bytes_are_sums_a_total_or_a_shape_or_refused(data: bytes) -> None:
    kinds: list[Any] = [Summed.decode, Total.decode, shape_of]
    for read in kinds:
        try:
            found = read(data)
        except MessageError:
            continue
        assert read(msgspec.msgpack.encode(found)) == found


def test_a_shape_that_no_graph_has_is_refused() -> None:
    good = Shape(4, 5, 2, 9)
    assert shape_of(msgspec.msgpack.encode(good)) == good
    for wrong in ({"sites": 0}, {"edges": 2}, {"edges": 7}, {"inner": 5}, {"apart": 5}):
        with pytest.raises(MessageError, match="cannot be"):
            shape_of(msgspec.msgpack.encode(good._replace(**wrong)))


def test_neighbours_tell_their_degrees_where_they_are_asked() -> None:
    graph = GRAPHS["random"]
    talks: dict[str, Talk[dict[str, int]]] = {
        name: degrees_around([NAMES[n] for n in sorted(graph[i])]) for i, name in enumerate(NAMES)
    }
    for i, found in enumerate(together(talks)[0].values()):
        assert found == {NAMES[n]: graph.degree[n] for n in graph[i]}
    talk = degrees_around(["b"])
    next(talk)
    with pytest.raises(MessageError, match="expected its number of neighbours"):
        talk.send({"b": b"\0\0\0\0"})


@pytest.mark.parametrize("n", [3, 12, 101])
def test_numbered_sites_have_one_tree_by_either_name(n: int) -> None:
    """A simulation's 7 is the site-007 of agents: the same tree and order, hence the same bits."""
    graph, width = build_graph("random", n, seed=n), len(str(n - 1))
    bare = placed(graph, [str(i) for i in range(n)])
    full = placed(graph, [f"site-{i:0{width}d}" for i in range(n)])
    for one, other in zip(bare.values(), full.values(), strict=True):
        assert [int(child) for child in one.children] == [int(c[5:]) for c in other.children]
        assert one.reach == other.reach
    assert short_id("site-1a") != short_id("1a")
