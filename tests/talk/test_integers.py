"""Sums of whole numbers over a tree: exact, the same everywhere, in few bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.errors import MessageError
from coke.maths.algorithms.integers import Integers
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.talk.conversation import Talk, together
from coke.talk.place import Place
from coke.talk.sums import Sweep, add_integers, swept
from coke.talk.sums import given as told
from kit.problems import placed


def network(graph: nx.Graph) -> dict[str, Place]:
    return placed(graph, [f"s{i}" for i in range(len(graph))])


def added(
    net: dict[str, Place], own: Array, **how: Any
) -> tuple[list[Integers], dict[str, Ledger]]:
    """What every site has in the end of the rows of `own` (N, k)."""
    talks = {
        f"s{i}": add_integers(partial(swept, net[f"s{i}"], []), row, **how)
        for i, row in enumerate(own)
    }
    found, ledgers = together(talks)
    return list(found.values()), ledgers


@given(
    seed=st.integers(0, 10_000),
    N=st.integers(1, 7),
    k=st.integers(1, 40),
    bits=st.integers(0, 45),
)
def test_the_sum_is_exact_over_any_tree(seed: int, N: int, k: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    own = rng.integers(-(2**bits), 2**bits, size=(N, k), endpoint=True)
    own[:, rng.random(k) < 0.3] = 0
    net = network(nx.random_labeled_tree(N, seed=seed))
    found, ledgers = added(net, own.astype(np.float64))
    for total in found:
        assert_array_equal(total, own.sum(axis=0))
    assert sum(one.transmissions for one in ledgers.values()) <= 2 * (N - 1)


def test_numbers_are_rounded_first_and_small_ones_are_cheap() -> None:
    net = network(nx.path_graph(4))
    own = np.array([[0.4, 1.6, -2.5, -0.4]] * 4)
    found, _ = added(net, own)
    assert_array_equal(found[0], 4 * np.rint(own[0]))
    few = np.zeros((4, 1000))
    few[:, ::100] = 1.0
    _, ledgers = added(net, few)
    assert sum(one.bytes for one in ledgers.values()) < 6 * 20


@pytest.mark.parametrize("bad", [b"\x04", b"\xff", b"\xff\xff\xff\xff\xff", b"\x00\x00"])
def test_a_childs_nonsense_stops_its_parent(bad: bytes) -> None:
    net = network(nx.path_graph(2))
    (root,) = [place for place in net.values() if place.parent is None]
    talk = add_integers(partial(swept, root, []), np.ones(3))
    next(talk)
    (child,) = root.children
    with pytest.raises(MessageError):
        talk.send({child: bad})


def test_what_the_root_concludes_reaches_all() -> None:
    """In a message as long as the conclusion, not as the sum."""
    net, rng = network(nx.balanced_tree(2, 2)), np.random.default_rng(0)
    own = rng.integers(-100, 100, size=(7, 50)).astype(np.float64)
    sums: list[Integers] = []

    def best(total: Integers) -> Any:
        sums.append(total)
        return np.argsort(-total, kind="stable")[:3]

    found, ledgers = added(net, own, concluded=best, size=3)
    assert len(sums) == 1
    assert_array_equal(sums[0], own.sum(axis=0))
    for total in found:
        assert_array_equal(total, np.argsort(-own.sum(axis=0), kind="stable")[:3])
    for name, place in net.items():
        assert (ledgers[name].bytes < 10) == (place.parent is None)


def test_a_newcomer_has_the_same_from_the_totals() -> None:
    net, own = network(nx.star_graph(3)), np.arange(12.0).reshape(4, 3)
    kept: dict[str, list[bytes]] = {name: [] for name in net}

    def talk(me: str, i: int) -> Talk[tuple[Integers, Integers]]:
        sweep: Sweep = partial(swept, net[me], kept[me])
        return _both(sweep, own[i])

    found, _ = together({f"s{i}": talk(f"s{i}", i) for i in range(4)})
    late = _both(told(kept["s2"]), np.zeros(3))
    with pytest.raises(StopIteration) as stop:
        next(late)
    for a, b in zip(stop.value.value, found["s0"], strict=True):
        assert_array_equal(a, b)


def _both(sweep: Sweep, own: Array) -> Talk[tuple[Integers, Integers]]:
    total = yield from add_integers(sweep, own)
    short = yield from add_integers(sweep, own, lambda n: n[:1], 1)
    return total, short
