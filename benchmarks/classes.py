"""`make bench-classes`: classes against scikit-learn on pooled rows, and the loss that is chosen.

Digits of ten sites that have seen two of them each: CPU time of a whole fit, bytes, log loss and
accuracy, beside the same model's on pooled rows. Whole fits against LogisticRegression on the same
features of pooled rows, its features counted, for K classes. The loss that loss="auto" takes beside
the others of its kind; Adult, Elec2 and the four hospitals need the data sets (COKE_DATA). All with
model="plain"; what model="auto" adds stands beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow.parquet
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from coke import COKEClassifier, Features
from figures import Found, Goal, Section, by_turns, cpu, main, ratio
from floors import FLOORS
from model import DATA, hospitals

LOSSES = ("least-squares", "softmax", "logistic")
SPLITS = 3
Split = tuple[Any, Any, Any, Any, Any]  # inputs, labels and sites to train; inputs, labels to test


def digits(seed: int, *, skewed: bool) -> Split:
    """Ten sites, dealt or with two digits each."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
    sites = np.empty(len(y), np.int64)
    for digit in range(10):
        at = np.random.default_rng(seed).permutation(np.flatnonzero(y == digit))
        sites[at] = (digit + np.arange(len(at)) % 2) % 10
    return X, y, sites if skewed else None, X_test, y_test


def table(name: str, target: str) -> tuple[Any, Any, dict[str, Any]]:
    """Inputs, labels and the columns that are neither."""
    raw = pyarrow.parquet.read_table(DATA / f"{name}.parquet")
    beside = {c: np.array(raw[c].to_pylist()) for c in ("site", "split") if c in raw.column_names}
    left_out = {target, "nswprice", *beside}
    inputs = [raw[c].to_numpy(zero_copy_only=False) for c in raw.column_names if c not in left_out]
    return np.column_stack(inputs).astype(float), np.array(raw[target].to_pylist()), beside


def some(X: Any, y: Any, seed: int, train: int, test: int) -> Split:
    """Rows drawn to train and to test on, dealt out."""
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = order[:train], order[train : train + test]
    return X[a], y[a], None, X[b], y[b]


def adult(seed: int) -> Split:
    X, y, _ = table("adult_a9a", "y")
    return some(X, y, seed, 20_000, 8_000)


def elec2(seed: int) -> Split:
    X, y, _ = table("tables/elec2", "class")
    return some(X, y, seed, 10_000, 6_000)


def fitted(split: Split, **settings: Any) -> COKEClassifier:
    X, y, sites, *_ = split
    return COKEClassifier(**{"model": "plain", **settings}).fit(X, y, sites=sites)


def surprises(model: COKEClassifier, split: Split) -> Any:
    """Log loss of each test row."""
    *_, X, y = split
    p = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return -np.log(np.maximum(p, 1e-15))


def accuracy(model: COKEClassifier, split: Split) -> float:
    *_, X, y = split
    return float(np.mean(model.predict(X) == y))


def ten_digits(size: str) -> Found:
    """Sites of two digits each: the default, and with L = 300."""
    found: Found = {}
    for L in (100,) if size == "short" else (100, 300):
        splits = [digits(seed, skewed=True) for seed in range(SPLITS)]
        fits = [fitted(split, features=Features(n_features=L)) for split in splits]
        pairs, said = list(zip(fits, splits, strict=True)), f"digits, L = {L}"
        pooled = [
            one.model_._replace(theta=one.optimum_.reshape(one.model_.theta.shape)) for one in fits
        ]
        right = np.mean([accuracy(*pair) for pair in pairs])
        best = np.mean(
            [np.mean(m.predict(s[3]) == s[4]) for m, s in zip(pooled, splits, strict=True)]
        )
        again = partial(fitted, splits[0], features=Features(n_features=L))
        found |= {
            f"{said}: CPU s": min(cpu(again) for _ in range(3)),
            f"{said}: kB": float(np.mean([one.bytes_ for one in fits])) / 1e3,
            f"{said}: log loss": float(np.mean([surprises(*pair).mean() for pair in pairs])),
            f"{said}: accuracy": float(right),
            f"{said}: below pooled": float(best - right),
        }
    if size != "short":
        found |= chosen("digits", [digits(seed, skewed=True) for seed in range(SPLITS)])
    return found


def chosen(name: str, splits: list[Split]) -> Found:
    """With model="auto": what it reaches, and what it adds."""
    fits = [fitted(split, model="auto") for split in splits]
    pairs = list(zip(fits, splits, strict=True))
    plain, sites = fitted(splits[0]), len(fits[0].sites_)
    more = cpu(partial(fitted, splits[0], model="auto")) - cpu(partial(fitted, splits[0]))
    return {
        f"{name}, auto: log loss": float(np.mean([surprises(*pair).mean() for pair in pairs])),
        f"{name}, auto: accuracy": float(np.mean([accuracy(*pair) for pair in pairs])),
        f"{name}, auto adds: CPU s a site": more / sites,
        f"{name}, auto adds: kB": (fits[0].bytes_ - plain.bytes_) / 1e3,
    }


def blobs(K: int, T: int) -> tuple[Any, Any]:
    """K classes of T rows, three clouds each, that overlap."""
    rng = np.random.default_rng(K)
    centres, which = 1.3 * rng.normal(size=(3 * K, 16)), rng.integers(0, 3 * K, T)
    return centres[which] + rng.normal(size=(T, 16)), which % K


def against_pooled(K: int, T: int, turns: int) -> Found:
    """A whole fit over LogisticRegression on the same features."""
    X, y = blobs(K, T)
    model = COKEClassifier(model="plain").fit(X, y).model_

    def pooled() -> object:
        Phi = model.features(model.scaling.inputs(X))
        return LogisticRegression(C=1.0 / (2 * 1e-3 * T / 10), fit_intercept=False).fit(Phi, y)

    work: dict[str, Callable[[], object]] = {
        "ours": lambda: COKEClassifier(model="plain").fit(X, y), "pooled": pooled,
    }  # fmt: skip
    taken = by_turns({name: partial(cpu, do) for name, do in work.items()}, turns)
    return {f"K = {K}: fit / pooled logistic regression": ratio(taken["ours"], taken["pooled"])}


def losses(name: str, splits: list[Split]) -> Found:
    """What loss="auto" takes over the best of all, less one standard error of their difference."""
    each = {
        loss: np.concatenate([surprises(fitted(s, loss=loss), s) for s in splits])
        for loss in ("auto", *LOSSES)
    }
    best = min(LOSSES, key=lambda loss: float(each[loss].mean()))
    apart = each["auto"] - each[best]
    error = float(apart.std() / np.sqrt(len(apart)))
    taken = {f"{name}: log loss, {loss}": float(rows.mean()) for loss, rows in each.items()}
    return taken | {
        f"{name}: chosen over best": float((each["auto"].mean() - error) / each[best].mean())
    }


def measured(size: str) -> Found:
    found = ten_digits(size)
    if size == "short":
        return found | against_pooled(2, 5_000, 2) | against_pooled(10, 5_000, 2)
    for K in (2, 10, 26):
        found |= against_pooled(K, 20_000, 3)
    sets: dict[str, list[Split]] = {
        "digits, dealt": [digits(seed, skewed=False) for seed in range(SPLITS)],
        "digits, skewed": [digits(seed, skewed=True) for seed in range(SPLITS)],
    }
    if DATA.exists():
        hearts = [hospitals(seed) for seed in range(20)]
        sets |= {"Adult": [adult(0)], "Elec2": [elec2(0)], "heart": hearts}
        found |= chosen("Adult", [adult(0)]) | chosen("heart", hearts)
        found["heart, own split, auto: accuracy"] = accuracy(
            fitted(hospitals(None), model="auto"), hospitals(None)
        )
        found["heart, own split: accuracy"] = accuracy(fitted(hospitals(None)), hospitals(None))
        right = [fitted(s).predict(s[3]) == s[4] for s in hearts]
        found["heart, twenty splits: accuracy"] = float(np.concatenate(right).mean())
        found["Adult: accuracy"] = accuracy(fitted(adult(0)), adult(0))
        found["Adult: accuracy, logistic"] = accuracy(fitted(adult(0), loss="logistic"), adult(0))
    for name, splits in sets.items():
        found |= losses(name, splits)
    return found


GOALS = {
    "digits, L = 100: CPU s": Goal(most=1.0),
    "digits, L = 100: kB": Goal(most=150.0),
    "digits, L = 100: log loss": Goal(most=0.25),
    "digits, L = 100: below pooled": Goal(most=0.01),
    "digits, L = 300: CPU s": Goal(most=4.0),
    "digits, L = 300: accuracy": Goal(least=0.97),
    "digits, auto: log loss": Goal(most=0.12),
    "digits, auto adds: CPU s a site": Goal(most=0.3),
    "K = 2: fit / pooled logistic regression": Goal(most=4.0),
    "K = 10: fit / pooled logistic regression": Goal(most=5.0),
    "K = 26: fit / pooled logistic regression": Goal(most=3.0),
    "Adult, auto: log loss": Goal(most=0.355),
    "heart, auto: accuracy": Goal(least=0.80),
    "heart, own split: accuracy": Goal(least=0.795),
    "heart, twenty splits: accuracy": Goal(least=0.80),
    **{
        f"{name}: chosen over best": Goal(most=1.02)
        for name in ("digits, dealt", "digits, skewed", "Adult", "Elec2", "heart")
    },
}
CLASSES = Section("classes", measured, GOALS)

if __name__ == "__main__":
    sys.exit(main(FLOORS, CLASSES))
