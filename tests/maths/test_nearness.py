"""When rounds are near enough for a proof: each site's own part of it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.learning.ready import Ready
from coke.learning.train import train
from coke.maths.algorithms.nearness import Nearness
from coke.maths.algorithms.tree_newton import Aim
from coke.maths.arrays import Array
from coke.maths.losses.excess import Certificate, excess, values
from coke.maths.losses.risk import Risk
from kit.hard import hard_cases

AIM = Aim(accuracy=0.01, sweeps=1, sums=True, bend=2.0, further=False)


def rising(risk: Risk, best: Array) -> Iterator[tuple[Array, Array]]:
    """(û, γ) of sites that agree, nearer and nearer to the optimum; Σγ = 0."""
    rng = np.random.default_rng(3)
    for far in np.geomspace(1.0, 1e-4, 9):
        u = np.tile(best + far * rng.normal(size=best.shape), (len(risk.T), 1))
        gamma = -risk.gradient(u) + far * rng.normal(size=u.shape)
        yield u, gamma - gamma.mean(axis=0)


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "huber"])
def test_sites_that_agree_and_are_near_have_a_proof(loss: str) -> None:
    """may_i adds up to what a proof may come to: e_i ≤ may_i at all sites is more than enough."""
    near = 0
    for case in hard_cases(6, seed=4, loss=loss):
        problem = case.ready(**{"lambda": 1e-2}).whitened[0]
        risk, zero = problem.train, np.zeros_like(problem.everywhere(problem.optimum))
        seen = Nearness(risk, AIM, rho=0.5)
        for u, gamma in rising(risk, problem.optimum):
            if (seen.of(u, gamma / 0.5, np.zeros(len(u))) <= 1.0).all():
                near += 1
                gap, here = excess(risk)(gamma, u).sum(), values(risk, u).sum()
                found = Certificate(gap, here, values(risk, zero).sum(), AIM.accuracy, AIM.slack)
                assert found.holds, case.name
    assert near


def test_a_neighbour_that_is_off_is_seen_first() -> None:
    """½κ‖û_i − û_n‖² counts like what is left to gain, and half of may_i is asked for."""
    problem = next(hard_cases(1, seed=2)).ready(**{"lambda": 1e-2}).whitened[0]
    risk, u = problem.train, problem.everywhere(problem.optimum)
    gamma = -risk.gradient(u)
    seen = Nearness(risk, AIM, rho=1.0)
    may = AIM.accuracy * values(risk, u) + AIM.slack * values(risk, 0.0 * u)
    g, apart = gamma - gamma.mean(axis=0), 2.0 * may / risk.kappa
    assert (seen.of(u, g, 0.49 * apart) <= 1.0).all()
    assert_array_equal(seen.of(u, g, 0.51 * apart) > 1.0, True)
    bold = Nearness(risk, AIM._replace(further=True), rho=1.0)
    assert (bold.of(u, g, 1.9 * apart) <= 1.0).all()


@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_a_site_sees_alone_what_it_sees_among_others(loss: str) -> None:
    """To the bit: agents and simulations stop after the same round."""
    for case in hard_cases(4, seed=6, loss=loss):
        problem = case.ready().whitened[0]
        risk, rng = problem.train, np.random.default_rng(1)
        u = problem.everywhere(problem.optimum) + 1e-3 * rng.normal(size=(len(risk.T), risk.size))
        g = rng.normal(scale=1e-3, size=u.shape) - risk.gradient(u)
        apart = 1e-6 * rng.random(len(u))
        together = Nearness(risk, AIM, rho=1.0).of(u, g, apart)
        for i in range(len(u)):
            one = slice(i, i + 1)
            alone = Nearness(risk.rows(one), AIM, rho=1.0)
            assert_array_equal(alone.of(u[one], g[one], apart[one]), together[one])


def test_nothing_to_learn_is_near_at_once() -> None:
    """Targets of zero: F(0) = 0, and no part of nothing is left."""
    case = next(hard_cases(1, seed=2))
    risk = case.ready(**{"lambda": 1e-2, "data": {"scale": "none"}}).whitened[0].train
    zero = np.zeros((len(risk.T), risk.size))
    silent = Nearness(risk, AIM._replace(accuracy=0.0, slack=0.0), rho=1.0)
    gamma = -risk.gradient(zero)
    assert_array_equal(silent.of(zero, gamma, np.zeros(len(zero))), 0.0)


def ended(ready: Ready) -> tuple[int, bool]:
    """After how many rounds, and whether with a proof."""
    done = train(ready, "coke")
    assert done.certificate is not None
    return done.ended.rounds, done.certificate.holds


def usual(ready: Ready) -> float:
    """The tolerance that is no setting, as one."""
    case = ready.case("coke")
    assert case.near is not None
    assert case.tol is not None
    return case.tol / case.spread


def test_rounds_end_when_they_can_be_proven_not_when_nobody_moves() -> None:
    """By default, never later than by the tolerance; one that is given is still of movement."""
    rounds = np.zeros(2, np.int64)
    for case in hard_cases(8, seed=2):
        ready = case.ready(**{"lambda": 1e-2})
        still = case.ready(**{"lambda": 1e-2, "tol": usual(ready)})
        assert still.case("coke").near is None
        (near, proven), (before, _) = ended(ready), ended(still)
        assert proven, case.name
        assert near <= before
        rounds += near, before
    assert rounds[0] < rounds[1]


def test_without_sums_rounds_go_on_until_there_is_a_proof() -> None:
    """Standing still is not enough where nothing but rounds can improve on a refused proof."""
    better = 0
    for case in hard_cases(12, seed=0):
        ready = case.ready(sums=False, rounds=200)
        _, proven = ended(ready)
        _, before = ended(case.ready(sums=False, rounds=200, tol=usual(ready)))
        assert proven >= before, case.name
        better += proven > before
    assert better
