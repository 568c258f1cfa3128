"""Columns as Arrow has them: which types are good for which part, and labels by their places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coke.errors import DataError
from coke.maths.arrays import Array


def computing() -> Any:
    """Arrow's functions, which take longer to load than most tables to read, and few need."""
    return import_module("pyarrow.compute")


def plain(values: pa.Array) -> pa.Array:
    """Dictionaries and runs written out; decimals and halves as floats; text Arrow can filter."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return plain(values.dictionary).take(values.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain(computing().run_end_decode(values))
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    # By its name: pa.types.is_string_view is younger than our oldest Arrow.
    return values.cast(pa.large_string()) if str(kind) == "string_view" else values


def _is_number(kind: pa.DataType) -> bool:
    """Or nothing at all: then its values are counted as missing."""
    t = pa.types
    return t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind) or t.is_null(kind)


def _is_label(kind: pa.DataType) -> bool:
    return _is_number(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_site(kind: pa.DataType) -> bool:
    return _is_label(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


Test = Callable[[pa.DataType], bool]
NUMBERS: tuple[Test, str] = (
    _is_number,
    "inputs must be numbers; encode it as numbers, or train without it: "
    '--drop {name} (drop = ["{name}"])',
)
TARGETS: tuple[Test, str] = (
    _is_label,
    "a target must be numbers, or labels of text, numbers or booleans; convert it before "
    "(text must be UTF-8)",
)
SUMMED: tuple[Test, str] = (
    _is_number,
    "the statistics of the quadratic loss need numbers; convert it before",
)
SEVERAL: tuple[Test, str] = (_is_number, "several targets must be numbers; convert it before")
SITES: tuple[Test, str] = (
    _is_site,
    "site labels must be text, numbers, booleans or dates; convert it before (text must be UTF-8)",
)


def require(table: pa.Table, names: Sequence[str], good: Test, advice: str) -> None:
    """Every named column has a type that is good for its part; the advice says what else to do."""
    for name in names:
        kind = table.schema.field(name).type
        if not good(kind):
            raise DataError(f"column {name!r} holds {kind}: {advice.format(name=name)}")


def encoded(labels: pa.Array) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Each label's place among the different ones (t,), −1 where it is missing; and those."""
    text = labels.cast(pa.string()) if pa.types.is_temporal(labels.type) else labels
    if pa.types.is_floating(text.type):
        text = computing().add(text, 0.0)  # −0 is 0
    found = text.dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    names = tuple(found.dictionary.to_pylist())
    for place, name in enumerate(names):
        if name != name:  # NaN
            codes[codes == place] = -1
    return codes, names


def as_classes(codes: NDArray[np.int64], classes: tuple[Any, ...]) -> tuple[Array, tuple[Any, ...]]:
    """The same codes as numbers, so that what is missing is NaN as elsewhere."""
    lost = [i for i, name in enumerate(classes) if isinstance(name, float) and math.isinf(name)]
    return np.where((codes < 0) | np.isin(codes, lost), np.nan, codes), classes
