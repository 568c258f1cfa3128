"""Local risks and the answers to compare with: minima are minima, losses are what rows say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from coke.data.split import deal
from coke.data.tables import checked_rows, inputs_of
from coke.engines.process import simulate
from coke.errors import InputError
from coke.maths import losses
from coke.maths.algorithms.coke import COKE, Geometric, dkla
from coke.maths.arrays import mapped
from coke.maths.features.features import FeatureSettings, draw_features, gram
from coke.maths.graph import build_graph
from coke.maths.losses import LOSSES, OF_CLASSES
from coke.maths.losses.codes import coded
from coke.maths.losses.excess import values
from coke.maths.losses.joint import Joint, OneOf
from coke.maths.losses.newton import Minimum, Proof
from coke.maths.losses.one_vs_rest import OneVsRest
from coke.maths.losses.problem import CHUNK, Problem, Quadratic
from coke.maths.losses.risk import Risk, local_only, one_shot_average
from coke.maths.losses.rowwise import Rowwise, _end_to_end
from kit.problems import GRAPHS, case
from kit.ready import held, ready

Array = NDArray[np.float64]
N, D = 4, 10
RNG = np.random.default_rng(3)
ROOT = RNG.normal(size=(D, D))
MATRIX = ROOT @ ROOT.T / D + 0.1 * np.eye(D)  # a regulariser that is no multiple of the identity
PHI = [RNG.normal(size=(t, D)) / np.sqrt(D) for t in (15, 22, 31, 9)]
LABELS = [np.where(P @ np.ones(D) + RNG.normal(size=len(P)) > 0, 1.0, -1.0) for P in PHI]
THREE = [np.digitize(P @ np.ones(D), [-0.5, 0.5]) for P in PHI]
VALUES = [P @ np.arange(D) + RNG.normal(size=len(P)) for P in PHI]
COLUMNS = [np.column_stack([y, RNG.normal(size=len(y)), y**2]) for y in VALUES]


def same(x: Array) -> Array:
    return x


def rows_with(loss: str, y: Sequence[Array], G: Any, outputs: int = 1) -> Rowwise:
    return Rowwise(tuple(PHI), tuple(y), G, LOSSES[loss], outputs=outputs)


RISKS: dict[str, Risk] = {
    "quadratic": Quadratic.from_rows(same, PHI, VALUES, 0.05),
    "quadratic, matrix": Quadratic.from_rows(same, PHI, VALUES, MATRIX),
    "three outputs": Quadratic.from_rows(same, PHI, COLUMNS, 0.05),
    "three outputs, matrix": Quadratic.from_rows(same, PHI, COLUMNS, MATRIX),
    "softmax": rows_with("softmax", THREE, 0.05, 2),
    "softmax, matrix": rows_with("softmax", THREE, MATRIX, 2),
    "softmax, two classes": rows_with("softmax", [(y + 1) / 2 for y in LABELS], 0.05),
    "huber": rows_with("huber", VALUES, 0.05),
    "huber, matrix": rows_with("huber", VALUES, MATRIX),
    "logistic": rows_with("logistic", LABELS, 0.05),
    "logistic, matrix": rows_with("logistic", LABELS, MATRIX),
    "hinge": rows_with("hinge", LABELS, 0.05),
    "hinge, matrix": rows_with("hinge", LABELS, MATRIX),
}
RISKS["one against the rest"] = OneVsRest(
    rows_with("logistic", LABELS, 0.05), (tuple(-y for y in LABELS),)
)
SMOOTH = [name for name in RISKS if not name.startswith("hinge")]


def value(risk: Risk, theta: Array, pull: Array, p: Array) -> Array:
    """R_i(θ_i) + ρd_i‖θ_i‖² − p_iᵀθ_i from the rows' losses, classes added up."""
    if isinstance(risk, OneVsRest):
        pieces = zip(risk.parts, np.split(theta, 2, -1), np.split(p, 2, -1), strict=True)
        return np.asarray(sum(value(part, t, pull, q) for part, t, q in pieces))
    assert isinstance(risk, Quadratic | Rowwise)
    G = risk.G if isinstance(risk.G, np.ndarray) else risk.G * np.eye(D)
    apart = theta.reshape(N, -1, D)
    own = np.einsum("nki,ij,nkj->n", apart, G, apart) - np.einsum("ni,ni->n", p, theta)
    return risk.losses(theta) + own + pull[:, 0] * np.einsum("ni,ni->n", theta, theta)


@pytest.mark.parametrize("risk", RISKS.values(), ids=RISKS)
def test_argmin_is_the_minimum_of_the_local_problem(risk: Risk) -> None:
    """No point nearby is better, and the loss returned is the loss of the rows."""
    rng = np.random.default_rng(0)
    pull, p = rng.uniform(0.01, 0.5, size=(N, 1)), rng.normal(size=(N, risk.size))
    theta, loss = risk.argmin(pull)(p, np.zeros_like(p))
    assert_allclose(loss, risk.losses(theta), atol=1e-10)
    best = value(risk, theta, pull, p)
    for scale in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            near = theta + scale * rng.normal(size=theta.shape)
            assert (value(risk, near, pull, p) >= best - 1e-10).all()


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_is_the_derivative(name: str) -> None:
    risk, rng = RISKS[name], np.random.default_rng(1)
    theta, direction = rng.normal(size=(2, N, risk.size))
    nobody, nothing, h = np.zeros((N, 1)), np.zeros((N, risk.size)), 1e-6
    ahead = value(risk, theta + h * direction, nobody, nothing)
    behind = value(risk, theta - h * direction, nobody, nothing)
    slope = np.einsum("ni,ni->n", risk.gradient(theta), direction)
    assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-6, atol=1e-7)


BOUNDED = [name for name in SMOOTH if name.startswith(("softmax", "logistic", "one"))]


@pytest.mark.parametrize("name", BOUNDED)
def test_a_few_steps_never_climb_and_rest_at_the_minimum(name: str) -> None:
    """From anywhere, as B bounds every Hessian; and B⁻¹g = 0 where g is."""
    risk, rng = RISKS[name], np.random.default_rng(5)
    pull, p = rng.uniform(0.01, 0.5, size=(N, 1)), rng.normal(size=(N, risk.size))
    towards, theta = risk.approach(pull), 10.0 * rng.normal(size=(N, risk.size))
    for _ in range(200):
        before, (theta, loss) = value(risk, theta, pull, p), towards(p, theta)
        assert (value(risk, theta, pull, p) <= before + 1e-12).all()
        assert_allclose(loss, risk.losses(theta), rtol=1e-12)
    best = risk.argmin(pull)(p, 0 * p)[0]
    assert_allclose(theta, best, atol=1e-6)
    assert_allclose(towards(p, best)[0], best, atol=1e-7)


@pytest.mark.parametrize("name", BOUNDED)
def test_rounds_of_a_few_steps_reach_the_optimum(name: str) -> None:
    """COKE with steps in place of minima: every agent at θ*, as with them."""
    risk = RISKS[name]
    algorithm = COKE(0.1, Geometric(1.0, 0.97), exact=False)
    *_, last = simulate(Problem(risk), nx.cycle_graph(N), algorithm, rounds=900)
    assert last.optimality_gap < 1e-5


def test_several_outputs_are_as_many_problems() -> None:
    """(Σ_i A_i + N G)⁻¹ Σ_i b_i, column by column."""
    together = RISKS["three outputs"].optimum().reshape(3, D)
    for k, theta in enumerate(together):
        alone = Quadratic.from_rows(same, PHI, [Y[:, k] for Y in COLUMNS], 0.05)
        assert_allclose(theta, alone.optimum(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_optimum_has_no_slope(name: str) -> None:
    """Σ_i ∇R_i(θ*) = 0."""
    risk = RISKS[name]
    everywhere = np.tile(risk.optimum(), (N, 1))
    assert_allclose(risk.gradient(everywhere).sum(axis=0), 0, atol=1e-8)


@pytest.mark.parametrize("risk", RISKS.values(), ids=RISKS)
def test_global_losses_are_means_over_all_rows(risk: Risk) -> None:
    """Of a model at every site alike, the paper's and the global loss are the same number."""
    theta = np.random.default_rng(2).normal(size=(3, risk.size))
    for t, found in zip(theta, risk.global_losses(theta), strict=True):
        each = risk.losses(np.tile(t, (N, 1)))
        assert_allclose(found, each @ risk.T / risk.T.sum(), rtol=1e-12)


@pytest.mark.parametrize("risk", RISKS.values(), ids=RISKS)
def test_some_agents_alone_are_those_agents(risk: Risk) -> None:
    pull, p = np.full((N, 1), 0.1), np.random.default_rng(4).normal(size=(N, risk.size))
    theta, loss = risk.argmin(pull)(p, 0 * p)
    part = risk.rows(slice(1, 3))
    some, some_loss = part.argmin(pull[1:3])(p[1:3], 0 * p[1:3])
    assert_array_equal(some, theta[1:3])
    assert_array_equal(some_loss, loss[1:3])
    assert_array_equal(part.T, risk.T[1:3])


def test_statistics_do_not_depend_on_the_chunk() -> None:
    """A pass in chunks is the pass over all rows; test sites without rows weigh nothing."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2 * CHUNK + 17, 3)), rng.normal(size=2 * CHUNK + 17)
    q = Quadratic.from_rows(same, [X, X[:0]], [y, y[:0]], 0.0)
    assert_allclose(q.A[0], X.T @ X / len(X), rtol=1e-12)
    assert_allclose(q.b[0], X.T @ y / len(X), rtol=1e-11)
    theta = rng.normal(size=(2, 3))
    assert_allclose(q.global_losses(theta), np.mean((y - theta @ X.T) ** 2, axis=1), rtol=1e-12)
    assert q.losses(theta)[1] == 0


def test_proofs_of_the_centralised_minimum() -> None:
    smooth = rows_with("logistic", LABELS, 0.05).proved()
    sharp = rows_with("hinge", LABELS, 0.05).proved()
    assert isinstance(smooth, Minimum)
    assert isinstance(sharp, Proof)
    assert smooth.gradient <= 1e-8
    assert -1e-12 <= sharp.gap <= 1e-6


def test_a_regulariser_is_a_number_or_a_positive_definite_matrix() -> None:
    """Whatever kind of number it is; anything else is refused, not broadcast."""
    wanted = Quadratic.from_rows(same, PHI, VALUES, 1.0).optimum()
    ones: list[Any] = [1, np.float32(1), np.eye(D), np.eye(D, dtype=int)]
    for one in ones:
        assert_allclose(Quadratic.from_rows(same, PHI, VALUES, one).optimum(), wanted)
    lopsided = np.triu(np.ones((D, D)))
    bads: list[Any] = [-1.0, np.inf, np.ones(D), np.eye(D + 1), -np.eye(D), lopsided]
    for bad in bads:
        with pytest.raises(InputError, match="expected"):
            Quadratic.from_rows(same, PHI, VALUES, bad)
        with pytest.raises(InputError, match="expected"):
            rows_with("hinge", LABELS, bad)
    with pytest.raises(InputError, match="other than -1"):
        rows_with("logistic", [(y + 1) / 2 for y in LABELS], 0.1)


def test_losses_of_rows_need_a_regulariser() -> None:
    for loss in ("logistic", "hinge", "huber"):
        with pytest.raises(InputError, match="lambda > 0"):
            rows_with(loss, LABELS, 0.0).optimum()
        with pytest.raises(InputError, match="lambda > 0"):
            rows_with(loss, LABELS, 0.0).approach(np.ones((N, 1)))


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in ("auto", OF_CLASSES)])
def test_what_a_loss_declares_is_true_of_its_risks(name: str) -> None:
    """Metric, curvature, outputs and whether sums suffice."""
    loss, kinds = LOSSES[name], {"numbers": [VALUES], "classes": [LABELS, THREE]}
    for y in kinds[loss.kind]:
        classes = np.unique(np.concatenate(y)) if loss.kind == "classes" else ()
        targets = [coded(part, classes) for part in y] if loss.codes else y
        risk, K = loss.risk(same, PHI, targets, 0.05, classes=classes), len(classes)
        assert (risk.metric, risk.kappa) == (loss.metric, loss.curvature(loss.outputs(1, K)))
        assert (risk.sums is not None) == loss.statistics
        assert (risk.total(np.ones(N)) is not None) == loss.statistics
        assert risk.size == D * loss.outputs(1, K)
        f = np.linspace(-3, 3, 61)
        if not loss.statistics and name != "hinge":  # which has no curvature
            bend = np.diff(loss.of_row.slope(f, np.ones(61))) / np.diff(f)
            assert 0.9 * loss.kappa <= bend.max() <= 1.000001 * loss.kappa
            assert bend.max() <= 1.000001 * loss.bend or not loss.bend


def test_the_losses_can_be_read_without_numpy() -> None:
    """For the command line's help is made from them."""
    code = f"import runpy, sys; runpy.run_path({losses.__file__!r}); print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("risk", RISKS.values(), ids=RISKS)
def test_what_two_processes_hold_is_gathered(risk: Risk) -> None:
    """The risks of all agents, from the rows of those at each process."""
    here, there = risk.rows(slice(0, 1)), risk.rows(slice(1, N))
    held: dict[int, Any] = {}

    def keep(part: Any) -> Any:
        held[len(held)] = part
        return part

    there.gathered(keep, lambda parts: keep(tuple(parts)))
    later = iter(held.values())
    whole = here.gathered(
        lambda rows: np.concatenate([rows, next(later)]), lambda parts: (*parts, *next(later))
    )
    theta = np.random.default_rng(0).normal(size=(N, risk.size))
    for name in ("losses", "gradient", "global_losses"):
        assert_array_equal(getattr(whole, name)(theta), getattr(risk, name)(theta))
    assert_array_equal(whole.optimum(), risk.optimum())


def objective(risk: Rowwise, theta: Array) -> float:
    """Σ_i R_i(θ) of one θ at every site."""
    assert isinstance(risk.G, float)
    return float(risk.losses(np.tile(theta, (N, 1))).sum() + N * risk.G * theta @ theta)


def scikit_learns(risk: Rowwise) -> Array:
    """The same minimum by scikit-learn: Σ_t w_t ℓ + (1/2C)‖θ‖² with w_t = 1/T_i and 1/C = 2Nλ_i."""
    assert isinstance(risk.G, float)
    Phi, y = np.concatenate(risk.Phi), np.concatenate(risk.y)
    weight, C = np.repeat(1 / risk.T, risk.T.astype(int)), 1 / (2 * N * risk.G)
    if risk.metric == "logistic":
        model = LogisticRegression(C=C, fit_intercept=False, tol=1e-12, max_iter=10_000)
    else:
        model = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=1_000_000)
    return np.asarray(model.fit(Phi, y, sample_weight=weight).coef_[0])


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_consensus_reaches_scikit_learns_optimum(loss: str) -> None:
    """The centralised minimum and every agent after enough rounds: 1e-6 in the objective."""
    risk = rows_with(loss, LABELS, 0.05)
    theirs = objective(risk, scikit_learns(risk))
    assert abs(objective(risk, risk.optimum()) - theirs) <= 1e-6
    graph = GRAPHS["complete"].subgraph(range(N))
    for algorithm in (dkla(0.1), COKE(0.1, Geometric(1.0, 0.95))):
        *_, last = simulate(Problem(risk), graph, algorithm, rounds=600, scored=())
        for theta in last.state.theta:
            assert abs(objective(risk, theta) - theirs) <= 1e-6


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_adult_consensus_is_as_accurate_as_the_centre(
    data_file: Callable[[str], Path], loss: str
) -> None:
    """adult_a9a at ten sites: test accuracy within 0.2 points of the centralised model's."""
    table = pyarrow.parquet.read_table(data_file("adult_a9a.parquet"))
    X = inputs_of(table, [name for name in table.column_names if name.startswith("x")])
    y, train = table["y"].to_numpy(), np.array(table["split"].to_pylist()) == "train"
    rows = checked_rows(X[train], y[train])
    sites = held(rows, deal(rows.y, 10, seed=0))
    graph = build_graph("random", 10, edges=28, seed=0)
    features = {"n_features": 50, "sigma": 3.0}
    own = ready(sites, graph, loss=loss, features=features, data={"scale": "none"})
    *_, last = simulate(own.problem, graph, COKE(1e-3, Geometric(1.0, 0.9)), rounds=90, scored=())

    def accuracy(theta: Array) -> float:
        return float(np.mean(own.model(theta).predict(X[~train]) == y[~train]))

    centre = accuracy(own.problem.optimum)
    assert centre > 0.83
    assert abs(accuracy(last.state.theta.mean(axis=0)) - centre) <= 0.002
    for theta in last.state.theta:
        assert abs(accuracy(theta) - centre) <= 0.002


def test_local_only_and_one_shot_average() -> None:
    """Alone, every agent solves its own ridge problem; the average is their mean."""
    c = case()
    alone = local_only(c.problem.train)
    for Phi, y, theta in zip(c.Phi, c.y, alone, strict=True):
        H = Phi.T @ Phi / len(y) + c.lam / 6 * np.eye(Phi.shape[1])
        assert_allclose(theta, np.linalg.solve(H, Phi.T @ y / len(y)), atol=1e-10)
    assert_allclose(one_shot_average(c.problem.train), alone.mean(axis=0), atol=1e-15)
    score, best = c.problem.score(alone), c.problem.score(c.problem.everywhere(c.problem.optimum))
    assert score.train < best.train  # own rows flatter it,
    assert score.global_train > best.global_train  # everybody's do not


def test_many_features_approach_the_exact_kernel_solution() -> None:
    """f_θ*(x) → f_α*(x) = Σ_t α*_t κ(x, x_t) as L grows, at the rate of 1/√L."""
    c = case()
    X, y = np.concatenate(c.X), np.concatenate(c.y)
    T = np.repeat([float(len(x)) for x in c.X], [len(x) for x in c.X])
    K = gram("gaussian", X, X, 2.0)
    alpha = np.linalg.solve(K + 0.5 * np.diag(T), y)
    # the paper's equation: (K̃ᵀK̃ + λK) α = K̃ᵀỹ with rows scaled by 1/√T_i
    scaled_K, scaled_y = K / np.sqrt(T)[:, None], y / np.sqrt(T)
    assert_allclose((scaled_K.T @ scaled_K + 0.5 * K) @ alpha, scaled_K.T @ scaled_y, atol=1e-8)

    def away(L: int) -> float:
        found = []
        for seed in range(8):
            f = draw_features(FeatureSettings(L, sigma=2.0, seed=seed), 3)
            q = Quadratic.from_rows(f, c.X, c.y, 0.5 / 6)
            found.append(np.mean((f(X) @ q.optimum() - K @ alpha) ** 2))
        return float(np.sqrt(np.mean(found)))

    assert 3 < away(50) / away(800) < 5.5


def test_parts_that_lie_end_to_end_are_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coke.maths.arrays.CHUNK", 2)
    parts = mapped(lambda x: np.hstack([x, x]), [np.ones((n, 2)) for n in (3, 0, 5)], 4, np.empty)
    whole = _end_to_end(parts)
    assert_array_equal(whole, np.ones((8, 4)))
    assert all(np.shares_memory(whole, part) for part in parts if len(part))
    other = [*parts[1:], parts[0]]
    assert_array_equal(_end_to_end(other), np.concatenate(other))
    assert not np.shares_memory(_end_to_end(other), whole)


@pytest.mark.parametrize("name", RISKS)
def test_an_agent_asked_with_others_at_a_common_model_says_what_it_says_alone(name: str) -> None:
    """To the last bit, wherever the others have asked meanwhile."""
    risk = RISKS[name]
    places, here = np.random.default_rng(5).normal(size=(3, risk.size)), Joint(risk)
    for i in range(len(risk.T)):
        alone, own = risk.rows(slice(i, i + 1)), OneOf(here, i)
        for u in (0.0 * places[0], *places):
            assert own.loss(u) == alone.losses(u[None])[0]
            assert own.value(u) == values(alone, u[None])[0]
            assert_array_equal(own.gradient(u), alone.gradient(u[None])[0])
