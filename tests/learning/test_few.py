"""Of many targets a choice looks at few combinations, in which none is forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke.learning.choice import Samples
from coke.maths.arrays import Array


def few(Y: Array, *, classes: bool = False) -> Array:
    return Samples(np.empty((len(Y), 0)), Y, float(len(Y)), float(len(Y)), 1, classes=classes).few


@pytest.mark.parametrize("K", [4, 5, 6, 11, 40])
def test_of_many_numbers_every_column_weighs_the_same(K: int) -> None:
    """Y ↦ YW with WᵀW = I₃ and rows of W of one length: no two combinations say the same."""
    W = few(np.eye(K))
    assert W.shape == (K, 3)
    assert_allclose(W.T @ W, np.eye(3), atol=1e-12)
    assert_allclose(np.sum(W**2, axis=1), 3.0 / K)


def test_columns_that_say_the_same_add_up() -> None:
    """The signal of K noisy copies grows by √K in the first combination, their noise does not."""
    y = np.random.default_rng(0).normal(size=50)
    assert_allclose(few(np.tile(y[:, None], 9))[:, 0], 3.0 * y)


@pytest.mark.parametrize("classes", [False, True])
def test_few_targets_are_left_as_they_are(classes: bool) -> None:
    Y = np.random.default_rng(0).choice([-1.0, 1.0], size=(20, 3))
    assert_array_equal(few(Y, classes=classes), Y)


def test_many_classes_are_told_apart_by_three_bits() -> None:
    """Up to eight of them have eight different codes."""
    assert len(np.unique(few(2.0 * np.eye(8) - 1.0, classes=True), axis=0)) == 8
