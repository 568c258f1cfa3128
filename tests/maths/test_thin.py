"""Quadratic risks of few rows: what their statistics say, with less to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.errors import InputError
from coke.maths.arrays import Array
from coke.maths.features.whitening import Whitening
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import Risk
from coke.maths.losses.thin import Thin
from kit.problems import case


@given(seed=st.integers(0, 10_000), L=st.integers(2, 20), white=st.booleans())
def test_few_rows_give_what_their_statistics_do(seed: int, L: int, white: bool) -> None:
    """Argmin, losses, gradient, optimum to 1e-10, with a number or a matrix as regulariser."""
    c = case(3, L=L, seed=seed)
    X, y = [x[: 2 + i] for i, x in enumerate(c.X)], [y[: 2 + i] for i, y in enumerate(c.y)]
    risks: list[Any] = [kind.from_rows(c.features, X, y, 0.1) for kind in (Quadratic, Thin)]
    rng = np.random.default_rng(seed)
    if white:
        Z = rng.normal(size=(2 * L, 3 * 2 * L))
        basis = Whitening.of(Z @ Z.T / len(Z) + 0.1 * np.eye(2 * L))
        risks = [risk.whitened(basis) for risk in risks]
    theta, pull = rng.normal(size=(3, 2 * L)), rng.uniform(0, 1, (3, 1))
    expected, found = (_answers(risk, theta, pull) for risk in risks)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def _answers(risk: Risk, theta: Array, pull: Array) -> list[Array]:
    solved, loss = risk.argmin(pull)(theta, theta)
    grams = np.stack([risk.gram(i) for i in range(3)])
    some = (risk.losses(theta), risk.global_losses(theta), risk.objectives(theta))
    return [solved, loss, *some, risk.gradient(theta), risk.optimum(), grams, risk.T]


def test_few_rows_in_float32_are_exact_for_the_rounded_rows() -> None:
    """Half the memory; arithmetic stays float64, so only the rows differ, by 6e-8."""
    c = case(4, L=8)
    half = Thin.from_rows(c.features, c.X, c.y, 0.1, dtype=np.float32)
    whole = replace(half, F=half.F.astype(np.float64))
    p, pull = np.ones((4, 16)), np.ones((4, 1))
    for a, b in zip(half.argmin(pull)(p, p), whole.argmin(pull)(p, p), strict=True):
        assert_array_equal(a, b)
    exact = Thin.from_rows(c.features, c.X, c.y, 0.1)
    assert 0 < np.abs(half.F - exact.F).max() < 6e-8


def test_wrong_input_is_refused() -> None:
    c = case(3, L=8)
    with pytest.raises(InputError, match="expected at least as many"):
        Thin.from_rows(c.features, c.X, c.y, 0.1, width=5)
    with pytest.raises(InputError, match="neither regulariser nor neighbours"):
        Thin.from_rows(c.features, c.X, c.y, 0.0).argmin(np.zeros((3, 1)))
