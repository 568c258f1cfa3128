"""A step as parts of the last moves."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from coke.maths.algorithms.steps import decoded
from coke.maths.algorithms.visited import MOVES, Visited

D = 40
RNG = np.random.default_rng(1)


def walked(moves: np.ndarray, noise: float = 0.0) -> Visited:
    places, u = Visited(2.0, 3), np.zeros(D)
    for move in (0.0 * u, *moves):
        u = u + move
        places.add(u, noise)
    return places


def test_the_parts_and_the_rest_are_the_step() -> None:
    """Whatever is told of the coefficients, and of the last moves only."""
    moves = RNG.normal(size=(MOVES + 4, D))
    p = 0.7 * moves[-1] - 2.0 * moves[-3] + 0.05 * RNG.normal(size=D)
    again, rest = walked(moves).parts(p)
    told = decoded(again, MOVES)[0]
    assert_allclose(told @ moves[-MOVES:] + rest, p, atol=1e-12)
    assert np.linalg.norm(rest) <= 0.06 * np.linalg.norm(p)


def test_nothing_is_repeated_where_it_saves_nothing() -> None:
    moves = np.eye(D)[:MOVES]
    p = np.ones(D) - moves.sum(axis=0)
    for places in (walked(moves), walked(moves[:0])):
        again, rest = places.parts(p)
        assert not again
        assert_allclose(rest, p)


def test_moves_whose_gradients_were_told_roughly_are_repeated_less() -> None:
    moves = RNG.normal(size=(2, D))
    sizes = [
        abs(decoded(walked(moves, noise).parts(moves[1])[0], 2)[0]).max()
        for noise in (0.0, D / 3, 100.0 * D)
    ]
    assert sizes[0] > 0.9
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 0.1
