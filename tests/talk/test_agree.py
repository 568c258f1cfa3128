"""What sites agree on before training: the network, units, classes, and a common basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.units import Columns, columns_of, fit_scaling
from coke.errors import CokeError, GraphError, InputError, MessageError
from coke.learning.agreement import Agreement, Terms
from coke.learning.basis import Own, common_basis
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.features.mixtures import Gaussian, expected_gram
from coke.maths.features.whitening import mixture_basis
from coke.maths.graph import GRAPHS as KINDS
from coke.maths.graph import adjacency, build_graph
from coke.maths.ledger import HEADER, Ledger
from coke.settings.reading import checked_settings
from coke.talk.conversation import Conversation, Network, Talk, flood, network, together
from coke.talk.conversation import flooded as cost_of_flooding
from coke.talk.sums import (
    Told,
    add_grams,
    add_targets,
    describe_inputs,
    swept,
    tell,
)
from kit.problems import GRAPHS

NAMES = tuple("abcdef")
RNG = np.random.default_rng(0)
SITES = [RNG.normal(0.5 * i, 1 + i, size=(40, 3)) for i in range(6)]


def flooded(graph: nx.Graph) -> tuple[Network, dict[str, Ledger]]:
    talks = {
        name: flood(name, [NAMES[n] for n in sorted(graph[i])]) for i, name in enumerate(NAMES)
    }
    found, ledgers = together(talks)
    assert len({(net.names, net.diameter, str(net.tree)) for net in found.values()}) == 1
    return found["a"], ledgers


def all_sites(net: Network, talk: Callable[[str, int], Talk[Any]]) -> tuple[list[Any], Ledger]:
    found, ledgers = together({name: talk(name, i) for i, name in enumerate(NAMES)})
    total = Ledger(*map(sum, zip(*ledgers.values(), strict=True)))
    return [found[name] for name in NAMES], total


def messages(net: Network) -> int:
    """Of a sum over the tree: all but the root say theirs, and who has children the total."""
    return len(net.tree.parent) + len({*net.tree.parent.values()})


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_everybody_learns_the_whole_graph(graph: nx.Graph) -> None:
    net, ledgers = flooded(graph)
    assert net.names == NAMES
    assert tuple(net.graph) == NAMES
    assert (adjacency(net.graph) != adjacency(graph)).nnz == 0
    assert net.diameter == nx.diameter(graph)
    # A step of the flood for every step of the diameter, a header on every copy.
    assert all(ledger.transmissions <= net.diameter for ledger in ledgers.values())
    headers = sum(2 * HEADER for _ in graph.edges) * net.diameter
    copies = sum(ledgers[NAMES[i]].wire_bytes for i in graph)
    assert copies == headers + sum(graph.degree[i] * ledgers[NAMES[i]].bytes for i in graph)


def test_larger_graphs_too() -> None:
    graph = build_graph("small-world", 60, seed=1)
    names = [f"s{i:02d}" for i in range(60)]
    talks = {name: flood(name, [names[n] for n in graph[i]]) for i, name in enumerate(names)}
    found, _ = together(talks)
    for net in found.values():
        assert net.graph.edges == found["s00"].graph.edges
    assert found["s00"].diameter == nx.diameter(graph)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), kind=st.sampled_from(sorted(KINDS)))
@settings(max_examples=60, deadline=None)
def test_a_flood_costs_what_is_said_without_flooding(seed: int, n: int, kind: str) -> None:
    """Every site's messages and bytes in both accounts, with names of any length."""
    graph = build_graph(kind, n, seed=seed)
    names = [f"{'x' * (i * seed % 40)}{i}" for i in range(n)]
    talks = {name: flood(name, [names[m] for m in graph[i]]) for i, name in enumerate(names)}
    found, ledgers = together(talks)
    net = network(names, graph)
    assert net.names == found[names[0]].names
    assert net.tree == found[names[0]].tree
    assert_array_equal(cost_of_flooding(net), [ledgers[name] for name in net.names])


def test_an_edge_needs_both_ends_and_names_are_unique() -> None:
    half = {"a": flood("a", ["b"]), "b": flood("b", ["a", "c"]), "c": flood("c", [])}
    with pytest.raises(GraphError, match=r"does not name|wait for each other"):
        together(half)
    first, second = flood("b", ["a"]), flood("a", ["b"])
    next(first), next(second)
    with pytest.raises(GraphError, match="two sites are called b"):
        second.send({"b": b"\x92\x92\xa1b\x91\xa1a\x92\xa1b\x92\xa1a\xa1c"})


def test_a_conversation_held_again_from_what_it_heard_says_the_same() -> None:
    """Whenever messages come: it goes on as far as they allow, and spends the same."""
    around = {NAMES[i]: [NAMES[n] for n in sorted(near)] for i, near in GRAPHS["ring"].adj.items()}
    heard: dict[str, list[tuple[str, bytes]]] = {name: [] for name in NAMES}
    said: dict[str, list[tuple[str, bytes]]] = {name: [] for name in NAMES}
    held = {name: Conversation(flood(name, friends)) for name, friends in around.items()}
    while not all(one.done for one in held.values()):
        for name, one in held.items():
            for to, message in one.go_on():
                said[name].append((to, message))
                heard[to].append((name, message))
                held[to].take(name, message)
    for name, friends in around.items():
        again = Conversation(flood(name, friends))
        told = again.go_on()
        for sender, message in heard[name]:
            assert again.done or again.waiting()
            again.take(sender, message)
            told += again.go_on()
        assert told == said[name]
        assert again.ledger == held[name].ledger


LETTERS = st.sampled_from("abcd")
RECORDS = st.lists(st.tuples(LETTERS, st.lists(LETTERS, max_size=2)), max_size=3)


@settings(max_examples=300)
@given(st.binary(max_size=60) | RECORDS.map(msgspec.msgpack.encode))
@example(b"\x91\x92\xa2\xff\xfe\x90")  # a name that is no UTF-8
def test_any_bytes_are_records_or_refused(data: bytes) -> None:
    """What is new to b, too, is passed on as it came; a refusal says what came or is wrong."""
    found = _flooded_by_b(data)
    if isinstance(found, MessageError):
        assert str(found).startswith((f"{len(data)} bytes are no records", "a site's name is"))
        return
    kind = list[tuple[str, tuple[str, ...]]]
    came = msgspec.msgpack.decode(data, type=kind) if data else []
    if isinstance(found, Network):
        assert found.names == ("a", "b")
    elif isinstance(found, bytes):
        new = sorted({(x, to) for x, to in came if x not in "ab" and "b" not in to})
        assert found == (msgspec.msgpack.encode(new) if new else b"")
    else:
        assert isinstance(found, GraphError)
        assert any(name in str(found) for name, _ in came)


def _flooded_by_b(data: bytes) -> bytes | Network | CokeError:
    """What a says next, or concludes, or refuses."""
    talk = flood("a", ["b"])
    next(talk)
    try:
        return talk.send({"b": data}).tell["b"]
    except StopIteration as stop:
        return stop.value
    except CokeError as error:
        return error


def same(a: Columns, b: Columns) -> None:
    assert a.T == b.T
    for x, y in zip(a[1:], b[1:], strict=True):
        assert_allclose(x, y, rtol=1e-12)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_told_numbers_are_those_of_all_rows_together(graph: nx.Graph) -> None:
    net, _ = flooded(graph)
    whole, totals = columns_of(np.concatenate(SITES)), list[bytes]()

    def talk(me: str, i: int) -> Talk[Told | None]:
        return tell(partial(swept, net, me, totals), Told(columns_of(SITES[i]), (f"c{i % 3}",)))

    found, ledger = all_sites(net, talk)
    for told in found:
        assert told is not None  # of a site whose columns are no numbers
        assert told.labels == ("c0", "c1", "c2")
        same(told.columns, whole)
        for a, b in zip(told.columns[1:], found[0].columns[1:], strict=True):
            assert_array_equal(a, b)
    assert len({*totals}) == 1
    assert ledger.transmissions == messages(net)
    more = (10 - messages(net)) * len(totals[0])  # a broadcast's other copies
    assert ledger.wire_bytes == ledger.bytes + more + 10 * HEADER


def test_merging_moments_is_pooling_rows() -> None:
    parts = reduce(Columns.merged, map(columns_of, SITES))
    same(parts, columns_of(np.concatenate(SITES)))


@given(data=st.binary(max_size=200), d=st.integers(0, 3))
def test_any_bytes_tell_of_columns_or_are_refused(data: bytes, d: int) -> None:
    try:
        told = Told.decode(data, [d] * 4)
    except MessageError:
        return
    assert all(np.isfinite(part).all() for part in told.columns[1:])
    assert Told.decode(told.encode(), [d] * 4).labels == told.labels


def test_what_nobody_needs_is_not_told() -> None:
    columns = columns_of(SITES[0])
    short = Told(columns.needed(moments=False, ranges=True)).encode()
    assert len(short) < len(Told(columns).encode())


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_descriptions_merge_to_the_pooled_moments(graph: nx.Graph) -> None:
    """One Gaussian each: mean and covariance of all rows together, up to the coding's 10 %."""
    net, _ = flooded(graph)

    def talk(me: str, i: int) -> Talk[Any]:
        own = [Gaussian.of(SITES[i]).truncated(5)]
        return describe_inputs(partial(swept, net, me, []), own, columns_of(SITES[i][:, :1]), 1e-3)

    found, ledger = all_sites(net, talk)
    whole = Gaussian.of(np.concatenate(SITES))
    (one,) = found[0].mixture
    sd = np.sqrt(np.diag(whole.cov))
    assert (np.abs(one.mean - whole.mean) <= 0.2 * sd).all()
    assert_allclose(np.diag(one.cov), np.diag(whole.cov), rtol=0.25)
    assert_allclose(found[0].spread, np.concatenate(SITES)[:, 0].std(), rtol=1e-6)
    for other in found:
        assert_array_equal(other.mixture[0].cov, one.cov)
    assert ledger.transmissions == messages(net)
    assert 12 < ledger.bytes / messages(net) < 120
    copies = 2 * (len(net.names) - 1)  # on the wire: one up and one down every edge of the tree
    assert ledger.wire_bytes >= ledger.bytes + copies * HEADER


def test_gram_matrices_and_targets_add_up() -> None:
    net, _ = flooded(GRAPHS["random"])
    grams = [X.T @ X for X in SITES]
    y = [columns_of(X[:, :1]) for X in SITES]
    found, _ = all_sites(net, lambda me, i: add_grams(partial(swept, net, me, []), grams[i], y[i]))
    spreads, ledger = all_sites(net, lambda me, i: add_targets(partial(swept, net, me, []), y[i]))
    for total, spread in found:
        assert_allclose(total, sum(grams), rtol=1e-5)
        assert_array_equal(total, found[0][0])
        assert spread == spreads[0]
    assert ledger.bytes == messages(net) * 12


@pytest.mark.parametrize("whitening", ["mixture", "moments", "gram", "sample"])
@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
def test_every_site_has_the_same_basis_and_it_whitens(whitening: str, mapping: str) -> None:
    """The average Gram matrix in the basis is near the identity, to the bit the same everywhere."""
    net, _ = flooded(GRAPHS["ring"])
    how = {"n_features": 15, "sigma": 2.0, "mapping": mapping}
    X = [RNG.normal(size=(400, 3)) for _ in range(6)]
    sample = RNG.normal(size=(500, 3)) if whitening == "sample" else None
    common = agreed(net, sample, whitening=whitening, features=how)
    f = common.features
    A = [f(Xi).T @ f(Xi) / len(Xi) for Xi in X]
    own = [Own(X[i], partial(A.__getitem__, i), columns_of(X[i][:, :1]), 1e-3) for i in range(6)]
    found, ledger = all_sites(
        net, lambda me, i: common_basis(partial(swept, net, me, []), common, own[i])
    )
    ridge = 1e-3 * np.eye(len(A[0]))
    inner, _ = found[0].whitening.statistics(np.mean(A, axis=0) + ridge, np.zeros(len(A[0])))
    values = np.linalg.eigvalsh(inner)
    assert 0.4 < values[0] < values[-1] < 2.5
    for other in found:
        assert_array_equal(other.whitening.C, found[0].whitening.C)
    assert ledger.transmissions == messages(net)
    if whitening == "sample":
        assert ledger.bytes == messages(net) * 12  # nothing about the inputs


def agreed(net: Network, sample: Any, **wanted: Any) -> Agreement:
    """What sites know of each other where units are given."""
    given = {"model": "plain", "data": {"scale": "none"}, **wanted}
    given["sample"] = None if sample is None else "given"
    nothing = Told(columns_of(np.empty((1, 0))))
    terms = Terms(checked_settings(given), ("a", "b", "c"), sample)
    units = fit_scaling("none", 3, nothing.columns)
    return Agreement(terms, net, units, nothing)


def test_a_basis_that_lacks_its_sample_is_refused() -> None:
    net, _ = flooded(GRAPHS["ring"])
    features = {"n_features": 4, "sigma": 1.0}
    common = agreed(net, RNG.normal(size=(5, 3)), whitening="sample", features=features)
    common = replace(common, terms=common.terms._replace(sample=None))
    own = Own(SITES[0], partial(np.eye, 8), columns_of(SITES[0][:, :1]), 1e-3)
    with pytest.raises(InputError, match="public inputs"):
        next(common_basis(partial(swept, net, "a", []), common, own))


def test_a_basis_is_made_once_for_what_was_said_and_anew_for_anything_else() -> None:
    """Of E φφᵀ + ridge I for each mixture and ridge, however many were asked for before."""
    features = draw_features(FeatureSettings(4), 3)
    narrow, wide = (Gaussian(1.0, np.zeros(3), scale * np.eye(3)) for scale in (0.1, 1.0))
    for parts, ridge in (([narrow], 1e-3), ([wide], 1e-3), ([narrow, wide], 1e-3), ([wide], 1e-2)):
        P = expected_gram(features, parts) + ridge * np.eye(8)
        found = mixture_basis(features, parts, ridge)
        assert_array_equal(found.C, np.linalg.cholesky(P))
        assert mixture_basis(features, list(parts), ridge) is found


def test_a_broadcast_is_one_transmission_and_a_copy_each_on_the_wire() -> None:
    assert Ledger().sent([b"xyz", b"xyz"], broadcast=True) == (1, 3, 2 * (3 + HEADER))
    assert Ledger().sent([b"xyz", b"xyz"], broadcast=False) == (2, 6, 2 * (3 + HEADER))
    assert Ledger().sent([b""], broadcast=True) == (0, 0, HEADER)
