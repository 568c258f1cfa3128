"""A model as ONNX: f(x) = θᵀφ(x), from raw columns to labels and probabilities, in doubles.

columns, gaps and levels ↦ (x − shift)/scale ↦ scores by knots ↦ [cos ωᵀx, sin ωᵀx, x] ↦ θᵀφ
↦ numbers in the target's units; or votes, the winner's label, probabilities
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coke.data.files import write_file
from coke.errors import InputError
from coke.export.columns import raw_inputs, tensors_of
from coke.export.graph import Building, Tensor
from coke.learning.labels import plain_labels
from coke.learning.model import Model
from coke.maths.arrays import Array
from coke.maths.losses import LOSSES, NUMBERS
from coke.maths.losses.codes import corners

_LABELS: dict[type, tuple[str, Any]] = {
    str: ("STRING", object),
    int: ("INT64", np.int64),
    float: ("DOUBLE", np.float64),
    bool: ("BOOL", np.bool_),
}


def export_onnx(model: Model, path: str | Path, interval: float | None = None) -> None:
    """Writes a model as ONNX, with the ends of intervals that hold such a share where asked for.

    What ONNX cannot say is refused with the reason. Inputs and outputs: docs/models.md.
    """
    if Path(path).suffix != ".onnx":
        raise InputError(f"{path}: expected a file ending in .onnx")
    write_file(path, onnx_bytes(model, interval))


def onnx_bytes(model: Model, interval: float | None = None) -> bytes:
    """The content of such a file."""
    model.to_bytes()  # refused where no file can keep it
    inputs = tensors_of(model)
    to = Building([*model.columns, "X"])
    f = _decision(to, model, _scaled(to, model, raw_inputs(to, model)))
    numbers = LOSSES[model.loss].kind == NUMBERS
    reach = None if interval is None else model.reach(interval)
    outputs = _numbers(to, model, f, reach) if numbers else _classes(to, model, f)
    said = {"loss": model.loss, "targets": "\n".join(model.targets)}
    return to.encoded(inputs, outputs, said)


def _scaled(to: Building, model: Model, X: str) -> str:
    """(x − shift)/scale, and their scores by the knots of a chosen model."""
    scaling = model.scaling
    scaled = to.node("Div", to.node("Sub", X, scaling.x_shift), scaling.x_scale)
    return _scored(to, scaled, scaling.knots) if scaling.knots.size else scaled


def _scored(to: Building, X: str, knots: Array) -> str:
    """Linear between the knots, level beyond: y₀ + Σ_k slope_k min(max(x − x_k, 0), width_k)."""
    (x, y), widths, rises = knots, np.diff(knots[0]), np.diff(knots[1])
    if (rises[widths == 0] != 0).any():
        raise InputError("the model's scores jump, as no training makes them: train it again")
    slopes = np.divide(rises, widths, out=np.zeros_like(rises), where=widths > 0)
    apart = to.node("Sub", to.node("Unsqueeze", X, np.array([-1])), x[:, :-1])
    within = to.node("Min", to.node("Max", apart, np.float64(0.0)), widths)
    climbed = to.node("ReduceSum", to.node("Mul", within, slopes), np.array([-1]), keepdims=0)
    return to.node("Add", climbed, y[:, 0])


def _decision(to: Building, model: Model, X: str) -> str:
    """θᵀφ (T, K): heights and the weight of the linear part go into θ."""
    features, theta = model.features, model.theta
    waves, parts = features.height * theta[:, : features.waves], []
    if len(features.omega):
        angle = to.node("MatMul", X, features.omega.T)
        if len(features.phase):
            parts = [to.node("Cos", to.node("Add", angle, features.phase))]
        else:
            parts = [to.node("Cos", angle), to.node("Sin", angle)]
    if not features.linear:
        return to.node("MatMul", to.node("Concat", *parts, axis=1), waves.T)
    lines = features.linear * theta[:, features.waves :]
    weights = np.hstack([waves, lines[:, :-1]])
    f = to.node("MatMul", to.node("Concat", *parts, X, axis=1), weights.T)
    return to.node("Add", f, lines[:, -1])


def _numbers(to: Building, model: Model, f: str, reach: Array | None) -> list[Tensor]:
    """Predictions in the targets' units, and the ends of intervals."""
    K, own = model.outputs, _in_units(to, model, f)
    shape: tuple[int | str, ...] = ("T",) if K == 1 else ("T", K)
    to.node("Reshape", own, np.array([-1, K][: len(shape)]), name="prediction")
    names = ["prediction"]
    if reach is not None:
        names += [
            to.node("Sub", "prediction", reach, name="low"),
            to.node("Add", "prediction", reach, name="high"),
        ]
    return [Tensor(name, "DOUBLE", shape) for name in names]


def _in_units(to: Building, model: Model, f: str) -> str:
    return to.node("Add", to.node("Mul", f, model.scaling.y_scale), model.scaling.y_shift)


def _classes(to: Building, model: Model, f: str) -> list[Tensor]:
    """Decisions, the winners' labels, and probabilities where the loss has some."""
    n, loss = len(model.classes), LOSSES[model.loss]
    decided = to.node("Identity", _votes(to, model, f) if loss.simplex else f, name="decision")
    K = 1 if n == 2 else n
    kind, labels = _labels(model)
    if K == 1:
        above = to.node("Greater", decided, np.float64(0.0))
        at = to.node("Squeeze", to.node("Cast", above, to=7), np.array([1]))
    else:
        at = to.node("ArgMax", decided, axis=1, keepdims=0)
    to.node("Gather", labels, at, name="prediction")
    tensors = [Tensor("prediction", kind, ("T",)), Tensor("decision", "DOUBLE", ("T", K))]
    if loss.probabilities:
        _probabilities(to, model, decided)
        tensors.append(Tensor("probabilities", "DOUBLE", ("T", n)))
    return tensors


def _votes(to: Building, model: Model, f: str) -> str:
    """V(f + E v); of two classes the difference."""
    V = corners(len(model.classes))
    return to.node("MatMul", _in_units(to, model, f), (V[1:] - V[:1] if len(V) == 2 else V).T)


def _labels(model: Model) -> tuple[str, Array]:
    labels = plain_labels(model.classes)
    kinds = {type(label) for label in labels}
    whole = [label for label in labels if type(label) is int]
    if len(kinds) > 1 or any(not -(2**63) <= label < 2**63 for label in whole):
        raise InputError(
            f"labels such as {labels[:3]}: an ONNX output holds text, or numbers below 2⁶³, of one "
            "type; train with such labels, for example y.astype(str)"
        )
    kind, dtype = _LABELS[kinds.pop()]
    return kind, np.array(labels, dtype)


def _probabilities(to: Building, model: Model, f: str) -> None:
    """As `Model.probabilities`."""
    n, loss = len(model.classes), LOSSES[model.loss]
    if loss.codes:
        f = to.node("Mul", f, np.float64(model.closed.sharpness or n))
    if loss.simplex and n > 2:
        to.node("Softmax", f, axis=1, name="probabilities")
        return
    p = to.node("Sigmoid", f)
    if n == 2:
        to.node("Concat", to.node("Sub", np.float64(1.0), p), p, axis=1, name="probabilities")
        return
    total = to.node("ReduceSum", p, np.array([1]), keepdims=1)
    some = to.node("Greater", total, np.float64(0.0))
    shares = to.node("Div", p, to.node("Where", some, total, np.float64(1.0)))
    to.node("Where", some, shares, np.float64(1.0 / n), name="probabilities")
