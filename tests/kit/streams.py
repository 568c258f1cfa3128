"""Rows for the tests of streams: small ones in every kind of file, many in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from coke.data.formats import open_table
from coke.data.npy import open_arrays
from coke.data.sources import Passing, Source, complete
from coke.data.units import Columns, Scaling, columns_of
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.losses.problem import Quadratic

D, LAM = 3, 1e-2
DOUBLE = Passing("double")
Array = NDArray[np.float64]
rng = np.random.default_rng(0)
X: Array = rng.normal(size=(200, D)) * [1.0, 5.0, 0.1] + [0.0, 50.0, 3.0]
Y: Array = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200) + 7.0
SITES = np.array(["Köln", "Aachen", "Bonn"])[rng.integers(0, 3, 200)]
TABLE = pa.table({**{f"x{j}": X[:, j] for j in range(D)}, "y": Y, "where": SITES})


def features(mapping: str = "cos-sin", d: int = D, L: int = 6, sigma: float = 2.0) -> DrawnFeatures:
    return draw_features(FeatureSettings(L, sigma=sigma, mapping=mapping, seed=1), d)


def expected(phi: DrawnFeatures, scaling: Scaling, keep: Any = slice(None)) -> Quadratic:
    """From all rows in memory, site by site."""
    Z, y, where = scaling.inputs(X)[keep], scaling.targets(Y)[keep], SITES[keep]
    parts = [where == name for name in sorted(set(where))]
    return Quadratic.from_rows(phi, [Z[p] for p in parts], [y[p] for p in parts], LAM / len(parts))


def save(folder: Path) -> dict[str, Callable[[], Source]]:
    for name, array in (("X", X), ("F", np.asfortranarray(X)), ("y", Y), ("s", SITES)):
        np.save(folder / f"{name}.npy", array)
    pa.parquet.write_table(TABLE, folder / "rows.parquet", row_group_size=70)
    pa.csv.write_csv(TABLE, folder / "rows.csv")
    pa.feather.write_feather(TABLE, folder / "rows.feather", chunksize=60)
    tables = {
        "arrow": TABLE,
        "pandas": pd.DataFrame(TABLE.to_pydict()),
        "polars": pl.DataFrame(TABLE.to_pydict()),
        "parquet": folder / "rows.parquet",
        "csv": str(folder / "rows.csv"),
        "feather": folder / "rows.feather",
    }
    by_row, by_column, y, s = (folder / f"{name}.npy" for name in "XFys")
    return {
        "arrays": lambda: open_arrays(X, Y, SITES, chunk=64),
        "npy": lambda: open_arrays(by_row, str(y), s, chunk=64),
        "npy by column": lambda: open_arrays(by_column, y, s, chunk=64),
    } | {
        name: lambda table=table: open_table(table, "y", site="where", chunk=64)
        for name, table in tables.items()
    }


KINDS = (
    "arrays", "npy", "npy by column", "arrow", "pandas", "polars", "parquet", "csv", "feather",
)  # fmt: skip


def many(T: int = 20_000, d: int = 20) -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(T, d))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=T)


def stream_columns(source: Source) -> Columns:
    """Moments and ranges of the inputs and, last, the target, over all rows."""
    parts = (columns_of(np.column_stack([chunk.X, chunk.y])) for chunk in complete(source))
    return reduce(Columns.merged, parts)
