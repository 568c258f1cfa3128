"""privacy="dp" of the estimators: as `coke run` does it, and refused where rows would be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from coke import DP, Coke, COKEClassifier, COKERegressor, Features
from coke.errors import ConfigError, DataError, InputError
from coke.privacy.release import _load_release
from coke.talk.names import site_id

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(3000, 2))
y = np.sin(X[:, 0]) + 0.5 * np.cos(X[:, 1]) + 0.1 * rng.normal(size=3000)
RANGES = {"x0": (-3, 3), "x1": (-3, 3), "y": (-2, 2)}
GRAM = Coke(whitening="gram")
GOOD: dict[str, Any] = {
    "privacy": DP(epsilon=3.0), "scale": "public", "ranges": RANGES, "n_agents": 3,
    "features": Features(15, sigma=0.5), "algorithm": Coke(whitening="range"),
}  # fmt: skip


def test_it_learns_and_says_what_its_sites_would_do_alone(tmp_path: Path) -> None:
    """The private model, its optimum, and the sites' own models beside it."""
    est = COKERegressor(**{**GOOD, "privacy": DP(3.0, releases=tmp_path)}).fit(X, y)
    assert est.score(X, y) > 0.8
    assert_allclose(est.thetas_, np.tile(est.optimum_, (3, 1)), atol=0.02)
    assert est.alone_ is not None
    assert est.alone_.shape == (3, 30)
    assert COKERegressor(n_agents=3).fit(X, y).alone_ is None
    release, _ = _load_release(tmp_path / "private-0.coke")
    assert release.total == (3.0, 1e-5)


def test_a_second_fit_spends_nothing_where_releases_are_kept(tmp_path: Path) -> None:
    est = COKERegressor(**{**GOOD, "privacy": DP(3.0, releases=str(tmp_path))}).fit(X, y)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = clone(est).fit(X, y)
    assert_array_equal(again.thetas_, est.thetas_)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    with pytest.raises(DataError, match="allow a new budget"):
        clone(est).fit(X, y + 0.1)
    assert again.budget_ == (3.0, 1e-5)
    assert clone(est).set_params(privacy__new_budget=True).fit(X, y + 0.1).budget_ == (6.0, 2e-5)
    forgetful = COKERegressor(**GOOD)
    assert not np.array_equal(forgetful.fit(X, y).thetas_, clone(forgetful).fit(X, y).thetas_)


def test_releases_of_sites_of_any_name_stay_in_their_folder(tmp_path: Path) -> None:
    """Whatever a name says of folders; and a second fit finds them again."""
    sites = np.resize(["Köln", "../../x", "A/b", "a/B"], len(y))
    folder = tmp_path / "releases"
    est = COKERegressor(**{**GOOD, "privacy": DP(3.0, releases=folder)}).fit(X, y, sites=sites)
    kept = {path.name for path in folder.glob("[!.]*")}  # beside the locks they were drawn under
    assert kept == {f"private-{site_id(name)}.coke" for name in sites}
    assert [path.name for path in tmp_path.iterdir()] == ["releases"]
    assert_array_equal(clone(est).fit(X, y, sites=sites).thetas_, est.thetas_)


def test_ranges_go_by_a_data_frames_names() -> None:
    frame = pd.DataFrame(X, columns=["age", "dose"])
    ranges = {"age": (-3, 3), "dose": np.array([-3.0, 3.0]).tolist(), "y": (np.float64(-2), 2)}
    est = COKERegressor(**{**GOOD, "ranges": ranges}).fit(frame, y)
    assert est.model_.columns == ("age", "dose")
    with pytest.raises(ConfigError, match="without ranges of x0, x1"):
        COKERegressor(**{**GOOD, "ranges": ranges}).fit(X, y)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features": Features()}, "raw rows"),
        ({"scale": "standard", "algorithm": GRAM}, "known beforehand"),
        ({"scale": "none", "algorithm": GRAM}, "known beforehand"),
        ({"algorithm": "coke"}, "moments of raw inputs"),
        ({"privacy": DP(0.0)}, "expected 0 < ε"),
        ({"privacy": DP(1.0, delta=0.0)}, "δ < 1"),
        ({"ranges": None}, "without ranges of x0, x1, y"),
        ({"ranges": {**RANGES, "y": (2, -2)}}, "low below a high"),
        ({"ranges": {**RANGES, "y": 3}}, "Expected `array`"),
        ({"privacy": DP(1.0, colluding=0)}, "a site knows itself"),
        ({"privacy": DP(1.0, releases="here"), "engine": "agents"}, "write a network"),
    ],
)
def test_what_cannot_be_private_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        COKERegressor(**{**GOOD, **changes}).fit(X, y)


def test_classes_are_learned_privately_by_least_squares_once_they_are_public() -> None:
    how = {**GOOD, "ranges": {"x0": (-3, 3), "x1": (-3, 3)}}
    public = {"privacy": DP(3.0, classes=[False, True])}
    with pytest.raises(ConfigError, match="list all that there can be"):
        COKEClassifier(**how).fit(X, y > 0)
    with pytest.raises(ConfigError, match="only the quadratic or least-squares loss"):
        COKEClassifier(**how | public, loss="logistic").fit(X, y > 0)
    assert COKEClassifier(**how | public).fit(X, y > 0).score(X, y > 0) > 0.8
