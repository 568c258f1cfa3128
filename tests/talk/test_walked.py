"""What both ends of an edge expect of the gradients after a move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.errors import MessageError
from coke.maths.algorithms.steps import after_parts, stepped
from coke.maths.algorithms.visited import MOVES
from coke.maths.graph import Shape
from coke.talk.place import Place
from coke.talk.walked import News, Walked

SHAPE = Shape(2, 1, 1, 1)
D, FINE = 5, 2.0**-40


class Edge:
    """A leaf with the Hessian H, its parent, and all that the leaf tells."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        half = rng.normal(size=(D, D))
        self.H, self.rng = half @ half.T, rng
        self.leaf = Walked(Place("leaf", SHAPE, "root", (), 1), D)
        self.root = Walked(Place("root", SHAPE, None, ("leaf",), 1), D)
        self.tell(None)

    def tell(self, step: float | None) -> bytes:
        data = self.leaf.news(self.H @ self.leaf.here.u + 1.0, step)
        self.root.learn("leaf", data)
        self.root.news(np.zeros(D), step)
        return data

    def move(self, again: list[float], x: np.ndarray) -> bytes:
        for end in (self.leaf, self.root):
            end.move(np.array(again), x, 2.0)
        return self.tell(FINE)


def test_a_move_that_repeats_others_leaves_nothing_to_tell() -> None:
    """A quadratic's gradients are linear in u."""
    edge = Edge()
    edge.move([], edge.rng.normal(size=D))  # with this the first gradient, told roughly, is mended
    for _ in range(2):
        edge.move([], edge.rng.normal(size=D))
    u, told = edge.leaf.here.u, [move.u for move in edge.leaf._moves]
    data = edge.move([0.0, 0.5, -1.25], np.zeros(D))
    assert_allclose(edge.leaf.here.u, u + 0.5 * told[1] - 1.25 * told[2], rtol=1e-14)
    assert len(data) <= 3 + D // 4  # an entry of the finest step here or there
    assert len(edge.move([], edge.rng.normal(size=D))) > 4 * D


def test_both_ends_know_the_same_to_the_bit_and_remember_so_many_moves() -> None:
    edge = Edge()
    for k in range(MOVES + 3):
        again = edge.rng.normal(size=min(k, MOVES)) / 3
        edge.move(again.tolist(), edge.rng.normal(size=D))
        assert_array_equal(edge.leaf.here.above, edge.root.here.below["leaf"])
        assert_array_equal(edge.leaf.here.u, edge.root.here.u)
    assert edge.leaf.moves == edge.root.moves == MOVES


@pytest.mark.parametrize("x", [0.0, 0.5])
def test_duals_of_a_proof_are_shifted_alike_and_the_edge_knows_what_it_knew(x: float) -> None:
    edge = Edge()
    edge.move([], edge.rng.normal(size=D))
    known = edge.leaf.here.above
    up, down = (end.shifted(np.full(D, x)) for end in (edge.leaf, edge.root))
    assert_array_equal(edge.leaf.gamma(up) + edge.root.gamma(down), np.zeros(D))
    assert_array_equal(up.above, known + x)
    assert_array_equal(edge.leaf.here.above, known)


def told(news: list[np.ndarray], step: float) -> tuple[list[int], News]:
    """One after the other: bytes of each, the other end having the same bits."""
    here, there, sizes = News(len(news[0])), News(len(news[0])), list[int]()
    for x in news:
        more, data = here.said(x, step)
        heard, _ = there.heard(data)
        assert_array_equal(more, heard)
        assert np.abs(more - x).max() <= step
        sizes.append(len(data))
    return sizes, there


def test_news_in_few_directions_are_told_once() -> None:
    """Of rows fewer than entries: what was news before says the rest in a few coefficients."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(3, 200))
    few, _ = told(list(rng.normal(size=(6, 3)) @ rows), 2.0**-8)
    many, _ = told(list(rng.normal(size=(6, 3)) @ rows + rng.normal(size=(6, 200))), 2.0**-8)
    assert sum(few[3:]) < 0.3 * sum(few[:3])
    assert sum(many[3:]) > 0.8 * sum(many[:3])


def test_of_news_so_many_are_remembered_and_nothing_is_told_of_nothing() -> None:
    rng = np.random.default_rng(6)
    news = [scale * rng.normal(size=30) for scale in (1.0, 0.0, 1e-9, *[1.0] * MOVES)]
    sizes, there = told([*news, 0.0 * news[0]], 2.0**-6)
    assert sizes[1] == sizes[2] == sizes[-1] == 1
    body = stepped(news[0], 0.1)[1]
    there.heard(after_parts(stepped(np.ones(MOVES), 1.0)[1], body))
    with pytest.raises(MessageError):
        there.heard(after_parts(stepped(np.ones(MOVES * 20), 1.0)[1], body))


@given(st.binary(max_size=40))
def test_any_bytes_are_news_or_refused(data: bytes) -> None:
    _, there = told([np.ones(4), np.arange(4.0)], 2.0**-3)
    try:
        more, _ = there.heard(data)
    except MessageError:
        return
    assert more.shape == (4,)
