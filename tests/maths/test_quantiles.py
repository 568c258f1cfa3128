"""Sketches of columns: quantiles of all rows in a few bytes, whoever merges them in what order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

from coke.errors import MessageError
from coke.maths.algorithms.integers import pack_integers
from coke.maths.arrays import Array
from coke.maths.choice.quantiles import SCORES, Sketch, scored

RNG = np.random.default_rng(0)
HALF = 1 / 32  # of a value: half a step between powers of two
ROUNDED = 2.0**-22  # of a median, in float32
SHAPES: dict[str, Callable[[Array], Array]] = {
    "normal": lambda u: u,
    "counts": lambda u: np.asarray(np.floor(np.exp(2 * u))),
    "heavy": lambda u: u**5,
    "two": lambda u: np.asarray(np.where(u > 0.5, 1.0, -0.3)),
    "constant": lambda u: np.full_like(u, 0.25),
}


def values(sketch: Sketch) -> Array:
    """(d, 17) what it says the columns' values at the scores are."""
    return np.asarray(sketch.knots()[0])


def shaped(n: int, loc: float = 0.0) -> Array:
    """Rows (n, 5) of all shapes."""
    return np.column_stack([shape(RNG.normal(loc, size=n)) for shape in SHAPES.values()])


def slack(sketch: Sketch) -> Array:
    """(d, 17) how far values are off at most: by half a step of their distance from the median."""
    median = sketch.centre[:, None]
    return np.asarray(2 * HALF * np.abs(values(sketch) - median) + ROUNDED * np.abs(median))


def near(found: Sketch, low: Array, high: Array) -> bool:
    """Whether values lie between these, up to the code."""
    said = values(found)
    return bool(((said >= low - slack(found)) & (said <= high + slack(found))).all())


@pytest.mark.parametrize("n", [1, 2, 7, 400])
def test_values_are_quantiles_within_a_step_of_the_code(n: int) -> None:
    """Below a value at score s lies the share Φ(s) of the rows, up to one row."""
    X = shaped(n)
    ordered = np.sort(X, axis=0)
    rank = n * ndtr(SCORES)
    low = ordered[np.clip(np.floor(rank - 1), 0, n - 1).astype(int)].T
    high = ordered[np.clip(np.ceil(rank), 0, n - 1).astype(int)].T
    assert near(Sketch.of(X, float(n)), low, high)


@given(
    seed=st.integers(0, 999), n=st.integers(1, 60), scale=st.sampled_from([1e-30, 1.0, 1e6, 1e150])
)
def test_values_and_their_scores_rise(seed: int, n: int, scale: float) -> None:
    """Scores have mean 0 and spread 1 where there is more than one value."""
    X = scale * np.random.default_rng(seed).standard_t(1, size=(n, 3))
    knots = Sketch.of(X, 5.0).knots()
    assert np.isfinite(knots).all()
    assert (np.diff(knots, axis=-1) >= 0).all()
    same = np.diff(knots[0]) == 0
    assert_allclose(np.diff(knots[1])[same], 0, atol=1e-12)
    assert (np.diff(knots[1])[~same] > 0).all()


@pytest.mark.parametrize("parts", [2, 10])
def test_a_merger_is_near_the_sketch_of_all_rows(parts: int) -> None:
    """Of all rows the share below each merged value is its score's, within half a knot's."""
    rows = [shaped(int(RNG.integers(30, 400)), loc) for loc in np.linspace(-1, 1, parts)]
    first, *others = (Sketch.of(X, float(len(X))) for X in rows)
    whole, merged = np.concatenate(rows), first.merged(others)
    assert len(whole) == merged.T
    off = slack(merged)
    below = (whole[:, :, None] < values(merged) - off).mean(axis=0)
    upto = (whole[:, :, None] <= values(merged) + off).mean(axis=0)
    assert (below <= ndtr(SCORES) + 0.075).all()
    assert (upto >= ndtr(SCORES) - 0.075).all()


def test_any_tree_of_mergers_comes_to_nearly_the_same() -> None:
    """One after the other, all at once, in pairs, in another order: scores are near."""
    rows = [shaped(200) for _ in range(8)]
    parts = [Sketch.of(X, 200.0) for X in rows]
    at_once = parts[0].merged(parts[1:])
    backwards = parts[-1].merged(parts[-2::-1])
    chain = parts[0]
    for part in parts[1:]:
        chain = chain.merged([part])
    pairs = [a.merged([b]) for a, b in list(pairwise(parts))[::2]]
    paired = pairs[0].merged(pairs[1:])
    apart = np.abs(values(at_once) - values(backwards))
    assert (apart <= 4 * slack(at_once) + 1e-12).all()  # the order among equals remains
    X = np.concatenate(rows)[:, [0, 2]]
    of_two = [scored(one.knots()[:, [0, 2]], X) for one in (at_once, chain, paired)]
    for other in of_two[1:]:
        assert np.abs(other - of_two[0]).max() < 0.5
        assert np.sqrt(np.mean((other - of_two[0]) ** 2)) < 0.1


def test_a_sketch_merged_with_none_or_with_itself_says_the_same() -> None:
    one = Sketch.of(shaped(300), 300.0)
    assert one.merged([]) is one
    twice = one.merged([one])
    assert twice.T == 600
    assert (np.abs(values(twice) - values(one)) <= 0.3 * np.abs(values(one)) + 1e-12)[[0, 4]].all()


def test_normal_columns_keep_their_values_and_others_become_normal() -> None:
    """Up to the code; beyond three spreads all is one. Any rising map leaves the scores alone."""
    z = RNG.normal(size=(20_000, 1))
    found = scored(Sketch.of(z, 2e4).knots(), z)[:, 0]
    inner = np.abs(z[:, 0]) < 2.5
    assert np.abs(found - z[:, 0])[inner].max() < 0.12
    assert_allclose([found.mean(), found.std()], [0, 1], atol=0.02)
    bent = np.exp(z)
    again = scored(Sketch.of(bent, 2e4).knots(), bent)[:, 0]
    assert np.abs(again - z[:, 0])[inner].max() < 0.2


def test_few_values_keep_their_order_and_one_value_says_nothing() -> None:
    X = np.column_stack([RNG.integers(0, 3, 500), np.full(500, 7.0), np.zeros(500)]).astype(float)
    found = scored(Sketch.of(X, 500.0).knots(), X)
    levels = [found[X[:, 0] == k, 0] for k in range(3)]
    assert all(np.ptp(level) < 1e-12 for level in levels)
    assert levels[0][0] < levels[1][0] < levels[2][0]
    assert_array_equal(found[:, 1:], 0)


@given(seed=st.integers(0, 999), d=st.integers(1, 4), T=st.floats(1, 1e9))
def test_what_is_encoded_is_decoded(seed: int, d: int, T: float) -> None:
    rng = np.random.default_rng(seed)
    sketch = Sketch.of(rng.normal(size=(rng.integers(1, 40), d)) ** rng.integers(1, 9), T)
    back = Sketch.decode(sketch.encode(), d)
    assert back.T == T
    assert_array_equal(values(back), values(sketch))
    assert len(sketch.encode()) < 9 + 28 * d


HEADS = st.sampled_from([1.0, 12.5, 0.0, -1.0, np.inf, np.nan, 2.0**53]).map(
    lambda T: np.float64(T).tobytes()
)
MEDIANS = st.lists(st.floats(width=32), min_size=2, max_size=2).map(
    lambda x: np.array(x, "<f4").tobytes()
)
STEPS = st.lists(st.integers(-700, 700), min_size=32, max_size=32).map(
    lambda n: pack_integers(np.array(n))
)
PARTS = st.tuples(HEADS, MEDIANS, st.binary(min_size=2, max_size=2), STEPS | st.binary(max_size=60))


@given(data=st.binary(max_size=80) | PARTS.map(b"".join))
def test_any_bytes_are_a_sketch_or_refused(data: bytes) -> None:
    """And whatever was let in can be merged, encoded and used."""
    try:
        sketch = Sketch.decode(data, 2)
    except MessageError:
        return
    assert np.isfinite(sketch.knots()).all()
    assert (np.diff(sketch.knots(), axis=-1) >= 0).all()
    own = Sketch.of(RNG.normal(size=(20, 2)), 20.0)
    merged = own.merged([sketch, sketch])
    assert_array_equal(values(Sketch.decode(merged.encode(), 2)), values(merged))


def test_refusals_say_what_is_wrong() -> None:
    sketch = Sketch.of(shaped(10), 10.0)
    with pytest.raises(MessageError, match="7 bytes are no sketch"):
        Sketch.decode(sketch.encode()[:7], 5)
    with pytest.raises(MessageError, match="cannot be"):
        Sketch.decode(sketch._replace(T=0.0).encode(), 5)
    with pytest.raises(MessageError, match="cannot be"):
        Sketch.decode(sketch._replace(low=sketch.low - 121).encode(), 5)
    with pytest.raises(MessageError, match="cannot be"):
        Sketch.decode(sketch._replace(centre=sketch.centre + 1e25).encode(), 5)
    with pytest.raises(MessageError, match="cannot be"):
        Sketch.decode(sketch._replace(codes=9 * sketch.codes).encode(), 5)


def test_a_sketch_of_more_rows_weighs_more() -> None:
    """Nine rows of ten are below zero, whichever sketch is merged into which."""
    rng = np.random.default_rng(0)
    many, few = rng.normal(-5, 1, size=(900, 1)), rng.normal(5, 1, size=(100, 1))
    one, other = Sketch.of(many, 900.0), Sketch.of(few, 100.0)
    for merged in (one.merged([other]), other.merged([one])):
        values = merged.knots()[0, 0]
        assert values[SCORES <= 1.0].max() < 0 < values[SCORES >= 1.5].min()


@pytest.mark.parametrize("far", [1e2, 1e6, -1e7])
@pytest.mark.parametrize("share", [0.003, 0.05])
def test_values_far_away_leave_the_others_apart(far: float, share: float) -> None:
    """In standard units all others are one value nearly; their scores are those without it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    away = rng.random(4000) < share
    X = np.where(away, far, x)[:, None]
    Z = (X - X.mean()) / X.std()
    halves = (Sketch.of(Z[::2], 2000.0), Sketch.of(Z[1::2], 2000.0))
    found = scored(halves[0].merged(halves[1:]).knots(), Z)[:, 0]
    assert np.corrcoef(found[~away], x[~away])[0, 1] > 0.99
