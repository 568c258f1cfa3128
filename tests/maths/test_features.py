"""Random features: the same everywhere, and an unbiased estimate of the kernel."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from coke.errors import InputError
from coke.maths.features.features import (
    KERNELS,
    MAPPINGS,
    SAMPLINGS,
    FeatureSettings,
    Normals,
    _exact_log,
    _orthonormal,
    draw_features,
    gram,
    own_gram,
)

X = np.random.default_rng(7).normal(size=(25, 5))
PAIRS = np.triu_indices(len(X), 1)

# BLAKE2b of the little-endian bytes of ω and the phases: 37 features in R^13, σ = 1.5, cos-phase,
# seed 2021. A change here means that sites with different releases no longer understand each other.
DIGESTS = {
    ("gaussian", "iid"): "3e3e57e8020c1618e02425abacb454d9",
    ("gaussian", "orthogonal"): "9916cc0cc397fa0e036174e58363a6f1",
    ("laplacian", "iid"): "3578d7e15a2ff8994b8059109860a921",
    ("laplacian", "orthogonal"): "6caed573df4a94777f9d0686693f10d3",
    ("cauchy", "iid"): "0eefa62fddd67f7a6ca7c5cc77e066b5",
    ("cauchy", "orthogonal"): "0dee1e2291c79c79a46dafebb480a0e6",
    ("matern32", "iid"): "af27f81c1da0dc9e5e2b090181e52f97",
    ("matern32", "orthogonal"): "ff5fc5b1a027def5f5430a2cde081948",
    ("matern52", "iid"): "dd62ecd29c47ad6cd45815c9c3e87fc5",
    ("matern52", "orthogonal"): "3d1e1d27477717933ad583dfd6ae7078",
}


def digest(kernel: str, sampling: str) -> str:
    f = draw_features(FeatureSettings(37, kernel, 1.5, "cos-phase", sampling, 2021), 13)
    data = f.omega.astype("<f8").tobytes() + f.phase.astype("<f8").tobytes()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@pytest.mark.parametrize(("kernel", "sampling"), DIGESTS)
def test_features_are_the_stored_bits(kernel: str, sampling: str) -> None:
    assert digest(kernel, sampling) == DIGESTS[kernel, sampling]


@pytest.mark.parametrize("cpu", ["AVX512F AVX512CD AVX512_SKX", "AVX2 FMA3"])
def test_features_do_not_depend_on_the_processors_extensions(cpu: str) -> None:
    """NumPy without its widest vector instructions draws the same bits."""
    code = "import test_features as t; print([t.digest(*key) for key in t.DIGESTS])"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])  # noqa: PTH120
    env = {**os.environ, "NPY_DISABLE_CPU_FEATURES": cpu, "PYTHONPATH": path}
    run = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(list(DIGESTS.values()))


def test_more_features_keep_the_first() -> None:
    """A longer draw begins with the shorter one (i.i.d. sampling)."""
    few, many = (draw_features(FeatureSettings(L, seed=3), 4) for L in (10, 400))
    assert (many.omega[:10] == few.omega).all()


def error(kernel: str, L: int, mapping: str = "cos-sin", sampling: str = "iid") -> float:
    """Root mean square over 24 seeds and 300 pairs of φ(x)ᵀφ(y) − κ(x, y)."""
    exact, squares = gram(kernel, X, X, 2.0)[PAIRS], []
    for seed in range(24):
        Phi = draw_features(FeatureSettings(L, kernel, 2.0, mapping, sampling, seed), 5)(X)
        squares.append(np.mean(((Phi @ Phi.T)[PAIRS] - exact) ** 2))
    return float(np.sqrt(np.mean(squares)))


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_error_shrinks_like_one_over_root_l(kernel: str, sampling: str, mapping: str) -> None:
    """16 times the features, a quarter of the error; a wrong law of ω would leave a floor."""
    ratio = error(kernel, 100, mapping, sampling) / error(kernel, 1600, mapping, sampling)
    assert 3.3 < ratio < 4.8
    assert error(kernel, 1600, mapping, sampling) < 1.1 * np.sqrt(1.0 / 1600)


LITERAL = {  # κ of one difference δ
    "gaussian": lambda v: np.exp(-(v @ v) / 2),
    "laplacian": lambda v: np.exp(-np.abs(v).sum()),
    "cauchy": lambda v: np.prod(1 / (1 + v**2)),
    "matern32": lambda v: (1 + np.sqrt(3 * v @ v)) * np.exp(-np.sqrt(3 * v @ v)),
    "matern52": lambda v: (1 + np.sqrt(5 * v @ v) + 5 * (v @ v) / 3) * np.exp(-np.sqrt(5 * v @ v)),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_what_their_formulas_say(kernel: str) -> None:
    """Of all pairs of rows, more than are looked at at once; and of rows among themselves."""
    Y = np.random.default_rng(8).normal(size=(1000, 5))
    literal = [[LITERAL[kernel]((x - y) / 2.0) for y in Y] for x in X]
    assert_allclose(gram(kernel, X, Y, 2.0), literal, rtol=1e-13)
    assert_allclose(own_gram(kernel, X / 2.0), gram(kernel, X, X, 2.0), rtol=1e-13)


@pytest.mark.parametrize("kernel", KERNELS)
def test_features_are_unbiased(kernel: str) -> None:
    """E φ(x)ᵀφ(y) = κ(x, y): within 4.5 standard errors for all pairs, over many features."""
    f = draw_features(FeatureSettings(40_000, kernel, 2.0, seed=5), 5)
    Phi, exact = f(X), gram(kernel, X, X, 2.0)
    # Var cos(ωᵀδ) = ½(1 + κ(2δ)) − κ(δ)² for κ(δ) = E cos(ωᵀδ)
    spread = np.sqrt((0.5 * (1 + gram(kernel, 2 * X, 2 * X, 2.0)) - exact**2) / 40_000)
    z = ((Phi @ Phi.T - exact) / np.maximum(spread, 1e-12))[PAIRS]
    assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "matern52", "cauchy"])
def test_orthogonal_features_are_better(kernel: str) -> None:
    """Negative dependence inside a block lowers the variance; at L = d the gain is largest."""
    assert error(kernel, 50, sampling="orthogonal") < 0.95 * error(kernel, 50)


def test_orthogonal_features_never_hurt_the_laplacian() -> None:
    """Its ω has Cauchy tails that undo most of the orthogonality: no loss, hardly a gain."""
    assert error("laplacian", 50, sampling="orthogonal") < 1.03 * error("laplacian", 50)


def test_orthogonal_blocks_are_orthogonal() -> None:
    f = draw_features(FeatureSettings(10, sampling="orthogonal", seed=1), 5)
    for block in (f.omega[:5], f.omega[5:]):
        cosines = block @ block.T / np.outer(*2 * [np.linalg.norm(block, axis=1)])
        assert_allclose(cosines, np.eye(5), atol=1e-12)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=5), min_size=1, max_size=4))
def test_cos_sin_features_have_length_one(rows: list[list[float]]) -> None:
    Phi = draw_features(FeatureSettings(30, seed=0), 5)(np.array(rows))
    assert_allclose(np.linalg.norm(Phi, axis=1), 1.0, rtol=1e-14)


def test_normals_are_normal() -> None:
    z = Normals(11).take(200_000)
    assert stats.kstest(z, "norm").pvalue > 0.01
    assert abs(np.mean(z[1:] * z[:-1])) < 4 / np.sqrt(len(z))
    assert np.abs(z).max() > 4  # the tails are there


def test_normals_do_not_depend_on_how_they_are_taken() -> None:
    whole, stream = Normals(3).take(5000), Normals(3)
    parts = [stream.take(n) for n in (1, 2, 997, 4000)]
    assert (np.concatenate(parts) == whole).all()


@given(st.floats(1e-300, 1e300))
def test_exact_log_is_the_logarithm(x: float) -> None:
    assert_allclose(_exact_log(np.array([x]))[0], np.log(x), rtol=4e-16, atol=4e-16)


def test_gram_schmidt_is_orthonormal() -> None:
    Q = _orthonormal(Normals(0).take(3, 20, 20))
    assert_allclose(Q @ Q.swapaxes(1, 2), np.tile(np.eye(20), (3, 1, 1)), atol=1e-11)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kernel": "gausian"}, "Did you mean 'gaussian'"),
        ({"mapping": "cos"}, "unknown mapping 'cos'"),
        ({"sampling": "orthogonl"}, "Did you mean 'orthogonal'"),
        ({"n_features": 0}, "n_features=0: expected at least one"),
        ({"sigma": 0.0}, "sigma=0.0: expected a positive"),
        ({"sigma": float("nan")}, "expected a positive"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, object], said: str) -> None:
    settings = FeatureSettings()._replace(**change)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=said):
        draw_features(settings, 3)
