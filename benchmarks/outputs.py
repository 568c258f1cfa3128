"""`make bench-outputs`: several targets in one model, against a model for each of them.

Six pollutants from the weather at twelve stations of Beijing, each station a site, and five sensors
from the weather of the Italian air-quality table, dealt to ten sites; both need the data sets
(COKE_DATA). And three and ten functions of four columns, in units from 1e-3 to 1e3. Of every target
the error on new rows, over that of a fit of its own: with model="plain" on the same features, with
model="auto" on a model that all targets have chosen together. Bytes and CPU time are over the sums
of the fits of one target each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet

from coke import COKERegressor
from figures import Found, Goal, Section, cpu, main
from floors import FLOORS
from model import DATA

WEATHER = ("month", "hour", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
POLLUTANTS = ("y", "PM10", "SO2", "NO2", "CO", "O3")
SENSORS = ("PT08.S1(CO)", "PT08.S2(NMHC)", "PT08.S3(NOx)", "PT08.S4(NO2)", "PT08.S5(O3)")
ROWS, NEW = 6000, 6000


class Case(NamedTuple):
    """Rows to train and to test on; no sites: dealt."""

    X: Any
    Y: Any
    sites: Any
    X_new: Any
    Y_new: Any


def drawn(X: Any, Y: Any, sites: Any = None) -> Case:
    """Rows without holes, in random order."""
    order = np.random.default_rng(0).permutation(np.flatnonzero(np.isfinite(Y).all(axis=1)))
    a, b = order[:ROWS], order[ROWS : ROWS + NEW]
    return Case(X[a], Y[a], None if sites is None else sites[a], X[b], Y[b])


def columns(table: Any, names: tuple[str, ...]) -> Any:
    return np.column_stack([table[name].to_numpy().astype(np.float64) for name in names])


def beijing() -> Case:
    table = pyarrow.parquet.read_table(DATA / "beijing_air_multisite.parquet").drop_null()
    sites = np.array(table["site"].to_pylist())
    return drawn(columns(table, WEATHER), columns(table, POLLUTANTS), sites)


def italy() -> Case:
    table = pyarrow.parquet.read_table(DATA / "air_quality.parquet")
    Y = columns(table, SENSORS)
    holes = (Y == -200).any(axis=1, keepdims=True)  # how this table says that there is nothing
    return drawn(columns(table, ("time_of_day", "T", "RH", "AH")), np.where(holes, np.nan, Y))


def functions(K: int) -> Case:
    """sin of K directions, each in its own units and with noise of a tenth of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS + NEW, 4))
    Y = np.sin(X @ rng.normal(size=(4, K))) + 0.1 * rng.normal(size=(len(X), K))
    return drawn(X, 10.0 ** np.linspace(-3, 3, K) * Y)


CASES: dict[str, Callable[[], Case]] = {
    "Beijing": beijing,
    "Italy": italy,
    "3 functions": partial(functions, 3),
    "10 functions": partial(functions, 10),
}


def compared(name: str, case: Case, model: str) -> Found:
    """Ratios of the targets' errors; bytes and CPU of one model over those of many."""
    fit = partial(_fitted, case, model)
    together, alone = fit(case.Y), [fit(y) for y in case.Y.T]
    own = np.column_stack([one.model.predict(case.X_new) for one in alone])
    ratios = _errors(case, together.model.predict(case.X_new)) / _errors(case, own)
    said = f"{name}, {model}"
    return {
        f"{said}: error over own, worst target": float(ratios.max()),
        f"{said}: error over own, geometric mean": float(np.exp(np.log(ratios).mean())),
        f"{said}: bytes over own": together.model.bytes_ / sum(one.model.bytes_ for one in alone),
        f"{said}: CPU over own": together.seconds / sum(one.seconds for one in alone),
    }


class Fitted(NamedTuple):
    """A model, and the CPU seconds that it took."""

    model: Any
    seconds: float


def _fitted(case: Case, model: str, y: Any) -> Fitted:
    est = COKERegressor(model=model)
    return Fitted(est, cpu(lambda: est.fit(case.X, y, case.sites)))


def _errors(case: Case, f: Any) -> Any:
    return np.mean((f - case.Y_new) ** 2, axis=0)


def measure(size: str) -> Found:
    found: Found = {}
    for name, load in CASES.items():
        if size == "short" and name != "3 functions":
            continue
        case = load()
        for model in ("plain", "auto"):
            found |= compared(name, case, model)
    return found


GOALS = {f"{name}, plain: error over own, worst target": Goal(most=1.01) for name in CASES}
OUTPUTS = Section("outputs", measure, GOALS)

if __name__ == "__main__":
    sys.exit(main(FLOORS, OUTPUTS))
