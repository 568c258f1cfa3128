"""The margin losses' local minimisers: every answer is proved again from the definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import lsq_linear
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from coke.errors import ConvergenceError
from coke.maths.arrays import Array
from coke.maths.losses import LOSSES, newton
from coke.maths.losses import hinge as hinge_module
from coke.maths.losses import logistic as logistic_module
from coke.maths.losses.hinge import Hinge
from coke.maths.losses.logistic import Logistic
from coke.maths.losses.newton import Minimum, OneRisk, Proof

Solver = Callable[[OneRisk, Array, Array], Minimum | Proof]
KINDS = ["noise", "separable", "one label", "duplicates", "zero rows"]
MODULES = {"logistic": logistic_module, "hinge": hinge_module}
logistic, hinge = Logistic().minimum, Hinge().minimum
SOLVERS = [pytest.param(logistic, id="logistic"), pytest.param(hinge, id="hinge")]

cases = {
    "seed": st.integers(0, 10_000),
    "T": st.sampled_from([1, 2, 7, 40, 150]),
    "D": st.sampled_from([1, 3, 20, 60]),
    "kind": st.sampled_from(KINDS),
    "log_h": st.integers(-6, 1),
    "multiple": st.booleans(),
}


def rows(rng: np.random.Generator, T: int, D: int, kind: str) -> Array:
    """Rows z_t = y_t φ_t (T, D) of norm about one."""
    Z = rng.standard_normal((T, D)) / np.sqrt(D)
    if kind == "separable":
        Z *= np.where(Z @ rng.standard_normal(D) < 0, -1.0, 1.0)[:, None]
    elif kind == "one label":
        Z = np.abs(Z)
    elif kind == "duplicates":
        Z = Z[rng.integers(0, T // 4 + 1, T)]
    elif kind == "zero rows":
        Z[rng.random(T) < 0.3] = 0.0
    return Z


def problem(
    seed: int, T: int, D: int, kind: str, log_h: int, multiple: bool
) -> tuple[OneRisk, Array, Array]:
    """Unequal c, H = hI or any matrix with spectrum in [h, 10h], p about H in size, a start."""
    rng = np.random.default_rng(seed)
    c, h = rng.uniform(0.1, 2.0, T) / T, 10.0**log_h
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    H = h * np.eye(D) if multiple else (Q * rng.uniform(h, 10 * h, D)) @ Q.T
    p = rng.integers(0, 3) * h * rng.standard_normal(D)
    own = OneRisk(rows(rng, T, D, kind), np.ones(T), c, (H + H.T) / 2)
    return own, p, rng.standard_normal(D)


def hinge_near(own: OneRisk, p: Array, start: Array) -> Proof:
    """As in one round after the other."""
    found = Hinge().repeated(own)(p, start)
    assert isinstance(found, Proof)
    return found


def signed(own: OneRisk) -> Array:
    """The rows z_t = y_t φ_t."""
    return own.y[:, None] * own.Phi


def logistic_gradient(own: OneRisk, p: Array, theta: Array) -> Array:
    """2Hθ − p − Σ_t c_t z_t / (1 + exp(z_tᵀθ)), row by row."""
    g = 2 * own.H @ theta - p
    for z, c in zip(signed(own), own.c, strict=True):
        g -= c * z / (1.0 + np.exp(min(z @ theta, 700.0)))
    return g


def value(name: str, own: OneRisk, p: Array, theta: Array) -> float:
    """Σ_t c_t l(z_tᵀθ) + θᵀHθ − pᵀθ."""
    m = signed(own) @ theta
    losses = np.maximum(0.0, 1.0 - m) if name == "hinge" else np.logaddexp(0.0, -m)
    return float(own.c @ losses + theta @ own.H @ theta - p @ theta)


def assert_proved(own: OneRisk, p: Array, at: Proof, gap: float = 1e-6) -> None:
    """0 ≤ α ≤ c, primal(θ) and dual(α) from their definitions, and their difference."""
    primal = value("hinge", own, p, at.theta)
    v = np.linalg.solve(2 * own.H, p + signed(own).T @ at.alpha)
    dual = float(at.alpha.sum() - v @ own.H @ v)
    rounding = 1e-12 * float(1.0 + v @ own.H @ v + np.linalg.norm(p) * np.linalg.norm(v))
    assert np.all(at.alpha >= 0.0)
    assert np.all(at.alpha <= own.c)
    assert -rounding <= primal - dual <= gap + rounding
    assert 0.0 <= at.gap <= gap
    assert_allclose([at.primal, at.dual], [primal, dual], atol=rounding, rtol=0)
    assert_allclose(
        at.loss, own.c @ np.maximum(0.0, 1.0 - signed(own) @ at.theta), atol=1e-12, rtol=0
    )


@settings(max_examples=150)
@given(**cases)
@example(seed=0, T=1, D=1, kind="zero rows", log_h=-6, multiple=True)
@example(seed=0, T=40, D=60, kind="separable", log_h=-6, multiple=False)
def test_logistic_gradient_vanishes(
    seed: int, T: int, D: int, kind: str, log_h: int, multiple: bool
) -> None:
    """‖2Hθ − p − Σ_t c_t z_t / (1 + exp(z_tᵀθ))‖ ≤ 1e-8, and the loss is that of θ."""
    own, p, start = problem(seed, T, D, kind, log_h, multiple)
    at = logistic(own, p, start)
    assert np.linalg.norm(logistic_gradient(own, p, at.theta)) <= 1e-8
    assert at.gradient <= 1e-8
    assert_allclose(at.loss, own.c @ np.logaddexp(0.0, -(signed(own) @ at.theta)), rtol=1e-12)


@settings(max_examples=150)
@given(**cases)
@example(seed=0, T=1, D=1, kind="zero rows", log_h=-6, multiple=True)
@example(seed=0, T=40, D=60, kind="separable", log_h=-6, multiple=False)
def test_hinge_certificate_proves_the_minimum(
    seed: int, T: int, D: int, kind: str, log_h: int, multiple: bool
) -> None:
    """primal(θ) − dual(α) ≤ 1e-6 for a feasible α; in fact the gap is closed to 1e-12."""
    own, p, start = problem(seed, T, D, kind, log_h, multiple)
    assert_proved(own, p, hinge(own, p, start), gap=1e-12)
    assert_proved(own, p, hinge_near(own, p, start), gap=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pull", [0.0, 1e3], ids=["no p", "large p"])
@pytest.mark.parametrize("away", [0.0, 1e8, 1e200], ids=["zero", "far", "overflowing"])
def test_tiny_curvature_large_pulls_and_terrible_starts(
    kind: str, pull: float, away: float
) -> None:
    """H = 1e-7 I, margins up to 1e7: still ‖g‖ ≤ 1e-8 and gap ≤ 1e-6, where float64 can tell.

    A margin is known to a part of ‖z‖ ‖θ‖ only; it enters the gap once, the gradient times ‖z‖.
    """
    rng = np.random.default_rng(3)
    T, D = 60, 30
    Z, ones = 10.0 * rows(rng, T, D, kind), np.ones(T)
    own = OneRisk(Z, ones, ones / T, 1e-7 * np.eye(D))
    p, start = pull * 1e-4 * rng.standard_normal(D), away * rng.standard_normal(D)
    smooth, kink = logistic(own, p, start), hinge_near(own, p, start)
    radius = np.linalg.norm(signed(own), axis=1).max()
    unsure = float(1e-14 * radius * np.linalg.norm(kink.theta))
    g = logistic_gradient(own, p, smooth.theta)
    assert np.linalg.norm(g) <= max(1e-8, radius * unsure)
    assert_proved(own, p, kink, gap=max(1e-6, unsure))


def test_logistic_finds_its_way_where_the_loss_is_all_kink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OneRisk of ±1e6 pull both ways: plain Newton takes 784 systems, 200 steps must do."""
    rng = np.random.default_rng(1)
    Z, ones = 10.0 * rng.standard_normal((100, 60)), np.ones(100)
    own = OneRisk(Z, ones, 0.01 * ones, 1e-6 * np.eye(60))
    p = rng.standard_normal(60)
    monkeypatch.setattr(logistic_module, "STEPS", 200)
    at = logistic(own, p, np.zeros(60))
    assert np.linalg.norm(logistic_gradient(own, p, at.theta)) <= 1e-7


def test_an_early_stop_is_certified_as_honestly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap that is not small is reported as it is."""
    own, p, start = problem(2, T=150, D=20, kind="noise", log_h=-3, multiple=False)
    monkeypatch.setattr(hinge_module, "ROUNDING", 1e-3)
    at = hinge(own, p, start)
    assert at.gap > 1e-7
    assert_proved(own, p, at, gap=1e-3)


def test_a_step_never_climbs() -> None:
    """φ' = −1 up to a kink, then 0.4: small enough a slope at t = 1, but φ(1) > φ(0)."""
    own = OneRisk(np.ones((1, 1)), np.ones(1), np.array([1.4]), np.array([[1e-9]]))
    loss = hinge_module._Soft(own, own.c / 2, delta=0.01)
    m, d = np.array([0.9]), np.ones(1)
    t = own.step(own.gradient(m, np.array([-0.4]), loss.pull(m)), d, m, loss.pull)[0]
    along = np.linspace(0.0, t, 10_001)
    slopes = np.array([0.4 - loss.pull(m + s)[0] for s in along])
    assert np.trapezoid(slopes, along) < 0.0


@pytest.mark.parametrize(("solver", "most"), [(logistic, 2), (hinge, 15)])
def test_a_warm_start_needs_few_newton_systems(solver: Solver, most: int) -> None:
    """From within 1 % of the answer, as in the rounds of ADMM."""
    own, p, start = problem(4, T=150, D=20, kind="noise", log_h=-2, multiple=True)
    theta = solver(own, p, np.zeros(20)).theta
    near = theta + 0.01 * np.linalg.norm(theta) * start / np.linalg.norm(start)
    with patch.object(OneRisk, "hessian", autospec=True, side_effect=OneRisk.hessian) as systems:
        solver(own, p, near)
    assert 1 <= systems.call_count <= most


@pytest.mark.parametrize("far", [1e7, 1e8, 1e10])
def test_a_row_just_off_the_margin_is_not_taken_for_one_on_it(far: float) -> None:
    """Also where θ is so large that the gap is lost in the sums that it is the difference of."""
    off = 0.45e-12 * far
    own = OneRisk(np.array([[0.0, 1.0]]), np.ones(1), np.ones(1), np.eye(2))
    at = hinge_near(own, np.array([far, 2.0 * (1.0 - off)]), np.array([far / 2, 1.1]))
    m = own.y * own.predictions(at.theta)
    slack = np.maximum(0.0, 1.0 - m) - at.alpha * (1.0 - m)
    assert slack.sum() <= 1e-14 * far


@pytest.mark.parametrize("kind", ["noise", "duplicates"])
def test_hinge_goes_from_one_answer_to_the_next_without_newton(kind: str) -> None:
    """As in the rounds of ADMM: another p, from the answer for the last one."""
    own, p, other = problem(4, T=150, D=20, kind=kind, log_h=-2, multiple=True)
    last = hinge(own, p, np.zeros(20))
    after = p + 0.05 * np.linalg.norm(p) * other / np.linalg.norm(other)
    with patch.object(OneRisk, "hessian", autospec=True, side_effect=OneRisk.hessian) as systems:
        assert_proved(own, after, hinge_near(own, after, last.theta), gap=1e-12)
    assert systems.call_count == 0


@pytest.mark.parametrize("log_h", [-1, -3, -5])
@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_agreement_with_scikit_learn(name: str, log_h: int) -> None:
    """Its objective C Σ_t s_t l(m_t) + ½‖w‖² is ours over 2h where p = 0, s = Tc, C = 1/(2hT)."""
    rng = np.random.default_rng(7)
    T, D, h = 120, 12, 10.0**log_h
    Phi, y = rows(rng, T, D, "noise"), np.where(rng.random(T) < 0.4, -1.0, 1.0)
    c, zero = rng.uniform(0.2, 2.0, T) / T, np.zeros(D)
    own, solver = OneRisk(Phi, y, c, h * np.eye(D)), LOSSES[name].of_row.minimum
    common: dict[str, Any] = {"C": 1.0 / (2 * h * T), "fit_intercept": False, "tol": 1e-10}
    fit: Any = {
        "logistic": LogisticRegression(**common, max_iter=10_000),
        "hinge": LinearSVC(**common, loss="hinge", dual=True, max_iter=1_000_000, random_state=0),
    }[name]
    theirs = value(name, own, zero, fit.fit(Phi, y, sample_weight=T * c).coef_[0])
    ours = value(name, own, zero, solver(own, zero, zero).theta)
    assert_allclose(ours, theirs, atol=1e-6, rtol=0)
    assert ours <= theirs + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_hinge_agrees_with_an_active_set_solver_of_its_dual(seed: int) -> None:
    """min_α ¼‖R(α − s)‖² over the box, RᵀR = ZH⁻¹Zᵀ, s = (ZH⁻¹Zᵀ)⁻¹(2 − ZH⁻¹p): same α, same θ."""
    own, p, start = problem(seed, T=20, D=60, kind="noise", log_h=-2, multiple=False)
    K = signed(own) @ np.linalg.solve(own.H, signed(own).T)
    R = np.linalg.cholesky(K).T
    s = np.linalg.solve(K, 2.0 - signed(own) @ np.linalg.solve(own.H, p))
    alpha = lsq_linear(R, R @ s, bounds=(0.0, own.c), method="bvls", tol=1e-14).x
    at = hinge(own, p, start)
    assert_allclose(at.alpha, alpha, atol=1e-8)
    assert_allclose(at.theta, np.linalg.solve(2 * own.H, p + signed(own).T @ alpha), atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_answer_does_not_depend_on_the_start(solver: Solver, kind: str, seed: int) -> None:
    """The minimum is unique, so from zero, from near and from far comes the same θ to 1e-6."""
    own, p, start = problem(seed, T=80, D=20, kind=kind, log_h=-2, multiple=True)
    theta = solver(own, p, np.zeros(20)).theta
    for other in (start, 1e3 * start, theta + 1e-3 * start, theta):
        assert_allclose(solver(own, p, other).theta, theta, atol=1e-6, rtol=0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_rows_that_pull_the_minimum_is_the_quadratics(solver: Solver) -> None:
    """All z_t = 0  ⟹  θ = ½ H⁻¹p, whatever the loss."""
    own, p, start = problem(5, T=6, D=20, kind="noise", log_h=0, multiple=False)
    own = replace(own, Phi=np.zeros((6, 20)))
    assert_allclose(solver(own, p, start).theta, np.linalg.solve(2 * own.H, p), atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_same_inputs_same_bits_and_inputs_untouched(solver: Solver) -> None:
    """A pure function: no memory of other calls, no writing into its arguments."""
    own, p, start = problem(1, T=150, D=20, kind="noise", log_h=-3, multiple=False)
    start = 0.9 * solver(own, p, start).theta
    given_ = own.Phi, own.y, own.c, own.H, p, start
    kept = [x.copy() for x in given_]
    first = solver(own, p, start)
    solver(own, -3.0 * p, 1e3 * start)
    again = solver(OneRisk(*kept[:4]), p.copy(), start.copy())
    for x, y in zip(first, again, strict=True):
        assert_array_equal(x, y)
    for x, y in zip(given_, kept, strict=True):
        assert_array_equal(x, y)
    at = solver(own, p, first.theta)
    at.theta[:] = np.nan
    assert np.all(np.isfinite(first.theta))


@pytest.mark.parametrize("solver", SOLVERS)
def test_failure_says_what_was_reached_and_what_to_do(
    solver: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, p, start = problem(1, T=40, D=20, kind="noise", log_h=-3, multiple=True)
    for module in MODULES.values():
        monkeypatch.setattr(module, "STEPS", 1)
    with pytest.raises(ConvergenceError, match=r"still .* expected at most 1\.0e-0[68]: raise"):
        solver(own, p, start)


def test_chunks_of_rows_bend_as_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ k_t φ_t φ_tᵀ in many chunks, some without a row."""
    monkeypatch.setattr(newton, "CHUNK", 7)
    rng = np.random.default_rng(0)
    Phi, k = rng.standard_normal((40, 5)), rng.random(40) * (rng.random(40) < 0.3)
    k[14:21] = 0.0
    own = OneRisk(Phi, np.ones(40), np.ones(40), np.eye(5))
    assert_allclose(own.bends(k), Phi.T @ (k[:, None] * Phi), rtol=1e-12)
