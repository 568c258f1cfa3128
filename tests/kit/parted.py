"""Rows of four sites, in memory and in files, for the tests of what is read a chunk at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.data.site import Kept
from coke.data.sources import Passing
from coke.data.split import by_label
from coke.data.tables import checked_rows
from coke.settings.declaration import Settings
from coke.settings.reading import checked_settings
from kit.ready import held, rows_of

T, HOW = 300, Passing("double")
rng = np.random.default_rng(0)
X = rng.normal(size=(T, 3)) * [1.0, 5.0, 0.1] + [0.0, 50.0, 3.0]
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=T) + 7.0
SITES = np.array(["Köln", "Aachen", "Bonn", "Ulm"])[rng.integers(0, 4, T)]
PLAIN = {"x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2], "y": Y}


any_way = given(
    chunk=st.integers(1, 400),
    agents=st.sets(st.integers(0, 3), min_size=1),
    seed=st.integers(0, 9),
    test=st.floats(0, 0.9),
)


def whole(test: float, seed: int) -> Kept:
    return held(checked_rows(X, Y, SITES), by_label(SITES), test=test, seed=seed)


def equal(one: Kept, other: Kept) -> None:
    assert one.names == other.names
    for a, b in zip(rows_of(one), rows_of(other), strict=True):
        for x, y in zip(a, b, strict=True):
            assert_array_equal(x, y)


def save_all(tmp_path: Path) -> Path:
    """The same rows in a file, in a folder of files and in arrays."""
    table = pa.table({**PLAIN, "where": SITES})
    pa.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=70)
    (tmp_path / "sites").mkdir()
    for place, name in enumerate(sorted(set(SITES))):
        some = table.filter(pa.array(name == SITES)).drop_columns(["where"])
        if place % 2:
            pa.csv.write_csv(some, tmp_path / "sites" / f"{name}.csv")
        else:
            pa.parquet.write_table(some, tmp_path / "sites" / f"{name}.parquet")
    for name, array in (("X", X), ("y", Y), ("s", SITES)):
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def config(files: Path, kind: str, out_of_core: bool, **more: Any) -> Settings:
    sources: dict[str, dict[str, Any]] = {
        "file": {"file": "rows.parquet", "target": "y", "site": "where"},
        "folder": {"file": "sites", "target": "y"},
        "arrays": {"file": "X.npy", "target": str(files / "y.npy"), "site": str(files / "s.npy")},
    }
    data = {**sources[kind], "out_of_core": out_of_core, "precision": more.pop("precision", "auto")}
    data["file"] = str(files / data["file"])
    features = {"n_features": 10}
    return checked_settings(
        {"model": "plain", "whitening": "gram", "data": data, "features": features, **more}
    )
