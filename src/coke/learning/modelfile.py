"""What a model file holds, and what no model can be: shapes, numbers and words that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from coke.data.coding import ColumnCoding
from coke.data.files import Arrays
from coke.maths.choice.misses import BINS, Misses
from coke.maths.choice.quantiles import NO_KNOTS, SCORES
from coke.maths.features.mixtures import Gaussian
from coke.maths.losses import CLASSES, LOSSES, NUMBERS

if TYPE_CHECKING:
    from coke.learning.model import Model

Shares = tuple[tuple[str, float], ...]  # kernels, and what each weighs
KIND = "model"
MOST = 1 << 31  # bytes of a model file
WIDEST, OUTPUTS = 1 << 17, 1 << 14  # entries of φ(x) and of f(x), held for a thousand rows at once
_SLACK = 1e-6  # of shares that sum to one
HUGE = 1e100  # numbers beyond it, and scales below its inverse, come of no data and overflow


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says beside its arrays."""

    loss: str
    classes: list[str | int | float | bool]
    columns: list[str]
    linear: float = 0.0
    sharpness: float | None = None
    targets: list[str] = []  # of files without them: y, or y0, y1, …
    coding: list[ColumnCoding] | UnsetType = UNSET  # of files without it: columns are inputs
    centred: bool | UnsetType = UNSET  # of files without it: shifts are means
    kernels: Shares | UnsetType = UNSET  # of several, what each weighs
    y_shift: float | UnsetType = UNSET  # of files from before several targets: not an array …
    y_scale: float | UnsetType = UNSET  # … and there were no knots at first

    def migrated(self, arrays: Arrays) -> Arrays:
        """The arrays as files have them now, of a file in an earlier form too."""
        shift, scale = self.y_shift, self.y_scale
        if isinstance(shift, UnsetType) or isinstance(scale, UnsetType):
            return arrays
        if "y_shift" in arrays or "y_scale" in arrays:
            raise ValueError("the target's units twice")
        units = {"y_shift": np.array([shift]), "y_scale": np.array([scale])}
        return {"knots": NO_KNOTS, **arrays, **units}


def parts_of(model: Model) -> Arrays:
    """The arrays of its file."""
    return {
        "theta": model.theta,
        "omega": model.features.omega,
        "phase": model.features.phase,
        **model.scaling._asdict(),
        **_beside(model),
    }


def _beside(model: Model) -> Arrays:
    """What is known of inputs and errors, where anything is."""
    found: Arrays = {}
    if model.inputs_like:
        weights, means, covs = zip(*model.inputs_like, strict=True)
        found = {"weights": np.array(weights), "means": np.array(means), "covs": np.array(covs)}
    misses = model.closed.misses
    if misses is not None:
        beside = np.array([misses.seen, *misses.unit])
        found |= {"misses": misses.counts, "miss_scale": beside}
    return found


def mixture_in(arrays: Arrays) -> tuple[Gaussian, ...]:
    """Taken out of a file's arrays."""
    weights, means, covs = (arrays.pop(name, np.empty(0)) for name in ("weights", "means", "covs"))
    if not (weights.ndim == 1 and len(weights) == len(means) == len(covs)):
        raise ValueError(f"{len(weights)} weights for {len(means)} means")
    if not (weights > 0).all():
        raise ValueError("weights that are not positive")
    return tuple(Gaussian(float(w), m, C) for w, m, C in zip(weights, means, covs, strict=True))


def misses_in(arrays: Arrays) -> Misses | None:
    """Taken out of a file's arrays; None where there are none."""
    counts, beside = arrays.pop("misses", None), arrays.pop("miss_scale", np.empty(0))
    if counts is None:
        return None
    if not len(beside) == 1 + len(counts):
        raise ValueError(f"{len(beside)} numbers of {len(counts)} histograms")
    return Misses(counts, float(beside[0]), beside[1:]).checked()


def check(model: Model) -> None:
    """Shapes that belong together, numbers that can be reckoned with, known words."""
    n = len(model.classes)
    if model.loss not in LOSSES:
        raise ValueError(f"unknown loss {model.loss!r}")
    if (LOSSES[model.loss].kind == CLASSES) != (n > 0) or n == 1:
        raise ValueError(f"{n} classes with the {model.loss} loss")
    if len(model.targets) != model.outputs or len(set(model.targets)) < model.outputs:
        raise ValueError(f"targets {model.targets[:8]} of {model.outputs} columns")
    if model.coding is not None and model.coding.checked().columns != model.columns:
        raise ValueError("a coding of other columns")
    names, weights = {name for name, _ in model.kernels}, [v for _, v in model.kernels]
    sound = len(names) == len(weights) and min(weights, default=0.0) >= 0.0
    if not sound or (weights and not abs(sum(weights) - 1.0) < _SLACK):
        raise ValueError(f"kernels {model.kernels[:8]}: weights that are no shares")
    _check_shapes(model, LOSSES[model.loss].outputs(model.scaling.y_shift.size, n))
    misses, sharpness = model.closed
    if misses is not None:
        misses.checked()
    if sharpness is not None and not sharpness > 0:
        raise ValueError(f"sharpness {sharpness}")
    scaling = model.scaling
    scales = np.array([*scaling.x_scale, *scaling.y_scale, sharpness or 1.0])
    numbers = {"a scale": scales, "linear": np.array(model.features.linear)}
    for name, array in {**parts_of(model), **numbers}.items():
        if not (np.abs(array) < HUGE).all():
            raise ValueError(f"{name} is not finite, or above {HUGE}")
    if not (np.abs(scales) > 1 / HUGE).all():
        raise ValueError(f"a scale is zero, or below {1 / HUGE}")


def _check_shapes(model: Model, outputs: int) -> None:
    omega, phase = model.features.omega, model.features.phase
    empty = not omega.size and not (model.features.linear and len(model.made))
    if omega.ndim != 2 or empty or phase.ndim != 1:
        raise ValueError(f"omega has shape {omega.shape}, phase {phase.shape}")
    if model.features.size > WIDEST or outputs > OUTPUTS:
        most = f"expected {WIDEST} and {OUTPUTS} at most"
        raise ValueError(f"{model.features.size} features, {outputs} outputs: {most}")
    L, d, knots = len(omega), len(model.made), model.scaling.knots
    shifts = (outputs,) if LOSSES[model.loss].kind == NUMBERS or LOSSES[model.loss].codes else (1,)
    wanted = {
        "theta": (outputs, model.features.size),
        "omega": (L, d),
        "phase": (L,) if len(phase) else (0,),
        "x_shift": (d,),
        "x_scale": (d,),
        "y_shift": shifts,
        "y_scale": shifts,
        "knots": (2, d, len(SCORES)) if knots.size else NO_KNOTS.shape,
    }
    C = len(model.inputs_like)
    wanted |= {
        "weights": (C,),
        "means": (C, d),
        "covs": (C, d, d),
        "misses": (outputs, BINS),
        "miss_scale": (1 + outputs,),
    }
    for name, array in parts_of(model).items():
        if array.shape != wanted[name]:
            raise ValueError(f"{name} has shape {array.shape}, expected {wanted[name]}")
    if (np.diff(knots[0], axis=-1) < 0).any():
        raise ValueError("knots that do not rise")
