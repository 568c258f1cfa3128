"""Messages: on the grid, short, the same at both ends, and refused where they make no sense."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coke.errors import InputError, MessageError
from coke.maths.arrays import Array
from coke.maths.quantise import GRID, LIMIT, Coarse, Codec, Float32, Float64

CODECS: dict[str, Codec] = {
    "coarse": Coarse(),
    "finest": Coarse(2.0**-10),
    "blunt": Coarse(3.0),
    "float32": Float32(),
    "float64": Float64(),
}
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)

Law = Callable[[np.random.Generator, int], Array]
LAWS: dict[str, Law] = {
    "gaussian": lambda rng, D: rng.normal(size=D),
    "laplacian": lambda rng, D: rng.laplace(size=D) / math.sqrt(2),
    "sparse": lambda rng, D: rng.normal(size=D) * np.where(rng.random(D) < 0.05, 1.0, 1e-3),
    "heavy": lambda rng, D: rng.standard_t(2, size=D),
}


def vectors(limit: float = LIMIT, size: int = 12) -> st.SearchStrategy[Array]:
    """Numbers of one magnitude, of all magnitudes, and mostly zeros."""
    one = arrays(np.float64, st.integers(1, size), elements=st.floats(-1.0, 1.0))
    scaled = st.builds(np.ldexp, one, st.integers(-60, int(math.log2(limit))))
    elements = st.one_of(st.just(0.0), st.floats(-limit, limit))
    return st.one_of(scaled, arrays(np.float64, st.integers(1, 3 * size), elements=elements))


def sampled(law: str, D: int, seed: int = 0) -> Array:
    """A vector whose place between two powers of two is random, too."""
    rng = np.random.default_rng([seed, D])
    x: Array = LAWS[law](rng, D) * 2.0 ** rng.uniform(-5, 5)
    return x


def same(a: Array, b: Array) -> bool:
    """Bit for bit."""
    return a.dtype == b.dtype == np.float64 and a.tobytes() == b.tobytes()


def allowed(x: Array) -> bool:
    """Multiples of GRID of at most LIMIT in size, without −0."""
    units = x / GRID
    exact = (np.abs(x) <= LIMIT).all() and (units == np.rint(units)).all()
    return bool(exact and not np.signbit(x[x == 0]).any())


def literal(data: bytes, size: int) -> list[Fraction]:
    """The format read bit by bit, trying every number of entries."""
    if not data:
        return [Fraction(0)] * size
    e, r, k = int.from_bytes(data[:1], signed=True), data[1] >> 4, data[1] & 15
    bits = "".join(f"{byte:08b}" for byte in data[2:]).rstrip("0")

    def read(widths: list[int]) -> list[int] | None:
        at, low = 0, []
        for width in widths:
            low.append(int("0" + bits[at : at + width], 2))
            at += width
        codes = bits[at:].split("1")  # zeros before each one, and nothing after the last
        if len(codes) != len(widths) + 1:
            return None
        return [(len(q) << w) + b for q, w, b in zip(codes, widths, low, strict=False)]

    folds = [0] * size
    if r == 15:
        folds = read([k] * size) or []
    else:
        (m,) = [m for m in range(1, size + 1) if read([r] * m + [k] * m)]
        values = read([r] * m + [k] * m) or []
        ends = itertools.accumulate(run + 1 for run in values[:m])
        for end, rest in zip(ends, values[m:], strict=True):
            folds[end - 1] = rest + 1
    return [((f + 1) // 2 if f % 2 else -(f // 2)) * Fraction(2) ** e for f in folds]


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


def decoded_or_refused(codec: Codec, data: bytes, size: int) -> bool:
    try:
        decoded = codec.decode(data, size)
    except MessageError:
        return False
    assert decoded.shape == (size,)
    assert allowed(decoded)
    return True


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


@every_codec
@pytest.mark.parametrize("value", [LIMIT, -LIMIT, np.nextafter(LIMIT, 0)])
def test_the_largest_values_pass(codec: Codec, value: float) -> None:
    for D in (1, 2, 100):
        x = np.eye(D)[0] * value
        assert allowed(codec.decode(codec.encode(x), D))


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1e-4, math.nan, math.inf])
def test_bad_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(InputError, match=r"ratio=.*expected a number from 0.001 on"):
        Coarse(ratio)
