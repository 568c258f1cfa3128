"""Differential privacy: the promises of docs/privacy.md, each with a test that can fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import kstest, norm

from coke.data import private
from coke.data.files import pack
from coke.data.private import (
    Release,
    Terms,
    check_private,
    entropy_normals,
    load_release,
    private_risk,
    private_statistics,
    public_scaling,
    range_inputs,
    spread_for,
)
from coke.errors import ConfigError, DataError, FileError, InputError
from coke.maths.attacks import (
    Known,
    added_row,
    auc,
    audited,
    full_view,
    membership_scores,
    population,
    reconstruct,
    recovered_rows,
)
from coke.maths.automatic import automatic
from coke.maths.coke import COKE
from coke.maths.features import Features, FeatureSettings, draw_features
from coke.maths.privacy import (
    Budget,
    Noise,
    Statistics,
    calibrated,
    draws,
    least_lambda,
    noised,
    norm_bound,
    profile,
    projected,
    ranking_bound,
    sensitivity,
    separation,
    shared,
)
from coke.maths.problem import Problem
from coke.maths.quadratic import Quadratic, statistics
from coke.maths.thresholds import Geometric
from coke.maths.whitening import expected_gram, whitening
from forging import forgeries
from problems import Array
from test_attacks import off, rows, said

DELTA, N, D = 1e-5, 10, 50
NOTED = {1.0: 7.914, 3.0: 2.950, 10.0: 1.060}


def features_of(mapping: str = "cos-sin", seed: int = 0, sigma: float = 1.5) -> Features:
    L = 25 if mapping == "cos-sin" else 50
    return draw_features(FeatureSettings(L, sigma=sigma, mapping=mapping, seed=seed), 5)


@pytest.mark.parametrize(("epsilon", "s"), NOTED.items())
def test_noise_is_calibrated(epsilon: float, s: float) -> None:
    """s = Δ/μ at δ = 1e-5; the grid adds one part in 10⁵."""
    budget = Budget(epsilon, DELTA)
    assert sensitivity(1.0, 1.0) / separation(budget) == pytest.approx(s, abs=1e-3)
    assert calibrated(budget, 1.0, 1.0, D).s == pytest.approx(s, abs=1e-3)
    assert calibrated(budget, 1.0, 1.0, D).s > sensitivity(1.0, 1.0) / separation(budget)


@given(st.floats(-4, 2.5), st.floats(-10, -0.5))
def test_the_budget_is_spent_and_not_exceeded(log_epsilon: float, log_delta: float) -> None:
    """profile(ε, μ) is δ, from below."""
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = separation(Budget(epsilon, delta))
    assert profile(epsilon, mu) <= delta
    assert profile(epsilon, mu * (1 + 1e-6)) >= delta * (1 - 1e-6)


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, 0.27), (3.0, 0.9), (0.1, 2.0)])
def test_the_profile_is_the_hockey_stick_of_two_gaussians(epsilon: float, mu: float) -> None:
    """δ(ε) = ∫ max(p − e^ε q, 0), the definition of (ε, δ) for the pair N(0, 1), N(μ, 1)."""
    crossing = epsilon / mu + mu / 2  # beyond it N(μ, 1) is more than e^ε times likelier
    excess = quad(lambda x: norm.pdf(x - mu) - np.exp(epsilon) * norm.pdf(x), crossing, 40)[0]
    assert profile(epsilon, mu) == pytest.approx(excess, rel=1e-5)


def moved(phi: Array, y: Array) -> Array:
    """‖(φφᵀ − φ'φ'ᵀ, φy − φ'y')‖ of pairs of rows (n, 2, D), (n, 2)."""
    A = phi[:, 0, :, None] * phi[:, 0, None, :] - phi[:, 1, :, None] * phi[:, 1, None, :]
    b = phi[:, 0] * y[:, :1] - phi[:, 1] * y[:, 1:]
    return np.asarray(np.sqrt((A**2).sum(axis=(1, 2)) + (b**2).sum(axis=1)))


def test_sensitivity_is_exact() -> None:
    """The largest move of T(A, b) when one row is replaced: Δ = 2.12132, reached and not passed."""
    rng, features = np.random.default_rng(0), features_of()
    X, y = rng.normal(size=(4000, 2, 5)), rng.choice([-1.0, 1.0], size=(4000, 2))
    found = moved(features(X.reshape(-1, 5)).reshape(4000, 2, D), y)
    assert sensitivity(1.0, 1.0) == pytest.approx(1.5 * math.sqrt(2), abs=1e-12)
    assert 2.1203 <= found.max() <= 1.5 * math.sqrt(2) + 1e-9


@pytest.mark.parametrize(("B", "Y"), [(1.0, 1.0), (2.0, 0.5), (1.0, 1.4), (1.0, 3.0)])
def test_sensitivity_bounds_all_rows_within_the_bounds(B: float, Y: float) -> None:
    """Any ‖φ‖ ≤ B, |y| ≤ Y, in a plane: the maximum is Δ and lies on the boundary."""
    angle = np.linspace(0, np.pi, 721)
    phi = B * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    pairs = np.stack([np.broadcast_to([B, 0.0], phi.shape), phi], axis=1)
    opposite = np.broadcast_to([Y, -Y], (721, 2))
    assert moved(pairs, opposite).max() == pytest.approx(sensitivity(B, Y), rel=1e-4)
    rng = np.random.default_rng(1)
    shorter = pairs[rng.integers(0, 721, 20_000)] * rng.uniform(size=(20_000, 2, 1))
    inside = moved(shorter, rng.uniform(-Y, Y, size=(20_000, 2)))
    assert inside.max() <= sensitivity(B, Y)


def test_cos_phase_needs_more_noise() -> None:
    """‖φ‖ ≤ √2 instead of 1: 1.67 times the noise, and no row is longer."""
    assert sensitivity(norm_bound("cos-phase"), 1.0) / sensitivity(1.0, 1.0) == pytest.approx(5 / 3)
    for mapping in ("cos-sin", "cos-phase"):
        X = 3 * np.random.default_rng(0).normal(size=(5000, 5))
        lengths = np.linalg.norm(features_of(mapping)(X), axis=1)
        assert lengths.max() <= norm_bound(mapping) + 1e-12


def test_noise_has_the_standard_deviation_it_should() -> None:
    """S_ll and T b̃_l: s; S_lm = S_ml: s/√2; within 1 % over 200 000 draws of system entropy."""
    zero, T, noise = Statistics(np.zeros((2, 2)), np.zeros(2)), 7, Noise(2.0, 2.0**-20)
    z = entropy_normals(200_000 * draws(2)).reshape(-1, draws(2))
    found = noised(zero, T, noise, z)
    assert T * found.A[:, 0, 0].std() == pytest.approx(2.0, rel=0.01)
    assert T * found.A[:, 1, 0].std() == pytest.approx(math.sqrt(2), rel=0.01)
    assert T * found.b[:, 1].std() == pytest.approx(2.0, rel=0.01)
    np.testing.assert_array_equal(found.A, found.A.swapaxes(1, 2))
    assert np.abs(np.corrcoef(z.T) - np.eye(draws(2))).max() < 0.02


def test_entropy_normals_are_normal_and_never_the_same() -> None:
    """And no seed decides them."""
    np.random.seed(0)  # noqa: NPY002  the global state, on purpose
    z = entropy_normals(50_000)
    np.random.seed(0)  # noqa: NPY002
    assert len(np.intersect1d(z, entropy_normals(50_000))) == 0
    assert kstest(z, "norm").pvalue > 1e-6
    assert 3.5 < np.abs(z).max() < 7


def test_sums_and_noise_live_on_one_grid() -> None:
    """T Ã and T b̃ are multiples of the grid: the last bits say nothing of the rows."""
    rng, T = np.random.default_rng(0), 300
    noise = calibrated(Budget(1.0, DELTA), 1.0, 1.0, 4)
    Phi, y = rng.normal(size=(T, 4)), rng.uniform(-1, 1, T)
    exact = Statistics(Phi.T @ Phi / T, Phi.T @ y / T)
    found = noised(exact, T, noise, rng.normal(size=draws(4)))
    steps = np.concatenate([found.A.ravel(), found.b]) * T / noise.grid
    np.testing.assert_allclose(steps, np.rint(steps), rtol=0, atol=1e-4)
    silent = noised(exact, T, noise, np.zeros(draws(4)))
    np.testing.assert_allclose(silent.A, exact.A, atol=noise.grid / T)
    with pytest.raises(InputError, match="too large"):
        noised(Statistics(1e12 * exact.A, exact.b), T, noise, np.zeros(draws(4)))


def test_projection_is_the_nearest_matrix_without_negative_eigenvalues() -> None:
    """‖PSD(A) − A‖ ≤ ‖M − A‖ for every M ≥ 0; what is ≥ 0 already stays."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 6, 6))
    A = A + A.swapaxes(1, 2)
    P = projected(A)
    np.testing.assert_array_equal(P, P.swapaxes(1, 2))
    assert np.linalg.eigvalsh(P).min() > -1e-12
    np.testing.assert_allclose(projected(P), P, atol=1e-12)
    for _ in range(50):
        other = P + 0.3 * projected(rng.normal(size=(20, 6, 6)) + A)
        assert (np.linalg.norm(other - A, axis=(1, 2)) >= np.linalg.norm(P - A, axis=(1, 2))).all()
    np.testing.assert_allclose(((P - A) * P).sum(axis=(1, 2)), 0, atol=1e-10)  # optimality


def test_lambda_is_half_the_norm_of_the_noise_in_the_sum() -> None:
    """λ = ½ s √(2DN)/T for equal sites, ½ ‖Σ_i S_i/T_i‖ whatever their sizes."""
    assert least_lambda(2.0, D, np.full(N, 500)) == pytest.approx(math.sqrt(2 * D * N) / 500)
    T = np.array([100, 300, 1000])
    zero, noise = Statistics(np.zeros((100, 100)), np.zeros(100)), Noise(2.0, 2.0**-20)
    rng, total = np.random.default_rng(0), np.zeros((100, 100))
    for t in T:
        total += noised(zero, int(t), noise, rng.normal(size=draws(100))).A
    half = 0.5 * np.abs(np.linalg.eigvalsh(total)).max()
    assert least_lambda(2.0, 100, T) == pytest.approx(half, rel=0.1)


def test_no_attack_ranks_members_better_than_the_bound() -> None:
    """Φ(μ/2): P(E) ≤ e^ε' P'(E) + δ(ε') for all ε' leaves p no more room."""
    for epsilon, most in ((1.0, 0.553), (3.0, 0.640), (10.0, 0.841)):
        budget = Budget(epsilon, DELTA)
        assert ranking_bound(budget) == pytest.approx(most, abs=1e-3)
        p, mu = ranking_bound(budget), separation(budget)
        room = [math.exp(e) * (1 - p) + profile(e, mu) - p for e in np.linspace(0.001, 9, 4000)]
        assert min(room) == pytest.approx(0, abs=1e-4)


def test_shared_noise_adds_up_to_one_sites() -> None:
    """N sites with s/√(N − t) each: the honest ones alone give the sum noise s."""
    assert shared(3.0, 9) == 1.0
    assert math.sqrt(9 - 5) * shared(3.0, 9, colluding=5) == pytest.approx(3.0)
    with pytest.raises(InputError, match="honest"):
        shared(1.0, 3, colluding=3)


@pytest.mark.parametrize("epsilon", NOTED)
def test_an_audit_finds_no_more_than_epsilon(epsilon: float) -> None:
    """And finds half the noise out at ε = 1 and 3, where 200 000 draws see far enough."""
    noise, rng = calibrated(Budget(epsilon, DELTA), 1.0, 1.0, 2), np.random.default_rng(0)
    assert 0.5 * min(epsilon, 6) < audited(noise, DELTA, rng.standard_normal, 200_000) <= epsilon
    if epsilon < 10:
        half = noise._replace(s=noise.s / 2)
        assert audited(half, DELTA, rng.standard_normal, 200_000) > epsilon


def released(X: Array, y: Array, features: Features, budget: Budget, z: Array) -> Release:
    """One site's release with noise from z instead of entropy."""
    A, b, _ = statistics(features, X, np.clip(y, -1, 1))
    noise = calibrated(budget, 1.0, 1.0, features.size)
    found = noised(Statistics(A, b), len(y), noise, z)
    return Release(Statistics(projected(found.A), found.b), len(y), noise.s, (budget,))


def test_messages_depend_on_the_release_alone() -> None:
    """Different raw rows, noise such that (Ã, b̃) is the same: the same bytes are said."""
    features, T, rng = features_of(), 200, np.random.default_rng(0)
    budget, graph = Budget(3.0, DELTA), nx.cycle_graph(4)
    noise = calibrated(budget, 1.0, 1.0, D)
    scale = np.full(draws(D), noise.s)
    scale[:-D][~np.equal(*np.tril_indices(D))] *= math.sqrt(0.5)
    worlds: list[list[Release]] = [[], []]
    yy: list[list[float]] = [[], []]
    for i in range(4):
        z, steps = rng.normal(size=draws(D)), []
        for world in range(2):
            X, y = rows(10 * i + world, T)
            A, b, square = statistics(features, X, np.clip(y, -1, 1))
            sums = T * np.concatenate([A[np.tril_indices(D)], b])
            steps.append(np.rint(sums / noise.grid))
            if world:  # the noise that leads from these rows to the other world's release
                z = (np.rint(scale * z / noise.grid) + steps[0] - steps[1]) * noise.grid / scale
            worlds[world].append(released(X, y, features, budget, z))
            yy[world].append(square)
        assert (steps[0] != steps[1]).mean() > 0.9
    heard = []
    for releases, squares in zip(worlds, yy, strict=True):
        risk = private_risk(releases, np.array(squares), 1e-3)
        P = expected_gram(features, range_inputs(5)) + risk.G * np.eye(D)
        problem = Problem(risk).whitened(whitening(P))
        algorithm = automatic("mse", graph, spread_for(1.0))
        hats, spoke = said(problem, graph, algorithm, 60)
        heard.append((hats.tobytes(), spoke.tobytes()))
    assert yy[0] != yy[1]
    assert heard[0] == heard[1]


def test_a_restart_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same (Ã, b̃) and ε, to the last bit, without a draw."""
    path, terms = tmp_path / "release.coke", Terms(features_of(), 1.0, Budget(1.0, DELTA))
    X, y = rows(0, 100)
    first = private_statistics(path, terms, X, y)

    def refuse(n: int) -> Array:
        raise AssertionError(f"{n} numbers drawn after a restart")

    monkeypatch.setattr(private, "entropy_normals", refuse)
    again = private_statistics(path, terms, X, y, again=True)
    assert again.found.A.tobytes() == first.found.A.tobytes()
    assert again.found.b.tobytes() == first.found.b.tobytes()
    assert (again.T, again.s, again.spent) == (first.T, first.s, first.spent) == (
        100, first.s, (Budget(1.0, DELTA),),
    )  # fmt: skip


CHANGES: dict[str, Callable[[Terms, Array, Array], tuple[Terms, Array, Array]]] = {
    "a row": lambda terms, X, y: (terms, X + 1e-9 * (X.max() == X), y),
    "a target": lambda terms, X, y: (terms, X, y * np.where(y == y.max(), 0.5, 1.0)),
    "one row less": lambda terms, X, y: (terms, X[1:], y[1:]),
    "features": lambda terms, X, y: (terms._replace(features=features_of(seed=1)), X, y),
    "the clip": lambda terms, X, y: (terms._replace(Y=2.0), X, y),
    "the budget": lambda terms, X, y: (terms._replace(budget=Budget(2.0, DELTA)), X, y),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed_needs_a_new_budget(what: str, tmp_path: Path) -> None:
    """An error, unless the owner says so; then budgets add up and the old release is gone."""
    path, terms = tmp_path / "release.coke", Terms(features_of(), 1.0, Budget(1.0, DELTA))
    X, y = rows(0, 100)
    first = private_statistics(path, terms, X, y)
    before = path.read_bytes()
    terms, X, y = CHANGES[what](terms, X, y)
    with pytest.raises(DataError, match="epsilon=1 was spent"):
        private_statistics(path, terms, X, y)
    assert path.read_bytes() == before
    second = private_statistics(path, terms, X, y, again=True)
    assert second.total.epsilon == 1.0 + terms.budget.epsilon
    assert not np.array_equal(second.found.b, first.found.b)
    assert private_statistics(path, terms, X, y).spent == second.spent


def test_nothing_is_used_that_is_not_on_disk(tmp_path: Path) -> None:
    """Where the release cannot be kept there is none; and rows that cannot be are refused."""
    terms = Terms(features_of(), 1.0, Budget(1.0, DELTA))
    X, y = rows(0, 20)
    with pytest.raises(FileError, match="cannot be written"):
        private_statistics(tmp_path / "no" / "release.coke", terms, X, y)
    for inputs, targets in ((X, np.full_like(y, np.nan)), (X, y[:-1]), (X[:0], y[:0])):
        with pytest.raises(DataError, match="equally many"):
            private_statistics(tmp_path / "release.coke", terms, inputs, targets)
    assert not list(tmp_path.iterdir())


def test_the_seed_of_the_features_draws_no_noise(tmp_path: Path) -> None:
    """Two sites with the same rows and seed: different noise. Large targets are clipped."""
    terms, (X, y) = Terms(features_of(), 1.0, Budget(10.0, DELTA)), rows(0, 10**4)
    one, two = (private_statistics(tmp_path / name, terms, X, 1e6 * y) for name in "ab")
    assert np.abs(one.found.A - two.found.A).max() > 0
    exact = statistics(terms.features, X, np.clip(1e6 * y, -1, 1))
    np.testing.assert_allclose(one.found.b, exact[1], atol=8 * one.s / 10**4)


def test_a_release_carries_the_noise_it_says(tmp_path: Path) -> None:
    """T (b̃ − b) has the deviation s of the budget, and T (Ã − A) the norm s √(2D) of such noise."""
    features, T = draw_features(FeatureSettings(200, sigma=1.5, seed=0), 5), 10**5
    X, y = rows(0, T)
    release = private_statistics(tmp_path / "a", Terms(features, 1.0, Budget(1.0, DELTA)), X, y)
    A, b, _ = statistics(features, X, np.clip(y, -1, 1))
    assert release.s == pytest.approx(NOTED[1.0], abs=2e-3)
    assert T * (release.found.b - b).std() == pytest.approx(release.s, rel=0.2)
    most = T * np.linalg.eigvalsh(release.found.A - A)[-1]
    assert most == pytest.approx(release.s * math.sqrt(2 * 400), rel=0.2)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small release, as a file."""
    path = tmp_path_factory.mktemp("release") / "good.coke"
    features = draw_features(FeatureSettings(1, seed=0), 5)
    private_statistics(path, Terms(features, 1.0, Budget(1.0, DELTA)), *rows(0, 9))
    return path.read_bytes()


@given(data=st.data())
def test_forged_releases_are_refused_or_make_sense(
    data: st.DataObject, good: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the bytes: `FileError`, or statistics that a site can have."""
    path = tmp_path_factory.getbasetemp() / "forged.coke"
    cut = st.integers(0, len(good) - 1).map(lambda n: good[:n])
    path.write_bytes(data.draw(forgeries(good) | cut | st.binary(max_size=60)))
    try:
        release, _ = load_release(path)
    except FileError:
        return
    assert np.isfinite(release.found.A).all()
    assert release.found.A.shape == (len(release.found.b),) * 2
    assert release.total.epsilon > 0
    assert release.T > 0


@pytest.mark.parametrize(
    "what", ["sides", "sign", "size", "kind", "shape", "T", "s", "spent", "salt"]
)
def test_releases_that_cannot_be_are_refused(what: str, tmp_path: Path) -> None:
    """Files with a right digest and one thing wrong."""
    A, b = np.eye(2), np.zeros(2)
    bad = {
        "sides": np.array([[1.0, 0.5], [0.0, 1.0]]),
        "sign": np.diag([1.0, -0.1]),
        "size": 1e200 * A,
        "kind": np.eye(2, dtype=np.int64),
        "shape": np.eye(3),
    }
    meta = {"T": 5, "s": 1.0, "spent": [[1.0, DELTA]], "salt": 32 * "a", "made_from": ""}
    path = tmp_path / "release.coke"
    path.write_bytes(pack(private.KIND, meta, {"A": A, "b": b}))
    load_release(path)
    meta |= {what: {"T": 0, "s": 0.0, "spent": [], "salt": "a"}[what]} if what in meta else {}
    path.write_bytes(pack(private.KIND, meta, {"A": bad.get(what, A), "b": b}))
    with pytest.raises(FileError, match=r"release\.coke"):
        load_release(path)


def accuracy(T: int, epsilon: float, seed: int) -> float:
    """Test MSE of the private consensus model over that of the plain one."""
    rng, features = np.random.default_rng(seed), features_of(seed=seed)

    def site(n: int) -> tuple[Array, Array]:
        X = rng.normal(size=(n, 5))
        wave = 0.3 * np.sin(X[:, 0]) * np.cos(X[:, 1] / 2) + 0.2 * np.tanh(X[:, 3])
        return X, np.clip(wave + 0.14 * rng.normal(size=n), -1, 1)

    train, test = [site(T) for _ in range(N)], [site(1000) for _ in range(N)]
    plain = Quadratic.from_rows(features, [X for X, _ in train], [y for _, y in train], 1e-3 / N)
    held = Quadratic.from_rows(features, [X for X, _ in test], [y for _, y in test], 1e-3 / N)
    budget = Budget(epsilon, DELTA)
    releases = [released(X, y, features, budget, rng.normal(size=draws(D))) for X, y in train]
    noisy = private_risk(releases, plain.yy, 1e-3)
    both = held.global_losses(np.stack([plain.optimum(), noisy.optimum()]))
    return float(both[1] / both[0])


@pytest.mark.parametrize(("T", "epsilon", "most"), [(10_000, 1.0, 1.06), (1000, 3.0, 1.25)])
def test_privacy_costs_little_accuracy_where_rows_are_many(
    T: int, epsilon: float, most: float
) -> None:
    """The mean over three seeds."""
    assert np.mean([accuracy(T, epsilon, seed) for seed in range(3)]) <= most


def test_attacks_on_a_private_run_find_the_noise() -> None:
    """The messages give Ã away, which is all there is: no row, no newcomer, no member."""
    features, T, graph = features_of(sigma=1.0), 20, nx.cycle_graph(4)
    rng, budget = np.random.default_rng(0), Budget(1.0, DELTA)
    sites = [rows(i, T) for i in range(4)]
    releases = [released(X, y, features, budget, rng.normal(size=draws(D))) for X, y in sites]
    risk = private_risk(releases, np.ones(4), 1e-3)
    rho = 1.0  # the noise is large, and so is the curvature
    hats, spoke = said(Problem(risk), graph, COKE(rho, Geometric(1.0, 0.98)), 400)
    assert isinstance(risk.G, float)
    found = reconstruct(full_view(hats, spoke, graph, 0), Known(risk.G, rho, 2))
    exact, _, _ = statistics(features, *sites[0])
    assert off(found.A, risk.A[0]) < 1e-3
    assert off(found.A, exact) > 1
    starts = 1.5 * rng.normal(size=(300, 5))
    assert len(recovered_rows(features, found, T, starts)[0]) == 0


def test_nobody_finds_a_newcomer_or_a_member_in_releases() -> None:
    """ε = 1: the row added between two releases is not found; who is a member, hardly a guess."""
    features, T, budget = features_of(sigma=1.0), 100, Budget(1.0, DELTA)
    rng = np.random.default_rng(0)
    X, y = rows(0, T + 1)
    before, after = (
        released(X[:n], y[:n], features, budget, rng.normal(size=draws(D))).found
        for n in (T, T + 1)
    )
    x, _, miss = added_row(features, before, after, T, rng.normal(size=(64, 5)))
    assert miss > 0.1
    assert np.abs(x - X[-1]).max() > 0.1
    A, b = rows(1, 3000)
    usual, (others, targets) = population(features(A), b), rows(2, 1500)
    scores = []
    for seed in range(10, 20):
        X, y = rows(seed, T)
        found = released(X, y, features, budget, rng.normal(size=draws(D))).found
        inside = membership_scores(found, T, usual, features(X), y)
        scores.append(auc(inside, membership_scores(found, T, usual, features(others), targets)))
    assert 0.47 < np.mean(scores) < ranking_bound(budget)


@pytest.mark.parametrize("how", ["range", "sample", "gram"])
def test_a_basis_that_costs_no_privacy_serves(how: str) -> None:
    """Public P, or P of the noised statistics: the private optimum in at most 120 rounds."""
    features, T, graph = features_of(), 1000, nx.gnm_random_graph(N, 28, seed=1)
    rng, units = np.random.default_rng(0), public_scaling(-4 * np.ones(5), 4 * np.ones(5), (-1, 1))
    features = draw_features(FeatureSettings(25, sigma=1.5 / 4, seed=0), 5)
    releases = []
    for i in range(N):
        X, y = rows(i, T)
        z = rng.normal(size=draws(D))
        releases.append(released(units.inputs(X), y, features, Budget(3.0, DELTA), z))
    risk = private_risk(releases, np.ones(N), 1e-3)
    Phi = features(units.inputs(rng.normal(size=(500, 5))))
    G = {
        "range": expected_gram(features, range_inputs(5)),
        "sample": Phi.T @ Phi / len(Phi),
        "gram": risk.A.mean(axis=0),
    }[how]
    problem = Problem(risk).whitened(whitening(G + risk.G * np.eye(D)))
    hats, _ = said(problem, graph, automatic("mse", graph, spread_for(1.0)), 120)
    assert off(hats[-1], problem.everywhere(problem.optimum)) < 0.02


def test_every_setting_that_reads_raw_rows_is_refused_with_its_reason() -> None:
    good: dict[str, Any] = {
        "loss": "quadratic", "scale": "public", "auto_sigma": False, "whitening": "range",
    }  # fmt: skip
    check_private(**good)
    wrong: list[tuple[str, Any, str]] = [
        ("loss", "logistic", "quadratic loss"),
        ("loss", "hinge", "every round"),
        ("scale", "standard", "ranges known beforehand"),
        ("scale", "minmax", "not noised"),
        ("auto_sigma", True, "looks at raw rows"),
        ("whitening", "mixture", "raw inputs"),
        ("whitening", "moments", "not noised"),
    ]
    for key, value, reason in wrong:
        with pytest.raises(ConfigError, match=reason):
            check_private(**{**good, key: value})


def test_public_units_come_from_public_ranges() -> None:
    """[low, high] ↦ [−1, 1], inputs and target."""
    units = public_scaling(np.array([0.0, -2.0]), np.array([10.0, 2.0]), (5.0, 9.0))
    np.testing.assert_allclose(units.inputs(np.array([[0.0, 2.0], [5.0, 0.0]])), [[-1, 1], [0, 0]])
    np.testing.assert_allclose(units.targets(np.array([5.0, 8.0])), [-1, 0.5])
    with pytest.raises(InputError, match="low below a high"):
        public_scaling(np.zeros(1), np.zeros(1), (0.0, 1.0))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, DELTA), (math.nan, DELTA), (2000, DELTA), (1, 0), (1, 1), (1, -1)]
)
def test_impossible_budgets_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"epsilon|delta"):
        separation(Budget(epsilon, delta))
    with pytest.raises(InputError, match="bounds"):
        sensitivity(1.0, math.inf)
    with pytest.raises(InputError, match="mapping"):
        norm_bound("cosine")
