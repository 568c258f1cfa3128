"""`make bench-weigh`: rows or sites that weigh the same, where sites differ in size.

The error on new rows of the model that the sites choose, with `weigh = "sites"` and `"rows"`: mean
squared error over the variance of used cars by maker and Beijing by station, as they are and
with ever fewer rows of one site after the other; log loss of classes. Needs the data sets.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.parquet
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.model_selection import train_test_split

from classes import Split, surprises
from coke import COKEClassifier, COKERegressor, Features
from model import DATA, halves, hospitals, table

Case = Callable[[str], float]  # weigh ↦ error


def fewer(sites: Any, ratio: float) -> Any:
    """Which rows are kept: of each site that share of the one before."""
    names = np.unique(sites)
    shares = ratio ** np.arange(len(names))
    drawn = np.random.default_rng(0).random(len(sites))
    return drawn < shares[np.searchsorted(names, sites)]


def numbers(X: Any, y: Any, sites: Any, splits: int) -> Case:
    """Mean squared error over the variance, the mean over splits."""

    def one(weigh: str, seed: int) -> float:
        train, test = halves(len(y), seed)
        model = COKERegressor(features=Features(weigh=weigh))
        model.fit(X[train], y[train], sites=sites[train])
        return float(np.mean((model.predict(X[test]) - y[test]) ** 2) / y[test].var())

    return lambda weigh: float(np.mean([one(weigh, seed) for seed in range(splits)]))


def classes(splits: list[Split]) -> Case:
    """Log loss, the mean over splits."""

    def one(weigh: str, split: Split) -> float:
        X, y, sites, *_ = split
        model = COKEClassifier(features=Features(weigh=weigh)).fit(X, y, sites=sites)
        return float(surprises(model, split).mean())

    return lambda weigh: float(np.mean([one(weigh, split) for split in splits]))


def halving(X: Any, y: Any, seed: int, sites: int) -> Split:
    """Each site with half as many rows as the one before."""
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    shares = 0.5 ** np.arange(sites)
    rng = np.random.default_rng(seed)
    return X, y, rng.choice(sites, len(y), p=shares / shares.sum()), X_test, y_test


def generated(T: int, d: int, K: int, noise: float) -> Case:
    """Four tables of K classes."""
    splits = []
    for seed in range(4):
        X, y = make_classification(
            T, d, n_informative=max(3, d // 3), n_redundant=d // 6, n_classes=K, flip_y=noise,
            random_state=seed,
        )  # fmt: skip
        splits.append(halving(X, y, seed, 6))
    return classes(splits)


def cars() -> tuple[Any, Any, Any]:
    """Numbers of used cars, their prices and makers."""
    raw = pyarrow.parquet.read_table(DATA / "tables/uk_used_cars.parquet")
    columns = ("year", "mileage", "tax", "mpg", "engineSize")
    X = np.column_stack([raw[c].to_numpy(zero_copy_only=False).astype(float) for c in columns])
    whole = np.isfinite(X).all(axis=1)
    price = raw["price"].to_numpy().astype(float)
    return X[whole], price[whole], np.array(raw["site"].to_pylist())[whole]


def cases() -> Iterator[tuple[str, Case]]:
    for name, (X, y, sites), ratio in (("cars", cars(), 0.5), ("Beijing", table("beijing"), 0.6)):
        some = fewer(sites, ratio)
        yield f"{name}, as it is", numbers(X, y, sites, 2)
        yield (
            f"{name}, sites of {ratio} of the one before",
            numbers(X[some], y[some], sites[some], 2),
        )
    yield "heart disease, four hospitals", classes([hospitals(seed) for seed in range(20)])
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer, halving", classes([halving(X, y, seed, 5) for seed in range(6)])
    yield "two classes, 300 rows, halving", generated(300, 10, 2, 0.3)
    yield "three classes, 2000 rows, halving", generated(2000, 12, 3, 0.2)


def main() -> int:
    warnings.simplefilter("ignore")
    for name, error in cases():
        print(f"{name:45} sites {error('sites'):.4f}  rows {error('rows'):.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
