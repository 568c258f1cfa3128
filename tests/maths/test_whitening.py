"""Whitening: the closed-form Gram matrix, the change of basis, and what it does to consensus."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigh

from coke.data.units import columns_of
from coke.engines.process import simulate
from coke.errors import ConvergenceError, InputError
from coke.maths.algorithms.coke import dkla
from coke.maths.features.features import KERNELS, DrawnFeatures, FeatureSettings, draw_features
from coke.maths.features.merging import reduced
from coke.maths.features.mixtures import Gaussian, bounds, describe, expected_gram, fits
from coke.maths.features.whitening import Whitening
from coke.maths.losses.problem import Problem, Quadratic
from kit.problems import GRAPHS, case

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(3, 3))
MIXTURE = [
    Gaussian(2.0, np.array([0.3, -1.0, 0.5]), ROOT @ ROOT.T / 3),
    Gaussian(1.0, np.array([2.0, 0.0, -1.0]), np.diag([0.1, 1.0, 0.0])),
]


@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_closed_form_is_the_mean_over_many_draws(kernel: str, mapping: str) -> None:
    """E φφᵀ for a mixture of Gaussians, within five standard errors of a Monte-Carlo mean."""
    f = draw_features(FeatureSettings(12, kernel, 1.5, mapping, seed=4), 3)
    n = 200_000
    which = RNG.random(n) < 2 / 3
    draws = [RNG.multivariate_normal(part.mean, part.cov, size=n) for part in MIXTURE]
    Phi = f(np.where(which[:, None], *draws))
    exact = expected_gram(f, MIXTURE)
    error = np.sqrt(np.maximum((Phi**2).T @ Phi**2 / n - exact**2, 0) / n)
    assert (np.abs(Phi.T @ Phi / n - exact) <= 5 * error + 1e-9).all()
    assert np.linalg.eigvalsh(exact)[0] > -1e-12


def test_a_point_is_a_gaussian_without_spread() -> None:
    """Covariance zero: E φφᵀ = φ(m)φ(m)ᵀ."""
    for mapping in ("cos-sin", "cos-phase"):
        f = draw_features(FeatureSettings(7, mapping=mapping, seed=1), 2)
        m = np.array([0.4, -0.7])
        phi = f(m[None])
        found = expected_gram(f, [Gaussian(1.0, m, np.zeros((2, 2)))])
        assert_allclose(found, phi.T @ phi, atol=1e-14)


@given(
    seed=st.integers(0, 10_000), n=st.integers(1, 30), d=st.integers(1, 3), most=st.integers(1, 4)
)
def test_pairs_are_merged_as_if_all_were_compared_each_time(
    seed: int, n: int, d: int, most: int
) -> None:
    """Ward's rule taken literally, bit for bit; few different means, so that ties are common."""
    rng = np.random.default_rng(seed)
    means, weights = rng.integers(0, 4, (n, d)) / 3.0, rng.integers(1, 3, n).astype(float)
    parts = [Gaussian(w, m, np.eye(d)) for w, m in zip(weights, means, strict=True)]
    found, left = reduced(parts, most), list(parts)
    while len(left) > most:
        pairs = [(i, j) for i in range(len(left)) for j in range(i + 1, len(left))]
        costs = [ward(left[i], left[j]) for i, j in pairs]
        i, j = pairs[costs.index(min(costs))]
        left[i] = left[i].merged(left.pop(j))
    assert [one.weight for one in found] == [one.weight for one in left]
    for one, other in zip(found, left, strict=True):
        assert_array_equal(one.mean, other.mean)
        assert_array_equal(one.cov, other.cov)


def ward(a: Gaussian, b: Gaussian) -> float:
    apart = a.mean - b.mean
    return a.weight * b.weight / (a.weight + b.weight) * float(apart @ apart)


@given(seed=st.integers(0, 200), n=st.integers(2, 6))
def test_merging_keeps_the_pooled_moments(seed: int, n: int) -> None:
    """Down to one component, in any tree: exactly the moments of all rows together."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(loc=rng.normal(size=3), size=(rng.integers(1, 30), 3)) for _ in range(n)]
    whole, (one,) = Gaussian.of(np.concatenate(parts)), reduced([Gaussian.of(X) for X in parts], 1)
    assert_allclose(one.weight, whole.weight)
    assert_allclose(one.mean, whole.mean, atol=1e-12)
    assert_allclose(one.cov, whole.cov, atol=1e-12)
    some = reduced([Gaussian.of(X) for X in parts], 2)
    assert len(some) == 2
    assert_allclose(some[0].merged(some[1]).cov, whole.cov, atol=1e-12)


def test_the_nearest_components_are_merged_first() -> None:
    near, far = np.zeros(2), np.array([10.0, 0.0])
    parts = [Gaussian(1.0, at, np.eye(2)) for at in (near, far, near + 0.1)]
    found = reduced(parts, 2)
    assert sorted(part.weight for part in found) == [1.0, 2.0]
    assert_allclose(found[0].mean, [0.05, 0.05])


def test_the_problem_is_the_same_in_another_basis() -> None:
    """Losses, penalties and the optimum's predictions do not depend on the basis; Φ̃ = C⁻¹Φ."""
    c = case(lam=0.3)
    q = c.problem.train
    assert isinstance(q, Quadratic)
    P = q.A.mean(axis=0) + 0.05 * np.eye(q.size)
    basis = Whitening.of(P)
    A, b = basis.statistics(q.A, q.b)
    w = Quadratic(A, b, q.yy, q.T, basis.regulariser(q.G * np.eye(q.size)))
    u = np.random.default_rng(0).normal(size=(6, q.size))
    assert_allclose(w.losses(u), q.losses(basis.theta(u)), rtol=1e-9)
    assert_allclose(basis.theta(w.optimum()), q.optimum(), atol=1e-9)
    Phi = basis.features(c.Phi[0])
    assert_allclose(Phi.T @ Phi / len(Phi), w.A[0], atol=1e-10)
    assert_allclose(Phi @ u[0], c.Phi[0] @ basis.theta(u[0]), atol=1e-10)
    assert isinstance(q.G, float)
    assert_allclose(np.sum(u * (u @ w.G), axis=1), q.G * np.sum(basis.theta(u) ** 2, axis=1))


def test_with_the_average_gram_the_hessians_average_to_the_identity() -> None:
    """(1/N) Σ_i ∇²R_i = 2I, so ρ is dimensionless."""
    q = case(lam=0.01).problem.train
    assert isinstance(q, Quadratic)
    assert isinstance(q.G, float)
    basis = Whitening.of(q.A.mean(axis=0) + q.G * np.eye(q.size))
    A, _ = basis.statistics(q.A, q.b)
    assert_allclose(
        (A + basis.regulariser(q.G * np.eye(q.size))).mean(axis=0), np.eye(q.size), atol=1e-9
    )


def test_whitening_from_moments_makes_consensus_fast() -> None:
    """Badly conditioned features: 1 % of the optimum in a tenth of the rounds, whatever plain ρ."""
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(200, 3)) for _ in range(6)]
    y = [np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=200) for x in X]
    f = draw_features(FeatureSettings(40, sigma=2.0, seed=0), 3)
    lam = 1e-4
    plain = Quadratic.from_rows(f, X, y, lam / 6)
    P = expected_gram(f, reduced([Gaussian.of(x) for x in X], 1)) + lam / 6 * np.eye(f.size)
    basis = Whitening.of(P)
    A, b = basis.statistics(plain.A, plain.b)
    white = Quadratic(A, b, plain.yy, plain.T, basis.regulariser(plain.G * np.eye(plain.size)))

    def rounds(risk: Quadratic, rho: float) -> int:
        problem = Problem(risk)
        goal = 1.01 * problem.score(problem.everywhere(problem.optimum)).global_train
        for r in simulate(problem, GRAPHS["random"], dkla(rho), rounds=1500):
            if r.score.global_train <= goal:
                return r.k
        return 1500

    best = min(rounds(plain, rho) for rho in (1e-4, 1e-3, 1e-2, 1e-1))
    assert rounds(white, 0.3) * 10 <= best


@given(seed=st.integers(0, 10_000), T=st.integers(1, 40), linear=st.sampled_from([0.0, 0.5]))
def test_the_misfit_of_few_rows_is_within_its_bounds(seed: int, T: int, linear: float) -> None:
    rng = np.random.default_rng(seed)
    drawn, ridge = draw_features(FeatureSettings(12, seed=seed), 3), 10.0 ** rng.uniform(-6, -1)
    f, X = DrawnFeatures(drawn.omega, drawn.phase, linear), rng.normal(size=(T, 3))
    P = expected_gram(f, [Gaussian.of(rng.normal(size=(50, 3)))])
    least, most = bounds(P, f(X), ridge)
    one = ridge * np.eye(len(P))
    far = float(eigh(f(X).T @ f(X) / T + one, P + one, eigvals_only=True)[-1])
    assert least <= far <= most
    assert most <= least + 1 + 1e-5 * most


def test_misfit_tells_a_site_that_one_gaussian_does_not_describe() -> None:
    f = draw_features(FeatureSettings(30, sigma=1.0, seed=0), 2)
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(5000, 2))
    two_clouds = 0.1 * cloud + np.where(rng.random((5000, 1)) < 0.5, 5.0, -5.0)

    def of(X: np.ndarray) -> tuple[float, Callable[[float], bool]]:
        """λ_max of the pencil, by the yardstick, and the test."""
        P, A, ridge = expected_gram(f, [Gaussian.of(X)]), f(X).T @ f(X) / len(X), 1e-4 * np.eye(60)
        return float(eigh(A + ridge, P + ridge, eigvals_only=True)[-1]), partial(fits, P, A, 1e-4)

    for (far, fit), high in ((of(cloud), 2.0), (of(two_clouds), math.inf)):
        assert far < high
        assert fit(1.001 * far)
        assert not fit(0.999 * far)
    assert of(two_clouds)[0] > 10


def test_what_cannot_be_whitened_is_refused() -> None:
    with pytest.raises(ConvergenceError, match="lambda > 0"):
        Whitening.of(-np.eye(3))
    with pytest.raises(InputError, match="expected a positive one"):
        expected_gram(draw_features(FeatureSettings(3), 2), [])


def test_very_many_rows_are_described_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The moments of all, to rounding; clusters from some of the rows weigh as all do."""
    X = 0.2 * np.random.default_rng(0).normal(size=(1000, 3))
    X[::2] += 10.0  # in turn, as two sensors would speak
    features = draw_features(FeatureSettings(20, sigma=1.0, seed=0), 3)
    A = features(X).T @ features(X) / len(X)
    whole, columns = Gaussian.of(X), columns_of(X)
    monkeypatch.setattr("coke.maths.features.mixtures.PART", 7)
    monkeypatch.setattr("coke.data.units.PART", 7)
    monkeypatch.setattr("coke.maths.features.mixtures.ENOUGH", 90)
    in_parts, told = Gaussian.of(X), columns_of(X)
    assert (in_parts.weight, told.T) == (whole.weight, columns.T)
    assert_allclose(np.vstack([in_parts.mean, in_parts.cov]), np.vstack([whole.mean, whole.cov]))
    assert_allclose(np.stack(told[1:]), np.stack(columns[1:]))
    parts = describe(X, features, lambda: A, 1e-4, seed=0)
    assert len(parts) == 2
    assert sum(part.weight for part in parts) == pytest.approx(1000.0)
    assert_allclose([part.weight for part in parts], 500.0, atol=100.0)
    assert_allclose(sorted(part.mean[0] for part in parts), [0.0, 10.0], atol=0.1)


@pytest.mark.parametrize("n", [2, 5, 15, 16, 40])
def test_rows_that_are_few_points_are_described_by_them(n: int) -> None:
    """Fewer than there would be clusters: a component each, and the Gram matrix is exact."""
    points = np.random.default_rng(n).normal(scale=10.0, size=(n, 2))
    X = np.concatenate([points, np.repeat(points, 1 + np.arange(n) % 5, axis=0)] * 20)
    f = draw_features(FeatureSettings(400, sigma=0.5, seed=1), 2)
    A = f(X).T @ f(X) / len(X)
    found = [part.gaussian() for part in describe(X, f, lambda: A, 1e-4, 0)]
    assert sum(part.weight for part in found) == len(X)
    if n < 16:
        assert len(found) == n
        assert_allclose(expected_gram(f, found), A, atol=1e-9)
