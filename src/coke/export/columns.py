"""Raw columns in ONNX: gaps filled, levels told apart, days turned into waves, as a model does.

Of numbers alone the input is one matrix X (T, d). With text or dates every column is an input
(T, 1) of its own name: doubles, text, and dates as days since 1970. A gap is NaN; of text, "".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from coke.data.coding import PERIODS, ColumnCoding
from coke.data.raw import DATE, TEXT
from coke.errors import InputError
from coke.export.graph import Building, Tensor
from coke.learning.model import Model

_DOUBLE = 11  # ONNX's number for it
_DIGEST = re.compile("#[0-9a-f]{16}")
_ABOUT = {TEXT: "text; a gap is the empty text", DATE: "days since 1970, of UTC; a gap is NaN"}


def tensors_of(model: Model) -> list[Tensor]:
    """The inputs, or why they cannot be."""
    if not _apart(model):
        about = f"{len(model.columns)} columns: {', '.join(model.columns)}"
        return [Tensor("X", "DOUBLE", ("T", len(model.columns)), about)]
    return [_tensor(code) for code in _codes(model)]


def raw_inputs(to: Building, model: Model) -> str:
    """(T, d) of the inputs that the model makes of its columns."""
    if model.coding is None:
        return _filled(to, "X", model.scaling.x_shift)[0] if model.centred else "X"
    wide = not _apart(model)
    places = {code.column: j for j, code in enumerate(model.coding.codes)}
    parts: list[str] = []
    for code in _codes(model):
        x = to.node("Gather", "X", np.array([places[code.column]]), axis=1) if wide else code.column
        parts += _words(to, x, code) if code.what == TEXT else _measures(to, x, code)
    return to.node("Concat", *parts, axis=1)


def _apart(model: Model) -> bool:
    """Whether columns are inputs of their own."""
    return model.coding is not None and any(c.what in (TEXT, DATE) for c in model.coding.codes)


def _codes(model: Model) -> list[ColumnCoding]:
    """Of the columns that become inputs: nobody need give the others."""
    assert model.coding is not None
    return [code for code in model.coding.codes if code.names]


def _tensor(code: ColumnCoding) -> Tensor:
    if code.column in ("", "prediction", "low", "high", "decision", "probabilities"):
        raise InputError(
            f"column {code.column!r}: an output has that name, and ONNX tells inputs and outputs "
            "apart by name; rename the column and train again"
        )
    why = _unsaid(code)
    if why:
        raise InputError(f"column {code.column!r}: {why}; leave it out, or use coke serve")
    kind = "STRING" if code.what == TEXT else "DOUBLE"
    return Tensor(code.column, kind, ("T", 1), _ABOUT.get(code.what, "a number; a gap is NaN"))


def _unsaid(code: ColumnCoding) -> str:
    """Why ONNX cannot say what the model does with such text; nothing where it can."""
    if code.hashed or any(map(_DIGEST.fullmatch, code.levels)):
        return "its levels are told by digests, which ONNX cannot reckon"
    if "" in code.levels:
        return "the empty text is one of its levels, and stands for a gap in ONNX"
    return ""


def _filled(to: Building, x: str, fill: object) -> tuple[str, str]:
    """Numbers without gaps, and where these were."""
    gap = to.node("Or", to.node("IsNaN", x), to.node("IsInf", x))
    return to.node("Where", gap, fill, x), gap


def _measures(to: Building, x: str, code: ColumnCoding) -> Iterator[str]:
    """A number; of a date its days, and waves of them."""
    whole, gap = _filled(to, x, np.float64(code.fill))
    yield whole
    for period in code.periods:
        turns = to.node("Div", whole, np.float64(PERIODS[period]))
        part = to.node("Sub", turns, to.node("Floor", turns))
        angle = to.node("Mul", part, np.float64(2.0 * np.pi))
        yield to.node("Sin", angle)
        yield to.node("Cos", angle)
    if code.gaps:
        yield to.node("Cast", gap, to=_DOUBLE)


def _words(to: Building, x: str, code: ColumnCoding) -> Iterator[str]:
    """1 for the level that a text is, and for the one that gaps are filled with."""
    n = len(code.shown)
    if n:
        place = {level: k for k, level in enumerate(code.shown)}
        place[""] = place.get(str(code.fill), n)
        at = _looked_up(to, x, place, n)
        rows = np.vstack([np.eye(n), np.zeros(n)])
        yield to.node("Gather", rows, to.node("Squeeze", at, np.array([1])), axis=0)
    if code.gaps:
        yield to.node("Cast", _looked_up(to, x, {"": 1}, 0), to=_DOUBLE)


def _looked_up(to: Building, x: str, places: dict[str, int], others: int) -> str:
    return to.node(
        "LabelEncoder", x, keys_strings=list(places), values_int64s=list(places.values()),
        default_int64=others,
    )  # fmt: skip
