"""Rounds on a stream: Σγ = 0 to the bit through changes of basis, thresholds, the common clock."""

from __future__ import annotations

import numpy as np
import pytest

from coke.maths.algorithms.algorithm import Spoken
from coke.maths.algorithms.hedge import Fast, Hedge
from coke.maths.algorithms.online import Clock, Edges, Linked, Online, noise
from coke.maths.features.whitening import Whitening
from coke.maths.graph import adjacency
from coke.maths.losses.problem import Quadratic
from kit.problems import GRAPHS, Array, case, shape_of


def basis(D: int, seed: int) -> Whitening:
    X = np.random.default_rng(seed).normal(size=(4 * D, D))
    return Whitening.of(X.T @ X / (4 * D) + 0.01 * np.eye(D))


def started(name: str) -> tuple[Online, Quadratic, Array]:
    problem = case(N=6).problem
    risk = problem.train.sums
    assert risk is not None
    online = Online.of(2.0, shape_of(GRAPHS[name]), Edges.of(adjacency(GRAPHS[name])))
    return online, risk, np.full((6, 1), 1e-3)


def heard(online: Online, at: Linked, spoken: Spoken) -> Linked:
    """All sites are here."""
    return online.heard(at, at.coke.hat)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_duals_sum_to_zero_through_changes_of_basis(name: str) -> None:
    """Σ_i γ_i = 0 to the last bit, after every round and every change."""
    online, plain, h = started(name)
    old = basis(plain.A.shape[-1], 0)
    at = heard(online, *online.start(plain.whitened(old)))
    for k in range(12):
        at = heard(online, *online.round(at, plain.whitened(old), h))
        if k % 3 == 2:
            new = basis(plain.A.shape[-1], k)
            at, old = online.moved(at, old, new), new
        assert (at.coke.g.sum(axis=0) == 0).all()
        assert np.abs(at.coke.g).max() > 0


def test_a_change_of_basis_changes_no_prediction_and_no_dual_of_theta() -> None:
    """θ̂ = C⁻ᵀû and γ_θ = C g stay, to the grid's rounding."""
    online, plain, h = started("random")
    D = plain.A.shape[-1]
    old, new = basis(D, 0), basis(D, 1)
    at = heard(online, *online.start(plain.whitened(old)))
    at = heard(online, *online.round(at, plain.whitened(old), h))
    moved = online.moved(at, old, new)
    np.testing.assert_allclose(new.theta(moved.coke.hat), old.theta(at.coke.hat), atol=1e-7)
    np.testing.assert_allclose(moved.duals @ new.C.T, at.duals @ old.C.T, atol=1e-7)
    np.testing.assert_array_equal(moved.coke.heard, online.edges.W @ moved.said)


def test_rounds_go_to_the_optimum_of_all_agents_whatever_the_basis() -> None:
    """h → 0 and risks that stay: every θ_i → θ*, through a change of basis."""
    online, plain, _ = started("random")
    D = plain.A.shape[-1]
    P = plain.A.mean(axis=0) + 2 * plain.G * np.eye(D)
    bases = [Whitening.of(P), Whitening.of(P + 0.3 * np.diag(np.diag(P)))]
    at = heard(online, *online.start(plain.whitened(bases[0])))
    for k in range(200):
        if k == 20:
            at = online.moved(at, *bases)
        at = heard(
            online, *online.round(at, plain.whitened(bases[k >= 20]), np.full((6, 1), 0.5 * 0.9**k))
        )
    theta = bases[1].theta(at.coke.theta)
    assert np.abs(theta - plain.optimum()).max() < 1e-6


def test_thresholds_fall_with_rows_and_grow_again_with_noise() -> None:
    """h = s √(D/(N w)): four times the rows halve it, forgetting and larger errors raise it."""
    h = noise(np.array([1.0, 1.0, 2.0]), np.array([100.0, 400.0, 400.0]), N=10, D=40)
    np.testing.assert_allclose(h[:, 0], [0.2, 0.1, 0.2])


def test_rounds_come_with_every_twentieth_of_growth_and_stay_regular_with_forgetting() -> None:
    clock, at = Clock(), []
    for t in range(1, 4001):
        clock = clock.ticked(1 - 1 / 500)
        if clock.due:
            clock = clock._replace(since=0)
            at.append(t)
    assert at[:20] == list(range(1, 21))
    assert set(np.diff(at)[-20:].tolist()) == {24}
    assert len(at) < 300


def test_the_fast_layer_follows_what_the_common_model_misses() -> None:
    """y = (θ + δ)ᵀφ at one site: its weight goes to the steps; at the other it stays at none."""
    rng, D = np.random.default_rng(0), 4
    theta, fast = np.zeros((2, 1, D)), Fast.idle(2, 1, D)
    there, off = np.ones(2, bool), []
    for _ in range(300):
        phi = rng.normal(size=(2, D))
        y = np.array([[phi[0].sum()], [3.0 * rng.normal()]])
        f = fast.each(theta, phi)
        off.append((y - fast.mixed(f))[:, 0] ** 2)
        fast = fast.after(f, y, phi, there)
    v = fast.hedge.v
    assert v[0, 0] < 0.01 < 0.5 < v[1, 0]
    assert np.mean(off[-50:], axis=0)[0] < 0.1


def test_hedge_never_loses_much_to_the_best_and_one_row_settles_nothing() -> None:
    hedge, there = Hedge.even(1, 2), np.ones(1, bool)
    for _ in range(100):
        hedge = hedge.after(np.array([[1.0, 1.5]]), there)
    assert hedge.v[0, 0] > 0.99
    assert hedge.after(np.array([[1e9, 0.0]]), there).v[0, 0] > 0.01
    np.testing.assert_array_equal(hedge.after(np.ones((1, 2)), ~there).cost, hedge.cost)
