"""The streams of `make bench-online`, and what else can learn from them: the yardsticks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse

from coke.maths.arrays import Array, FeatureMap
from coke.maths.graph import degrees
from coke.maths.losses.streamed import Batch, Streamed
from coke.maths.symmetric import solution

LAM, PRIOR = 1e-5, 1e-2
SETS = {
    "twitter": "twitter_adaraker",
    "toms": "toms_hardware_adaraker",
    "energy": "energy_adaraker",
    "air": "air_quality_adaraker",
}
BETAS = (1.0, 0.999, 0.998, 0.99)
AIR = ("PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")


class Rows(NamedTuple):
    """A row a site and tick; NaN where a site has none."""

    X: Array  # (T, N, d)
    y: Array  # (T, N)
    sigma: float
    classes: bool = False


def _table(name: str) -> dict[str, Array]:
    path = Path(os.environ.get("COKE_DATA", "data")) / f"{name}.parquet"
    table = pq.read_table(path)
    return {column: table[column].to_numpy() for column in table.column_names}


def _dealt(X: Array, y: Array, N: int) -> tuple[Array, Array]:
    T = len(y) // N
    return X[: T * N].reshape(T, N, -1), y[: T * N].reshape(T, N)


def adaraker(name: str, *, shuffled: bool) -> Rows:
    """One of the four sets, dealt in turn to ten sites."""
    table = _table(SETS[name])
    y = table.pop("y")
    X = np.column_stack(list(table.values()))
    order = np.random.default_rng(0).permutation(len(y)) if shuffled else np.arange(len(y))
    return Rows(*_dealt(X[order], y[order], 10), 1.0)


def synthetic(kind: str, T: int = 4000, N: int = 10, d: int = 5) -> Rows:
    """Three random functions; "drift" goes from one to the next, "shift" moves the inputs."""
    rng = np.random.default_rng(0)
    mu = rng.normal(size=(N, d)) / 2
    omega, v = rng.normal(size=(60, d)) / 2.0, rng.normal(size=(3, 120))
    X, t = rng.normal(size=(T, N, d)) + mu, np.arange(T)[:, None]
    if kind == "shift":
        X[1000:] = 1.5 * X[1000:] + 2 * rng.normal(size=d)
    angle = X @ omega.T
    f = np.concatenate([np.cos(angle), np.sin(angle)], axis=-1) / np.sqrt(60) @ v.T
    y = f[..., 0]
    if kind == "drift":
        a = np.clip((t - 2000) / 1000, 0, 1)
        y = np.where(t < 1000, y, (1 - a) * f[..., 1] + a * f[..., 2])
    return Rows(X, y / y.std() + 0.2 * rng.normal(size=y.shape), 2.0)


def beijing() -> Rows:
    """Twelve stations, hour by hour, in standard units; an hour with a gap has no row."""
    table = _table("beijing_air_multisite")
    sites = np.unique(table["site"].astype(str), return_inverse=True)[1]
    N = sites.max() + 1
    columns = np.column_stack([table[name] for name in (*AIR, "y")]).astype(np.float64)
    standard = (columns - np.nanmean(columns, axis=0)) / np.nanstd(columns, axis=0)
    hours = np.stack([standard[sites == i] for i in range(N)], axis=1)
    hours[np.isnan(hours).any(axis=-1)] = np.nan
    return Rows(hours[..., :-1], hours[..., -1], 5.0)


def elec2(*, price: bool = False) -> Rows:
    """Half hours dealt in turn to ten sites; the price, of which the label is made, on demand."""
    table = _table("tables/elec2")
    labels = np.where(table.pop("class").astype(str) == "UP", 1.0, 0.0)
    kept = [x.astype(np.float64) for name, x in table.items() if price or "nswprice" not in name]
    X = np.column_stack(kept)
    return Rows(*_dealt((X - X.mean(axis=0)) / X.std(axis=0), labels, 10), 2.0, classes=True)


def least_squares(
    rows: Rows, phi: FeatureMap, beta: float, groups: Sequence[Sequence[int]]
) -> Array:
    """Squared errors (T, N) of recursive least squares, each group of sites with its own model."""
    T, N = rows.y.shape
    D = phi(rows.X[:1, 0] * 0).shape[1]
    s, theta, off, w = (
        Streamed.empty(len(groups), D),
        np.zeros((N, D)),
        np.full((T, N), np.nan),
        0.0,
    )
    due = 0
    for t in range(T):
        there = [[n for n in group if np.isfinite(rows.y[t, n])] for group in groups]
        Phi = [phi(rows.X[t, group]) for group in there]
        for group, P in zip(there, Phi, strict=True):
            off[t, group] = rows.y[t, group] - np.vecdot(P, theta[group])
        batches = [
            Batch(P, rows.y[t, group][:, None], np.zeros(len(group))) if group else None
            for P, group in zip(Phi, there, strict=True)
        ]
        s, w, due = s.after(1, beta, batches), beta * w + 1.0, due + 1
        if due >= max(1, int(0.02 * w)):
            due = 0
            for g, whole in enumerate(groups):
                ridge = (LAM + PRIOR / w) / N * max(s.w[g], 1.0)
                theta[list(whole)] = solution(s.S[g] + ridge * np.eye(D), s.r[g])
    return off**2


def hoeffding(rows: Rows, before: int = 0) -> float | None:
    """Accuracy of one Hoeffding tree that sees every row, in order; None without river.

    With the label of so many rows before as one more input, where that is above zero.
    """
    if find_spec("river") is None:
        return None
    river: Any = import_module("river.tree")
    X, y = rows.X.reshape(-1, rows.X.shape[-1]), rows.y.ravel()
    if before:
        X = np.column_stack([X, np.r_[np.zeros(before), y[:-before]]])
    tree, right = river.HoeffdingTreeClassifier(), 0
    for x, label in zip(X.tolist(), y.tolist(), strict=True):
        named = dict(enumerate(x))
        right += tree.predict_one(named) == label
        tree.learn_one(named, label)
    return right / len(y)


class Linearised(NamedTuple):
    """Settings of the published way: ADMM with a linearised loss, quantised and censored."""

    eta: float
    rho: float
    h: float = 0.0  # a site speaks where its quantised news are at least h/√t
    bits: int | None = None  # None: float64


def linearised(
    rows: Rows, phi: FeatureMap, W: sparse.csr_array, how: Linearised
) -> tuple[Array, int, int]:
    """Squared errors (T, N), bytes and sends."""
    (T, N), D = rows.y.shape, phi(np.zeros((1, rows.X.shape[-1]))).shape[1]
    rng, d = np.random.default_rng(0), degrees(W)
    theta, hat, g = np.zeros((N, D)), np.zeros((N, D)), np.zeros((N, D))
    off, sends = np.full((T, N), np.nan), 0
    for t in range(T):
        there, Phi = np.isfinite(rows.y[t]), phi(np.nan_to_num(rows.X[t]))
        e = np.where(there, rows.y[t] - np.vecdot(theta, Phi), 0.0)
        off[t, there] = e[there]
        slope = -2.0 * e[:, None] * Phi + 2.0 * LAM / N * theta
        eta = how.eta * np.sqrt(t + 1.0)
        pull = how.rho * (d * hat + W @ hat)
        theta = (eta * theta + pull - slope - g) / (eta + 2.0 * how.rho * d)
        news = theta - hat
        if how.bits is not None:
            step = np.abs(news).max(axis=1, keepdims=True) / (2 ** (how.bits - 1) - 1) + 1e-300
            news = step * np.floor(news / step + rng.random(news.shape))
        speaks = np.linalg.norm(news, axis=1, keepdims=True) >= how.h / np.sqrt(t + 1.0)
        hat = hat + speaks * news
        g = g + how.rho * (d * hat - W @ hat)
        sends += int(speaks.sum())
    each = 8 * D if how.bits is None else 4 + D * how.bits // 8
    return off**2, each * sends, sends


def last_value(rows: Rows) -> Array:
    """Squared errors (T, N) of a site's last target."""
    y, last = rows.y, np.zeros(rows.y.shape[1])
    off = np.full(y.shape, np.nan)
    for t in range(len(y)):
        there = np.isfinite(y[t])
        off[t, there] = (y[t] - last)[there]
        last = np.where(there, y[t], last)
    return off**2
