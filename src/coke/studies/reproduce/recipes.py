"""The paper's data sets, prepared as its numbers say they were.

The paper tells neither which rows it kept nor how it "normalised entries to [0, 1]". The data of
Shen, Chen and Giannakis (JMLR 2019), which uses the same four sets, match its tables: outliers
left out, one common shift and scale for all inputs, the target in [0, 1]. These recipes make
them from UCI's raw files. Which 13 813 of UCI's 583 250 Twitter rows were used is not known, so
that set exists prepared only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coke.data.tables import Rows, checked_rows, inputs_of, read_table
from coke.errors import DataError, FileError, unknown
from coke.maths.arrays import Array
from coke.studies.reproduce.uci import FORMATS, format_of, parse_raw

PREPARED = "it cannot be downloaded, since which rows the paper used is not known"
Keep = Callable[[Array], NDArray[np.bool_]]


class _Recipe(NamedTuple):
    """(x + x_shift)/x_scale for all inputs alike, (y + y_shift)/y_scale, of the rows to keep."""

    inputs: tuple[str, ...]
    first: int  # rows of the file that are looked at
    keep: Keep  # of those, by their target
    x_shift: float
    x_scale: float
    y_shift: float
    y_scale: float

    def __call__(self, table: pa.Table) -> Rows:
        """The prepared rows."""
        table = table.slice(0, self.first)
        y = np.asarray(table["y"].to_numpy(), dtype=np.float64)
        kept = self.keep(y)
        X = (inputs_of(table, self.inputs)[kept] + self.x_shift) / self.x_scale
        return checked_rows(X, (y[kept] + self.y_shift) / self.y_scale, None, self.inputs)


RECIPES: dict[str, _Recipe] = {
    "energy": _Recipe(
        FORMATS["energy"].inputs[:25], 19735, lambda y: y <= 300, 6.6, 778.9, -10.0, 290.0
    ),
    "air_quality": _Recipe(
        FORMATS["air_quality"].inputs, 9000, lambda y: y != -200, 200.0, 2975.0, -0.1, 11.8
    ),
    "toms_hardware": _Recipe(
        FORMATS["toms_hardware"].inputs, 9995, lambda y: y <= 27611, 0.0, 125393.0, 0.0, 27611.0
    ),
}


def data_folders() -> list[Path]:
    """Where data sets are looked for: COKE_DATA, and the user's cache."""
    named = os.environ.get("COKE_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "coke" / "data"
    return [*([Path(named)] if named else []), cache]


def _find_file(name: str) -> Path:
    """The Parquet file of that name in one of the folders."""
    for folder in data_folders():
        if (folder / f"{name}.parquet").exists():
            return folder / f"{name}.parquet"
    fetch = f"`coke data fetch {name}`, or " if name in FORMATS else f"{PREPARED}; "
    raise FileError(
        f"{name}.parquet is in none of {', '.join(map(str, data_folders()))}: {fetch}put it there, "
        "or name its folder in COKE_DATA"
    )


def paper_file(name: str) -> Path:
    """The file of one of the paper's data sets: UCI's rows, or Twitter's as they were prepared."""
    if name not in (*RECIPES, "twitter"):
        raise DataError(unknown("data set", name, (*RECIPES, "twitter")))
    return _find_file(name if name in RECIPES else "twitter_adaraker")


def raw_table(name: str, file: str | Path | None = None) -> pa.Table:
    """UCI's rows under their column names: of a file the user names, or of the folders."""
    format_of(name)
    if file is None:
        return read_table(_find_file(name))
    path = Path(file)
    if path.suffix == ".parquet":
        return read_table(path)
    try:
        return parse_raw(name, path.read_bytes())
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def paper_rows(name: str, file: str | Path | None = None) -> Rows:
    """A data set as the paper used it: energy, air_quality, toms_hardware or twitter."""
    if name in RECIPES:
        return RECIPES[name](raw_table(name, file))
    if name != "twitter":
        raise DataError(unknown("data set", name, (*RECIPES, "twitter")))
    table = read_table(paper_file(name) if file is None else file)
    inputs = tuple(column for column in table.column_names if column != "y")
    return checked_rows(inputs_of(table, inputs), table["y"].to_numpy(), None, inputs)
