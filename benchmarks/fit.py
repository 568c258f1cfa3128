"""`make bench-fit`: a whole fit against scikit-learn on pooled rows, and predictions.

`COKERegressor(model="plain").fit` of rows dealt out to ten sites, all that it does counted, against
RBFSampler + Ridge on all rows in float32, its features counted. Ours has two entries φ for each of
L frequencies, scikit-learn's one: it is given 2L, as many as ours has, and also L. The floor is the
products of one pass over the rows, X ωᵀ and half of the symmetric ΦᵀΦ, at the speed of a large
GEMM in float32. What model="auto" adds is in CPU seconds a site, and in bytes of all sites.

Predictions are of L = 100 frequencies, d = 10: of rows in memory, which is what is promised, and by
`coke predict` from file to file. Their floor is as many cosines and sines as they take.
"""

from __future__ import annotations

import sys
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge

from coke import COKERegressor, Features, Model
from coke.data.inputs import open_inputs
from coke.data.sources import complete
from coke.learning.predicting import Asked, predict_file
from figures import Found, Goal, Section, by_turns, cpu, main, ratio
from floors import FLOORS, cosines, spent

D, SITES, LAM = 10, 10, 1e-3
SIZES = {  # (rows, L, turns) of fits, and rows to predict
    "short": (((100_000, 100, 2),), 100_000),
    "usual": (((10_000, 100, 9), (1_000_000, 100, 3), (100_000, 1000, 2)), 1_000_000),
}


def rows(T: int) -> tuple[Any, Any]:
    """Inputs and a target that is not linear in them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(T, D))
    return X, np.sin(X[:, 0]) * X[:, 1] + np.cos(X[:, 2]) + 0.1 * rng.normal(size=T)


def ours(X: Any, y: Any, L: int, model: str = "plain") -> COKERegressor:
    features = Features() if model == "auto" else Features(n_features=L)
    return COKERegressor(n_agents=SITES, model=model, features=features, lam=_lam(model)).fit(X, y)


def _lam(model: str) -> Any:
    return "auto" if model == "auto" else LAM


def pooled(X: Any, y: Any, n: int) -> Callable[[], object]:
    """RBFSampler + Ridge of n features, in float32."""
    X, y = X.astype(np.float32), y.astype(np.float32)
    sampler = RBFSampler(gamma=1.0 / D, n_components=n, random_state=0)
    return lambda: Ridge(LAM * len(y)).fit(sampler.fit_transform(X), y)


def fits(T: int, L: int, turns: int) -> Found:
    """CPU seconds of all sides, by turns, and the ratios asked for."""
    X, y = rows(T)
    work: dict[str, Callable[[], object]] = {
        "plain": lambda: ours(X, y, L),
        "scikit-learn, 2L": pooled(X, y, 2 * L),
        "scikit-learn, L": pooled(X, y, L),
    }
    taken = by_turns({name: partial(cpu, do) for name, do in work.items()}, turns)
    said, floor = f"{T:.0e} rows, L = {L}", spent(np.float32, T * (2 * D * L + (2 * L) ** 2))
    found = {f"{said}: CPU s": min(taken["plain"])}
    for other in ("2L", "L"):
        ratio_to = ratio(taken["plain"], taken[f"scikit-learn, {other}"])
        found[f"{said}: fit / scikit-learn float32, {other}"] = ratio_to
    return found | {f"{said}: floor / fit": floor / min(taken["plain"])}


def choice(T: int) -> Found:
    """What the sites' choice of a model adds to a fit."""
    X, y = rows(T)
    chosen, plain = (ours(X, y, 100, model) for model in ("auto", "plain"))
    work = {model: partial(ours, X, y, 100, model) for model in ("auto", "plain")}
    taken = by_turns({name: partial(cpu, do) for name, do in work.items()}, 2)
    more = (min(taken["auto"]) - min(taken["plain"])) / SITES
    return {
        f"{T:.0e} rows: auto adds, CPU s a site": more,
        f"{T:.0e} rows: auto adds, bytes": float(chosen.bytes_ - plain.bytes_),
    }


def predictions(T: int, folder: Path) -> Found:
    """Millions of rows a CPU second."""
    X, y = rows(T)
    model: Model = ours(X[:20_000], y[:20_000], 100).model_
    table = pa.table({f"x{j}": X[:, j] for j in range(D)})
    np.save(folder / "x.npy", X)
    pa.parquet.write_table(table, folder / "x.parquet")
    pa.csv.write_csv(table, folder / "x.csv")

    def read(name: str) -> Callable[[], object]:
        return lambda: deque(complete(open_inputs(folder / name, model.columns)), maxlen=0)

    def whole(name: str, out: str) -> Callable[[], object]:
        return lambda: predict_file(model, folder / name, folder / out, Asked())

    work: dict[str, Callable[[], object]] = {"of rows in memory": lambda: model.predict(X)}
    for kind in ("npy", "parquet", "csv"):
        work[f"reading .{kind} alone"] = read(f"x.{kind}")
        work[f".{kind} to .parquet"] = whole(f"x.{kind}", "out.parquet")
    work[".npy to .csv"] = whole("x.npy", "out.csv")
    taken = by_turns({name: partial(cpu, do) for name, do in work.items()}, 3)
    found = {f"predict, {name}, million rows/s": T / 1e6 / min(v) for name, v in taken.items()}
    floor = cosines(np.float32) / (200 * 1e6)
    share = found["predict, of rows in memory, million rows/s"] / floor
    return found | {"predict, of rows in memory, share of its cosines' floor": share}


def measure(size: str) -> Found:
    """All of it."""
    sizes, T = SIZES["short" if size == "short" else "usual"]
    found: Found = {}
    for one in sizes:
        found |= fits(*one)
    for many in (10_000,) if size == "short" else (10_000, 100_000):
        found |= choice(many)
    with tempfile.TemporaryDirectory() as folder:
        return found | predictions(T, Path(folder))


FIT = Section(
    "fit",
    measure,
    {
        "1e+06 rows, L = 100: fit / scikit-learn float32, 2L": Goal(most=1.2),
        "1e+05 rows, L = 100: fit / scikit-learn float32, 2L": Goal(most=3.0),
        "1e+04 rows, L = 100: fit / scikit-learn float32, 2L": Goal(most=3.0),
        "1e+05 rows, L = 1000: fit / scikit-learn float32, 2L": Goal(most=3.0),
        "1e+04 rows: auto adds, CPU s a site": Goal(most=0.3),
        "1e+05 rows: auto adds, CPU s a site": Goal(most=0.3),
        "predict, of rows in memory, million rows/s": Goal(least=3.0),
    },
)

if __name__ == "__main__":
    sys.exit(main(FLOORS, FIT))
