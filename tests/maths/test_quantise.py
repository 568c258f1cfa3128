"""Messages: on the grid, short, and the same at both ends."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coke.maths.algorithms.codecs import GRID, LIMIT, Coarse, Codec, Float64
from coke.maths.arrays import Array
from kit.coding import (
    LAWS,
    Float32,
    allowed,
    every_codec,
    literal,
    same,
    sampled,
    vectors,
)


@every_codec
@given(vectors())
def test_decoded_values_are_on_the_grid(codec: Codec, x: Array) -> None:
    decoded = codec.decode(codec.encode(x), len(x))
    assert decoded.shape == x.shape
    assert allowed(decoded)


@pytest.mark.parametrize("ratio", [2.0**-10, 0.1, 0.75, 3.0, 1e6])
@given(vectors())
def test_coarse_rounds_to_the_nearest_step(ratio: float, x: Array) -> None:
    """|x − decoded| ≤ step/2, and step is within √2 of ratio × RMS unless the grid bounds it."""
    codec = Coarse(ratio)
    decoded, step = codec.decode(codec.encode(x), len(x)), 2.0 ** codec.exponent(x)
    assert (np.abs(x - decoded) <= step / 2).all()
    wanted = ratio * math.sqrt(np.mean(x * x))
    assert GRID <= step <= LIMIT
    assert step <= max(1.415 * wanted, GRID)
    assert step >= min(wanted / 1.415, LIMIT)


@given(arrays(np.int64, 9, elements=st.integers(-(2**52), 2**52)))
def test_float64_keeps_every_grid_value(n: Array) -> None:
    x = n * GRID
    assert same(Float64().decode(Float64().encode(x), 9), x)


@given(vectors())
def test_floats_are_near(x: Array) -> None:
    wide, narrow = (c.decode(c.encode(x), len(x)) for c in (Float64(), Float32()))
    assert (np.abs(x - wide) <= GRID / 2).all()
    assert (np.abs(x - narrow) <= GRID / 2 + 2.0**-24 * np.abs(wide)).all()
    assert same(narrow, Float32().decode(Float32().encode(narrow), len(x)))


@every_codec
@given(st.lists(vectors(1000.0).map(lambda x: np.resize(x, 7)), min_size=3, max_size=8), st.data())
def test_sums_are_exact_in_any_order(codec: Codec, xs: list[Array], data: st.DataObject) -> None:
    decoded = [codec.decode(codec.encode(x), 7) for x in xs]
    shuffled = data.draw(st.permutations(decoded))
    exact = [float(sum(map(Fraction, column))) for column in np.transpose(decoded).tolist()]
    assert same(sum(decoded, np.zeros(7)), sum(shuffled, np.zeros(7)))
    assert same(sum(decoded, np.zeros(7)), np.array(exact))
    assert sum(map(Fraction, np.concatenate(decoded).tolist())) % Fraction(GRID) == 0


@every_codec
@given(data=st.data(), D=st.integers(1, 40))
def test_many_rows_are_coded_as_one_by_one(codec: Codec, data: st.DataObject, D: int) -> None:
    """Every byte, and what is decoded of a message and its length before it is packed."""
    some = st.one_of(st.just(0.0), st.floats(-1.0, 1.0))
    scales = st.integers(-60, int(math.log2(LIMIT)))
    rows = data.draw(st.lists(st.tuples(arrays(np.float64, D, elements=some), scales), max_size=6))
    X = np.array([np.ldexp(*row) for row in rows]).reshape(-1, D)
    found = codec.coded(X)
    for i, x in enumerate(X):
        message = codec.encode(x)
        assert found.message(i) == message
        assert found.size[i] == [len(message)]
        assert same(found.values[i], codec.decode(message, D))


@every_codec
@given(vectors())
def test_both_ends_have_the_same_values(codec: Codec, x: Array) -> None:
    """Decoding needs the bytes and D only: no ratio, and nothing of the sender's state."""
    data = codec.encode(x.copy())
    assert data == codec.encode(x)
    other = Coarse() if isinstance(codec, Coarse) else codec
    assert same(codec.decode(data, len(x)), other.decode(bytes(bytearray(data)), len(x)))


@given(vectors(), st.sampled_from([0.01, 0.75, 3.0]))
def test_coarse_agrees_with_the_literal_reader(x: Array, ratio: float) -> None:
    data = Coarse(ratio).encode(x)
    decoded = Coarse().decode(data, len(x))
    assert list(map(Fraction, decoded.tolist())) == literal(data, len(x))


@pytest.mark.parametrize("law", LAWS)
def test_long_vectors_agree_with_the_literal_reader(law: str) -> None:
    x = sampled(law, 300)
    data = Coarse().encode(x)
    assert list(map(Fraction, Coarse().decode(data, 300).tolist())) == literal(data, 300)


def test_the_format_does_not_change() -> None:
    """A change here means that sites with different releases no longer understand each other."""
    x = np.array([0.3, -1.0, 0.0, 0.0, 2.6, 0.1, -0.2, 0.0])
    assert Coarse().encode(x).hex() == "00019320"
    assert Coarse().encode(np.eye(64)[40] * -3.0).hex() == "fe438e48"
    assert Coarse().encode(np.array([1.0, -1, 2, -2, 1, 0, -1, 1, 0, 0])).hex() == "0000fba46c"
    dense = np.array([1.0, -0.8, 2.0, 0.5, -1.2, 0.9])
    assert Coarse(0.2).encode(dense).hex() == "fef2efb51940"
    assert Float32().encode(x[:2]).hex() == "9a99993e000080bf"
    assert Float64().encode(x[:2]).hex() == "004033333333d33f000000000000f0bf"


@pytest.mark.parametrize("scale", [1.0, 1.35], ids=["step=RMS", "step=0.74RMS"])
@pytest.mark.parametrize("D", [50, 200, 1000])
@pytest.mark.parametrize("law", LAWS)
def test_messages_are_nearly_as_short_as_the_entropy_allows(law: str, D: int, scale: float) -> None:
    """Mean bits ≤ 1.12 D H(n) + 24, of which 16 are the header and 3.5 fill the last byte.

    H is the entropy over all draws: that of ten numbers alone would leave out their alphabet.
    """
    bits, integers = [], []
    for seed in range(40):
        x = scale * LAWS[law](np.random.default_rng([seed, D]), D)
        data = Coarse().encode(x)
        bits.append(8 * len(data))
        integers.append(np.ldexp(Coarse().decode(data, D), -Coarse().exponent(x)))
    _, counts = np.unique(integers, return_counts=True)
    share = counts / counts.sum()
    assert np.mean(bits) <= 1.12 * D * -(share @ np.log2(share)) + 24


def test_fine_steps_are_coded_without_zero_runs() -> None:
    """H ≈ 2.05 + 3 bits at step = RMS / 8; a zero run before every entry would add one bit."""
    x = np.random.default_rng(0).normal(size=1000)
    x /= math.sqrt(np.mean(x * x))
    assert 8 * len(Coarse(0.125).encode(x)) <= 1.05 * 5050


@pytest.mark.parametrize("D", [50, 200, 1000])
@pytest.mark.parametrize("value", [1.0, -1.0, 1.9, -1.9])
def test_constant_vectors_cost_a_few_bits_per_entry(D: int, value: float) -> None:
    """No entropy, but a Rice code spends 2 bits on a 1 and at most 4 on a −2."""
    assert 8 * len(Coarse().encode(np.full(D, value))) <= 4 * D + 24


@pytest.mark.parametrize("D", [1, 200])
def test_silence_costs_nothing(D: int) -> None:
    """What rounds to zero everywhere is an empty message."""
    for x in (np.zeros(D), -np.zeros(D), np.full(D, -GRID / 2), np.full(D, 5e-324)):
        assert Coarse().encode(x) == b""
        assert same(Coarse().decode(b"", D), np.zeros(D))
        assert same(Float64().decode(Float64().encode(x), D), np.zeros(D))
    assert len(Coarse().encode(np.eye(D)[D - 1])) <= 2 + 2


@every_codec
@pytest.mark.parametrize("value", [LIMIT, -LIMIT, np.nextafter(LIMIT, 0)])
def test_the_largest_values_pass(codec: Codec, value: float) -> None:
    for D in (1, 2, 100):
        x = np.eye(D)[0] * value
        assert allowed(codec.decode(codec.encode(x), D))
