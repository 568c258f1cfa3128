"""Whole numbers as bytes: every one within the range comes back, and none takes too many bytes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from coke.errors import InputError, MessageError
from coke.maths.algorithms.integers import (
    LARGEST,
    WIDE,
    Integers,
    most_bytes,
    pack_integers,
    unpack_integers,
)

SIZES = st.integers(1, 60)
ANY = arrays(np.int64, SIZES, elements=st.integers(-LARGEST, LARGEST))
SPARSE = arrays(np.int64, SIZES, elements=st.just(0) | st.integers(-LARGEST, LARGEST))
USUAL = arrays(np.int64, SIZES, elements=st.integers(-(2**13), 2**13))


@given(ANY | SPARSE | USUAL)
def test_what_is_packed_is_unpacked_within_the_bound(n: Integers) -> None:
    data = pack_integers(n)
    assert len(data) <= most_bytes(len(n))
    assert_array_equal(unpack_integers(data, len(n)), n)


@given(USUAL)
def test_usual_numbers_take_two_bytes_at_most_and_no_high_parts(n: Integers) -> None:
    data = pack_integers(n)
    assert len(data) <= 1 + 2 * len(n)
    assert data[:1] != WIDE


@pytest.mark.parametrize("D", [1, 2, 30, 480, 5000])
@pytest.mark.parametrize("value", [LARGEST, -LARGEST, 2**31, -(2**31), 2**20, 12345678])
def test_the_worst_are_within_the_bound(D: int, value: int) -> None:
    """All of them as large as can be, and one alone, which costs little more than the others."""
    all_, one = np.full(D, value), np.zeros(D, np.int64)
    one[D // 2] = value
    for n in (all_, one):
        data = pack_integers(n)
        assert len(data) <= most_bytes(D)
        assert_array_equal(unpack_integers(data, D), n)
    assert len(pack_integers(one)) <= 2 * D + 40


def test_an_outlier_costs_a_few_bytes() -> None:
    n = np.random.default_rng(0).integers(-40, 41, 300)
    plain = len(pack_integers(n))
    n[7] = 3 * 2**40
    assert len(pack_integers(n)) < plain + 40


@pytest.mark.parametrize("value", [LARGEST + 1, -LARGEST - 1, 2**63 - 1, -(2**63)])
def test_numbers_beyond_the_range_are_refused(value: int) -> None:
    with pytest.raises(InputError, match="281474976710656"):
        pack_integers(np.array([0, value, 1]))


def test_bounds_grow_by_eight_bytes_an_entry() -> None:
    assert all(b - a == 8 for a, b in pairwise(map(most_bytes, range(1, 50))))


def _wide(high: bytes, low: bytes) -> bytes:
    return WIDE + len(high).to_bytes(4, "little") + high + low


PACKED = arrays(np.int64, 5, elements=st.integers(-(2**20), 2**20)).map(pack_integers)
NESTED = st.recursive(PACKED | st.binary(max_size=12), lambda part: st.builds(_wide, part, PACKED))


@given(st.binary(max_size=80) | NESTED)
def test_any_bytes_are_numbers_or_refused(data: bytes) -> None:
    """And what is let in can be told again."""
    try:
        n = unpack_integers(data, 5)
    except MessageError:
        return
    assert n.shape == (5,)
    assert np.abs(n).max() <= LARGEST
    assert_array_equal(unpack_integers(pack_integers(n), 5), n)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (WIDE, "1 bytes for 41 numbers"),
        (WIDE + b"\x09\x00\x00\x00\x00", "high parts of 9 bytes"),
        (WIDE + b"\xff" * 5, "high parts of 4294967295 bytes"),
        (WIDE + b"\xff" * 400, "401 bytes for 41 numbers"),
    ],
)
def test_broken_high_parts_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(MessageError, match=said):
        unpack_integers(data, 41)


@pytest.mark.parametrize("high", [2**21, -(2**21), 2**22 - 1])
def test_numbers_that_would_wrap_around_are_refused(high: int) -> None:
    """2⁴² of them is beyond what 64 bits hold; nor is a fourth part read."""
    data = pack_integers(np.array([high] + [0] * 40))
    for _ in range(3):
        data = _wide(data, b"")
    with pytest.raises(MessageError, match="beyond"):
        unpack_integers(data, 41)
    deep = b""
    for _ in range(60):
        deep = _wide(deep, b"")
    with pytest.raises(MessageError, match="more than 3 high parts"):
        unpack_integers(deep, 41)
