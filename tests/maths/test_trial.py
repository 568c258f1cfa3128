"""Which of several kernels to go on with: weights, who goes, who never does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coke.maths.algorithms.trial import LOOKS, Trial

ONES = np.ones(3)
LOSS = st.floats(0.0, 1e6)


def test_weights_are_exponential_in_what_kernels_cost_beyond_the_best() -> None:
    """C ← C/2 + m ℓ/ℓ_best and v ∝ exp(−C/50), by hand for two looks."""
    at = Trial.of(3)
    at = at.after(20, 20, np.array([2.0, 2.4, 2.2]), ONES)
    at = at.after(50, 30, np.array([1.5, 1.0, 1.0]), ONES)
    cost = 0.5 * 20 * np.array([1.0, 1.2, 1.1]) + 30 * np.array([1.5, 1.0, 1.0])
    v = np.exp(-cost / 50)
    np.testing.assert_allclose(at.v, v / v.sum(), rtol=1e-12)
    assert at.running.all()


def test_a_kernel_goes_early_only_if_no_single_row_has_settled_it() -> None:
    """Ten times the loss, but hardly more once clipped: it stays; at 99 ticks the mean rules."""
    losses = np.array([10.0, 1.0, 1.2])
    assert Trial.of(3).after(20, 20, losses, np.array([1.4, 1.0, 1.0])).running.all()
    left = Trial.of(3).after(20, 20, losses, np.array([1.6, 1.0, 1.0]))
    assert left.running.tolist() == [False, True, True]
    assert Trial.of(3).after(99, 50, losses, ONES).running.tolist() == [False, True, True]


@given(st.lists(st.tuples(LOSS, LOSS, LOSS), min_size=len(LOOKS), max_size=len(LOOKS)))
def test_the_leader_stays_whatever_the_losses_and_is_alone_in_the_end(
    seen: list[tuple[float, float, float]],
) -> None:
    at, before = Trial.of(3), 0
    for tick, losses in zip(LOOKS, seen, strict=True):
        was = at.running
        at = at.after(tick, tick - before, np.array(losses), np.array(losses))
        before = tick
        assert at.running.any()
        assert not (at.running & ~was).any()  # nobody comes back
        assert at.running[at.leader]
        assert at.leader == int(np.argmax(at.weights))
        np.testing.assert_allclose([at.v.sum(), at.weights.sum()], 1.0)
    assert at.running.sum() == 1
