"""Models of another kind beside ours, a line and boosted trees: their cost and their scores."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score

from coke.data.site import Kept
from coke.errors import ConvergenceError
from coke.maths.algorithms.codecs import Float64
from coke.maths.features.whitening import Whitening
from coke.maths.graph import spanning_tree
from coke.maths.ledger import LETTERHEAD, Ledger
from coke.report.cost_plot import HOLLOW, OF, cost_plot
from coke.studies.compare import boosted
from coke.studies.compare.boosted import NUMBER, Boosted, gathered, shared
from coke.studies.compare.compare import METHODS, Comparison
from coke.studies.compare.goal import Row, advice
from coke.studies.compare.tree_methods import Point, coded_gradient
from kit.commands import coke
from kit.problems import GRAPHS, case
from kit.ready import ready

lightgbm = pytest.importorskip("lightgbm", reason="needs the extra coke-learn[boost]")
SITES, T, HELD, D = 6, 80, 30, 3


def comparison(classes: int = 0) -> Comparison:
    """Six sites of the same size; of classes, each site lacks one of several."""
    rng = np.random.default_rng(3)
    X: Any = [rng.normal(loc=i / 5, size=(T + HELD, D)) for i in range(SITES)]
    y: Any = [np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=len(x)) for x in X]
    if classes:
        cut = np.quantile(np.concatenate(y), np.linspace(0, 1, classes + 1)[1:-1])
        y = [np.array(list("abc"))[np.searchsorted(cut, one)] for one in y]
        y[0][y[0] == "c"] = "a"
    (X, X_test), (y, y_test) = (
        (tuple(one[:T] for one in part), tuple(one[T:] for one in part)) for part in (X, y)
    )
    sites = Kept(tuple("abcdef"), X, y, X_test, y_test)
    how: Any = {"features": {"n_features": 20}, "loss": "logistic" if classes else "quadratic"}
    return Comparison(ready(sites, GRAPHS["random"], **how), 1.01, 20)


def rows(one: Comparison) -> tuple[Any, Any, Any, Any]:
    kept = one.ready.sites
    assert isinstance(kept, Kept)
    return tuple(np.concatenate(part) for part in (kept.X, kept.y, kept.X_test, kept.y_test))  # type: ignore[return-value]


def test_the_line_is_the_ridge_of_all_rows() -> None:
    """Of one row's weight, in standard units, as scikit-learn has it; its bytes are one sum's."""
    one = comparison()
    X, y, X_test, y_test = rows(one)
    shift, scale = X.mean(axis=0), X.std(axis=0)
    line = Ridge(alpha=1.0, fit_intercept=False).fit((X - shift) / scale, (y - y.mean()) / y.std())
    f = line.predict((X_test - shift) / scale) * y.std() + y.mean()
    row = one.row("linear")
    assert row.failed is None
    assert row.score is not None
    assert_allclose(row.score, r2_score(y_test, f), rtol=1e-4)  # units are told in few bits
    assert row.reached is None
    assert row.bytes == one.tree.messages * 8 * ((D + 1) * (D + 2) // 2 + D + 1)


def test_scores_are_scikit_learns_of_the_same_predictions() -> None:
    """The mean over the sites' models, of numbers and of labels."""
    for classes in (0, 3):
        one = comparison(classes)
        _, _, X_test, y_test = rows(one)
        theta = one.risk.alone()
        measure = accuracy_score if classes else r2_score
        each = [measure(y_test, one.ready.model(own).predict(X_test)) for own in theta]
        row = one.row("local-only")
        assert row.score is not None
        assert_allclose(row.score, np.mean(each))
        assert one.goal.measure == ("accuracy" if classes else "r2")


def test_boosted_trees_are_lightgbms() -> None:
    """Pooled: as its own regressor with defaults; the average: the mean of the sites' own."""
    one = comparison()
    X, y, X_test, y_test = rows(one)
    usual: dict[str, Any] = {"random_state": 0, "n_jobs": 1, "verbose": -1}
    whole = lightgbm.LGBMRegressor(**usual).fit(X, y).booster_.predict(X_test)
    row = one.row("boosted-pooled")
    assert_allclose(row.score or 0.0, r2_score(y_test, whole))
    sites = one.ready.sites
    assert isinstance(sites, Kept)
    own = [
        lightgbm.LGBMRegressor(**usual).fit(X_i, y_i).booster_.predict(X_test)
        for X_i, y_i in zip(sites.X, sites.y, strict=True)
    ]
    row = one.row("boosted-average")
    assert_allclose(row.score or 0.0, r2_score(y_test, np.mean(own, axis=0)))


def test_boosted_classes_bear_a_site_that_lacks_one() -> None:
    one = comparison(classes=3)
    _, _, X_test, y_test = rows(one)
    for grow, name in ((Boosted.pooled, "boosted-pooled"), (Boosted.average, "boosted-average")):
        forests, spent = grow(Boosted(one.ready), one.tree)
        row = one.row(name)
        assert row.score == accuracy_score(y_test, forests.predict(X_test)) > 0.6
        assert Ledger(row.transmissions, row.bytes, row.wire_bytes) == spent


def test_rows_that_are_pooled_are_sent_as_far_as_the_root() -> None:
    """Σ size · depth, and a message from everybody but the root."""
    tree = spanning_tree(nx.path_graph(5))
    sizes = [1, 10, 100, 1000, 10000]
    assert tree.root == 2
    spent = gathered(tree, Ledger(), sizes)
    assert spent.bytes == 2 * 1 + 10 + 1000 + 2 * 10000
    assert spent.wire_bytes == spent.bytes + 4 * LETTERHEAD
    one = comparison()
    down = one.tree.told_down(Ledger(), Boosted(one.ready).pooled(one.tree)[0].sizes[0])
    up = gathered(one.tree, Ledger(), [NUMBER * (D + 1) * T] * SITES)
    assert one.row("boosted-pooled").bytes == up.bytes + down.bytes


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_models_that_are_shared_cross_every_edge_of_the_tree_once(graph: nx.Graph) -> None:
    tree, sizes = spanning_tree(graph), [100 + i for i in range(len(graph))]
    spent = shared(tree, Ledger(), sizes)
    edges = len(graph) - 1
    assert spent.wire_bytes == edges * (sum(sizes) + len(sizes) * LETTERHEAD)
    assert spent.bytes <= edges * sum(sizes)


def test_without_the_extra_they_are_left_out_or_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = comparison()
    assert list(one.methods) == list(METHODS)
    for module in (boosted, __import__("coke.studies.compare.compare", fromlist=["installed"])):
        monkeypatch.setattr(module, "installed", lambda: False)
    assert list(one.methods) == list(METHODS[:-2])
    assert "coke-learn[boost]" in str(one.row("boosted-pooled").failed)


def test_the_advice_names_another_model_that_predicts_better() -> None:
    ours = Row("coke", True, 9, 9, 9, 9, 9000, 0, 1.0, 1.0, 1.0, ((1, 1.0),), None, 0.8)
    trees = Row.of_another("boosted-pooled", Ledger(1, 1, 5_000_000), 0.9)
    line = Row.of_another("linear", Ledger(1, 1, 50), 0.801)
    said = advice([ours, trees, line], "r2")
    assert "Take coke: 9 kB" in said
    assert "better than coke (R² 0.800): boosted-pooled 0.900 for 5 MB." in said
    assert "linear" not in said
    assert "better" not in advice([ours, line], "r2")


def test_rows_with_text_and_gaps_are_scored(tmp_path: Path) -> None:
    """As all models see them, coded."""
    rng = np.random.default_rng(0)
    lines = [
        f"{'' if t % 9 == 0 else rng.normal():},{'red' if t % 2 else 'blue'},{t % 2 + rng.normal()}"
        for t in range(200)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["a,colour,y", *lines]))
    names = ("coke", "linear", "boosted-pooled")
    wanted = [word for name in names for word in ("--method", name)]
    how = ["--data", "rows.csv", "--target", "y", "--agents", "3", "--json", *wanted]
    document = json.loads(coke("compare", *how, cwd=tmp_path).stdout)
    assert [row["failed"] for row in document["rows"]] == [None] * 3
    assert all(row["score"] is not None for row in document["rows"])


def test_no_two_methods_have_the_same_colour() -> None:
    """Nor nearly so: the least distance in red, green and blue is a fifth."""
    assert list(OF) == list(METHODS)
    apart = [
        np.linalg.norm(np.subtract(to_rgb(a), to_rgb(b))) for a, b in combinations(OF.values(), 2)
    ]
    assert min(apart) > 0.2


def test_the_picture_says_what_hollow_means_and_shows_all_scores() -> None:
    one = comparison()
    found = [one.row(name) for name in ("coke", "local-only", "linear", "boosted-pooled")]
    figure = cost_plot(found, one.goal)
    left, right = figure.axes
    assert left.get_title() == HOLLOW
    assert len(left.collections) == 2
    assert len(right.collections) == 4
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [row.method for row in found]


def test_the_tree_gradient_bears_twelve_times_the_curvature() -> None:
    """u ← u − ∇/(4κ) + ½(u − u_before) converges while eigenvalues are below 12κ, and no more."""
    plain, tree = case(L=20, lam=0.01).problem.train.sums, spanning_tree(GRAPHS["ring"])
    assert plain is not None
    risk = plain.whitened(Whitening.of(plain.A.mean(axis=0) + 0.01 / 6 * np.eye(plain.size)))

    def steps(times: float) -> list[Point]:
        return list(coded_gradient(risk, tree, Float64(), 300, Ledger(), 2.0 / times))

    assert_allclose(steps(11.0)[-1].theta, risk.optimum(), atol=1e-6)
    with pytest.raises(ConvergenceError, match="diverges"):
        steps(13.0)
