"""Claims by name: the same at all sites, or a relay is found out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import MessageError
from coke.maths.audit import Vouched
from coke.maths.graph import Graph
from coke.talk.claiming import KEY, _decoded, _encoded, gathered, vouch
from coke.talk.conversation import Talk, Turn, together
from coke.talk.place import Place
from coke.talk.sums import swept
from coke.talk.wave import waves

Tamper = Callable[[Turn], Turn]


def _places(graph: Graph) -> dict[str, Place]:
    names = tuple(f"s{i}" for i in graph)
    return together(waves(names, graph, names))[0]


def _own(place: Place) -> Vouched:
    return Vouched(1.5, 2.0, 3.0, tuple(sorted(place.degrees)), place.name[:1].encode() * KEY)


def _changed(talk: Talk[dict[str, Vouched]], tamper: Tamper) -> Talk[dict[str, Vouched]]:
    """A site that keeps to the conversation, and says other things."""
    heard: dict[str, bytes] | None = None
    while True:
        try:
            turn = talk.send(heard)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value
        heard = yield tamper(turn)


def _vouched(
    graph: Graph, tamper: Mapping[str, Tamper] | None = None
) -> dict[str, dict[str, Vouched]]:
    talks = {}
    for name, place in _places(graph).items():
        talk = vouch(partial(swept, place, []), place, _own(place))
        lie = (tamper or {}).get(name)
        talks[name] = talk if lie is None else _changed(talk, lie)
    return together(talks)[0]


@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.cycle_graph(5), nx.complete_graph(4)])
def test_all_sites_know_all_claims_and_so_the_graph(graph: Graph) -> None:
    found = _vouched(graph)
    for told in found.values():
        assert told == found["s0"]
        assert {n: set(one.neighbours) for n, one in told.items()} == {
            f"s{i}": {f"s{j}" for j in graph[i]} for i in graph
        }


def test_a_relay_that_changes_a_claim_for_some_is_found_out() -> None:
    """What goes down is other than what came: neighbours that heard it otherwise see it."""
    graph = nx.cycle_graph(6)
    places = _places(graph)
    relay = next(n for n, p in places.items() if p.parent is not None and p.children)
    good = _encoded(Vouched(1.5, 2.0, 3.0, (), b"s" * KEY))[:12]
    bad = _encoded(Vouched(9.5, 2.0, 3.0, (), b"s" * KEY))[:12]

    def lie(turn: Turn) -> Turn:
        down = set(turn.tell) <= set(places[relay].children)
        if not down:
            return turn
        return turn._replace(tell={n: m.replace(good, bad) for n, m in turn.tell.items()})

    with pytest.raises(MessageError, match=r"changed on the way|other claims"):
        _vouched(graph, {relay: lie})


def test_other_totals_of_the_agreement_are_found_out() -> None:
    """Whatever was told to some and not to others, in any sum before."""
    places = _places(nx.cycle_graph(5))

    def talks(odd: str) -> dict[str, Talk[dict[str, Vouched]]]:
        totals = {n: (b"units", b"other" if n == odd else b"choice") for n in places}
        sweeps = {n: partial(swept, place, []) for n, place in places.items()}
        return {n: vouch(sweeps[n], p, _own(p), totals[n]) for n, p in places.items()}

    assert len(together(talks(""))[0]) == len(places)
    with pytest.raises(MessageError, match="other claims or totals"):
        together(talks("s3"))


def test_two_claims_of_one_name_are_refused() -> None:
    with pytest.raises(MessageError, match="two claims"):
        gathered("a", b"x", [gathered("a", b"y", [])])


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_a_claim_that_can_be(data: bytes) -> None:
    try:
        found = _decoded(data, {7: "b"})
    except MessageError:
        return
    assert min(found[:3]) >= 0
    assert len(found.key) in (0, KEY)
    assert set(found.neighbours) <= {"b"}
