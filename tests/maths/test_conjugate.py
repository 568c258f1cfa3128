"""Ridge regression for several ridges at once, whose products are coarse sums."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from coke.maths.arrays import Array
from coke.maths.choice import conjugate
from coke.maths.choice.conjugate import Conjugate, first_step

RNG = np.random.default_rng(3)
TIMES = (1.0, 5.0, 25.0, 125.0)


def ridge(D: int, K: int, N: int = 4, spread: float = 0.5) -> tuple[list[Array], Array, Array]:
    """Σ_i A_i + R near the identity, as a basis makes it; ‖b‖ at most one."""
    roots = [RNG.normal(size=(D, D)) for _ in range(N)]
    A = [spread * root @ root.T / (N * D) for root in roots]
    b = RNG.normal(size=(D, K))
    return A, 0.5 * np.eye(D), b / np.linalg.norm(b, axis=0)


def steps(
    A: list[Array], R: Array, b: Array, n: int, *, coarse: bool, times: tuple[float, ...] = (1.0,)
) -> Conjugate:
    at = Conjugate.start(R, b, times)
    for _ in range(n):
        told = [part @ at.p / at.step for part in A]
        at = at.after(np.sum(np.rint(told) if coarse else told, axis=0))
    return at


@pytest.mark.parametrize(("D", "K"), [(1, 1), (7, 1), (12, 3)])
def test_exact_products_reach_the_solution_in_as_many_steps_as_unknowns(
    D: int, K: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every ridge, in whatever order they are looked at."""
    monkeypatch.setattr(conjugate, "_NEAR", 1e-9)
    A, R, b = ridge(D, K)
    at = steps(A, R, b, D, coarse=False, times=TIMES)
    for many in TIMES:
        assert_allclose(at.u(many), np.linalg.solve(sum(A, many * R), b), atol=1e-7)


def test_for_one_ridge_they_are_conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textbook ones, step by step."""
    monkeypatch.setattr(conjugate, "_NEAR", 1e-9)
    A, R, b = ridge(15, 1)
    H, u, g, p = sum(A, R), np.zeros_like(b), b, b
    for n in range(1, 6):
        length = np.sum(g * g) / np.sum(p * (H @ p))
        u, left = u + length * p, g - length * (H @ p)
        g, p = left, left + np.sum(left * left) / np.sum(g * g) * p
        assert_allclose(steps(A, R, b, n, coarse=False).u(1.0), u, atol=1e-8)


@pytest.mark.parametrize(("D", "K"), [(5, 1), (60, 1), (200, 3)])
def test_coarse_sums_come_near(D: int, K: int) -> None:
    """Within a tenth of the solution after nine steps, in the norm of the problem."""
    A, R, b = ridge(D, K)
    b = np.rint(b / first_step(D)) * first_step(D)
    at = steps(A, R, b, 9, coarse=True, times=TIMES)
    for many in TIMES:
        H = sum(A, many * R)
        best = np.linalg.solve(H, b)
        off = at.u(many) - best
        assert (np.vecdot(off.T, (H @ off).T) < 0.1**2 * np.vecdot(best.T, (H @ best).T)).all()


def test_where_the_ridge_is_uneven_eight_sweeps_serve_all_ridges() -> None:
    """R is near one where rows say nothing and near zero elsewhere: A itself is off by half."""
    D = 60
    r = np.logspace(-3, 0, D) / 1.01
    X = RNG.normal(size=(3 * D, D)) * np.sqrt(1 - r)
    A, R, b = [X.T @ X / (3 * D)], np.diag(r), np.sqrt(1 - r)[:, None] * RNG.normal(size=(D, 1))
    b /= np.linalg.norm(b)
    at = steps(A, R, b, 8, coarse=False, times=TIMES)
    for many in TIMES:
        H = A[0] + many * R
        best = np.linalg.solve(H, b)
        off = at.u(many) - best
        assert float((off * (H @ off)).sum()) < 0.1 * float((best * (H @ best)).sum())


def test_directions_are_orthonormal_and_their_products_as_told() -> None:
    A, R, b = ridge(20, 2)
    at = steps(A, R, b, 4, coarse=False, times=TIMES)
    assert_allclose(at.Q.T @ at.Q, np.eye(at.Q.shape[1]), atol=1e-12)
    assert_allclose(at.AQ, sum(A) @ at.Q, atol=1e-12)


def test_once_little_is_left_or_nothing_was_asked_it_stays() -> None:
    """Zero directions: nothing more to tell, no number that is none."""
    A, R, b = ridge(6, 2)
    b[:, 1] = 0
    at = steps(A, R, b, 30, coarse=False)
    assert not at.p.any()
    assert np.isfinite(at.u(1.0)).all()
    assert_allclose(at.u(1.0)[:, 1], 0, atol=1e-12)
    again = at.after(np.zeros_like(b))
    assert_allclose(again.u(1.0), at.u(1.0))


def test_sums_that_lie_do_not_make_it_blow_up() -> None:
    """Whatever was told, what is found is finite, and so is the next direction."""
    _, R, b = ridge(6, 1)
    at = Conjugate.start(R, b, TIMES)
    for lie in (-100.0, 1e9, 0.0, -0.5):
        wild = at.after(lie * at.p / at.step)
        assert np.isfinite(wild.p).all()
        assert all(np.isfinite(wild.u(many)).all() for many in TIMES)
