"""Statistics with forgetting: rows count by their tick, however they arrive."""

from __future__ import annotations

import numpy as np
import pytest

from coke.maths.losses.problem import statistics
from coke.maths.losses.streamed import Batch, Streamed


def rows(m: int, D: int = 5, K: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, D)), rng.normal(size=(m, K))


def test_a_stream_that_has_ended_leaves_the_statistics_of_its_rows() -> None:
    """β = 1  ⟹  (S/w, r/w, yy/w) = (A, b, y²) to rounding, whatever the batches."""
    Phi, y = rows(60)
    s = Streamed.empty(1, 5, 2)
    for a, b in ((0, 1), (1, 8), (8, 8), (8, 60)):
        batch = Batch(Phi[a:b], y[a:b], np.arange(b - a)[::-1].astype(float))
        s = s.after(b - a, 1.0, [batch if b > a else None])
    A, b_, yy = statistics(lambda x: x, Phi, y)
    risk = s.risk(0.1)
    np.testing.assert_allclose(risk.A[0], A, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(risk.b[0], b_, rtol=1e-13, atol=1e-15)
    assert risk.squares is not None
    np.testing.assert_allclose(risk.squares, yy[None], rtol=1e-13)
    assert s.w[0] == 60


@pytest.mark.parametrize("beta", [1.0, 0.9])
def test_a_row_counts_by_its_tick_and_not_by_its_arrival(beta: float) -> None:
    """Σ_t β^(now − t) φφᵀ, with a backlog that comes after ten ticks or in time."""
    Phi, y = rows(20)
    in_time, late = Streamed.empty(1, 5, 2), Streamed.empty(1, 5, 2)
    for t in range(20):
        one = Batch(Phi[t : t + 1], y[t : t + 1], np.zeros(1))
        in_time = in_time.after(1, beta, [one])
        late = late.after(1, beta, [one if not 5 <= t < 15 else None])
    ages = np.arange(14.0, 4.0, -1.0)
    late = late.after(0, beta, [Batch(Phi[5:15], y[5:15], ages)])
    weights = beta ** np.arange(20)[::-1]
    literal = (Phi * weights[:, None]).T @ Phi
    for s in (in_time, late):
        np.testing.assert_allclose(s.S[0], literal, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(s.w[0], weights.sum(), rtol=1e-13)


def test_forgetting_bounds_what_is_remembered_and_leaves_the_mean() -> None:
    """w → 1/(1 − β), and S/w does not depend on how long nobody came."""
    Phi, y = rows(1)
    s = Streamed.empty(1, 5, 2)
    for _ in range(2000):
        s = s.after(1, 0.99, [Batch(Phi, y, np.zeros(1))])
    assert s.w[0] == pytest.approx(100.0)
    later = s.after(300, 0.99, [None])
    np.testing.assert_allclose(later.risk(0.1).A, s.risk(0.1).A, rtol=1e-12)


def test_a_site_without_rows_has_a_risk_that_is_a_number() -> None:
    risk = Streamed.empty(2, 3).risk(0.1, prior=1e-2)
    assert np.isfinite(risk.alone()).all()
    np.testing.assert_array_equal(risk.alone(), 0.0)
