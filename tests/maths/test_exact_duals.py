"""Σγ = 0 to the last bit: how large duals may be before a sum of them is rounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.engines.process import simulate
from coke.maths.algorithms.codecs import COARSEST, FINEST, Coarse, Coded
from coke.maths.algorithms.coke import COKE, dual, pull
from coke.maths.arrays import Array
from kit.hard import hard_cases


def most(e: int, d: int) -> float:
    """‖θ̂‖_∞ up to which a round of d neighbours is exact, |g_i| being at most 2^(52 + e)."""
    return 2.0 ** (52 + e) / (2 * d)


@given(st.data(), st.integers(1, 40), st.integers(FINEST, COARSEST))
def test_a_round_is_exact_where_g_and_the_words_fit_into_53_bits(
    data: st.DataObject, d: int, e: int
) -> None:
    """|g_i| + 2 d max |θ̂| ≤ 2^(53 + e), with words that are multiples of 2ᵉ: as of integers."""
    top = int(most(e, d) / 2.0**e)
    words = data.draw(st.lists(st.integers(-top, top), min_size=d + 1, max_size=d + 1))
    before = data.draw(st.integers(-(2**52), 2**52))
    own, *others = words
    hat, g = np.ldexp(np.array([[float(own)]]), e), np.ldexp(np.array([[float(before)]]), e)
    heard = np.zeros((1, 1))
    for word in data.draw(st.permutations(others)):
        heard += np.ldexp(float(word), e)
    assert np.ldexp(heard[0, 0], -e) == sum(others)
    degree = np.array([[float(d)]])
    assert np.ldexp(dual(degree, hat, heard, g)[0, 0], -e) == before + d * own - sum(others)
    assert np.ldexp(pull(degree, hat, heard, g)[0, 0], -e) == d * own + sum(others) - before


def test_beyond_it_a_bit_is_lost() -> None:
    """The bound is the best: one step more than 2^(53 + e) is no float64."""
    e, one = -20, np.ones((1, 1))
    g = np.ldexp(np.array([[2.0**53]]), e)
    assert dual(one, 2.0**e * one, 0 * one, g) == g


class _Watched(Coarse):
    """The code, and the steps that it took."""

    steps: ClassVar[list[int]] = []

    def coded(self, X: Array) -> Coded:
        self.steps.extend(self.exponent(x) for x in X)
        return super().coded(X)


@pytest.mark.parametrize("i", [202, 238, 299])
def test_duals_of_hard_tables_stay_far_below(i: int) -> None:
    """Those of 300 where they are largest, 4000 to 8400; and add up to exactly zero."""
    (case,) = islice(hard_cases(i + 1), i, None)
    ready = case.ready()
    way = ready.case("coke")
    _Watched.steps.clear()
    d, g, hat, total = max(dict(ready.graph.degree).values()), 0.0, 0.0, np.ones(1)
    assert isinstance(way.algorithm, COKE)
    algorithm = replace(way.algorithm, codec=_Watched())
    for record in simulate(way.problem, ready.graph, algorithm, rounds=300, scored=()):
        g = max(g, float(np.abs(record.state.g).max()))
        hat = max(hat, float(np.abs(record.state.hat).max()))
        total = record.state.g.sum(axis=0)
    assert g > 1000
    assert g + 2 * d * hat < 2.0 ** (53 + min(_Watched.steps) - 20)
    assert_array_equal(total, 0)
