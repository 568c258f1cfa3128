"""What is computed once for many: the same answers, for as long as the question is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.maths.alike import alike, frozen
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import pulled


def counted() -> tuple[Any, list[int]]:
    asked = list[int]()

    def twice(x: Any) -> Any:
        asked.append(1)
        return 2 * x

    return alike(twice, 2), asked


def test_equal_bits_are_one_question_and_so_is_one_frozen_array() -> None:
    twice, asked = counted()
    x = np.arange(3.0)
    assert_array_equal(twice(x), twice(x.copy()))
    assert len(asked) == 1
    x[0] = 7.0
    assert_array_equal(twice(x), [14.0, 2.0, 4.0])
    kept = frozen(x)
    assert frozen(kept) is kept
    assert_array_equal(twice(kept), twice(kept))
    assert len(asked) == 3
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1.0


def test_only_the_last_answers_are_kept() -> None:
    twice, asked = counted()
    for k in (1, 2, 3, 3, 2, 1):
        assert twice(k) == 2 * k
    assert len(asked) == 4


def test_one_site_is_pulled_as_it_is_among_others() -> None:
    """To the last bit, and by its own regulariser; also where all have the same θ."""
    rng = np.random.default_rng(0)
    A, theta = rng.normal(size=(2, 9, 9)), rng.normal(size=(4, 9))
    for G in (frozen(one @ one.T) for one in A):
        whole = pulled(G, theta)
        for i in (0, 0, 3, 1):
            assert_array_equal(pulled(G, theta[i : i + 1])[0], whole[i])
            assert_array_equal(pulled(G, np.broadcast_to(theta[i], (3, 9))), whole[[i, i, i]])


def test_a_regulariser_is_not_its_givers_to_change() -> None:
    G = np.eye(3)
    risk = Quadratic(np.eye(3)[None], np.ones((1, 3)), np.ones(1), np.ones(1), G)
    G[0, 0] = 9.0
    assert_array_equal(risk.G, np.eye(3))
