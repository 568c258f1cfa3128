"""Columns: which are inputs, which types are good for these, targets, sites and weights."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from coke.data.reading import Reading
from coke.errors import DataError, unknown
from coke.maths.arrays import Array, Mask


def _is_number(kind: pa.DataType) -> bool:
    """Or nothing at all: then its values are counted as missing."""
    t = pa.types
    return t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind) or t.is_null(kind)


def _is_label(kind: pa.DataType) -> bool:
    return _is_number(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_value(kind: pa.DataType) -> bool:
    return _is_label(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


Test = Callable[[pa.DataType], bool]
Part = tuple[Test, str]
"""Which types are good for it, and what to do about others."""
SHOWN = 20  # columns in a refusal
NUMBERS: Part = (
    _is_number,
    "inputs must be numbers; encode them as numbers, or train without: {drop}",
)
INPUTS: Part = (
    _is_value,
    "inputs must be numbers, text, booleans or dates (text must be UTF-8); convert them, or train "
    "without: {drop}",
)
TARGETS: Part = (
    _is_label,
    "a target must be numbers, or labels of text, numbers or booleans; convert it before "
    "(text must be UTF-8)",
)
SEVERAL: Part = (_is_number, "several targets must be numbers; convert it before")
SITES: Part = (
    _is_value,
    "site labels must be text, numbers, booleans or dates; convert it before (text must be UTF-8)",
)


WEIGHTS: Part = (_is_number, "weights must be numbers; convert them before")


def weighing(weights: Array, name: str) -> Mask:
    """Which rows weigh anything; refused where some weigh less."""
    if not (weights >= 0).all():
        raise DataError(f"{name} has {weights.min()}: expected weights, none below zero")
    return weights > 0


def inputs_as(how: Reading) -> Part:
    """What input columns may hold."""
    return (NUMBERS[0], f"{how.numbers}: {NUMBERS[1]}") if how.numbers else INPUTS


def require(table: pa.Table, *parts: tuple[Sequence[str], Part]) -> None:
    """The columns of every part have a type that is good for it; or all that have not, at once."""
    wrong = []
    for names, (good, advice) in parts:
        bad = [name for name in names if not good(table.schema.field(name).type)]
        if bad:
            more = f" and {len(bad) - SHOWN} more columns" * (len(bad) > SHOWN)
            shown = ", ".join(_held(table, name) for name in bad[:SHOWN])
            drop = " ".join(f"--drop {name}" for name in bad)
            drop += f" (drop = [{', '.join(f'{name!r}' for name in bad)}])"
            wrong.append(f"{shown}{more}: {advice.format(drop=drop)}")
    if wrong:
        raise DataError("; ".join(wrong))


def input_names(
    names: Sequence[str], targets: Sequence[str], beside: Sequence[str], drop: Sequence[str]
) -> list[str]:
    """All columns but targets and those `beside`, which must be there and have one part to play.

    These are the site and the weight. A pattern such as "id*" drops what it fits, but for them.
    """
    used = [*targets, *beside]
    fitting = {name: fnmatch.filter(names, name) for name in drop if name not in names}
    lacking = [name for name in used if name not in names]
    lacking += [name for name, fits in fitting.items() if not fits]
    if lacking:
        raise DataError("; ".join(unknown("column", name, names) for name in lacking[:8]))
    drop = [*drop, *(name for fits in fitting.values() for name in fits if name not in used)]
    twice = [name for name, n in Counter(used).items() if n > 1]
    if twice:
        raise DataError(f"columns {twice} have two parts of target, site and weight: expected one")
    both = [name for name in used if name in drop]
    if both:
        raise DataError(
            f"columns {both} are to be dropped, but are the target, the site or the weight: "
            "keep them, or name others"
        )
    inputs = [name for name in names if name not in (*used, *drop)]
    if not inputs:
        raise DataError(
            f"no input columns: {list(names)} leave none beside the target, the site and "
            "the dropped ones; expected at least one"
        )
    return inputs


def distinct(names: Sequence[str], said: str = "") -> None:
    """Every column has a name of its own; or all that have not, at once."""
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise DataError(
            f"{said}columns {twice[:8]} are there more than once; rename or remove them"
        )


def _held(table: pa.Table, name: str) -> str:
    """A column's type, and a value where rows are there."""
    values = table[name].drop_null() if table.num_rows else []
    such = f" such as {str(values[0])[:40]!r}" if len(values) else ""
    return f"column {name!r} holds {table.schema.field(name).type}{such}"


def _numpy_type(kind: pa.DataType) -> Any:
    """NumPy's name for it; float64 for decimals and what else is written out first."""
    t = pa.types
    known = t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind)
    return kind.to_pandas_dtype() if known else np.float64


def exact_float(*kinds: Any) -> type[np.floating[Any]]:
    """float32 where it holds every value of these types exactly, NumPy's or Arrow's."""
    known = (_numpy_type(kind) if isinstance(kind, pa.DataType) else kind for kind in kinds)
    return np.float32 if all(np.can_cast(kind, np.float32) for kind in known) else np.float64
