"""Sites choose a model together: what they choose is good, and what is given is respected."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
from msgspec import structs
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from coke import DP, Coke, COKEClassifier, COKERegressor, Features, Until
from coke.data.site import Kept
from coke.data.split import by_label
from coke.data.tables import checked_rows
from coke.errors import InputError
from coke.learning.agreement import Agreement
from coke.learning.choice import LINEAR, PLAIN, TUNED
from coke.learning.ready import Ready
from coke.maths.arrays import Array
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.graph import build_graph
from kit.ready import held, ready

FEW = Features(n_features=60)
RING: dict[str, Any] = {"graph": "ring", "n_agents": 5}
SIGMA = Features(sigma=1.0)
SOON = Until(100, tol=1e-2)


class Table(NamedTuple):
    """Rows to train with, and new ones."""

    X: Array
    y: Array
    X_new: Array
    y_new: Array

    @classmethod
    def of(cls, f: Callable[[Array], Array], d: int, n: int = 900, noise: float = 0.1) -> Table:
        rng = np.random.default_rng(d)
        X = rng.normal(size=(n + 1000, d))
        y = f(X) + noise * rng.normal(size=len(X))
        return cls(X[:n], y[:n], X[n:], y[n:])

    def error(self, est: Any) -> float:
        """Mean squared, on new rows, over their variance."""
        return float(np.mean((est.predict(self.X_new) - self.y_new) ** 2) / self.y_new.var())

    def sites(self, *, by_target: bool, N: int = 5) -> Any:
        """Dealt, or each with a range of targets of its own."""
        order = np.argsort(np.argsort(self.y)) if by_target else np.arange(len(self.y))
        return order * N // len(order) if by_target else order % N

    def linear(self) -> float:
        """Of ordinary least squares on all rows."""
        ones = np.ones((len(self.X), 1))
        beta = np.linalg.lstsq(np.hstack([ones, self.X]), self.y, rcond=None)[0]
        missed = beta[0] + self.X_new @ beta[1:] - self.y_new
        return float(np.mean(missed**2) / self.y_new.var())


def planted(X: Array) -> Array:
    """3 of 32 columns matter."""
    return np.asarray(np.sin(2 * X[:, 3]) + X[:, 10] * X[:, 20])


TABLES = {
    "linear": Table.of(lambda X: X @ np.linspace(-1, 1, 6), 6, noise=0.5),
    "additive": Table.of(lambda X: np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + X[:, 2], 5),
    "counts": Table.of(lambda X: np.exp(X[:, 0]) * (1 + (X[:, 1] > 0)), 4),
    "noise": Table.of(lambda X: 0 * X[:, 0], 3, noise=1.0),
    "steps": Table.of(lambda X: np.sign(X[:, 0]) + np.sign(X[:, 1] * X[:, 2]), 7),
}


@pytest.mark.parametrize("by_target", [False, True], ids=["dealt", "sorted"])
def test_of_many_columns_those_that_matter_are_found(by_target: bool) -> None:
    """And the model is better than the plain one, to which all columns are alike."""
    table = Table.of(planted, 32, n=1500)
    sites = table.sites(by_target=by_target)
    est: Any = COKERegressor(features=FEW).fit(table.X, table.y, sites)
    plain = COKERegressor(features=FEW, model="plain").fit(table.X, table.y, sites)
    assert table.error(est) < 0.8 * min(table.error(plain), 1.0)
    narrowest = np.argsort(est.choice_.bandwidths)[:3].tolist()
    assert sorted(narrowest) == [3, 10, 20]
    assert est.choice_.apart == by_target
    if not by_target:
        assert est.choice_.best.name == TUNED
        assert table.error(est) < 0.1


@cache
def fitted(name: str, by_target: bool, model: str) -> Any:
    table = TABLES[name]
    est = COKERegressor(features=FEW, model=model, **RING)
    return est.fit(table.X, table.y, table.sites(by_target=by_target))


@pytest.mark.parametrize("by_target", [False, True], ids=["dealt", "sorted"])
@pytest.mark.parametrize("name", TABLES)
def test_errors_and_intervals_on_new_rows(name: str, by_target: bool) -> None:
    """Not worse than plain or linear by more than 5 %, and nine of ten are in their intervals."""
    table, est = TABLES[name], fitted(name, by_target, "auto")
    plain = table.error(fitted(name, by_target, "plain"))
    assert table.error(est) <= 1.05 * min(plain, table.linear())
    f, low, high = est.predict(table.X_new, interval=0.9)
    assert_array_equal(f, est.predict(table.X_new))
    assert 0.88 < np.mean((low <= table.y_new) & (table.y_new <= high)) < 0.96
    assert (est.predict(table.X_new, interval=0.5)[2] < high).all()


def test_a_linear_target_has_a_linear_model_or_one_as_good() -> None:
    table, est = TABLES["linear"], fitted("linear", False, "auto")
    assert est.choice_.best.name == LINEAR or est.choice_.best.features.linear > 0
    assert table.error(est) < 1.03 * table.linear()


def test_what_it_says_is_what_it_chose() -> None:
    columns = tuple("abcde")
    tuned = fitted("additive", False, "auto").choice_
    said = "\n".join(tuned.words(columns))
    assert "60 frequencies" in said
    first = int(np.argmin(tuned.bandwidths))
    assert f"the narrowest first: {columns[first]} {tuned.bandwidths[first]:.2g}, " in said
    assert f"tuned {tuned.errors[TUNED]:.3g}" in said
    assert tuned.errors[TUNED] < 0.9 * min(tuned.errors[PLAIN], tuned.errors[LINEAR])
    judged = fitted("additive", True, "auto").choice_
    why = judged.words(columns)[-1]
    assert "the sites differ; " in why
    assert f"of the judge are linear {judged.judged[LINEAR]:.3g}, tuned" in why
    assert judged.judged.keys() == {LINEAR, TUNED}
    assert f"{judged.lead:.1f} standard errors ahead of linear" in why
    assert judged.lead > 0
    assert judged.best.name == min(judged.judged, key=judged.judged.__getitem__)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_model_does_not_flatter_itself(seed: int) -> None:
    """Frequencies that were chosen by some rows fit them too well; of a linear target it shows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2900, 6))
    y = X @ np.linspace(-1, 1, 6) + 0.5 * rng.normal(size=2900)
    table = Table(X[:900], y[:900], X[900:], y[900:])
    est = COKERegressor(**RING).fit(table.X, table.y)
    assert table.error(est) < 1.03 * table.linear()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_rows_at_small_sites_do_not_ask_for_too_small_a_ridge(seed: int) -> None:
    """Seven sites of eight or nine rows: neither a line nor a model that runs after the noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1060, 4))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * rng.normal(size=1060)
    table = Table(X[:60], y[:60], X[60:], y[60:])
    sites = np.arange(60) % 7
    est = COKERegressor().fit(table.X, table.y, sites)
    plain = COKERegressor(model="plain").fit(table.X, table.y, sites)
    assert table.error(est) < 1.1 * min(table.error(plain), table.linear())


@pytest.mark.parametrize("d", [4, 12, 30])
def test_sites_of_too_few_rows_to_say_anything_have_the_plain_rules_bandwidths(d: int) -> None:
    """To the sixteenth of a power of two that is told; of classes that rule's, which is wider."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(60, d))
    for est in (COKERegressor(), COKEClassifier()):
        y = X[:, 0] if isinstance(est, COKERegressor) else X[:, 0] > 0
        fit: Any = est.fit(X, y, sites=np.arange(60) % 10)
        usual = 1.0 if isinstance(est, COKERegressor) else np.sqrt(np.clip(d / 5, 1, 4))
        assert_allclose(
            np.log2(fit.choice_.bandwidths), np.log2(usual * np.sqrt(d / 2)), atol=1 / 32
        )


def test_of_classes_the_plain_model_is_judged_too() -> None:
    """Evidence takes labels for numbers, so its bandwidths may be the worse ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    est: Any = COKEClassifier().fit(X, X[:, 0] > 0, sites=np.arange(60) % 10)
    assert est.choice_.judged.keys() == {LINEAR, PLAIN, TUNED}


# What is given.

WAVES = TABLES["additive"]


def agreed(
    table: Table, features: Features, sites: Any = None, graph: Any = None, **given: Any
) -> Ready:
    """The sites have chosen, and not trained."""
    parts = by_label(np.arange(len(table.y)) % 5 if sites is None else sites)
    rows = checked_rows(table.X, table.y)
    settings = {"model": "auto", "lam": "auto", "features": structs.asdict(features), **given}
    return ready(held(rows, parts), graph or nx.cycle_graph(len(parts)), **settings)


def chosen(features: Features, **given: Any) -> Any:
    some = WAVES._replace(X=WAVES.X[:400], y=WAVES.y[:400])
    return agreed(some, features, **given).agreement.choice


def test_features_that_are_given_whole_are_taken_as_they_are() -> None:
    """Kernel, σ, L, the linear part, inputs and λ: nothing is left but to draw."""
    features = Features(
        n_features=40, kernel="laplacian", sigma=2.5, inputs="scaled", linear=0.3,
        frequencies="drawn", sampling="orthogonal",
    )  # fmt: skip
    best = chosen(features, lam=1e-2).best
    drawn = draw_features(FeatureSettings(40, "laplacian", 2.5, sampling="orthogonal"), 5)
    assert best.name == TUNED
    assert_allclose(best.features.omega, drawn.omega, rtol=1e-14)
    assert best.features.linear == 0.3
    assert not best.quantiles
    assert_allclose(best.ridge, 1e-2 / 5)


def test_each_is_respected_alone() -> None:
    assert len(chosen(Features(n_features=17)).best.features.omega) == 17
    wide = chosen(Features(sigma=4.0, n_features=30))
    assert_array_equal(wide.bandwidths, np.full(5, 4.0))
    for inputs, quantiles in (("scaled", False), ("quantiles", True)):
        assert chosen(Features(inputs=inputs, n_features=30)).best.quantiles == quantiles
    assert chosen(Features(linear=0.0, n_features=30)).best.features.size == 60
    assert chosen(Features(linear=2.0, n_features=30)).best.features.linear == 2.0
    for lam in (0.0, 0.5):
        assert_allclose(chosen(FEW, lam=lam).best.ridge, lam / 5)


def test_frequencies_are_the_useful_ones_of_a_pool_or_the_first() -> None:
    """Drawn from the same stream; the useful ones predict better."""
    useful, drawn = (
        chosen(Features(n_features=20, frequencies=how, inputs="scaled")).best.features.omega
        for how in ("auto", "drawn")
    )
    pool = chosen(Features(n_features=120, frequencies="drawn", inputs="scaled")).best.features
    known = {row.tobytes() for row in pool.omega}
    assert {row.tobytes() for row in useful} <= known
    assert_array_equal(drawn, pool.omega[:20])
    assert {row.tobytes() for row in useful} != {row.tobytes() for row in drawn}


# The same everywhere, and what it costs.


@pytest.mark.parametrize(("steep", "L"), [(1.0, 100), (2.0, 300)])
@pytest.mark.parametrize("by_target", [False, True], ids=["dealt", "sorted"])
def test_frequencies_are_many_only_where_few_leave_something(
    by_target: bool, steep: float, L: int
) -> None:
    """Of 1300 rows without noise: 100 of a smooth function, 300 of a wilder one."""
    X = np.random.default_rng(4).normal(size=(1300, 3))
    y = X.sum(axis=1) + 0.6 * np.sin(steep * X[:, 0]) * np.cos(steep * X[:, 1])
    order = np.argsort(y) if by_target else np.arange(len(y))
    model: Any = COKERegressor(limits=Until(3)).fit(X, y, sites=np.argsort(order) // 130)
    assert model.choice_.best.name == TUNED
    assert len(model.choice_.best.features.omega) == L


def test_the_same_seed_gives_the_same_bytes() -> None:
    one, two, other = (
        COKERegressor(features=FEW, random_state=seed, **RING).fit(WAVES.X[:300], WAVES.y[:300])
        for seed in (0, 0, 1)
    )
    assert one.model_.to_bytes() == two.model_.to_bytes()
    assert (one.bytes_, one.wire_bytes_) == (two.bytes_, two.wire_bytes_)
    assert one.model_.to_bytes() != other.model_.to_bytes()


@pytest.mark.parametrize("by_target", [False, True], ids=["dealt", "sorted"])
def test_neither_names_nor_the_tree_change_what_is_decided(
    by_target: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of whole numbers are exact: to the bit but for quantiles, which merge in some order.

    In the same units, that is: those are rounded where a subtree tells them.
    """
    monkeypatch.setattr("coke.talk.told._MOMENTS", 40)
    sites, found = WAVES.sites(by_target=by_target), list[Any]()
    for graph, names in ((nx.path_graph(5), "abcde"), (nx.star_graph(4), "dbeca")):
        labels = np.array(list(names))[sites]
        talked = [
            agreed(WAVES, Features(n_features=30, inputs=inputs), labels, graph)
            for inputs in ("scaled", "auto")
        ]
        found.append([one.agreement.choice for one in talked])
    (one, quantiles), (two, others) = found
    assert_array_equal(one.best.features.omega, two.best.features.omega)
    assert_array_equal(one.bandwidths, two.bandwidths)
    assert (one.best.ridge, one.errors, one.apart) == (two.best.ridge, two.errors, two.apart)
    assert one.best.name == two.best.name
    assert quantiles.best.name == others.best.name
    assert quantiles.best.quantiles == others.best.quantiles
    assert_allclose(quantiles.bandwidths, others.bandwidths, rtol=0.2)


@pytest.mark.parametrize("by_target", [False, True], ids=["dealt", "sorted"])
@pytest.mark.parametrize("hard", [False, True])
def test_the_agreement_of_ten_sites_takes_40_kB_at_most(hard: bool, by_target: bool) -> None:
    """Of twenty columns, whatever L is chosen and whether or not a judge is needed."""

    def linear(X: Array) -> Array:
        return np.asarray(X @ np.linspace(-1, 1, 20) + 0.2 * np.sin(3 * X[:, 0]))

    table = Table.of(linear if hard else planted_in_20, 20, n=1000)
    sites = table.sites(by_target=by_target, N=10)
    talked = agreed(table, Features(), sites, build_graph("random", 10, seed=0))
    choice = talked.agreement.choice
    assert choice is not None
    assert bool(choice.judged) == (hard or by_target)
    assert talked.spent[:, 1].sum() <= 40_000
    assert len(choice.best.features.omega) == (0 if hard else 300)


def test_what_intervals_cost_is_in_the_ledger_and_little() -> None:
    rows = WAVES.X[:400], WAVES.y[:400]
    est: Any = COKERegressor(features=Features(n_features=10), limits=Until(3)).fit(*rows)
    after = est.bytes_ - est.history_["bytes"][-1]
    assert 0 < after <= 2000
    assert est.model_.closed.misses.counts.sum() == 400


def planted_in_20(X: Array) -> Array:
    return np.asarray(np.sin(2 * X[:, 3]) + X[:, 10] * X[:, 15])


@pytest.mark.parametrize(
    "given",
    [
        {"model": "plain"},
        {"privacy": DP(5.0), "scale": "public", "algorithm": Coke("range"), "features": SIGMA},
        {"scale": "public"},
    ],
    ids=["plain", "private", "public"],
)
def test_where_nothing_is_chosen_nothing_is_said(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor looked at: the paper's features, L = 100, the plain rule and λ = 1e-3."""

    def never(*_: Any) -> Any:
        raise AssertionError("a choice")

    monkeypatch.setattr("coke.learning.picking.choose", never)
    monkeypatch.setattr("coke.learning.closing.closing", never)
    if "scale" in given:
        given = {**given, "ranges": {**{f"x{j}": (-5, 5) for j in range(5)}, "y": (-9, 9)}}
    est = COKERegressor(**RING, **given).fit(WAVES.X, WAVES.y)
    assert est.choice_ is None
    features = est.model_.features
    assert (features.omega.shape, features.linear) == ((100, 5), 0.0)
    assert not est.model_.scaling.knots.size
    with pytest.raises(InputError, match="nobody added up"):
        est.predict(WAVES.X, interval=0.9)
    if given == {"model": "plain"}:
        written_out = Features(n_features=100, kernel="gaussian", sigma="auto", inputs="scaled")
        same = COKERegressor(**RING, model="plain", features=written_out, lam=1e-3)
        assert same.fit(WAVES.X, WAVES.y).model_.to_bytes() == est.model_.to_bytes()


# Intervals.


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_shares_that_are_none_are_refused(share: float) -> None:
    est = fitted("additive", False, "auto")
    with pytest.raises(InputError, match="between 0 and 1"):
        est.predict(WAVES.X, interval=share)


def test_intervals_of_few_rows_are_refused_with_advice() -> None:
    est = COKERegressor(**RING).fit(WAVES.X[:15], WAVES.y[:15])
    with pytest.raises(InputError, match=r"15 rows cannot say .* expected at most 0.92"):
        est.predict(WAVES.X, interval=0.99)
    f, low, high = est.predict(WAVES.X, interval=0.8)
    assert (low < f).all()
    assert (f < high).all()


# Classes.


def test_classes_choose_too() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 6))
    y = np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")
    train, new = slice(500), slice(500, None)
    est: Any
    plain: Any
    est, plain = (
        COKEClassifier(features=Features(n_features=60), model=model, limits=SOON, **RING).fit(
            X[train], y[train]
        )
        for model in ("auto", "plain")
    )
    assert est.choice_.best.name == TUNED
    assert sorted(np.argsort(est.choice_.bandwidths)[:2].tolist()) == [0, 1]
    assert est.score(X[new], y[new]) > max(0.9, plain.score(X[new], y[new]))
    with pytest.raises(InputError, match="probabilities instead of intervals"):
        est.model_.interval(X, 0.9)


def test_many_classes_are_told_apart_by_a_few_numbers() -> None:
    """Eight of them, one at each corner of a cube: linear is found to do, or no worse is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X > 0) @ np.array([1, 2, 4])
    est = COKEClassifier(features=Features(n_features=20), limits=Until(20), **RING).fit(X, y)
    assert est.score(X, y) > 0.8
    assert est.agreement_bytes_ < 20_000


def test_sites_of_two_digits_each_know_all_ten() -> None:
    """And how sure they can be: no site's rows ask for the ridge or bandwidths that all need."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, new = order[:1257], order[1257:]
    sites = (y[train] + np.arange(len(train)) % 2) % 10
    est = COKEClassifier().fit(X[train], y[train], sites=sites)
    assert est.choice_ is not None
    assert est.choice_.best.name == TUNED
    assert log_loss(y[new], est.predict_proba(X[new])) < 0.14  # 0.18 as numbers are chosen for


@pytest.mark.parametrize(("K", "columns", "wider"), [(2, 3, 1.0), (3, 10, 2**0.5), (6, 40, 2.0)])
def test_the_plain_model_of_classes_follows_rows_columns_and_classes(
    K: int, columns: int, wider: float
) -> None:
    """λ/N = (2/K)^1.5 / Σ T_i, σ by √(d/5) wider; what is given stays, as of numbers."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(240, columns)), np.arange(240) % K
    rows = Kept(("a", "b"), (X[:80], X[80:]), (y[:80], y[80:]), (X[:0],) * 2, (y[:0],) * 2)

    def agreement(**how: Any) -> Agreement:
        return ready(rows, build_graph("complete", 2, seed=0), **how).agreement

    found = agreement(loss="classes", lam="auto")
    assert found.lam / 2 == pytest.approx((2 / K) ** 1.5 / 240)
    assert found.sigma == pytest.approx(wider * np.sqrt(columns / 2), rel=0.02)
    assert agreement(loss="classes", lam=0.5).lam == 0.5
    assert agreement(loss="classes", lam=0.1, features={"sigma": 3.0}).sigma == 3.0
    numbers = agreement(loss="quadratic", lam="auto")
    assert numbers.lam == 1e-3
    assert numbers.sigma == pytest.approx(np.sqrt(columns / 2), rel=0.02)
