"""Several kernels at once: mixed, compared by what they cost, and all but one left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke import DP, Agents, COKEClassifier, COKERegressor, Features, Until, load_model
from coke.errors import CokeError, ConfigError
from coke.learning.finishing import finished
from coke.learning.kernels import kernel_features, mixed
from coke.learning.several import Several, stream_of
from coke.learning.streaming import Stream
from coke.maths.algorithms.trial import LOOKS
from coke.maths.features.features import MAPPINGS, FeatureSettings, draw_features, gram
from coke.settings.kernels import Kernel, kernels_of
from coke.settings.reading import checked_settings
from kit.problems import Array
from kit.streaming import arrived, sites_of, wavy

THREE = (Kernel("gaussian", (0.05,)), Kernel("gaussian", (1.0,)), Kernel("gaussian", (50.0,)))
WIDTHS = st.lists(st.floats(1e-300, 1e300), max_size=4).map(tuple)
FAMILIES = st.sampled_from(["gaussian", "laplacian", "cauchy", "matern32", "matern52"])


def wave(T: int, N: int = 4) -> tuple[Array, Array]:
    """Rows that a bandwidth near one fits, and neither 0.05 nor 50."""
    X, _ = wavy(T, N)
    noise = 0.1 * np.random.default_rng(1).normal(size=(T, N))
    return X, np.sin(2.0 * X[..., 0]) + np.cos(2.0 * X[..., 1]) + noise


def streamed(X: Array, y: Array, memory: float = np.inf) -> tuple[Several, Array]:
    several = Several(sites_of(X[:1], y[:1], L=20), memory, THREE)
    off = [np.concatenate(several.tick(arrived(x, v)))[:, 0] - v for x, v in zip(X, y, strict=True)]
    return several, np.array(off) ** 2


@given(FAMILIES, WIDTHS)
def test_a_kernel_in_letters_is_the_same_kernel(family: str, widths: tuple[float, ...]) -> None:
    """To the last bit of every bandwidth, which all sites must have alike."""
    kernel = Kernel(family, widths)
    assert kernels_of(Features(kernels=(str(kernel),))) == (kernel,)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_mixture_of_kernels_is_one_model_on_all_their_frequencies(mapping: str) -> None:
    """Σ_j v_j θ_jᵀφ_j(x) = θᵀφ(x), of any number of sites and outputs."""
    rng = np.random.default_rng(0)
    X, v = rng.normal(size=(7, 3)), (0.5, 0.3, 0.2)
    phis = [draw_features(FeatureSettings(9, sigma=s, mapping=mapping), 3) for s in (0.1, 1, 10)]
    thetas = [rng.normal(size=(4, 2, phi.size)) for phi in phis]
    phi, theta = mixed(list(zip(v, phis, thetas, strict=True)))
    each = [w * (t @ f(X).T) for w, f, t in zip(v, phis, thetas, strict=True)]
    np.testing.assert_allclose(theta @ phi(X).T, sum(each), rtol=1e-12, atol=1e-13)


def test_bandwidths_for_each_column_are_a_metric() -> None:
    """κ((x − y)/σ) column by column, as exactly as so many frequencies can say."""
    X, widths = np.random.default_rng(0).normal(size=(20, 3)), (0.5, 1.0, 4.0)
    settings = checked_settings({"features": {"n_features": 20000}, "model": "plain"})
    phi = kernel_features(settings, Kernel("gaussian", widths), 1.0, 3)
    exact = gram("gaussian", X / np.array(widths), X / np.array(widths), 1.0)
    np.testing.assert_allclose(phi(X) @ phi(X).T, exact, atol=0.03)
    with pytest.raises(ConfigError, match="3 bandwidths for 2 inputs"):
        kernel_features(settings, Kernel("gaussian", widths), 1.0, 2)


def test_a_stream_finds_its_kernel_and_goes_on_with_it_alone() -> None:
    """Then it is as good as that kernel's own stream, and its duals sum to zero."""
    X, y = wave(260)
    several, off = streamed(X, y)
    assert several.trial.running.tolist() == [False, True, False]
    single = Stream(sites_of(X[:1], y[:1], L=20, sigma=1.0), np.inf)
    own = [np.concatenate(single.tick(arrived(x, v)))[:, 0] - v for x, v in zip(X, y, strict=True)]
    assert off[200:].mean() <= 1.05 * (np.array(own)[200:] ** 2).mean()
    np.testing.assert_allclose(several.leader.statistics.S, single.statistics.S, rtol=1e-12)
    assert (several.leader.known.coke.g.sum(axis=0) == 0).all()
    assert several.model().kernels[1][1] == max(v for _, v in several.model().kernels)


def test_while_kernels_are_compared_the_model_is_their_mixture(tmp_path: Path) -> None:
    """A site's model predicts what the stream does; its file has all kernels and their weights."""
    X, y = wave(16)
    several, _ = streamed(X[:15], y[:15])
    model, x = several.model(site=2), X[15, 2][None]
    model.save(tmp_path / "m.coke")
    again = load_model(tmp_path / "m.coke")
    assert dict(again.kernels) == {str(k): pytest.approx(1 / 3) for k in THREE}
    found = several.tick(arrived(X[15], y[15]))[2]
    np.testing.assert_allclose(again.predict(x), found[:, 0], rtol=1e-10)
    assert several.theta.shape == (4, 1, 3 * 40)


def test_bytes_of_kernels_that_have_gone_stay_counted() -> None:
    X, y = wave(120)
    several = Several(sites_of(X[:1], y[:1], L=20), np.inf, THREE)
    before = 0
    for x, v in zip(X, y, strict=True):
        several.tick(arrived(x, v))
        now = int(several.spent[:, 1].sum())
        assert now >= before
        before = now
    assert several.trial.running.sum() == 1
    assert before > several.ready.spent[:, 1].sum()


def test_a_stream_that_ends_while_kernels_are_compared_ends_with_the_leader() -> None:
    X, y = wave(40)
    several, _ = streamed(X, y)
    assert several.trial.running.sum() > 1
    ended = finished(several.ending(), 200)
    assert several.trial.running.sum() == 1
    assert ended.certificate is not None
    assert ended.certificate.holds
    assert several.ticks == 40 < LOOKS[-1]


def test_an_estimators_stream_of_several_kernels() -> None:
    X, y = wave(130)
    features = Features(n_features=20, kernels=(0.05, "gaussian:1", "matern32"))
    est = COKERegressor(4, model="plain", features=features, random_state=1)
    for part in np.array_split(np.arange(130), 5):
        est.partial_fit(X[part].reshape(-1, 2), y[part].ravel())
    names = [name for name, _ in est.model_.kernels]
    assert names == ["gaussian:0.05", "gaussian:1", "matern32"]
    assert np.isfinite(est.predict(X[0], site=est.sites_[0])).all()
    assert np.mean((est.finish().predict(X.reshape(-1, 2)) - y.ravel()) ** 2) < 0.1


def test_a_batch_is_learnt_with_the_kernel_that_misses_least() -> None:
    """On agents, too, with the same weights; and they are kept with the model."""
    X, y = wave(150)
    features = Features(n_features=20, kernels=(0.05, 1.0, 50.0))
    how: dict[str, Any] = {"features": features, "limits": Until(100), "scale": "none"}
    est = COKERegressor(4, **how).fit(X.reshape(-1, 2), y.ravel())
    weights = dict(est.model_.kernels)
    assert weights["gaussian:1"] > 0.99
    assert sum(weights.values()) == pytest.approx(1)
    there = COKERegressor(4, **how, engine=Agents("memory")).fit(X.reshape(-1, 2), y.ravel())
    assert there.model_.kernels == est.model_.kernels
    np.testing.assert_allclose(there.predict(X[0]), est.predict(X[0]), atol=0.1)


def test_classes_have_several_kernels_too() -> None:
    X, y = wave(200)
    features = Features(n_features=20, kernels=(0.05, 1.0))
    est = COKEClassifier(4, features=features, loss="least-squares")
    est.fit(X.reshape(-1, 2), y.ravel() > 0)
    assert dict(est.model_.kernels)["gaussian:1"] > 0.9


@pytest.mark.parametrize(
    ("features", "more", "said"),
    [
        ({"kernels": (1.0,)}, {}, "expected 2 to 16"),
        ({"kernels": (1.0, "gaussian:1")}, {}, "each once"),
        ({"kernels": (1.0, -2.0)}, {}, "positive"),
        ({"kernels": (1.0, "gausian:2")}, {}, "gaussian"),
        ({"kernels": (1.0, "gaussian:1,x")}, {}, "bandwidth that is none"),
        ({"kernels": (1.0, 2.0), "sigma": 3.0}, {}, "leave sigma out"),
        ({"kernels": (1.0, 2.0)}, {"loss": "huber"}, "outliers"),
        ({"kernels": (1.0, 2.0)}, {"privacy": DP(1.0)}, "raw rows"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    features: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    est = COKERegressor(2, features=Features(**features), **more)
    with pytest.raises(CokeError, match=said):
        est.fit(np.zeros((9, 2)), np.zeros(9))


def test_a_stream_with_several_kernels_begins_where_nobody_tells_of_columns() -> None:
    """In the rows' own units no bandwidth follows from anything, and none is needed."""
    X, y = wave(40)
    kernels = [0.05, 1.0, 50.0]
    ready = sites_of(X[:1], y[:1], features={"n_features": 20, "kernels": kernels})
    stream = stream_of(ready, np.inf)
    for x, v in zip(X, y, strict=True):
        stream.tick(arrived(x, v))
    assert isinstance(stream, Several)
    assert [one.ready.agreement.sigma for one in stream.running] == kernels
