"""Class labels in a model file: every one comes back with its type, or is refused."""

from __future__ import annotations

import numpy as np

from coke.data.tables import Labels
from coke.errors import InputError

LABELS = (str, int, float, bool)  # what JSON gives back as it was


def plain_labels(classes: Labels) -> list[str | int | float | bool]:
    """The labels as Python's own, or `InputError` where a file would change them."""
    labels = [
        c.item() if isinstance(c, np.generic) and c.dtype.kind in "biufU" else c for c in classes
    ]
    for label in labels:
        if type(label) not in LABELS or label in (np.inf, -np.inf) or label != label:
            raise InputError(
                f"the class label {label!r} is of type {type(label).__name__}: a model file keeps "
                "text, whole and finite numbers, and booleans; train with such labels, for "
                "example y.astype(str)"
            )
    return labels


def label_array(labels: list[str | int | float | bool]) -> Labels:
    """An array in which every label keeps its type: text and mixed kinds as objects."""
    kinds = set(map(type, labels))
    kind = kinds.pop() if len(kinds) == 1 else object
    # NumPy's own text pads all labels to the longest, and drops a NUL at the end.
    if kind is str or (kind is int and any(abs(c) >= 2**63 for c in labels)):  # type: ignore[arg-type]
        kind = object
    return np.array(labels, dtype=kind) if labels else np.empty(0)
