"""A trained model: f(x) = θᵀφ((x − shift)/scale), in a file without code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from scipy.special import expit, softmax

from coke.data.blocks import decisions
from coke.data.coding import Coding
from coke.data.files import AGAIN, pack, read_packed, unpack, write_file
from coke.data.kinds import NUMBERS as NUMBER_COLUMNS
from coke.data.kinds import require
from coke.data.raw import DATE, TEXT, RawRows, raw_numbers, raw_rows
from coke.data.sources import Numbers
from coke.data.tables import Labels, numbers, read_table
from coke.data.units import Scaling
from coke.errors import DataError, FileError, InputError, unknown
from coke.learning.labels import label_array, plain_labels
from coke.learning.modelfile import KIND, MOST, Beside, check, misses_in, mixture_in, parts_of
from coke.maths.arrays import Array, finite
from coke.maths.choice.importance import Importance, Surface
from coke.maths.choice.misses import Misses
from coke.maths.features.features import DrawnFeatures
from coke.maths.features.mixtures import Gaussian
from coke.maths.losses import LOSSES, NUMBERS
from coke.maths.losses.codes import votes


class Closed(NamedTuple):
    """What the sites added up once a model was learnt."""

    misses: Misses | None = None  # of rows left out, for intervals
    sharpness: float | None = None  # s of class probabilities, where votes do not say it


NOTHING_CLOSED = Closed()


class Model(NamedTuple):
    """All that a prediction needs; the rows it was trained on are not in it."""

    theta: Array  # (K, D)  one vector, or one per class
    features: DrawnFeatures
    scaling: Scaling
    loss: str  # a name of `coke.maths.losses`
    classes: Labels  # (n,) sorted labels; empty for numbers
    columns: tuple[str, ...]  # names of the inputs
    inputs_like: tuple[Gaussian, ...] = ()  # what the sites told of their scaled inputs, merged
    closed: Closed = NOTHING_CLOSED  # what they added up at the end
    targets: tuple[str, ...] = ("y",)  # names of the columns to predict
    coding: Coding | None = None  # what the columns become; None: numbers, which they are
    centred: bool = True  # whether x_shift is the training rows' mean, which then fills gaps
    kernels: tuple[tuple[str, float], ...] = ()  # of several, what each weighs

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the inputs that the columns become."""
        return self.columns if self.coding is None else self.coding.names

    def decision(self, X: Numbers) -> Array:
        """θ_kᵀφ(x) (T, K), in the scaled targets' units; or the classes' votes."""
        return self.decided(decisions(self.theta, self.features, self.scaling, X))

    def decided(self, f: Array) -> Array:
        """The same of θ_kᵀφ(x); of two classes (T, 1), above zero for the second."""
        if not LOSSES[self.loss].simplex:
            return f
        given = votes(self.scaling.predictions(f))
        return given[:, 1:] - given[:, :1] if len(self.classes) == 2 else given

    def predict(self, X: Any) -> Labels:
        """Numbers or class labels, as the loss is, one per row of an array, a table or a file."""
        return self.predicted(self.inputs(X))

    def predicted(self, X: Numbers) -> Labels:
        """The same of rows (T, d) whose text, dates and gaps are numbers already."""
        f = self.decision(X)
        if LOSSES[self.loss].kind == NUMBERS:
            return self.scaling.predictions(f[:, 0] if f.shape[1] == 1 else f)
        return self.labels(f)

    def interval(self, X: Any, share: float) -> tuple[Array, Array, Array]:
        """Predictions, and the ends of intervals that hold such a share of new rows' targets."""
        reach, f = self.reach(share), np.asarray(self.predict(X))
        return f, f - reach, f + reach

    def reach(self, share: float) -> Array:
        """(K,) how far such intervals reach to both sides, or why nobody knows."""
        if LOSSES[self.loss].kind != NUMBERS:
            raise InputError(
                f"interval={share}: this model has the {self.loss} loss, and classes have "
                "probabilities instead of intervals: use predict_proba, or coke predict --proba"
            )
        if not 0 < share < 1:
            raise InputError(f"interval={share}: expected a share between 0 and 1; try 0.9")
        misses = self.closed.misses
        if misses is None:
            raise InputError(
                f"interval={share}: nobody added up how far this model misses; the sites do with "
                'model = "auto" and algorithm = "auto", "tree-newton" or "coke"'
            )
        return misses.reach(share)

    def importance(self) -> Importance:
        """Of columns and directions, by the slopes of f where the sites told that inputs are.

        Where they told nothing (no basis was agreed on), scaled inputs are taken for N(0, I).
        """
        found = self._surface.importance(self.made)
        return found if self.coding is None else found.of(self.columns, self.coding.owners)

    def partial_dependence(self, column: str | int) -> tuple[Array, Array]:
        """Values x (25,) of an input, and the mean of f there over what the others are.

        In the column's units and the target's; of classes f is decisions, of more than two (25, K).
        """
        made = self.made
        j = made.index(column) if column in made else column
        if not (isinstance(j, int | np.integer) and -len(made) <= j < len(made)):
            raise InputError(unknown("column", column, made))
        z, x = self._middle(j)
        f = self._surface.curve(j, z)
        numbers = LOSSES[self.loss].kind == NUMBERS
        f = self.scaling.predictions(f) if numbers else self.decided(f)
        return x, f[:, 0] if f.shape[1] == 1 else f

    def _middle(self, j: int) -> tuple[Array, Array]:
        """Where most values of a column are, in scaled units and in its own."""
        like, knots = self._surface.moments, self.scaling.knots
        ends = like.mean[j] + 2.0 * np.sqrt(max(like.cov[j, j], 0.0)) * np.array([-1.0, 1.0])
        if knots.size:
            ends = np.clip(ends, knots[1, j, 0], knots[1, j, -1])
        z = np.linspace(ends[0], ends[1], 25)
        x = np.interp(z, knots[1, j], knots[0, j]) if knots.size else z
        return z, x * self.scaling.x_scale[j] + self.scaling.x_shift[j]

    @property
    def _surface(self) -> Surface:
        d = len(self.made)
        told = self.inputs_like or (Gaussian(1.0, np.zeros(d), np.eye(d)),)
        return Surface.of(self.theta, self.features, told)

    @property
    def outputs(self) -> int:
        """Columns that it predicts."""
        return self.scaling.y_shift.size if LOSSES[self.loss].kind == NUMBERS else 1

    def labels(self, f: Array) -> Labels:
        """The classes that such decisions (T, K) speak for."""
        return np.asarray(self.classes[self.winners(f)])

    def winners(self, f: Array) -> Any:
        """Their numbers (T,)."""
        return (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities (T, n), of a loss that has some.

        They are softmax(s · votes), or one against the rest, normalised.
        """
        if not LOSSES[self.loss].probabilities:
            able = " or ".join(name for name, loss in LOSSES.items() if loss.probabilities)
            raise InputError(
                f"probabilities need the {able} loss, this model has the {self.loss} loss: "
                f'train with loss="{able}"'
            )
        # Scores are P − 1/n: at s = n their slopes agree.
        s = self.closed.sharpness or float(len(self.classes))
        return self.probabilities(self.decision(self.inputs(X)), s)

    def probabilities(self, f: Array, sharpness: Any) -> Array:
        """The same of decisions (T, K); of codes with one sharpness, or (T, 1) for each row."""
        n, loss = len(self.classes), LOSSES[self.loss]
        if loss.codes:
            f = f * sharpness
        if loss.simplex and n > 2:
            return np.asarray(softmax(f, axis=1))
        p = expit(f)
        if p.shape[1] == 1:
            return np.column_stack([1.0 - p, p])
        total = p.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, p / np.where(total > 0, total, 1), 1 / p.shape[1]))

    def inputs(self, X: Any) -> Numbers:
        """(T, d) of an array, a table, a file or raw rows: of the columns the model was trained on.

        With a coding, gaps are filled and text and dates are made numbers, as they were then. A gap
        in numbers that had none then is their mean.
        """
        if isinstance(X, str | Path) or hasattr(X, "__arrow_c_stream__"):
            X = self.rows_of(read_table(X))
        if self.coding is not None:
            return self.coding.matrix(*X) if isinstance(X, RawRows) else self._filled(X)
        if not (isinstance(X, np.ndarray) and X.dtype == np.float32):  # which stays as it is
            X = numbers(X)
        self._check_width(X)
        return X if finite(X) else self._with_means(X)

    def _with_means(self, X: Numbers) -> Numbers:
        """For what is missing."""
        if not self.centred:
            raise DataError(
                "X has NaN or infinite values, and this model knows no means to fill in: train "
                'with scale = "standard", or leave those rows out'
            )
        return np.where(np.isfinite(X), X, self.scaling.x_shift.astype(X.dtype))

    def rows_of(self, table: pa.Table) -> Any:
        """Its columns as raw rows; of a model without a coding as numbers."""
        lacking = [name for name in self.columns if name not in table.column_names]
        if lacking:
            raise DataError(f"columns {lacking[:8]} are missing: the model needs {self.columns}")
        if self.coding is None:
            require(table, (self.columns, NUMBER_COLUMNS))
            return raw_rows(table, self.columns, raw_numbers(len(self.columns))).X
        return self.coding.read(table)

    def _filled(self, X: Any) -> Array:
        """Of an array, which must be of numbers."""
        assert self.coding is not None
        words = [code.column for code in self.coding.codes if code.what in (TEXT, DATE)]
        if words:
            raise DataError(f"columns {words[:8]} are text or dates: expected a table, no array")
        self._check_width(X := numbers(X))
        return self.coding.matrix(X, ())

    def _check_width(self, X: Numbers) -> None:
        if X.ndim != 2 or X.shape[1] != len(self.columns):
            raise DataError(f"X has shape {X.shape}: the model needs (T, {len(self.columns)})")

    def to_bytes(self) -> bytes:
        """The content of a model file: the same bytes for the same model."""
        try:
            check(self)
        except ValueError as error:
            raise InputError(
                f"a model that no file can keep: {error}; look at the data and settings"
            ) from error
        labels, linear = plain_labels(self.classes), float(self.features.linear)
        meta = Beside(
            loss=self.loss, classes=labels, columns=list(self.columns), linear=linear,
            sharpness=self.closed.sharpness, targets=list(self.targets),
            coding=UNSET if self.coding is None else list(self.coding.codes),
            centred=UNSET if self.centred else False, kernels=self.kernels or UNSET,
        )  # fmt: skip
        return pack(KIND, meta, parts_of(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Model:
        """The model of such bytes, or `FileError`."""
        meta, arrays = unpack(data, KIND, Beside)
        try:
            arrays = meta.migrated(arrays)
            if any(array.dtype != np.float64 for array in arrays.values()):
                raise ValueError("an array holds no floats")
            model = cls(
                theta=arrays.pop("theta"),
                features=DrawnFeatures(arrays.pop("omega"), arrays.pop("phase"), meta.linear),
                scaling=Scaling(*(arrays.pop(name) for name in Scaling._fields)),
                loss=meta.loss,
                classes=label_array(meta.classes),
                columns=tuple(meta.columns),
                coding=Coding(tuple(meta.coding)) if meta.coding else None,
                centred=meta.centred is UNSET or meta.centred,
                kernels=meta.kernels or (),
            )
            closed = Closed(misses_in(arrays), meta.sharpness)
            model = model._replace(inputs_like=mixture_in(arrays), closed=closed)
            model = model._replace(targets=tuple(meta.targets) or named(model.outputs))
            if arrays:
                raise ValueError(f"unknown arrays {list(arrays)[:8]}")
            check(model)
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(
                f"the model file's content does not fit together: {error}; {AGAIN}"
            ) from error
        return model

    def save(self, path: str | Path) -> None:
        """Writes the model file, whole or not at all."""
        write_file(path, self.to_bytes())


def named(outputs: int) -> tuple[str, ...]:
    """Names for columns without any."""
    return ("y",) if outputs == 1 else tuple(f"y{k}" for k in range(outputs))


def load_model(path: str | Path) -> Model:
    """Reads a model file; anything damaged, altered or of another kind is a `FileError`."""
    try:
        return Model.from_bytes(read_packed(path, KIND, MOST))
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
