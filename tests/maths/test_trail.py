"""The root's model of the Hessian: what moves tell of it, and where mixing all places leads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.maths.algorithms.trail import Guess, Trail
from coke.maths.algorithms.tree_newton import Aim, Root
from coke.maths.arrays import Array
from coke.maths.graph import Shape

D, C = 30, 2.0


def _own(rng: np.random.Generator) -> tuple[Array, Array]:
    """A Hessian in units of c, with eigenvalues from 1e-3 to 10: these, and the eigenvectors."""
    return np.geomspace(1e-3, 10.0, D), np.linalg.qr(rng.normal(size=(D, D)))[0]


@pytest.mark.parametrize("power", [0.3, 0.5, 0.6])
def test_of_the_powers_the_one_is_taken_that_the_moves_speak_for(power: float) -> None:
    """y = H s with H = c ownᵃ, whatever the moves: M ∝ H."""
    rng = np.random.default_rng(3)
    values, V = _own(rng)
    H, trail = (V * (C * values**power)) @ V.T, Trail.between(Guess(values, V), C, shared=True)
    for _ in range(5):
        u = rng.normal(size=D)
        trail.step(u, H @ u, 0.0)
    ratio = trail.M.values / (C * values**power)
    np.testing.assert_allclose(ratio, ratio[0])


def test_before_there_are_moves_it_is_the_mean_of_both_guesses() -> None:
    rng = np.random.default_rng(4)
    values, V = _own(rng)
    trail = Trail.between(Guess(values, V), C, shared=True)
    trail.step(rng.normal(size=D), rng.normal(size=D), 0.0)
    ratio = trail.M.values / np.sqrt(values)
    np.testing.assert_allclose(ratio, ratio[0])


def test_exact_gradients_of_a_quadratic_lead_to_its_minimum_in_as_many_moves_as_it_has_sides() -> (
    None
):
    """The method of minimal residuals ends after D + 1 gradients, whatever M is."""
    rng, n = np.random.default_rng(5), 6
    values, V = np.geomspace(0.05, 4.0, n), np.linalg.qr(rng.normal(size=(n, n)))[0]
    W = np.linalg.qr(rng.normal(size=(n, n)))[0]
    H, best = (W * np.geomspace(0.3, 3.0, n)) @ W.T, rng.normal(size=n)
    trail, u = Trail([Guess(values, V)], shared=False), np.zeros(n)
    for _ in range(n + 1):
        u = u + trail.step(u, H @ (u - best), 0.0)
    assert np.linalg.norm(u - best) <= 1e-6 * np.linalg.norm(best)


def test_on_broadcast_links_steps_are_finer_and_gradients_coarser() -> None:
    """A step is told once by each site with children, a gradient by every site but the root."""
    rng = np.random.default_rng(6)
    g, shape = rng.normal(size=D), Shape(sites=10, edges=28, inner=2, apart=100)
    aim = Aim(accuracy=1e-6, sweeps=100, sums=True, bend=2.0)
    both = [
        Root(np.eye(D), C, aim._replace(broadcast=cast), shape).after(0.0 * g, g, 1.0, 2.0, 0.0)
        for cast in (False, True)
    ]
    assert_array_equal(both[0].x, both[1].x)
    assert both[1].step == pytest.approx(np.sqrt(2 / 9) * both[0].step)
    assert both[1].up > both[0].up
