"""Messages and vectors that make no sense: refused, at little cost, never off the grid."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import InputError, MessageError
from coke.maths.algorithms.codecs import Coarse, Codec, Float64
from coke.maths.arrays import Array
from kit.coding import (
    LAWS,
    Float32,
    allowed,
    decoded_or_refused,
    every_codec,
    literal,
    sampled,
    vectors,
)


@every_codec
@given(st.binary(max_size=100), st.integers(1, 12))
def test_any_bytes_are_decoded_or_refused(codec: Codec, data: bytes, size: int) -> None:
    decoded_or_refused(codec, data, size)
    decoded_or_refused(codec, (data * 96)[: 8 * size], size)
    decoded_or_refused(codec, (data * 96)[: 4 * size], size)


@given(st.integers(-40, 12), st.integers(0, 255), st.binary(min_size=1, max_size=80))
def test_any_body_is_decoded_or_refused(e: int, parameters: int, body: bytes) -> None:
    """As above, past the door that most random exponents do not pass."""
    data = bytes((e % 256, parameters)) + body
    if decoded_or_refused(Coarse(), data, 40):
        assert list(map(Fraction, Coarse().decode(data, 40).tolist())) == literal(data, 40)


@every_codec
@pytest.mark.parametrize("law", LAWS)
def test_a_changed_bit_never_leaves_the_grid(codec: Codec, law: str) -> None:
    data, outcomes = codec.encode(sampled(law, 60)), set()
    for i in range(8 * len(data)):
        changed = bytearray(data)
        changed[i // 8] ^= 1 << i % 8
        outcomes.add(decoded_or_refused(codec, bytes(changed), 60))
    assert outcomes == {True, False}


@every_codec
@given(vectors(), st.binary(min_size=1, max_size=9))
def test_lengths_must_be_right(codec: Codec, x: Array, more: bytes) -> None:
    data = codec.encode(x)
    with pytest.raises(MessageError):
        codec.decode(data + bytes(len(more)), len(x))
    decoded_or_refused(codec, data + more, len(x))
    for cut in range(len(data)):
        decoded_or_refused(codec, data[:cut], len(x))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("00", "1 bytes for 8 numbers"),
        ("0000", "2 bytes for 8 numbers"),
        ("0000" + "80" * 65, "67 bytes for 8 numbers"),
        ("0d00c0", "exponent 13"),
        ("d700c0", "exponent -41"),
        ("8000c0", "exponent -128"),
        ("000000", "an empty last byte"),
        ("0000c000", "an empty last byte"),
        ("000080", "fits no number of entries"),
        ("00000180", "an entry 7 of 7"),
        ("0000" + "00" * 60 + "03", "an entry 486 of 8"),
        ("00f0ff80", "9 unary codes instead of 8"),
        ("00ff01", "0 unary codes instead of 8"),
        ("0c00a0", None),  # 2 at an exponent of 12 would be 8192; −1 is allowed
        ("0c0090", "values beyond 4096"),
        ("0b0084", "values beyond 4096"),
    ],
)
def test_impossible_coarse_messages_are_refused(data: str, said: str | None) -> None:
    size = 7 if said and "of 7" in said else 8
    if said is None:
        assert allowed(Coarse().decode(bytes.fromhex(data), size))
        return
    with pytest.raises(MessageError, match=said):
        Coarse().decode(bytes.fromhex(data), size)


@pytest.mark.parametrize("codec", [Float32(), Float64()])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "not finite"),
        (-math.inf, "not finite"),
        (4097.0, "beyond 4096"),
        (-8e30, "beyond 4096"),
        (2.0**-41, "off the grid"),
        (3 * 2.0**-42, "off the grid"),
        (-0.0, "negative zero"),
    ],
)
def test_impossible_floats_are_refused(codec: Float32 | Float64, value: float, said: str) -> None:
    data = np.array([1.0, value]).astype(codec.dtype).tobytes()
    with pytest.raises(MessageError, match=said):
        codec.decode(data, 2)
    with pytest.raises(MessageError, match=r"bytes instead of"):
        codec.decode(data, 3)


def test_signalling_nans_are_refused() -> None:
    for codec, data in ((Float32(), "0100807f"), (Float64(), "010000000000f07f")):
        with pytest.raises(MessageError, match="not finite"):
            codec.decode(bytes.fromhex(data), 1)


@every_codec
@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x01", b"\xaa"])
@pytest.mark.parametrize("length", [1602, 1 << 24])
def test_hostile_messages_cost_little_memory(codec: Codec, fill: bytes, length: int) -> None:
    """Work is bounded by D = 200, whatever the length and the unary runs."""
    messages = [bytes((0, p)) + fill * (length - 3) + b"\x01" for p in (0x00, 0x0F, 0xEF, 0xF0)]
    tracemalloc.start()
    try:
        for data in messages:
            decoded_or_refused(codec, data, 200)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@every_codec
@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.array([0.0, math.nan]), "nan in a message: expected finite numbers up to 4096"),
        (np.array([-math.inf]), "-inf in a message"),
        (np.array([4096.5, 0.0]), "4096.5 in a message"),
        (np.zeros((2, 3)), r"shape \(2, 3\): expected one vector"),
        (np.zeros(0), r"shape \(0,\)"),
    ],
)
def test_bad_input_is_refused(codec: Codec, x: Array, said: str) -> None:
    with pytest.raises(InputError, match=said):
        codec.encode(x)


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1e-4, math.nan, math.inf])
def test_bad_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(InputError, match=r"ratio=.*expected a number from 0.001 on"):
        Coarse(ratio)
