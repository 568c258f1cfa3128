"""The compiled rounds and the logistic steps by a bound: the same answers as the plain ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.engines.process import simulate
from coke.errors import InputError
from coke.maths import compiled
from coke.maths.algorithms.coke import COKE, Geometric, Sequential, dkla
from coke.maths.algorithms.coke_compiled import fused
from coke.maths.arrays import Array
from coke.maths.graph import adjacency, build_graph, degrees
from coke.maths.losses import LOSSES
from coke.maths.losses.logistic import Logistic
from coke.maths.losses.newton import OneRisk
from coke.maths.losses.problem import Problem, Quadratic
from coke.maths.losses.rowwise import Rowwise

numba = pytest.mark.skipif(not compiled.available(), reason="needs the extra `fast`")
SIZES = st.integers(1, 40)


def risk(seed: int, N: int, D: int, matrix: bool = False) -> Quadratic:
    """N quadratic risks with Gram matrices of full rank."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(N, 2 * D, D))
    A, b = Z.swapaxes(1, 2) @ Z / (2 * D), rng.normal(size=(N, D))
    G = np.cov(rng.normal(size=(D, 3 * D + 3))).reshape(D, D) + np.eye(D) if matrix else 0.1
    return Quadratic(A, b, np.full(N, 2.0 * D + 3), np.full(N, 9.0), G)


@given(seed=st.integers(0, 1000), N=st.integers(1, 4), D=SIZES)
def test_packing_keeps_every_entry_of_a_symmetric_matrix(seed: int, N: int, D: int) -> None:
    """The product of the packed lower triangle, in plain Python, is that of the matrix."""
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(N, D, D))
    M, x, y = M + M.swapaxes(1, 2), rng.normal(size=(N, D)), np.full((N, D), np.nan)
    P = compiled._packed(M)
    assert P.shape[1] <= D * (D + 1) // 2 + 3 * D // 2
    for i in range(N):
        compiled._times(P[i], x[i], y[i])
    assert_allclose(y, np.matvec(M, x), atol=1e-12)


@numba
@settings(deadline=None)
@given(seed=st.integers(0, 1000), N=st.integers(1, 5), D=SIZES, matrix=st.booleans())
def test_compiled_solves_equal_the_plain_ones(seed: int, N: int, D: int, matrix: bool) -> None:
    """θ and its loss, for both kinds of regulariser, to rounding."""
    plain, rng = risk(seed, N, D, matrix), np.random.default_rng(seed)
    pull, p = rng.uniform(0.1, 2.0, (N, 1)), rng.normal(size=(N, D))
    expected = plain.argmin(pull)(p, p)
    found = replace(plain, fast=True).argmin(pull)(p, p)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    assert_allclose(found[1], plain.losses(found[0]), rtol=1e-9, atol=1e-10)


@numba
@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("D", [3, 8, 97, 100, 201])
def test_a_row_does_not_know_how_many_rows_there_are(D: int, matrix: bool) -> None:
    """Row i of N, of every block of rows, and alone: the same bits."""
    N = 7
    whole, rng = replace(risk(0, N, D, matrix), fast=True), np.random.default_rng(1)
    pull, p = rng.uniform(0.1, 2.0, (N, 1)), rng.normal(size=(N, D))
    theta, loss = whole.argmin(pull)(p, p)
    for rows in [*(slice(i, i + 1) for i in range(N)), slice(1, 4), slice(2, 7)]:
        part = whole.rows(rows).argmin(pull[rows])(p[rows], p[rows])
        assert_array_equal(part[0], theta[rows])
        assert_array_equal(part[1], loss[rows])


@numba
@pytest.mark.parametrize("algorithm", [dkla(0.2), COKE(0.2, Geometric(1.0, 0.95)),
                                       COKE(0.2, Geometric(1.0, 0.9), warm=True)])  # fmt: skip
@pytest.mark.parametrize("matrix", [False, True])
def test_fused_rounds_have_the_bits_of_speak_and_listen(algorithm: COKE, matrix: bool) -> None:
    """State and counts to the last bit, gaps to rounding, over a run in which some are silent."""
    problem = Problem(replace(risk(2, 9, 21, matrix), fast=True))
    graph = build_graph("random", 9, edges=15, seed=0)
    own, s = (
        algorithm.local(problem.train, degrees(adjacency(graph))),
        algorithm.start(problem.train),
    )
    W, sent, seen = adjacency(graph), 0, 0
    at_once = fused(problem, W, algorithm, own)
    assert at_once is not None
    for r in simulate(problem, graph, algorithm, rounds=60):
        seen += at_once(s, r.spent, r.k) is not None
        s, (size, _) = algorithm.speak(own, s, r.k)
        s = algorithm.listen(own, s, W @ s.hat)
        sent += int(np.count_nonzero(size))
        for name, array in s._asdict().items():
            assert_array_equal(getattr(r.state, name), array, err_msg=f"round {r.k}: {name}")
        assert_array_equal(r.spoke, size[:, 0] > 0)
        assert r.ledger.transmissions == sent
        apart = np.linalg.norm(s.theta - s.theta.mean(axis=0), axis=1).max()
        away = np.linalg.norm(s.theta - problem.optimum, axis=1).max()
        assert_allclose([r.consensus_gap, r.optimality_gap], [apart, away], rtol=1e-10, atol=1e-14)
    assert seen >= 59


@numba
def test_watched_and_unwatched_runs_count_the_same() -> None:
    """A budget that nobody reaches changes nothing: states, bytes in both accounts, who spoke."""
    problem = Problem(replace(risk(3, 8, 12), fast=True))
    graph, algorithm = build_graph("ring", 8, seed=0), COKE(0.2, Geometric(1.0, 0.95))
    free = simulate(problem, graph, algorithm, rounds=40)
    watched = simulate(problem, graph, algorithm, rounds=40, max_bytes=10**9)
    for a, b in zip(free, watched, strict=True):
        assert_array_equal(a.state.g, b.state.g)
        assert_array_equal(a.spent, b.spent)
        assert a.ledger == b.ledger


@numba
def test_a_run_goes_on_from_arrays_that_must_not_be_written() -> None:
    """As a checkpoint read from a file has them: the same bits as if nothing had happened."""
    problem = Problem(replace(risk(6, 5, 11), fast=True))
    graph, algorithm = build_graph("ring", 5, seed=0), COKE(0.2, Geometric(1.0, 0.95))
    records = list(simulate(problem, graph, algorithm, rounds=20))
    saved = records[9].checkpoint()
    for array in (saved.spent, *saved.state.values()):
        array.setflags(write=False)
    again = list(simulate(problem, graph, algorithm, rounds=20, resume=saved))
    for a, b in zip(again, records[10:], strict=True):
        assert_array_equal(a.state.theta, b.state.theta)
        assert_array_equal(a.spent, b.spent)


@numba
def test_a_close_call_is_left_to_the_plain_way() -> None:
    """Where ‖θ − θ̂‖ is h(k) up to rounding, the fused round declines; with clear thresholds not."""
    problem, graph = Problem(replace(risk(4, 6, 10), fast=True)), build_graph("ring", 6, seed=0)
    algorithm = dkla(0.2)
    own, s = (
        algorithm.local(problem.train, degrees(adjacency(graph))),
        algorithm.start(problem.train),
    )
    spent = np.zeros((6, 3), np.int64)
    theta = own.argmin(np.zeros_like(s.theta), s.theta)[0]
    for factor, close in ((1.0, True), (1.0 + 1e-13, True), (1.0 + 1e-6, False), (0.5, False)):
        h = factor * float(np.linalg.norm(theta[2]))
        at_once = fused(problem, adjacency(graph), COKE(0.2, Sequential([h])), own)
        assert at_once is not None
        assert (at_once(s, spent, 1) is None) == close


@numba
def test_divergence_is_noticed_all_the_same() -> None:
    """A NaN in a compiled round is a NaN in its loss."""
    bad = risk(5, 3, 9)
    solve = replace(bad, fast=True).argmin(np.ones((3, 1)))
    p = np.zeros((3, 9))
    p[1, 4] = np.nan
    assert_array_equal(np.isnan(solve(p, p)[1]), [False, True, False])


def test_without_numba_fast_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "available", lambda: False)
    with pytest.raises(InputError, match=r"coke-learn\[fast\]"):
        replace(risk(0, 2, 3), fast=True)
    problem, A = Problem(risk(0, 2, 3)), adjacency(build_graph("ring", 2, seed=0))
    assert fused(problem, A, dkla(0.1), dkla(0.1).local(problem.train, degrees(A))) is None


def rows(seed: int, T: int, D: int, kind: str) -> tuple[OneRisk, Array, Array]:
    """A logistic problem, a pull and a start."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(T, D)) / np.sqrt(D)
    if kind == "separable":
        Z *= np.where(Z @ rng.normal(size=D) < 0, -10.0, 10.0)[:, None]
    h = {"noise": 1e-2, "separable": 1e-6}[kind]
    return (
        OneRisk(Z, np.ones(T), np.full(T, 1.0 / T), h * np.eye(D)),
        h * rng.normal(size=D),
        rng.normal(size=D),
    )


@given(
    seed=st.integers(0, 1000),
    T=st.sampled_from([1, 7, 90]),
    D=st.sampled_from([1, 5, 30]),
    kind=st.sampled_from(["noise", "separable"]),
    away=st.sampled_from([0.0, 1e-3, 1.0, 1e9, 1e300]),
)
def test_steps_by_the_bound_reach_the_minimum(
    seed: int, T: int, D: int, kind: str, away: float
) -> None:
    """‖g‖ ≤ 1e-8 from near, far and overflowing starts; the loss is that of θ."""
    own, p, start = rows(seed, T, D, kind)
    at = Logistic().repeated(own)(p, away * start)
    m = own.Phi @ at.theta
    g = 2.0 * own.H @ at.theta - p - own.Phi.T @ (own.c / (1.0 + np.exp(np.minimum(m, 700.0))))
    assert np.linalg.norm(g) <= 1e-8
    assert_allclose(at.loss, own.c @ np.logaddexp(0.0, -m), rtol=1e-12)


def test_near_starts_need_no_newton_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the rounds of ADMM; Newton's method is not asked."""
    own, p, start = rows(1, 200, 30, "noise")
    theta = Logistic().minimum(own, p, start).theta

    def newton(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(Logistic, "minimum", newton)
    again = Logistic().repeated(own)
    for size in (0.0, 1e-6, 1e-3):
        near = theta + size * start
        found = again(p, near)
        assert_allclose(found.theta, theta, atol=1e-6)
        assert not np.shares_memory(found.theta, near)


def test_a_start_that_is_no_number_is_left_to_newton() -> None:
    """Which begins at zero then."""
    own, p, start = rows(3, 40, 6, "noise")
    found = Logistic().repeated(own)(p, np.full_like(start, np.nan))
    assert_array_equal(found.theta, Logistic().minimum(own, p, np.zeros_like(start)).theta)


def test_the_bound_is_above_every_hessian() -> None:
    """B − ∇² is positive semidefinite wherever θ is."""
    own, _, start = rows(2, 60, 12, "noise")
    B = np.linalg.inv(Logistic().repeated(own).inverse)
    for size in (0.0, 1.0, 30.0):
        a = 1.0 / (1.0 + np.exp(own.Phi @ (size * start)))
        hessian = 2.0 * own.H + own.Phi.T @ ((own.c * a * (1.0 - a))[:, None] * own.Phi)
        assert np.linalg.eigvalsh(B - hessian)[0] >= -1e-12


def test_logistic_answers_depend_on_the_question_alone() -> None:
    """An agent started again, after other questions or none, gives the same bits."""
    rng = np.random.default_rng(0)
    Phi = tuple(rng.normal(size=(T, 15)) / 4 for T in (40, 60, 25))
    y = tuple(np.where(rng.random(len(P)) < 0.5, -1.0, 1.0) for P in Phi)
    margin, pull = Rowwise(Phi, y, 0.01, LOSSES["logistic"]), np.full((3, 1), 0.1)
    p, start = rng.normal(size=(2, 3, 15)) / 10
    old = margin.argmin(pull)
    for _ in range(5):
        old(rng.normal(size=(3, 15)), rng.normal(size=(3, 15)))
    kept = start.copy()
    for a, b in zip(old(p, start), margin.argmin(pull)(p, start), strict=True):
        assert_array_equal(a, b)
    assert_array_equal(start, kept)
