"""A row of weight w stands for w rows, at every site, with every loss, in every form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import balanced_accuracy_score, r2_score

from coke import DP, Agents, COKEClassifier, COKERegressor, Features, Until
from coke.data.site import Kept
from coke.data.split import by_label, split
from coke.data.tables import read_rows
from coke.data.units import Making, Scaling
from coke.errors import ConfigError, DataError, InputError
from coke.learning.assessing import assessed
from coke.learning.open import load_rows, open_ready
from coke.learning.verdict import FIFTHS, LEFT, Ended
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.ledger import Ledger
from coke.maths.losses import LOSSES, NUMBERS, OF_CLASSES
from coke.settings.reading import checked_settings

N, D = 3, 2
PLAIN: dict[str, Any] = {"model": "plain", "features": Features(n_features=20)}


def rows(T: int, kind: str, seed: int = 0) -> tuple[list[Any], list[Any], list[Any]]:
    """Inputs, targets and whole weights of each site."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, D)) for _ in range(N)]
    y: list[Any] = [np.sin(x[:, 0]) + x[:, 1] ** 2 for x in X]
    if kind != NUMBERS:
        y = [np.digitize(part, [0.2, 1.0]) for part in y]
    return X, y, [rng.integers(1, 4, T).astype(np.float64) for _ in X]


def repeated(parts: list[Any], weights: list[Any]) -> list[Any]:
    return [np.repeat(part, w.astype(int), axis=0) for part, w in zip(parts, weights, strict=True)]


def kept(X: list[Any], y: list[Any], numbers: bool, **weights: Any) -> Kept:
    none = tuple(x[:0] for x in X), tuple(v[:0] for v in y)
    return Kept(tuple("abc"), tuple(X), tuple(y), *none, numbers=numbers, **weights)


@pytest.mark.parametrize("T", [6, 80], ids=["few rows", "many rows"])
@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in ("auto", OF_CLASSES)])
def test_a_weight_is_so_many_rows(loss: str, T: int) -> None:
    """What is told, and the risks: losses, slopes, minima and Gram matrices."""
    numbers = LOSSES[loss].kind == NUMBERS
    X, y, w = rows(T, LOSSES[loss].kind)
    held = tuple(part[:0] for part in w)
    ours = kept(X, y, numbers, weights=tuple(w), weights_test=held)
    theirs = kept(repeated(X, w), repeated(y, w), numbers)
    features = draw_features(FeatureSettings(8, sigma=1.0, seed=1), D)
    units = Scaling.none(D, 1 if numbers else 2)
    how = Making(features, units, loss, np.empty(0) if numbers else np.arange(3), 0.01, "double")
    for i in range(N):
        told: list[tuple[Any, Any]] = [(ours.columns(i), theirs.columns(i))]
        told.append((ours.targets(i, how), theirs.targets(i, how)))
        for a, b in told:
            assert_allclose(np.hstack(a), np.hstack(b), rtol=1e-12, atol=1e-14)
        if not numbers:
            assert_allclose(ours.shares(i, np.arange(3)), theirs.shares(i, np.arange(3)))
    one, two = ours.problem(how).train, theirs.problem(how).train
    assert_allclose(one.T, two.T)
    theta = 0.3 * np.random.default_rng(5).normal(size=(N, one.size))
    for what in ("losses", "global_losses", "objectives", "gradient"):
        assert_allclose(getattr(one, what)(theta), getattr(two, what)(theta), atol=1e-10)
    pull = np.full((N, 1), 0.2)
    for solver in ("argmin", "approach"):
        some, same = (getattr(risk, solver)(pull)(theta, theta) for risk in (one, two))
        assert_allclose(some[0], same[0], rtol=1e-5, atol=1e-6)
        assert_allclose(some[1], same[1], rtol=1e-5, atol=1e-6)
    assert_allclose(one.gram(1), two.gram(1), atol=1e-12)
    assert_allclose(one.optimum(), two.optimum(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [COKERegressor, COKEClassifier])
def test_an_estimator_takes_weights(kind: Any) -> None:
    X, y, w = rows(150, kind._kind)
    flat = np.concatenate(X), np.concatenate(y), np.repeat(["a", "b", "c"], 150)
    whole = np.concatenate(w).astype(int)
    how = PLAIN | {"limits": Until(tol=1e-6), "lam": 1e-3}
    ours = kind(**how).fit(*flat, sample_weight=whole)
    theirs = kind(**how).fit(*(np.repeat(part, whole, axis=0) for part in flat))
    assert_allclose(ours.optimum_, theirs.optimum_, atol=1e-3)  # sums of many rows are in float32
    some = np.where(np.arange(450) % 5, 1.0, 0.0)
    left = kind(**how).fit(*(part[some > 0] for part in flat))
    assert_allclose(kind(**how).fit(*flat, sample_weight=some).optimum_, left.optimum_, atol=1e-6)
    chosen = kind().fit(*flat, sample_weight=whole)
    assert chosen.score(flat[0], flat[1]) > (0.9 if kind is COKERegressor else 0.8)


def skewed(seed: int = 0) -> tuple[Any, Any, Any]:
    """Two classes that overlap, one of them a twentieth of the rows; and sites."""
    rng = np.random.default_rng(seed)
    y = (rng.random(3000) < 0.05).astype(int)
    X = rng.normal(size=(3000, 2)) + 1.5 * y[:, None]
    return X, y, rng.integers(0, 4, 3000)


@pytest.mark.parametrize("how", [("auto", "auto"), ("auto", "plain"), ("softmax", "plain")])
def test_balanced_classes_are_both_found(how: tuple[str, str]) -> None:
    """As with the weights that shares of the classes give; many of the rare are missed without."""
    X, y, sites = skewed()
    X_new, y_new, _ = skewed(1)

    def score(weights: Any) -> float:
        model = COKEClassifier(loss=how[0], model=how[1], class_weight=weights)
        found = model.fit(X, y, sites).predict(X_new)
        return float(balanced_accuracy_score(y_new, found))

    share = y.mean()
    by_hand = score({0: 0.5 / (1 - share), 1: 0.5 / share})
    assert score("balanced") == pytest.approx(by_hand, abs=0.02)
    assert by_hand > score(None) + 0.1


def test_weights_that_cannot_be_are_refused() -> None:
    X, y, sites = skewed()
    with pytest.raises(DataError, match="none below zero"):
        COKEClassifier().fit(X, y, sites, sample_weight=-np.ones(len(y)))
    with pytest.raises(DataError, match=r"sample_weight: .*non-zero"):
        COKEClassifier().fit(X, y, sites, sample_weight=np.zeros(len(y)))
    with pytest.raises(InputError, match="privacy"):
        COKERegressor(privacy=DP(epsilon=1.0)).fit(X, y, sites, sample_weight=np.ones(len(y)))
    with pytest.raises(InputError, match=r"class.weight"):
        COKEClassifier(class_weight="fair").fit(X, y, sites)
    with pytest.raises(InputError, match="which no row has"):
        COKEClassifier(class_weight={0: 1.0, 2: 5.0}).fit(X, y, sites)
    for numbers in ("quadratic", "huber"):
        with pytest.raises(ConfigError, match="which is of numbers"):
            checked_settings({"loss": numbers, "class_weight": "balanced"})


def test_rows_that_weigh_differently_are_left_out_a_fifth_at_a_time() -> None:
    """How much such a row leans on itself is not known from sums; without weights it is."""
    X, y, sites = (part[:600] for part in skewed())
    weights = np.where(y, 5.0, 1.0)
    plain = COKEClassifier(model="plain", loss="least-squares")
    fair = COKEClassifier(model="plain", class_weight="balanced")
    found = [
        plain.fit(X, y, sites).verdict_,
        plain.fit(X, y, sites, sample_weight=weights).verdict_,
        fair.fit(X, y, sites).verdict_,
    ]
    assert [one and (one.how, one.rows) for one in found] == [
        (LEFT, len(y)), (FIFTHS, round(weights.sum())), (FIFTHS, len(y)),
    ]  # fmt: skip


@pytest.fixture
def weighted(tmp_path: Path) -> Path:
    """A table with a column of whole weights, some of them zero; the same with repeated rows."""
    x, y, w = (np.concatenate(part[:2]) for part in rows(90, NUMBERS))
    site, w = np.repeat(["a", "b"], 90), np.where(np.arange(180) % 6, w, 0.0)
    table = pa.table({"x0": x[:, 0], "x1": x[:, 1], "y": y, "site": site, "w": w})
    again = np.repeat(np.arange(180), w.astype(int))
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    pa.csv.write_csv(table.drop_columns("w").take(again), tmp_path / "again.csv")
    for name in "ab":
        (tmp_path / "sites").mkdir(exist_ok=True)
        own = table.filter(pc.equal(table["site"], name)).drop_columns("site")
        pa.csv.write_csv(own, tmp_path / "sites" / f"{name}.csv")
    return tmp_path


def ready(file: Path, **data: Any) -> Any:
    given = {"file": str(file), "target": "y", "test": 0.0, **data}
    how = {"model": "plain", "lambda": 1e-3, "features": {"n_features": 20}}
    return open_ready(checked_settings({"data": given, **how}))


def test_a_column_of_weights_is_so_many_rows(weighted: Path) -> None:
    """In a file, in a folder of sites, and on disk; the last column but it is the target."""
    theirs = ready(weighted / "again.csv", site="site").optimum
    one = ready(weighted / "rows.csv", site="site", weight="w").optimum
    assert_allclose(one, theirs, atol=1e-4)
    folder = ready(weighted / "sites", weight="w", target="last").optimum
    assert_array_equal(folder, one)


def test_held_out_rows_weigh_in_the_verdict(weighted: Path) -> None:
    """As scikit-learn's scores with sample_weight."""
    site = ready(weighted / "rows.csv", site="site", weight="w", test=0.4)
    model = site.model(site.optimum)
    kept = load_rows(site.agreement.terms.settings)
    assert kept.sites is not None
    assert kept.weights is not None
    places = split(by_label(kept.sites), test=0.4, seed=0)
    held = np.concatenate(places.test)
    verdict = assessed(site, model, Ended(1, None, Ledger(0, 0, 0)))
    assert verdict is not None
    wanted = r2_score(kept.y[held], model.predict(kept.X[held]), sample_weight=kept.weights[held])
    assert verdict.together.score == pytest.approx(wanted, abs=1e-6)


def test_agents_weigh_their_rows_as_the_simulation_does() -> None:
    X, y, w = rows(60, NUMBERS)
    flat = np.concatenate(X), np.concatenate(y), np.repeat(["a", "b", "c"], 60)
    how = PLAIN | {"algorithm": "coke", "limits": Until(rounds=20)}
    here = COKERegressor(**how).fit(*flat, sample_weight=np.concatenate(w))
    there = COKERegressor(**how, engine=Agents(carrier="memory"))
    there.fit(*flat, sample_weight=np.concatenate(w))
    assert_array_equal(here.thetas_, there.thetas_)
    assert here.bytes_ == there.bytes_


def test_columns_of_weights_that_cannot_be_are_refused(weighted: Path) -> None:
    table = pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0], "w": [1.0, -2.0], "t": ["a", "b"]})
    with pytest.raises(DataError, match=r"w has -2.0: expected weights, none below zero"):
        read_rows(table, "y", weight="w", drop=["t"])
    with pytest.raises(DataError, match="'t' holds string such as 'a': weights must be numbers"):
        read_rows(table, "y", weight="t")
    with pytest.raises(DataError, match="two parts of target, site and weight"):
        read_rows(table, "y", weight="y")
    with pytest.raises(DataError, match="unknown column 'v'"):
        ready(weighted / "rows.csv", site="site", weight="v")
    for other in ({"data": {"weight": "w", "out_of_core": True}, "whitening": "gram"},
                  {"data": {"weight": "w"}, "privacy": "dp", "epsilon": 1.0}):  # fmt: skip
        with pytest.raises(ConfigError, match='weight = "w"'):
            checked_settings({"loss": "quadratic", **other})
