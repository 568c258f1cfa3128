"""The Huber loss: its minimum is proved, outliers move it by little, and every face runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke import COKERegressor, Features
from coke.engines.process import simulate
from coke.errors import ConvergenceError, InputError
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.coke import COKE, Geometric, dkla
from coke.maths.arrays import Array
from coke.maths.losses import LOSSES, huber
from coke.maths.losses.huber import DELTA, Huber
from coke.maths.losses.newton import OneRisk
from coke.maths.losses.problem import Problem, Quadratic
from coke.maths.losses.rowwise import Rowwise
from kit import faces
from kit.agents import Nets
from kit.commands import coke
from kit.problems import GRAPHS, case, row_norms

cases = {
    "seed": st.integers(0, 10_000),
    "T": st.sampled_from([1, 2, 7, 40, 150]),
    "D": st.sampled_from([1, 3, 20, 60]),
    "outliers": st.sampled_from([0.0, 0.3, 0.9]),
    "log_h": st.integers(-6, 1),
    "multiple": st.booleans(),
}


def problem(
    seed: int, T: int, D: int, outliers: float, log_h: int, multiple: bool
) -> tuple[OneRisk, Array, Array]:
    """Unequal c, H = hI or any with spectrum in [h, 10h], p about H in size, a start."""
    rng = np.random.default_rng(seed)
    c, h = rng.uniform(0.1, 2.0, T) / T, 10.0**log_h
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    H = h * np.eye(D) if multiple else (Q * rng.uniform(h, 10 * h, D)) @ Q.T
    Phi = rng.standard_normal((T, D)) / np.sqrt(D)
    y = Phi @ rng.standard_normal(D) + 0.3 * rng.standard_normal(T)
    y += np.where(rng.random(T) < outliers, 100.0 * rng.standard_cauchy(T), 0.0)
    p = rng.integers(0, 3) * h * rng.standard_normal(D)
    return OneRisk(Phi, y, c, (H + H.T) / 2), p, rng.standard_normal(D)


def gradient(own: OneRisk, p: Array, theta: Array) -> Array:
    """2Hθ − p − Σ_t c_t ψ(y_t − φ_tᵀθ) φ_t, row by row; ψ(r) = 2r, or ±2δ beyond δ."""
    g = 2 * own.H @ theta - p
    for phi, y, c in zip(own.Phi, own.y, own.c, strict=True):
        r = float(y - phi @ theta)
        g -= c * phi * (2 * r if abs(r) <= DELTA else 2 * DELTA * np.sign(r))
    return g


def risk_of(y: Any, Phi: Any, G: Any = 0.02) -> Rowwise:
    return Rowwise(tuple(Phi), tuple(y), G, LOSSES["huber"])


def wild(N: int = 6) -> tuple[list[Array], list[Array]]:
    """Targets, a tenth of them far off, and features, at N sites."""
    c, rng = case(N), np.random.default_rng(1)
    y = [yi + np.where(rng.random(len(yi)) < 0.1, 30.0, 0.0) for yi in c.y]
    return y, c.Phi


@given(f=st.floats(-20, 20), y=st.floats(-20, 20))
def test_the_loss_is_a_parabola_with_straight_arms(f: float, y: float) -> None:
    """r² for |r| ≤ δ, 2δ|r| − δ² beyond; and its slope is the derivative of that."""
    r, h = abs(y - f), 1e-6
    at = np.array([f, f + h, f - h])
    value, ahead, behind = Huber().value(at, np.array([y]))
    assert_allclose(value, r * r if r <= DELTA else 2 * DELTA * r - DELTA**2, atol=1e-12)
    slope = Huber().slope(np.array([f]), np.array([y]))[0]
    assert_allclose(slope, (ahead - behind) / (2 * h), atol=1e-5)


def test_the_gradient_of_the_risks_is_their_derivative() -> None:
    risk, rng, h = risk_of(*wild()), np.random.default_rng(1), 1e-6
    theta, direction = rng.normal(size=(2, 6, risk.size))
    assert isinstance(risk.G, float)

    def value(at: Array) -> Array:
        return risk.losses(at) + 0.02 * np.einsum("nd,nd->n", at, at)

    slope = np.einsum("nd,nd->n", risk.gradient(theta), direction)
    ahead, behind = value(theta + h * direction), value(theta - h * direction)
    assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-6, atol=1e-7)


@settings(max_examples=150)
@given(**cases)
@example(seed=0, T=1, D=1, outliers=0.9, log_h=-6, multiple=True)
@example(seed=0, T=40, D=60, outliers=0.3, log_h=-6, multiple=False)
def test_the_gradient_vanishes_at_the_minimum(
    seed: int, T: int, D: int, outliers: float, log_h: int, multiple: bool
) -> None:
    """‖2Hθ − p − Σ_t c_t ψ(r_t) φ_t‖ ≤ 1e-8, which of a convex function proves the minimum."""
    own, p, start = problem(seed, T, D, outliers, log_h, multiple)
    at = Huber().minimum(own, p, start)
    assert np.linalg.norm(gradient(own, p, at.theta)) <= 1e-8
    assert at.gradient <= 1e-8
    assert_allclose(at.loss, own.c @ Huber().value(own.Phi @ at.theta, own.y), rtol=1e-12)


@pytest.mark.parametrize("away", [0.0, 1e8, 1e200, np.nan], ids=["zero", "far", "overflow", "nan"])
@pytest.mark.parametrize("pull", [0.0, 1e3], ids=["no p", "large p"])
def test_tiny_curvature_large_pulls_and_terrible_starts(pull: float, away: float) -> None:
    """H = 1e-7 I: still ‖g‖ ≤ 1e-8, where float64 can tell; f is known to a part of ‖φ‖ ‖θ‖."""
    rng = np.random.default_rng(3)
    Phi, y = 10.0 * rng.standard_normal((60, 30)), 100.0 * rng.standard_cauchy(60)
    own = OneRisk(Phi, y, np.full(60, 1 / 60), 1e-7 * np.eye(30))
    p, start = pull * 1e-4 * rng.standard_normal(30), away * rng.standard_normal(30)
    at = Huber().minimum(own, p, start)
    unsure = 1e-14 * np.linalg.norm(Phi, axis=1).max() ** 2 * np.linalg.norm(at.theta)
    assert np.linalg.norm(gradient(own, p, at.theta)) <= max(1e-8, unsure)


def test_newton_finds_its_way_where_nearly_all_rows_are_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without help 1000 steps do not do here; with it 200 must."""
    rng = np.random.default_rng(19)
    Phi = 10.0 * rng.standard_normal((60, 60)) / np.sqrt(60)
    y = Phi @ rng.standard_normal(60) + 0.3 * rng.standard_normal(60)
    y += np.where(rng.random(60) < 0.3, 1e4 * rng.standard_cauchy(60), 0.0)
    own, zero = OneRisk(Phi, y, np.full(60, 1 / 60), 1e-7 * np.eye(60)), np.zeros(60)
    monkeypatch.setattr(huber, "STEPS", 200)
    assert np.linalg.norm(gradient(own, zero, Huber().minimum(own, zero, zero).theta)) <= 1e-6
    monkeypatch.setattr(huber, "STEPS", 2)
    with pytest.raises(ConvergenceError, match=r"still .* expected at most .*: raise"):
        Huber().minimum(own, zero, zero)


def test_the_answer_depends_on_the_question_alone() -> None:
    """An agent started again, after other questions or none, gives the same bits."""
    own, p, start = problem(4, T=150, D=20, outliers=0.3, log_h=-2, multiple=True)
    rng, old, kept = np.random.default_rng(0), Huber().repeated(own), (p.copy(), start.copy())
    for _ in range(5):
        old(rng.normal(size=20), rng.normal(size=20))
    for a, b in zip(old(p, start), Huber().repeated(own)(p, start), strict=True):
        assert_array_equal(a, b)
    assert_array_equal((p, start), kept)


def test_while_the_same_rows_are_within_no_system_is_factorised() -> None:
    """As in the rounds of ADMM: another p, from the answer for the last one."""
    own, p, other = problem(4, T=150, D=20, outliers=0.3, log_h=-2, multiple=True)
    again = Huber().repeated(own)
    last = again(p, np.zeros(20))
    with patch.object(OneRisk, "hessian", autospec=True, side_effect=OneRisk.hessian) as systems:
        for k in range(1, 6):
            after = p + 1e-5 * k * other
            last = again(after, last.theta)
            assert np.linalg.norm(gradient(own, after, last.theta)) <= 1e-12
    assert systems.call_count == 0


@pytest.mark.parametrize("matrix", [False, True])
def test_a_delta_beyond_all_residuals_is_the_quadratic_loss(
    matrix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local answers, losses, gradients and the optimum."""
    monkeypatch.setattr(huber, "DELTA", 1e6)
    (y, Phi), rng = wild(), np.random.default_rng(0)
    G = np.diag(np.arange(1.0, 17.0)) / 100 if matrix else 0.02
    ours, plain = risk_of(y, Phi, G), Quadratic.from_rows(lambda x: x, Phi, y, G)
    pull, p = rng.uniform(0.01, 0.5, (6, 1)), rng.normal(size=(6, 16))
    theta, loss = ours.argmin(pull)(p, 0 * p)
    expected, its_loss = plain.argmin(pull)(p, 0 * p)
    assert_allclose(theta, expected, atol=1e-8)
    assert_allclose(loss, its_loss, rtol=1e-8)
    for name in ("losses", "global_losses", "objectives", "gradient"):
        assert_allclose(getattr(ours, name)(p), getattr(plain, name)(p), rtol=1e-9, err_msg=name)
    assert_allclose(ours.optimum(), plain.optimum(), atol=1e-9)


def test_one_outlier_moves_the_optimum_by_a_bounded_amount() -> None:
    """‖θ*(t) − θ*(0)‖ ≤ 2δ‖φ‖ / (T₁ λ) for every t; the quadratic optimum moves in proportion to t.

    The row's pull changes by 4δ‖φ‖/T₁ at most, and Σ_i R_i is strongly convex with modulus 2λ.
    """
    c = case()
    lam, Phi = 6 * 0.02, c.Phi
    most = 2 * DELTA * np.linalg.norm(Phi[0][0]) / (len(c.y[0]) * lam)

    def moved(loss: str) -> Array:
        """How far from θ*(0), for t = 10², 10⁴, 10⁶, 10⁸."""
        found = []
        for t in (0.0, 1e2, 1e4, 1e6, 1e8):
            first, *others = c.y
            y = [np.concatenate([first[:1] + t, first[1:]]), *others]
            found.append(LOSSES[loss].risk(lambda x: x, Phi, y, lam / 6).optimum())
        return row_norms(np.array(found[1:]) - found[0])

    robust, plain = moved("huber"), moved("quadratic")
    assert robust.max() <= most
    assert robust[-1] > 0.05 * most  # else the bound says little
    assert_allclose(plain[1:] / plain[:-1], 100.0, rtol=1e-6)
    assert plain[-1] > 1e5 * most


@pytest.mark.parametrize("algorithm", [dkla(0.1), COKE(0.1, Geometric(1.0, 0.95))])
def test_consensus_reaches_the_centralised_optimum(algorithm: Algorithm) -> None:
    """θ_iᵏ → θ* = argmin Σ_i R_i, at which Σ_i ∇R_i vanishes, though some rows are far off."""
    risk = risk_of(*wild(), G=0.1)
    best = risk.optimum()
    assert_allclose(risk.gradient(np.tile(best, (6, 1))).sum(axis=0), 0, atol=1e-8)
    assert (np.abs(risk.y[0] - risk.Phi[0] @ best) > DELTA).any()
    *_, last = simulate(Problem(risk), GRAPHS["random"], algorithm, rounds=800, scored=())
    assert row_norms(last.state.theta - best).max() <= 1e-8


def test_without_a_regulariser_there_need_not_be_one_minimum() -> None:
    with pytest.raises(InputError, match="lambda > 0"):
        risk_of(*wild(), G=0.0).optimum()


CASE = faces.Case("huber", "coke")


def test_the_estimator_is_not_led_astray_by_outliers() -> None:
    """A twentieth of the targets is wrong by 300: predictions of the others stay what they are."""
    X, y, where = faces.rows(0)
    wrong = y + np.where(np.arange(len(y)) % 20 == 0, 300.0, 0.0)
    errors = {}
    for loss in ("quadratic", "huber"):
        model = COKERegressor(
            loss=loss, features=Features(n_features=30, sigma=1.5), scale="none",
            random_state=1,
        )  # fmt: skip
        model.fit(X, wrong, sites=where)
        assert model.model_.loss == loss
        errors[loss] = float(np.median(np.abs(model.predict(X) - y)))
    assert errors["huber"] < 0.02 * errors["quadratic"]


@pytest.mark.parametrize("algorithm", ["coke-paper", "dkla", "cta"])
def test_every_algorithm_runs_it(algorithm: str, tmp_path: Path) -> None:
    found = faces.run(faces.Case("huber", algorithm), tmp_path)
    assert found["rounds"] == 40
    assert (tmp_path / "out/report.html").exists()


def test_agents_agree_on_the_optimum(nets: Nets) -> None:
    """Σ_i ∇R_i vanishes at what all have agreed on, though some rows are beyond δ."""
    net = nets(loss="huber")
    net.rows = net.rows._replace(y=net.rows.y + 40.0 * (np.arange(len(net.rows.y)) % 9 == 0))
    net.start()
    net.wait()
    theta = net.theta()
    assert row_norms(theta - theta[0]).max() <= 1e-7
    slopes = [net.node(name).setup.risk.gradient(theta[:1])[0] for name in net.names]
    assert_allclose(np.sum(slopes, axis=0), 0, atol=1e-7)
    assert {net.node(name).setup.risk.metric for name in net.names} == {"huber"}


def test_ranks_have_one_processes_bits(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (found,) = faces.ranks([CASE], two)
    assert found == faces.run(CASE, one)


def test_features_on_disk_are_the_same_bits(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    more = {"precision": "auto"}
    found = [
        faces.left(CASE, at, coke(*faces.written(CASE, at, **how), cwd=at).stdout)
        for at, how in ((near, more), (far, {"on_disk": "scratch"}))
    ]
    assert found[0] == found[1]


def test_out_of_core_it_is_refused_with_the_reason(tmp_path: Path) -> None:
    run = coke(*faces.written(CASE, tmp_path, out_of_core=True), cwd=tmp_path, code=2)
    assert 'loss = "huber": that needs rows' in run.stderr.replace("\n", " ")
