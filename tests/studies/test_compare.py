"""Fewer bytes: mixtures, agreement, coded rounds and their yardsticks, through one ledger."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.cli.main import main
from coke.data.site import Kept
from coke.engines.process import simulate
from coke.errors import InputError
from coke.learning.descending import Descending
from coke.maths.algorithms.codecs import (
    Coarse,
    Coded,
    Float64,
)
from coke.maths.algorithms.coke import COKE, Geometric, Shrinking, _step_size, automatic
from coke.maths.algorithms.mixtures import _logs, _unlogs, decode_mixture, encode_mixture
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.features.mixtures import Component, Gaussian, describe, expected_gram, fits
from coke.maths.features.whitening import Whitening
from coke.maths.graph import build_graph, spanning_tree
from coke.maths.ledger import HEADER, Ledger
from coke.maths.losses.problem import Problem, Quadratic
from coke.report.plots import COLOURS
from coke.studies.compare.compare import METHODS, Comparison
from coke.studies.compare.goal import Trace, advice
from coke.studies.compare.tree_methods import conjugate_gradients
from kit.problems import GRAPHS, case, shape_of
from kit.ready import ready

RNG = np.random.default_rng(0)
S0 = 1e-3


def components(seed: int, K: int, d: int) -> list[Component]:
    rng = np.random.default_rng(seed)
    return [
        Gaussian.of(rng.normal(rng.normal(size=d), size=(50, d))).truncated(5) for _ in range(K)
    ]


@given(seed=st.integers(0, 500), K=st.sampled_from([1, 2, 16]), d=st.integers(1, 9))
def test_a_mixture_comes_back_within_its_resolution(seed: int, K: int, d: int) -> None:
    """Numbers within 5 %, or near s₀; means within a twentieth of the spread; and again exactly."""
    rank = {1: 5, 2: 3, 16: 1}[K]
    parts = [part.gaussian().truncated(rank) for part in components(seed, K, d)]
    again = decode_mixture(encode_mixture(parts, S0), d, S0)
    for a, b in zip(parts, again, strict=True):
        assert_allclose(b.spread, a.spread, rtol=0.05, atol=S0)
        assert_allclose(b.factors, a.factors, rtol=0.05, atol=S0)
        sd = np.sqrt(np.sum(b.factors**2, axis=0) + b.spread**2)
        assert (np.abs(a.mean - b.mean) <= 0.0501 * sd + S0).all()
    assert encode_mixture(again, S0) == encode_mixture(parts, S0)


@given(data=st.binary(max_size=120), d=st.integers(1, 6))
def test_any_bytes_are_a_mixture_or_refused(data: bytes, d: int) -> None:
    try:
        parts = decode_mixture(data, d, S0)
    except InputError:
        return
    for part in parts:
        assert np.isfinite(part.gaussian().cov).all()


@given(st.floats(-1e6, 1e6))
def test_logarithmic_steps_are_ten_per_cent(x: float) -> None:
    back = float(_unlogs(_logs(np.array([x]), S0), S0)[0])
    assert abs(back - x) <= 0.051 * abs(x) + S0


def test_sites_that_one_gaussian_does_not_describe_get_more() -> None:
    f = draw_features(FeatureSettings(30, sigma=1.0, seed=0), 2)
    cloud = RNG.normal(size=(3000, 2))
    clouds = 0.1 * cloud + np.where(RNG.random((3000, 1)) < 0.5, 5.0, -5.0)

    def described(X: np.ndarray) -> list[Gaussian]:
        parts = describe(X, f, lambda: f(X).T @ f(X) / len(X), 1e-4, seed=0)
        return [part.gaussian() for part in parts]

    def fit(mixture: list[Gaussian]) -> bool:
        return fits(expected_gram(f, mixture), f(clouds).T @ f(clouds) / 3000, 1e-4, 8.0)

    assert len(described(cloud)) == 1
    assert len(described(clouds)) > 1
    assert fit(described(clouds))
    assert not fit([Gaussian.of(clouds).truncated(5).gaussian()])


def test_the_tree_is_the_same_for_everybody() -> None:
    G = build_graph("random", 12, edges=20, seed=1)
    tree = spanning_tree(G)
    assert sorted(tree.order) == list(range(12))
    assert all(G.has_edge(a, b) for a, b in tree.parent.items())
    assert nx.eccentricity(G, tree.root) == nx.radius(G)
    assert spanning_tree(nx.Graph(sorted(G.edges, reverse=True))) == tree


def whitened_case(seed: int = 0) -> tuple[Problem, float]:
    q = case(L=20, lam=0.01, seed=seed).problem.train
    assert isinstance(q, Quadratic)
    basis = Whitening.of(q.A.mean(axis=0) + 0.01 / 6 * np.eye(q.size))
    return Problem(q.whitened(basis)), 1.0


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_duals_sum_to_zero_to_the_last_bit(graph: nx.Graph) -> None:
    """Coded, censored, warm: Σ_i g_i is exactly 0.0, for all values lie on the grid."""
    problem, spread = whitened_case()
    silent = 0
    for r in simulate(problem, graph, automatic(2.0, shape_of(graph), spread), rounds=80):
        assert_array_equal(r.state.g.sum(axis=0), 0.0)
        scaled = r.state.hat * 2.0**40
        assert_array_equal(scaled, np.rint(scaled))
        silent += int(np.count_nonzero(~r.spoke))
    assert silent > 0


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_automatic_setting_reaches_the_optimum_on_every_graph(graph: nx.Graph) -> None:
    problem, spread = whitened_case()
    *_, last = simulate(problem, graph, automatic(2.0, shape_of(graph), spread), rounds=400)
    assert last.optimality_gap < 1e-3 * np.linalg.norm(problem.optimum)
    assert last.ledger.transmissions < 0.6 * 6 * 400


def test_the_ledger_counts_the_bytes_produced() -> None:
    """A codec that notes every message; the ledger has their lengths, copies and headers."""
    sent: list[int] = []

    class Noting(Coarse):
        def coded(self, X: np.ndarray) -> Coded:
            found = super().coded(X)
            sent.extend(len(found.message(i)) for i in range(len(X)))
            return found

    problem, spread = whitened_case()
    algorithm = COKE(0.3, Shrinking(0.5 * spread), Noting(), warm=True)
    *_, last = simulate(problem, GRAPHS["ring"], algorithm, rounds=30)
    assert last.ledger.bytes == sum(sent)
    assert last.ledger.transmissions == len(sent)
    assert last.ledger.wire_bytes == 2 * sum(sent) + 30 * 12 * HEADER


def test_thresholds_shrink_in_silence_only() -> None:
    problem, _ = whitened_case()
    h = np.full((6, 1), 5.0)
    for r in simulate(problem, GRAPHS["ring"], COKE(0.3, Shrinking(5.0, 0.8)), rounds=30):
        h = np.minimum(h, 5.0 * 0.99**r.k)
        h = np.where(r.spoke[:, None], h, 0.8 * h)
        assert_allclose(r.state.h, h)


def test_exact_messages_change_nothing_but_the_last_bits() -> None:
    """Float64 on the grid against the paper's plain messages."""
    problem, _ = whitened_case()
    h = Geometric(0.5, 0.9)
    plain = simulate(problem, GRAPHS["random"], COKE(0.3, h), rounds=60)
    coded = simulate(problem, GRAPHS["random"], COKE(0.3, h, Float64()), rounds=60)
    for a, b in zip(plain, coded, strict=True):
        assert_allclose(a.state.theta, b.state.theta, atol=1e-9)


def test_the_step_follows_the_network() -> None:
    """ρ = κ ℓ/(4 d̄): of a star of N sites ℓ = d̄ = 2(N − 1)/N, and its complete graph has that ℓ."""
    for N in (2, 5, 20):
        assert_allclose(_step_size(2.0, shape_of(nx.star_graph(N - 1))), 0.5)
        whole = _step_size(0.25, shape_of(nx.complete_graph(N)))
        assert_allclose(whole, 0.25 / (2 * N))
    assert _step_size(2.0, shape_of(nx.empty_graph(1))) == 1.0
    with pytest.raises(InputError, match="factor"):
        Shrinking(1.0, 1.5)


def test_conjugate_gradients_solve_the_normal_equations() -> None:
    q = case(lam=0.5).problem.train
    assert isinstance(q, Quadratic)
    tree = spanning_tree(GRAPHS["ring"])
    *_, last = conjugate_gradients(q, tree, 8, lambda r: r, Ledger())
    assert_allclose(last.theta, q.optimum(), atol=1e-9)
    assert last.ledger.transmissions == (last.k + 1) * tree.messages
    assert last.ledger.bytes == last.ledger.transmissions * 8 * q.size


def small_comparison(goal: float = 1.01, loss: str = "quadratic") -> Comparison:
    c = case(L=20, lam=0.01)
    y = c.y if loss == "quadratic" else [np.where(yi > np.median(yi), "up", "down") for yi in c.y]
    empty = tuple(np.empty((0, X.shape[1])) for X in c.X)
    sites = Kept(tuple("abcdef"), tuple(c.X), tuple(y), empty, tuple(yi[:0] for yi in y))
    how: Any = {"features": {"n_features": 20, "sigma": 2.0}, "data": {"scale": "none"}, "eta": 0.3}
    own = ready(sites, GRAPHS["random"], loss=loss, lam=0.01, **how)
    return Comparison(own, goal, 300 if loss == "quadratic" else 60)  # for ten times our bytes


def test_every_method_is_held_to_the_same_goal() -> None:
    comparison = small_comparison()
    rows = {name: comparison.row(name) for name in comparison.methods if name != "coke-tuned"}
    others = {"linear", "boosted-pooled", "boosted-average"}  # whose models are of another kind
    for name, row in rows.items():
        held = None if name in others else row.value <= comparison.goal.wanted
        assert row.reached == held
        assert row.wire_bytes >= row.bytes >= row.agreement_bytes
        if row.reached:
            assert row.first_hit is not None
            assert row.first_hit <= row.rounds
    for name in ("coke", "tree-newton", "tree-cg", "tree-pcg", "tree-gram"):
        assert rows[name].reached, name
    assert rows["coke"].bytes < 0.1 * rows["dkla-paper"].bytes
    assert rows["coke"].bytes < rows["tree-cg"].bytes
    assert rows["local-only"].transmissions == 0
    assert not rows["local-only"].reached
    text = advice(list(rows.values()), "r2")
    assert text.startswith("Take ")
    assert "No method" in advice([rows["local-only"]], "r2")


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_class_labels_are_compared_by_objective(loss: str) -> None:
    """1 % of the optimal objective; methods that add up statistics are left out, with a reason."""
    comparison = small_comparison(loss=loss)
    problem = comparison.ready.problem
    assert_allclose(
        comparison.goal.optimum,
        np.mean([problem.train.objectives(problem.optimum[None])]),
    )
    assert set(comparison.methods).isdisjoint({"tree-cg", "tree-pcg", "tree-gram", "coke-tuned"})
    ours, theirs = comparison.row("coke"), comparison.row("coke-paper")
    assert ours.reached
    assert ours.rounds <= 50
    assert ours.bytes < 0.1 * theirs.bytes
    assert set(ours.document(comparison.goal)) >= {f"global_train_{loss}", "objective"}
    tree = comparison.row("tree-newton")
    assert ("tree-newton" in comparison.methods) == (loss == "logistic") == tree.reached
    assert tree.reached or "no gradient" in str(tree.failed)
    assert "quadratic" in str(comparison.row("tree-cg").failed)


@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_a_descent_to_the_goal_is_the_start_of_what_a_run_does(loss: str) -> None:
    """What is asked for says when it ends, not where it goes; numbers are finer before a proof."""
    comparison = small_comparison(loss=loss)
    row = comparison.row("tree-newton")
    records = Descending(comparison.ready, comparison.ready.case("tree-newton")).records()
    at = [record.ledger for record in records]
    assert row.reached
    assert row.rounds < len(at)  # which ends with a proof
    there = at[row.rounds - 1]
    assert there.transmissions == row.transmissions
    assert row.bytes <= there.bytes <= 1.1 * row.bytes
    assert row.agreement_bytes == comparison.agreed.bytes


def test_settled_is_not_the_first_hit() -> None:
    """A loss that meets the goal, leaves it and comes back has settled when it came back."""
    comparison = small_comparison()
    theta = comparison.ready.problem.everywhere(comparison.ready.problem.optimum)
    losses = [2.0, 1.0, 1.5, 1.0, 1.001, 1.0]
    traces = [
        Trace(k, loss * comparison.goal.optimum, Ledger(k, 10 * k, 20 * k), lambda: theta)
        for k, loss in enumerate(losses, start=1)
    ]
    row = comparison.goal.settle("x", traces)
    assert (row.reached, row.first_hit, row.rounds, row.bytes) == (True, 2, 4, 40)
    row = comparison.goal.settle("x", traces[:3])
    assert (row.reached, row.rounds) == (False, 3)


def test_a_tighter_goal_costs_more() -> None:
    loose, tight = (small_comparison(goal).row("coke") for goal in (1.05, 1.0005))
    assert loose.reached
    assert tight.reached
    assert loose.bytes <= tight.bytes
    with pytest.raises(InputError, match="above 1"):
        small_comparison(1.0)
    with pytest.raises(InputError, match="Did you mean 'coke'"):
        small_comparison().row("cok")


def test_the_command(monkeypatch: Any, capsys: Any, tmp_path: Any) -> None:
    small = 'model = "plain"\nlambda = 0.01\n[data]\nagents = 5\nsize_range = [60, 90]\n'
    small += "[features]\nn_features = 10\n"
    (tmp_path / "c.toml").write_text(small)
    names = ["coke", "tree-newton", "tree-cg", "local-only"]
    wanted = [word for name in names for word in ("--method", name)]
    arguments = ["compare", str(tmp_path / "c.toml"), *wanted, "--out", str(tmp_path)]
    for more in (["--json"], []):
        monkeypatch.setattr("sys.argv", ["coke", *arguments, *more])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0
        out = capsys.readouterr().out
        if more:
            document = json.loads(out)
            assert [row["method"] for row in document["rows"]] == names
            keys = {"reached", "rounds", "transmissions", "bytes", "wire_bytes", "agreement_bytes"}
            assert keys <= set(document["rows"][0])
            assert {"goal", "optimum", "advice"} <= set(document)
        else:
            assert "tree-newton" in out
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_no_two_methods_have_one_colour() -> None:
    assert len(set(COLOURS)) == len(COLOURS) >= len(METHODS)
