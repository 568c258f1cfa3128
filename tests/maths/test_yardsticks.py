"""The yardsticks of `make bench-online`: each is the method whose name it has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.graph import adjacency, build_graph, degrees

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from streams import LAM, PRIOR, Linearised, Rows, hoeffding, last_value, least_squares, linearised

PHI = draw_features(FeatureSettings(6, sigma=1.0), 2)


def some(T: int = 90, N: int = 3) -> Rows:
    """A row a site and tick, some of them missing."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(T, N, 2)), rng.normal(size=(T, N))
    y += np.sin(X.sum(axis=-1))
    y[rng.random(y.shape) < 0.1] = np.nan
    return Rows(X, y, 1.0)


@pytest.mark.parametrize("groups", [[[0, 1, 2]], [[0], [1], [2]]], ids=["centralised", "local"])
@pytest.mark.parametrize("beta", [1.0, 0.9])
def test_recursive_least_squares_is_ridge_on_the_rows_so_far(
    groups: list[list[int]], beta: float
) -> None:
    """θ = argmin Σ_s β^(t−s) (y_s − θᵀφ_s)² + ridge ‖θ‖², by stacked weighted rows and lstsq.

    Up to fifty ticks it is found anew at each of them.
    """
    rows, t = some(), 40
    off = least_squares(rows, PHI, beta, groups)
    w = sum(beta**k for k in range(t))
    for group in groups:
        Phi, y, weight = [], [], []
        for s in range(t):
            for n in group:
                if np.isfinite(rows.y[s, n]):
                    Phi.append(PHI(rows.X[s, n][None])[0])
                    y.append(rows.y[s, n])
                    weight.append(beta ** (t - 1 - s))
        root = np.sqrt(weight)
        ridge = (LAM + PRIOR / w) / 3 * max(sum(weight), 1.0)
        A = np.vstack([root[:, None] * np.array(Phi), np.sqrt(ridge) * np.eye(PHI.size)])
        theta = np.linalg.lstsq(A, np.r_[root * y, np.zeros(PHI.size)], rcond=None)[0]
        for n in group:
            if np.isfinite(rows.y[t, n]):
                e = rows.y[t, n] - PHI(rows.X[t, n][None])[0] @ theta
                np.testing.assert_allclose(off[t, n], e**2, rtol=1e-6)


def literal(rows: Rows, W: Any, how: Linearised) -> Any:
    """Agent by agent: argmin_θ (g + γ_i)ᵀθ + (η/2)‖θ − θ_i‖² + ρ Σ_n ‖θ − (θ_i + θ_n)/2‖²."""
    T, N = rows.y.shape
    D, dense = PHI.size, W.toarray()
    theta, gamma = np.zeros((N, D)), np.zeros((N, D))
    off = np.full((T, N), np.nan)
    for t in range(T):
        eta, new = how.eta * np.sqrt(t + 1.0), theta.copy()
        for i in range(N):
            phi, e = PHI(np.nan_to_num(rows.X[t, i])[None])[0], rows.y[t, i] - 0.0
            e = e - theta[i] @ phi
            off[t, i] = e**2
            g = (-2 * e * phi if np.isfinite(e) else 0.0) + 2 * LAM / N * theta[i]
            near = [n for n in range(N) if dense[i, n]]
            H = (eta + 2 * how.rho * len(near)) * np.eye(D)
            b = eta * theta[i] + how.rho * sum(theta[i] + theta[n] for n in near) - g - gamma[i]
            new[i] = np.linalg.solve(H, b)
        theta = new
        for i in range(N):
            gamma[i] += how.rho * sum(theta[i] - theta[n] for n in range(N) if dense[i, n])
    return off


def test_online_dkla_is_linearised_admm_agent_by_agent() -> None:
    rows, how = some(30), Linearised(0.3, 0.05)
    W = adjacency(build_graph("ring", 3, seed=0))
    off, size, sends = linearised(rows, PHI, W, how)
    np.testing.assert_allclose(off, literal(rows, W, how), rtol=1e-9)
    assert (sends, size) == (90, 90 * 8 * PHI.size)  # everybody speaks in every tick, in float64


def test_the_quantised_method_is_unbiased_cheap_and_silent_when_told_to_be() -> None:
    """Four bits: near float64's error at an eighth of the bytes; a threshold above all: no byte."""
    rows, how = some(200), Linearised(1.0, 0.03)
    W = adjacency(build_graph("ring", 3, seed=0))
    assert degrees(W).tolist() == [[2.0]] * 3
    exact = np.nanmean(linearised(rows, PHI, W, how)[0])
    off, size, sends = linearised(rows, PHI, W, how._replace(bits=4))
    assert np.nanmean(off) < 1.02 * exact
    assert size == sends * (4 + PHI.size // 2)
    assert linearised(rows, PHI, W, how._replace(bits=4, h=1e9))[1:] == (0, 0)


def test_the_last_value_is_that_of_the_site() -> None:
    y = np.array([[1.0, 5.0], [np.nan, 7.0], [4.0, np.nan], [4.5, 6.0]])
    off = last_value(Rows(np.zeros((4, 2, 1)), y, 1.0))
    wanted = [[1.0, 25.0], [np.nan, 4.0], [9.0, np.nan], [0.25, 1.0]]
    np.testing.assert_array_equal(off, wanted)


def test_a_tree_that_is_told_the_last_label_predicts_labels_that_stay() -> None:
    pytest.importorskip("river", reason="needs the extra bench")
    rng = np.random.default_rng(0)
    y = (np.cumsum(rng.random(600) < 0.05) % 2).astype(float)
    rows = Rows(rng.normal(size=(300, 2, 1)), y.reshape(300, 2), 1.0, classes=True)
    told, bare = hoeffding(rows, 1), hoeffding(rows)
    assert told is not None
    assert bare is not None
    assert told > 0.85 > bare
