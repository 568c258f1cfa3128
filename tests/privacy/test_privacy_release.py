"""The one release of a site: drawn once, kept, and refused where something has changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_attacks import rows

from coke.data.files import pack
from coke.errors import DataError, FileError
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.losses.problem import statistics
from coke.privacy import release as private
from coke.privacy.noise import Budget
from coke.privacy.release import Conditions, _load_release, private_statistics
from kit.forging import forgeries
from kit.problems import Array
from kit.releases import DELTA, NOTED, features_of


def test_a_restart_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same (Ã, b̃) and ε, to the last bit, without a draw."""
    path, terms = tmp_path / "release.coke", Conditions(features_of(), 1.0, Budget(1.0, DELTA))
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


CHANGES: dict[str, Callable[[Conditions, Array, Array], tuple[Conditions, Array, Array]]] = {
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
    path, terms = tmp_path / "release.coke", Conditions(features_of(), 1.0, Budget(1.0, DELTA))
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
    terms = Conditions(features_of(), 1.0, Budget(1.0, DELTA))
    X, y = rows(0, 20)
    with pytest.raises(FileError, match="cannot be written"):
        private_statistics(tmp_path / "no" / "release.coke", terms, X, y)
    for inputs, targets in ((X, np.full_like(y, np.nan)), (X, y[:-1]), (X[:0], y[:0])):
        with pytest.raises(DataError, match="equally many"):
            private_statistics(tmp_path / "release.coke", terms, inputs, targets)
    assert not (tmp_path / "release.coke").exists()


def test_the_seed_of_the_features_draws_no_noise(tmp_path: Path) -> None:
    """Two sites with the same rows and seed: different noise. Large targets are clipped."""
    terms, (X, y) = Conditions(features_of(), 1.0, Budget(10.0, DELTA)), rows(0, 10**4)
    one, two = (private_statistics(tmp_path / name, terms, X, 1e6 * y) for name in "ab")
    assert np.abs(one.found.A - two.found.A).max() > 0
    exact = statistics(terms.features, X, np.clip(1e6 * y, -1, 1))
    np.testing.assert_allclose(one.found.b, exact[1], atol=8 * one.s / 10**4)


def test_a_release_carries_the_noise_it_says(tmp_path: Path) -> None:
    """T (b̃ − b) has the deviation s of the budget, and T (Ã − A) the norm s √(2D) of such noise."""
    features, T = draw_features(FeatureSettings(200, sigma=1.5, seed=0), 5), 10**5
    X, y = rows(0, T)
    release = private_statistics(
        tmp_path / "a", Conditions(features, 1.0, Budget(1.0, DELTA)), X, y
    )
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
    private_statistics(path, Conditions(features, 1.0, Budget(1.0, DELTA)), *rows(0, 9))
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
        release, _ = _load_release(path)
    except FileError:
        return
    assert np.isfinite(release.found.A).all()
    D = len(release.found.A)
    assert release.found.A.shape == (D, D)
    assert len(release.found.b) % D == 0
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
    _load_release(path)
    meta |= {what: {"T": 0, "s": 0.0, "spent": [], "salt": "a"}[what]} if what in meta else {}
    path.write_bytes(pack(private.KIND, meta, {"A": bad.get(what, A), "b": b}))
    with pytest.raises(FileError, match=r"release\.coke"):
        _load_release(path)
