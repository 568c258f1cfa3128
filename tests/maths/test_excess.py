"""The duality gap: never below the truth, for every loss, whatever the duals and the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from coke.maths.arrays import Array
from coke.maths.losses import LOSSES, OF_CLASSES
from coke.maths.losses.excess import Certificate, excess, values
from coke.maths.losses.risk import Risk
from coke.settings.declaration import AUTO
from kit.hard import hard_cases

KNOWN = [name for name in LOSSES if name not in (AUTO, OF_CLASSES)]
CASES = 12


def places(risk: Risk, best: Array, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """(γ, u) from near the optimum to far from it; γ sums to zero."""
    N, found = len(risk.T), []
    for far in (1e-3, 0.1, 1.0):
        u = np.tile(best + far * rng.normal(size=best.shape), (N, 1))
        gamma = -risk.gradient(u) + far * rng.normal(size=u.shape)
        found.append((gamma - gamma.mean(axis=0), u))
    return found


@pytest.mark.parametrize("loss", KNOWN)
def test_the_gap_is_never_below_the_truth(loss: str) -> None:
    """On hard tables: F(u) − F(θ*) ≤ Σ_i e_i."""
    for i, case in enumerate(hard_cases(CASES, seed=1, loss=loss)):
        # The optimum itself is out of reach of a solver for many classes and almost no λ.
        problem = case.ready(**{"lambda": 1e-3} if loss == "softmax" else {}).whitened[0]
        risk, best, rng = problem.train, problem.optimum, np.random.default_rng(i)
        prepared, least = excess(risk), values(risk, np.tile(best, (len(risk.T), 1))).sum()
        for gamma, u in places(risk, best, rng):
            gap, above = prepared(gamma, u).sum(), values(risk, u).sum() - least
            assert gap >= above - 1e-9 * (1.0 + abs(least)), (case.name, gap, above)


@pytest.mark.parametrize("loss", KNOWN)
def test_at_the_optimum_with_its_own_duals_nothing_is_left(loss: str) -> None:
    """Where the loss has a gradient, γ_i = −∇R_i(θ*) proves θ*."""
    if not LOSSES[loss].smooth:
        pytest.skip("a kink has no one gradient")
    case = next(hard_cases(1, seed=5, loss=loss))
    problem = case.ready(**{"lambda": 1e-2}).whitened[0]
    risk, u = problem.train, np.tile(problem.optimum, (len(problem.train.T), 1))
    gamma = -risk.gradient(u)
    found = excess(risk)(gamma - gamma.mean(axis=0), u).sum()
    assert 0.0 <= found <= 1e-7 * values(risk, u).sum()


def test_of_quadratic_risks_it_is_the_distance_to_the_minimum() -> None:
    """By brute force: the minimum of R_i(v) + γᵀv itself."""
    case = next(hard_cases(1, seed=2))
    risk = case.ready(**{"lambda": 1e-2}).whitened[0].train
    rng, sums = np.random.default_rng(0), risk.sums
    assert sums is not None
    u, gamma = rng.normal(size=(2, len(risk.T), risk.size))
    wanted = []
    for i in range(len(risk.T)):
        H = sums.A[i] + risk.G
        v = np.linalg.solve(2.0 * H, 2.0 * sums.b[i] - gamma[i])
        wanted.append((u[i] - v) @ H @ (u[i] - v))
    assert_allclose(excess(risk)(gamma, u), wanted, rtol=1e-6)


def test_without_a_regulariser_nothing_is_proven() -> None:
    case = next(hard_cases(1, seed=3))
    risk = case.ready(**{"lambda": 0.0}).problem.train
    nothing: Any = np.zeros((len(risk.T), risk.size))
    assert np.isinf(excess(risk)(nothing, nothing)).all()


@pytest.mark.parametrize(
    ("gap", "holds", "text"),
    [
        (0.9, True, "certified within 0.91 % of the optimum"),
        (5.0, False, "not certified: proven only within 5.3 % of the optimum"),
        (99.9, False, "not certified: the proof says nothing"),
        (np.inf, False, "not certified: the proof says nothing"),
    ],
)
def test_a_certificate_says_how_near(gap: float, holds: bool, text: str) -> None:
    found = Certificate(gap, 100.0, 200.0, accuracy=0.01)
    assert (found.holds, str(found)) == (holds, text)


def test_models_without_noise_need_not_be_exact_beyond_all_use() -> None:
    assert Certificate(1e-7, 1.1e-7, 1.0, accuracy=0.01).holds
    assert not Certificate(1e-5, 1.1e-5, 1.0, accuracy=0.01).holds
