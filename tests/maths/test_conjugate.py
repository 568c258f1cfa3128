"""Conjugate gradients whose products are coarse sums."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from coke.maths.arrays import Array
from coke.maths.choice import conjugate
from coke.maths.choice.conjugate import Conjugate, first_step

RNG = np.random.default_rng(3)


def ridge(D: int, K: int, N: int = 4, spread: float = 0.5) -> tuple[list[Array], Array, Array]:
    """Σ_i A_i + R near the identity, as a basis makes it; ‖b‖ at most one."""
    roots = [RNG.normal(size=(D, D)) for _ in range(N)]
    A = [spread * root @ root.T / (N * D) for root in roots]
    b = RNG.normal(size=(D, K))
    return A, 0.5 * np.eye(D), b / np.linalg.norm(b, axis=0)


def steps(A: list[Array], R: Array, b: Array, n: int, *, coarse: bool) -> Conjugate:
    at = Conjugate.start(R, b)
    for _ in range(n):
        told = [part @ at.p / at.step for part in A]
        at = at.after(np.sum(np.rint(told) if coarse else told, axis=0))
    return at


@pytest.mark.parametrize(("D", "K"), [(1, 1), (7, 1), (12, 3)])
def test_exact_products_reach_the_solution_in_as_many_steps_as_unknowns(
    D: int, K: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conjugate, "_NEAR", 1e-9)
    A, R, b = ridge(D, K)
    at = steps(A, R, b, D, coarse=False)
    assert_allclose(at.u, np.linalg.solve(sum(A, R), b), atol=1e-7)


@pytest.mark.parametrize(("D", "K"), [(5, 1), (60, 1), (200, 3)])
def test_coarse_sums_come_near(D: int, K: int) -> None:
    """Within a tenth of the solution after nine steps, in the norm of the problem."""
    A, R, b = ridge(D, K)
    b = np.rint(b / first_step(D)) * first_step(D)
    H = sum(A, R)
    best = np.linalg.solve(H, b)
    off = steps(A, R, b, 9, coarse=True).u - best
    assert (np.vecdot(off.T, (H @ off).T) < 0.1**2 * np.vecdot(best.T, (H @ best).T)).all()


def test_what_is_left_follows_the_solution() -> None:
    """A step along p takes as much of Hp from it, by sums as they were told."""
    A, R, b = ridge(20, 2)
    at = Conjugate.start(R, b)
    for _ in range(2):
        total = np.rint(sum(A) @ at.p / at.step)
        before, at = at, at.after(total)
        told = total * before.step + before.R @ before.p
        length = (at.u - before.u)[0] / before.p[0]
        assert (length > 0).all()
        assert_allclose(before.g - at.g, length * told, atol=1e-12)


def test_once_little_is_left_or_nothing_was_asked_it_stays() -> None:
    """Zero directions: nothing more to tell, no number that is none."""
    A, R, b = ridge(6, 2)
    b[:, 1] = 0
    at = steps(A, R, b, 30, coarse=False)
    assert not at.p.any()
    assert np.isfinite(at.u).all()
    assert not at.u[:, 1].any()
    again = at.after(np.zeros_like(b))
    assert_allclose(again.u, at.u)


def test_sums_that_lie_do_not_make_it_blow_up() -> None:
    """A direction of negative curvature is not followed."""
    _, R, b = ridge(6, 1)
    at = Conjugate.start(R, b)
    wild = at.after(-100 * at.p / at.step)
    assert_allclose(wild.u, 0)
