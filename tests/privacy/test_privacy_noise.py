"""How much noise: the mathematics of docs/privacy.md, each with a test that can fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import kstest, norm

from coke.errors import InputError
from coke.privacy.auditing import audited
from coke.privacy.noise import (
    Budget,
    Noise,
    Statistics,
    _profile,
    _separation,
    calibrated,
    draws,
    least_lambda,
    noised,
    norm_bound,
    projected,
    ranking_bound,
    sensitivity,
    shared,
)
from coke.privacy.release import entropy_normals
from kit.problems import Array
from kit.releases import DELTA, NOTED, D, N, features_of


@pytest.mark.parametrize(("epsilon", "s"), NOTED.items())
def test_noise_is_calibrated(epsilon: float, s: float) -> None:
    """s = Δ/μ at δ = 1e-5; the grid adds one part in 10⁵."""
    budget = Budget(epsilon, DELTA)
    assert sensitivity(1.0, 1.0) / _separation(budget) == pytest.approx(s, abs=1e-3)
    assert calibrated(budget, 1.0, 1.0, D).s == pytest.approx(s, abs=1e-3)
    assert calibrated(budget, 1.0, 1.0, D).s > sensitivity(1.0, 1.0) / _separation(budget)


@given(st.floats(-4, 2.5), st.floats(-10, -0.5))
def test_the_budget_is_spent_and_not_exceeded(log_epsilon: float, log_delta: float) -> None:
    """profile(ε, μ) is δ, from below."""
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = _separation(Budget(epsilon, delta))
    assert _profile(epsilon, mu) <= delta
    assert _profile(epsilon, mu * (1 + 1e-6)) >= delta * (1 - 1e-6)


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, 0.27), (3.0, 0.9), (0.1, 2.0)])
def test_the_profile_is_the_hockey_stick_of_two_gaussians(epsilon: float, mu: float) -> None:
    """δ(ε) = ∫ max(p − e^ε q, 0), the definition of (ε, δ) for the pair N(0, 1), N(μ, 1)."""
    crossing = epsilon / mu + mu / 2  # beyond it N(μ, 1) is more than e^ε times likelier
    excess = quad(lambda x: norm.pdf(x - mu) - np.exp(epsilon) * norm.pdf(x), crossing, 40)[0]
    assert _profile(epsilon, mu) == pytest.approx(excess, rel=1e-5)


def moved(phi: Array, y: Array) -> Array:
    """‖(φφᵀ − φ'φ'ᵀ, φy − φ'y')‖ of pairs of rows (n, 2, D), (n, 2)."""
    A = phi[:, 0, :, None] * phi[:, 0, None, :] - phi[:, 1, :, None] * phi[:, 1, None, :]
    b = phi[:, 0] * y[:, :1] - phi[:, 1] * y[:, 1:]
    return np.asarray(np.sqrt((A**2).sum(axis=(1, 2)) + (b**2).sum(axis=1)))


def test_sensitivity_is_exact() -> None:
    """The largest move of T(A, b) when one row is replaced: Δ = 2.12132, reached and not passed."""
    rng, features = np.random.default_rng(0), features_of()
    X, y = rng.normal(size=(4000, 2, 5)), rng.choice([-1.0, 1.0], size=(4000, 2))
    found = moved(features(X.reshape(-1, 5)).reshape(4000, 2, D), y)
    assert sensitivity(1.0, 1.0) == pytest.approx(1.5 * math.sqrt(2), abs=1e-12)
    assert 2.1203 <= found.max() <= 1.5 * math.sqrt(2) + 1e-9


@pytest.mark.parametrize(("B", "Y"), [(1.0, 1.0), (2.0, 0.5), (1.0, 1.4), (1.0, 3.0)])
def test_sensitivity_bounds_all_rows_within_the_bounds(B: float, Y: float) -> None:
    """Any ‖φ‖ ≤ B, |y| ≤ Y, in a plane: the maximum is Δ and lies on the boundary."""
    angle = np.linspace(0, np.pi, 721)
    phi = B * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    pairs = np.stack([np.broadcast_to([B, 0.0], phi.shape), phi], axis=1)
    opposite = np.broadcast_to([Y, -Y], (721, 2))
    assert moved(pairs, opposite).max() == pytest.approx(sensitivity(B, Y), rel=1e-4)
    rng = np.random.default_rng(1)
    shorter = pairs[rng.integers(0, 721, 20_000)] * rng.uniform(size=(20_000, 2, 1))
    inside = moved(shorter, rng.uniform(-Y, Y, size=(20_000, 2)))
    assert inside.max() <= sensitivity(B, Y)


def test_cos_phase_needs_more_noise() -> None:
    """‖φ‖ ≤ √2 instead of 1: 1.67 times the noise, and no row is longer."""
    assert sensitivity(norm_bound("cos-phase"), 1.0) / sensitivity(1.0, 1.0) == pytest.approx(5 / 3)
    for mapping in ("cos-sin", "cos-phase"):
        X = 3 * np.random.default_rng(0).normal(size=(5000, 5))
        lengths = np.linalg.norm(features_of(mapping)(X), axis=1)
        assert lengths.max() <= norm_bound(mapping) + 1e-12


def test_noise_has_the_standard_deviation_it_should() -> None:
    """S_ll and T b̃_l: s; S_lm = S_ml: s/√2; within 1 % over 200 000 draws of system entropy."""
    zero, T, noise = Statistics(np.zeros((2, 2)), np.zeros(2)), 7, Noise(2.0, 2.0**-20)
    z = entropy_normals(200_000 * draws(2)).reshape(-1, draws(2))
    found = noised(zero, T, noise, z)
    assert T * found.A[:, 0, 0].std() == pytest.approx(2.0, rel=0.01)
    assert T * found.A[:, 1, 0].std() == pytest.approx(math.sqrt(2), rel=0.01)
    assert T * found.b[:, 1].std() == pytest.approx(2.0, rel=0.01)
    np.testing.assert_array_equal(found.A, found.A.swapaxes(1, 2))
    assert np.abs(np.corrcoef(z.T) - np.eye(draws(2))).max() < 0.02


def test_entropy_normals_are_normal_and_never_the_same() -> None:
    """And no seed decides them."""
    np.random.seed(0)  # noqa: NPY002  the global state, on purpose
    z = entropy_normals(50_000)
    np.random.seed(0)  # noqa: NPY002
    assert len(np.intersect1d(z, entropy_normals(50_000))) == 0
    assert kstest(z, "norm").pvalue > 1e-6
    assert 3.5 < np.abs(z).max() < 7


def test_sums_and_noise_live_on_one_grid() -> None:
    """T Ã and T b̃ are multiples of the grid: the last bits say nothing of the rows."""
    rng, T = np.random.default_rng(0), 300
    noise = calibrated(Budget(1.0, DELTA), 1.0, 1.0, 4)
    Phi, y = rng.normal(size=(T, 4)), rng.uniform(-1, 1, T)
    exact = Statistics(Phi.T @ Phi / T, Phi.T @ y / T)
    found = noised(exact, T, noise, rng.normal(size=draws(4)))
    steps = np.concatenate([found.A.ravel(), found.b]) * T / noise.grid
    np.testing.assert_allclose(steps, np.rint(steps), rtol=0, atol=1e-4)
    silent = noised(exact, T, noise, np.zeros(draws(4)))
    np.testing.assert_allclose(silent.A, exact.A, atol=noise.grid / T)
    with pytest.raises(InputError, match="too large"):
        noised(Statistics(1e12 * exact.A, exact.b), T, noise, np.zeros(draws(4)))


def test_projection_is_the_nearest_matrix_without_negative_eigenvalues() -> None:
    """‖PSD(A) − A‖ ≤ ‖M − A‖ for every M ≥ 0; what is ≥ 0 already stays."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 6, 6))
    A = A + A.swapaxes(1, 2)
    P = projected(A)
    np.testing.assert_array_equal(P, P.swapaxes(1, 2))
    assert np.linalg.eigvalsh(P).min() > -1e-12
    np.testing.assert_allclose(projected(P), P, atol=1e-12)
    for _ in range(50):
        other = P + 0.3 * projected(rng.normal(size=(20, 6, 6)) + A)
        assert (np.linalg.norm(other - A, axis=(1, 2)) >= np.linalg.norm(P - A, axis=(1, 2))).all()
    np.testing.assert_allclose(((P - A) * P).sum(axis=(1, 2)), 0, atol=1e-10)  # optimality


def test_lambda_is_half_the_norm_of_the_noise_in_the_sum() -> None:
    """λ = ½ s √(2DN)/T for equal sites, ½ ‖Σ_i S_i/T_i‖ whatever their sizes."""
    assert least_lambda(2.0, D, np.full(N, 500)) == pytest.approx(math.sqrt(2 * D * N) / 500)
    T = np.array([100, 300, 1000])
    zero, noise = Statistics(np.zeros((100, 100)), np.zeros(100)), Noise(2.0, 2.0**-20)
    rng, total = np.random.default_rng(0), np.zeros((100, 100))
    for t in T:
        total += noised(zero, int(t), noise, rng.normal(size=draws(100))).A
    half = 0.5 * np.abs(np.linalg.eigvalsh(total)).max()
    assert least_lambda(2.0, 100, T) == pytest.approx(half, rel=0.1)


def test_no_attack_ranks_members_better_than_the_bound() -> None:
    """Φ(μ/2): P(E) ≤ e^ε' P'(E) + δ(ε') for all ε' leaves p no more room."""
    for epsilon, most in ((1.0, 0.553), (3.0, 0.640), (10.0, 0.841)):
        budget = Budget(epsilon, DELTA)
        assert ranking_bound(budget) == pytest.approx(most, abs=1e-3)
        p, mu = ranking_bound(budget), _separation(budget)
        room = [math.exp(e) * (1 - p) + _profile(e, mu) - p for e in np.linspace(0.001, 9, 4000)]
        assert min(room) == pytest.approx(0, abs=1e-4)


def test_shared_noise_adds_up_to_one_sites() -> None:
    """N sites with s/√(N − t) each: without those of t sites, the sum still has noise s."""
    assert shared(3.0, 10, 1) == 1.0
    assert math.sqrt(9 - 5) * shared(3.0, 9, 5) == pytest.approx(3.0)
    for colluding in (0, 3):
        with pytest.raises(InputError, match="knows its own"):
            shared(1.0, 3, colluding)


@pytest.mark.parametrize("epsilon", NOTED)
def test_an_audit_finds_no_more_than_epsilon(epsilon: float) -> None:
    """And finds half the noise out at ε = 1 and 3, where 200 000 draws see far enough."""
    noise, rng = calibrated(Budget(epsilon, DELTA), 1.0, 1.0, 2), np.random.default_rng(0)
    assert 0.5 * min(epsilon, 6) < audited(noise, DELTA, rng.standard_normal, 200_000) <= epsilon
    if epsilon < 10:
        half = noise._replace(s=noise.s / 2)
        assert audited(half, DELTA, rng.standard_normal, 200_000) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, DELTA), (math.nan, DELTA), (2000, DELTA), (1, 0), (1, 1), (1, -1)]
)
def test_impossible_budgets_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"epsilon|delta"):
        _separation(Budget(epsilon, delta))
    with pytest.raises(InputError, match="bounds"):
        sensitivity(1.0, math.inf)
    with pytest.raises(InputError, match="mapping"):
        norm_bound("cosine")
