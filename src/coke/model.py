"""A trained model: f(x) = θᵀφ((x − shift)/scale), in a file without code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from coke.data.files import Arrays, pack, read_file, unpack, write_file
from coke.data.scaling import Scaling
from coke.data.tables import Labels, inputs_of, read_table
from coke.errors import DataError, FileError, InputError
from coke.maths.arrays import Array
from coke.maths.features import Features

KIND = "model"


class Model(NamedTuple):
    """All that a prediction needs; the rows it was trained on are not in it."""

    theta: Array  # (K, D)  one vector, or one per class
    features: Features
    scaling: Scaling
    loss: str  # "quadratic", "logistic" or "hinge"
    classes: Labels  # (n,) sorted labels; empty for regression
    columns: tuple[str, ...]  # names of the inputs

    def decision(self, X: Array) -> Array:
        """θ_cᵀφ(x) (T, K), in the scaled target's units."""
        return self.features(self.scaling.inputs(X)) @ self.theta.T

    def predict(self, X: Any) -> Labels:
        """Values (quadratic loss) or class labels, one per row of an array, a table or a file."""
        f = self.decision(self.inputs(X))
        if self.loss == "quadratic":
            return self.scaling.predictions(f[:, 0])
        best = (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)
        return np.asarray(self.classes[best])

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities (T, n) of the logistic loss; one against the rest, normalised."""
        if self.loss != "logistic":
            raise InputError(
                f"probabilities need the logistic loss, this model has the {self.loss} loss: "
                'train with loss="logistic"'
            )
        p = expit(self.decision(self.inputs(X)))
        if p.shape[1] == 1:
            return np.column_stack([1.0 - p, p])
        total = p.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, p / np.where(total > 0, total, 1), 1 / p.shape[1]))

    def inputs(self, X: Any) -> Array:
        """X (T, d): an array as it is; of a table or file, the columns the model was trained on."""
        if isinstance(X, str | Path) or hasattr(X, "__arrow_c_stream__"):
            table = read_table(X)
            lacking = [name for name in self.columns if name not in table.column_names]
            if lacking:
                raise DataError(
                    f"columns {lacking[:8]} are missing: the model needs {self.columns}"
                )
            X = inputs_of(table, self.columns)
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != len(self.columns):
            raise DataError(f"X has shape {X.shape}: the model needs (T, {len(self.columns)})")
        if not np.isfinite(X).all():
            raise DataError("X has NaN or infinite values: fill them in or leave those rows out")
        return X

    def to_bytes(self) -> bytes:
        """The content of a model file: the same bytes for the same model."""
        meta = {
            "loss": self.loss,
            "classes": self.classes.tolist(),
            "columns": list(self.columns),
            "y_shift": self.scaling.y_shift,
            "y_scale": self.scaling.y_scale,
        }
        arrays: Arrays = {
            "theta": self.theta,
            "omega": self.features.omega,
            "phase": self.features.phase,
            "x_shift": self.scaling.x_shift,
            "x_scale": self.scaling.x_scale,
        }
        return pack(KIND, meta, arrays)

    def save(self, path: str | Path) -> None:
        """Writes the model file, whole or not at all."""
        write_file(path, self.to_bytes())


def load_model(path: str | Path) -> Model:
    """Reads a model file; anything damaged, altered or of another kind is a `FileError`."""
    try:
        return model_from_bytes(read_file(path))
    except FileError as error:
        raise FileError(f"{path}: {error}") from error


def model_from_bytes(data: bytes) -> Model:
    """The model of such bytes."""
    meta, arrays = unpack(data, KIND)
    try:
        features = Features(arrays["omega"], arrays["phase"])
        scaling = Scaling(
            arrays["x_shift"], arrays["x_scale"], float(meta["y_shift"]), float(meta["y_scale"])
        )
        classes = np.array(meta["classes"]) if meta["classes"] else np.empty(0)
        columns = tuple(map(str, meta["columns"]))
        model = Model(arrays["theta"], features, scaling, meta["loss"], classes, columns)
        _check(model, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"the model file's content does not fit together: {error}") from error
    return model


def _check(model: Model, arrays: Arrays) -> None:
    """Shapes that belong together, finite numbers, known words."""
    d, L = len(model.columns), len(model.features.omega)
    outputs = len(model.classes) if len(model.classes) > 2 else 1
    wanted = {
        "theta": (outputs, model.features.size),
        "omega": (L, d),
        "phase": (L,) if len(model.features.phase) else (0,),
        "x_shift": (d,),
        "x_scale": (d,),
    }
    for name, shape in wanted.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float64:
            raise ValueError(f"{name} is {arrays[name].dtype} {arrays[name].shape}, not {shape}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} is not finite")
    if model.loss not in ("quadratic", "logistic", "hinge"):
        raise ValueError(f"unknown loss {model.loss!r}")
    if (model.loss == "quadratic") != (len(model.classes) == 0) or len(model.classes) == 1:
        raise ValueError(f"{len(model.classes)} classes with the {model.loss} loss")
    if (
        not (np.isfinite([model.scaling.y_shift, model.scaling.y_scale]).all())
        or model.classes.ndim != 1
    ):
        raise ValueError("the target's scaling or classes are not usable")
    if not (model.scaling.x_scale != 0).all() or model.scaling.y_scale == 0:
        raise ValueError("a scale is zero")
