"""What a site tells of its inputs: every mixture can be told, in few bytes, whatever the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import InputError, MessageError
from coke.maths.algorithms.integers import most_bytes
from coke.maths.algorithms.mixtures import decode_mixture, encode_mixture
from coke.maths.arrays import Array
from coke.maths.features.mixtures import RANKS, Component, Gaussian

KINDS = st.sampled_from([(K, rank) for K, rank in RANKS.items()])


def bound(n: int, d: int, rank: int) -> int:
    """Bytes of n components in R^d at most."""
    return 2 + 4 * n + most_bytes(n * d * (min(rank, d) + 2))


@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 8),
    kind=KINDS,
    far=st.floats(-20, 150),
    s0=st.floats(-150, 20),
)
def test_every_mixture_is_decoded_within_the_bound(
    seed: int, d: int, kind: tuple[int, int], far: float, s0: float
) -> None:
    """Means, factors and spreads of all sizes, resolutions of all sizes."""
    (K, rank), rng = kind, np.random.default_rng(seed)
    n, r = int(rng.integers(K // 2 + 1, K + 1)), min(rank, d)

    def some(*shape: int) -> Array:
        return rng.normal(size=shape) * 10.0 ** rng.uniform(-20, far, shape)

    parts = [
        Component(float(rng.integers(1, 9)), some(d), some(r, d), abs(some(d))) for _ in range(n)
    ]
    data = encode_mixture(parts, 10.0**s0)
    assert len(data) <= bound(n, d, rank)
    back = decode_mixture(data, d, 10.0**s0)
    assert len(back) == n
    assert all(np.isfinite(array).all() for one in back for array in one[1:])


@pytest.mark.parametrize(("far", "sigma"), [(1e6, 1e-3), (1e9, 1e-6), (1e15, 1e-12)])
def test_an_outlier_and_a_narrow_kernel_take_few_bytes(far: float, sigma: float) -> None:
    """Which once were 4604 bytes for 30 numbers, then 4.5 MB, and refused where they arrived."""
    X = np.random.default_rng(0).normal(size=(40, 4))
    X[0] = far
    s0 = 0.3 * sigma * math.sqrt(1e-6 / 10)
    data = encode_mixture([Gaussian.of(X).truncated(RANKS[1])], s0)
    assert len(data) <= bound(1, 4, RANKS[1])
    (one,) = decode_mixture(data, 4, s0)
    assert np.isfinite(one.gaussian().cov).all()


def test_a_column_without_spread_far_from_zero_keeps_its_mean() -> None:
    """To the resolution s₀, through numbers of 30 bits."""
    X, s0 = np.full((5, 2), 1234.5678), 1e-6
    one = Gaussian.of(X).truncated(RANKS[1])
    (back,) = decode_mixture(encode_mixture([one], s0), 2, s0)
    np.testing.assert_allclose(back.mean, one.mean, atol=s0, rtol=0)


@given(st.binary(max_size=200), st.integers(1, 5))
def test_any_bytes_are_a_mixture_or_refused(data: bytes, d: int) -> None:
    try:
        parts = decode_mixture(data, d, 0.01)
    except (InputError, MessageError):
        return
    again = decode_mixture(encode_mixture(parts, 0.01), d, 0.01)
    assert len(again) == len(parts)


def test_a_mixture_that_is_cut_off_in_its_weights_is_refused() -> None:
    """In the middle of a number, too."""
    X = np.random.default_rng(0).normal(size=(40, 4))
    data = encode_mixture([Gaussian.of(X).truncated(RANKS[1])], 0.01)
    for end in range(6):
        with pytest.raises(InputError):
            decode_mixture(data[:end], 4, 0.01)
