"""What is predicted, as it came: numbers, or labels of classes; or why it is neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coke.data.tables import Labels
from coke.errors import DataError
from coke.maths.arrays import Array
from coke.maths.losses import CLASSES, NUMBERS, losses_of

LABELS = 4096  # classes at most


def checked_classes(labels: Sequence[Any]) -> Labels:
    """The sorted labels of all sites; one class at one site is fine, one class in all is not."""
    classes = np.array(labels)
    if classes.dtype.kind == "f" and not np.equal(classes, np.round(classes)).all():
        raise DataError(
            f"the target has {len(classes)} values such as {classes[0]}: a class label is text or "
            f"a whole number; for numbers use loss = {_either(NUMBERS)}"
        )
    if len(classes) < 2:
        raise DataError(
            f"all rows have the one class {classes[0]!r}: expected at least two; a classifier "
            "with one class has nothing to learn"
        )
    return classes


def numbers_of(y: Labels) -> Array:
    """The target as numbers (T,) or (T, K), or why it is none."""
    if y.dtype.kind not in "fiub":
        raise DataError(
            f"the target holds {y.dtype}: expected numbers for loss = {_either(NUMBERS)}; "
            f"for class labels use loss = {_either(CLASSES)}"
        )
    return y.astype(np.float64)


def _either(kind: str) -> str:
    return " or ".join(f'"{name}"' for name in losses_of(kind))
