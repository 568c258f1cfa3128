"""Both ways to scale rows and to take the waves of their angles do what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.maths import compiled
from coke.maths.features.waves import PLAIN, Loops, compiled_loops

FAST = pytest.mark.skipif(not compiled.available(), reason="needs the extra `fast`")
WAYS = [PLAIN, *([compiled_loops()] if compiled.available() else [])]
KINDS = [np.float32, np.float64]


@pytest.mark.parametrize("way", WAYS, ids=["plain", "fast"][: len(WAYS)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), L=st.integers(1, 40), most=st.sampled_from([0.1, 3.0, 40.0]))
def test_waves_are_cosines_and_sines(
    way: Loops, kind: Any, both: bool, seed: int, L: int, most: float
) -> None:
    """To 3e-7 in float32; in float64 to 1e-15, and what rounding the unit does to an angle."""
    turns = np.random.default_rng(seed).uniform(-most, most, (7, L)) * 2 * np.pi * way.unit
    Phi = np.full((7, 2 * L if both else L), np.nan, kind)
    Phi[:, :L] = turns
    angle = Phi[:, :L].astype(np.longdouble) / np.longdouble(way.unit)
    way.waves(Phi, L)
    far = 3e-7 if kind is np.float32 else 1e-15 * (1.0 + most)
    assert_allclose(Phi[:, :L], np.cos(angle), rtol=0, atol=far)
    if both:
        assert_allclose(Phi[:, L:], np.sin(angle), rtol=0, atol=far)


@FAST
def test_compiled_waves_are_exact_where_cosines_are() -> None:
    """At quarters of a turn, also far away: 1, 0 and −1 to the last bit but one of zero."""
    Phi = np.arange(-8.0, 8.25, 0.25)[None].repeat(2, axis=0)
    compiled_loops().waves(Phi, Phi.shape[1])
    assert_allclose(Phi[0], np.rint(Phi[0]), atol=1e-16)
    assert_array_equal(np.rint(Phi[0]), np.resize([1, 0, -1, 0], Phi.shape[1]))


@pytest.mark.parametrize("way", WAYS, ids=["plain", "fast"][: len(WAYS)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("given_as", "kind"), [(np.float32, np.float32), (np.float64, np.float32),
                                                (np.float64, np.float64)])  # fmt: skip
def test_rows_are_scaled_and_the_longest_is_told(
    way: Loops, order: Any, given_as: Any, kind: Any
) -> None:
    rng = np.random.default_rng(0)
    X = np.asarray(rng.normal(size=(50, 6)), given_as, order)
    shift, gain = rng.normal(size=6).astype(given_as), rng.uniform(1, 2, 6).astype(given_as)
    Z = np.ones_like(X, kind, shape=(50, 7))
    square = way.scaled(X, shift, gain, Z)
    wanted = (X - shift).astype(np.float64) * gain
    assert_allclose(Z[:, :-1], wanted, rtol=1e-6 if kind is np.float32 else 1e-15)
    assert_array_equal(Z[:, -1], 1.0)
    assert_allclose(square, (wanted * wanted).sum(axis=1).max(), rtol=1e-5)


@pytest.mark.parametrize("way", WAYS, ids=["plain", "fast"][: len(WAYS)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_what_is_too_large_is_told(way: Loops, bad: float) -> None:
    """A row that float32 cannot scale, wherever it stands: ‖z‖² is infinite, or no number."""
    for t in (0, 3, 9):
        X = np.ones((10, 4), np.float32)
        X[t, 2] = bad
        with np.errstate(over="ignore"):
            zero, one = np.zeros(4, np.float32), np.ones(4, np.float32)
            square = way.scaled(X, zero, one, np.ones((10, 5), np.float32))
        assert not square < 1e30
