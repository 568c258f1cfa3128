"""Quadratic risks of few rows: what their statistics say, with less to read."""

from __future__ import annotations

from collections.abc import Sequence
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
from coke.maths.losses.mixed import Mixed, risks_of
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import Risk, local_only
from coke.maths.losses.thin import Thin
from kit.problems import case

FEW = st.lists(st.integers(1, 9), min_size=3, max_size=3)


@given(seed=st.integers(0, 10_000), L=st.integers(2, 20), few=FEW, white=st.booleans())
def test_few_rows_give_what_their_statistics_do(
    seed: int, L: int, few: list[int], white: bool
) -> None:
    """Argmin, losses, gradient, optimum to 1e-10, with a number or a matrix as regulariser."""
    c = case(3, L=L, seed=seed)
    X, y = _first(c.X, few), _first(c.y, few)
    risks: list[Any] = [made(c.features, X, y, 0.1) for made in (Quadratic.from_rows, risks_of)]
    rng = np.random.default_rng(seed)
    if white:
        Z = rng.normal(size=(2 * L, 3 * 2 * L))
        basis = Whitening.of(Z @ Z.T / len(Z) + 0.1 * np.eye(2 * L))
        risks = [risk.whitened(basis) for risk in risks]
    theta, pull = rng.normal(size=(3, 2 * L)), rng.uniform(0, 1, (3, 1))
    expected, found = (_answers(risk, theta, pull) for risk in risks)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@given(seed=st.integers(0, 10_000), few=FEW, white=st.booleans())
def test_an_agents_bits_are_those_of_the_agent_alone(
    seed: int, few: list[int], white: bool
) -> None:
    """Whoever else there is: agents as others have, fewer or more rows, of few or many features."""
    c = case(3, L=3, seed=seed)
    X, y = _first(c.X, few), _first(c.y, few)
    rng, basis = np.random.default_rng(seed), Whitening(np.eye(6) + 0.1)
    theta, pull = rng.normal(size=(3, 6)), rng.integers(1, 3, (3, 1)).astype(float)
    whole, alone = (
        [risk.whitened(basis) if white else risk for risk in some]
        for some in (
            [risks_of(c.features, X, y, 0.1)],
            [risks_of(c.features, X[i : i + 1], y[i : i + 1], 0.1) for i in range(3)],
        )
    )
    for i, own in enumerate(alone):
        one = slice(i, i + 1)
        for other in (whole[0].rows(one), whole[0].rows(slice(i, 3)).rows(slice(0, 1)), own):
            for a, b in zip(
                _rowwise(whole[0], theta, pull), _rowwise(other, theta[one], pull[one]), strict=True
            ):
                assert_array_equal(a[one], b)


def test_few_rows_are_kept_and_many_are_summed() -> None:
    """T_i (2D + T_i) < D² says it; and with λ = 0 only sums know which of many answers to take."""
    c = case(3, L=4)
    X, y = _first(c.X, [3, 4, 3]), _first(c.y, [3, 4, 3])
    mixed = risks_of(c.features, X, y, 0.1)
    assert isinstance(mixed, Mixed)
    assert [type(risk) for risk in mixed.risks] == [Quadratic, Thin]
    assert [at.tolist() for at in mixed.agents] == [[1], [0, 2]]
    free = risks_of(c.features, X, y, 0.0)
    assert_allclose(free.losses(local_only(free))[[0, 2]], 0.0, atol=1e-9)


@pytest.mark.parametrize("white", [False, True])
def test_few_rows_of_several_outputs_say_what_their_sums_do(white: bool) -> None:
    """One answer from rows or from sums, for K targets, in any basis."""
    c, rng = case(3, L=4), np.random.default_rng(2)
    X, Y = _first(c.X, [3, 2, 3]), [rng.normal(size=(n, 3)) for n in (3, 2, 3)]
    few = risks_of(c.features, X, Y, 0.1)
    sums = Quadratic.from_rows(c.features, X, Y, 0.1)
    if white:
        basis = Whitening(np.eye(8) + 0.1 * np.tril(rng.normal(size=(8, 8))))
        few, sums = few.whitened(basis), sums.whitened(basis)
    theta, pull = rng.normal(size=(3, 24)), np.full((3, 1), 0.3)
    for a, b in zip(_answers(few, theta, pull), _answers(sums, theta, pull), strict=True):
        assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    assert_allclose(few.alone(), sums.alone(), rtol=1e-7, atol=1e-9)
    assert few.sums.squares is not None
    assert sums.squares is not None
    assert_allclose(few.sums.squares, sums.squares)


def _first(rows: Sequence[Array], few: list[int]) -> list[Array]:
    return [part[:n] for part, n in zip(rows, few, strict=True)]


def _rowwise(risk: Risk, theta: Array, pull: Array) -> list[Array]:
    solved, loss = risk.argmin(pull)(theta, theta)
    return [solved, loss, risk.losses(theta), risk.gradient(theta)]


def _answers(risk: Risk, theta: Array, pull: Array) -> list[Array]:
    solved, loss = risk.argmin(pull)(theta, theta)
    grams = np.stack([risk.gram(i) for i in range(3)])
    some = (risk.losses(theta), risk.global_losses(theta), risk.objectives(theta))
    return [solved, loss, *some, risk.gradient(theta), risk.optimum(), grams, risk.T]


def test_few_rows_in_float32_are_exact_for_the_rounded_rows() -> None:
    """Half the memory; arithmetic stays float64, so only the rows differ, by 6e-8."""
    c = case(4, L=8)
    X, y = _first(c.X, [5] * 4), _first(c.y, [5] * 4)
    half = Thin.from_rows(c.features, X, y, 0.1, dtype=np.float32)
    whole = replace(half, F=half.F.astype(np.float64))
    p, pull = np.ones((4, 16)), np.ones((4, 1))
    for a, b in zip(half.argmin(pull)(p, p), whole.argmin(pull)(p, p), strict=True):
        assert_array_equal(a, b)
    exact = Thin.from_rows(c.features, X, y, 0.1)
    assert 0 < np.abs(half.F - exact.F).max() < 6e-8


def test_wrong_input_is_refused() -> None:
    c = case(3, L=8)
    with pytest.raises(InputError, match="as many of each"):
        Thin.from_rows(c.features, _first(c.X, [4, 5, 4]), _first(c.y, [4, 5, 4]), 0.1)
    X, y = _first(c.X, [4] * 3), _first(c.y, [4] * 3)
    with pytest.raises(InputError, match="neither regulariser nor neighbours"):
        Thin.from_rows(c.features, X, y, 0.0).argmin(np.zeros((3, 1)))
